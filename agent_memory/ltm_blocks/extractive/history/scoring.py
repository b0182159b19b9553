"""`ImportanceScorer`: one score of what speaks for recalling a fact."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field


class ImportanceScorer(BaseModel):
    """The weighted mean of six factors between 0 and 1; a weight of 0 leaves one out.

    After the retrieval of Park et al., "Generative Agents", 2023 (relevance, recency, importance),
    with what a log knows in place of what a model guesses.

    Attributes:
        relevance: Weight of the probability that the fact has to do with the question.
        recency: Weight of how lately it was last said: halves every `half_life_days`.
        use: Weight of how often it came up: log2(1 + messages that say it) / 4, 1 at most.
        confidence: Weight of how sure the model was that found it.
        recalled: Weight of how often contexts had it: log2(1 + times) / 4, 1 at most. Counting that
            is a write with each context.
        distinct: Weight of how rare its words are among the user's facts, 1 at most.
        half_life_days: Days after which recency has halved.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    relevance: float = Field(default=1.0, ge=0)
    recency: float = Field(default=0.1, ge=0)
    use: float = Field(default=0.05, ge=0)
    confidence: float = Field(default=0.1, ge=0)
    recalled: float = Field(default=0.0, ge=0)
    distinct: float = Field(default=0.0, ge=0)
    half_life_days: float = Field(default=90.0, gt=0)

    def factors(
        self,
        relevance: float,
        age_days: float,
        mentions: int,
        confidence: float,
        recalled: int = 0,
        distinct: float = 0.0,
    ) -> dict[str, float]:
        """What each factor adds to the score, by its name.

        Args:
            relevance: 0 to 1.
            age_days: Days since the fact was last said.
            mentions: Messages that say it.
            confidence: 0 to 1.
            recalled: Contexts that had it.
            distinct: 0 to 1.
        """
        values = {
            "relevance": relevance,
            "recency": 0.5 ** (max(0.0, age_days) / self.half_life_days),
            "use": min(1.0, math.log2(1 + mentions) / 4),
            "confidence": confidence,
            **({"recalled": min(1.0, math.log2(1 + recalled) / 4)} if self.recalled else {}),
            **({"distinct": distinct} if self.distinct else {}),
        }
        whole = sum(getattr(self, name) for name in values)
        return {
            name: getattr(self, name) * value / whole if whole else 0.0
            for name, value in values.items()
        }

    def score(
        self, relevance: float, age_days: float = 0.0, mentions: int = 1, confidence: float = 1.0
    ) -> float:
        """The sum of `factors`."""
        return sum(self.factors(relevance, age_days, mentions, confidence).values())
