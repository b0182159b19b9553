"""`SpatialMemory`: observations at places, with fading confidence, and tools for a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr

from agent_memory.core.forms import Form, Plain, Share
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Record, Scope, Span
from agent_memory.core.settings_model import Duration, Positive
from agent_memory.core.tools import Tool, tool, tools_of
from agent_memory.errors import ConfigError, InvalidInput
from agent_memory.ltm_blocks.base import Resources
from agent_memory.ltm_blocks.keyed_records import CollectionBlock
from agent_memory.ltm_blocks.spatial.handle import (
    MOST,
    Fading,
    SpatialHandle,
    SpatialMatch,
    rendered,
)
from agent_memory.ltm_blocks.versions import Versioned
from agent_memory.models.embedders.best_effort import BestEffort

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.ltm_blocks.spatial.search import PlaceIndex

_MOST = 50
_MOST_INDEXED = 200_000  # maximum number of cached observations of all owners
_QUERY = Field(default=None, max_length=2_000, description="The topic to search for, in words.")


def _rendered(matches: Sequence[SpatialMatch]) -> str:
    return json.dumps([_fields(match) for match in matches], ensure_ascii=False)


def _fields(match: SpatialMatch) -> dict[str, Any]:
    observation, far = match.observation, match.distance
    return {
        "id": observation.id,
        "text": observation.text,
        "position": list(observation.position),
        **({} if far is None else {"distance": float(f"{far:.6g}")}),
        "confidence": round(match.confidence, 2),
        "at": f"{observation.at:%Y-%m-%dT%H:%MZ}",
    }


class _StoredForm(Form):
    """The metadata of an observation's record."""

    position: Annotated[
        list[Annotated[float, Field(ge=-MOST, le=MOST)]], Field(min_length=2, max_length=3)
    ]
    confidence: Share
    metadata: Plain = Field(default_factory=dict)


class SpatialMemory(CollectionBlock):
    """A user's observations at places. A tool for models and `User.spatial` write them.

    Positions are plain numbers in a unit of your choice. Distances are Euclidean, so degrees of
    latitude and longitude do not work. An observation is deleted with its user, and with the
    session in which it was made.

    Attributes:
        dimensions: 2 for x and y, 3 for x, y and z.
        half_life: Time after which confidence has halved; None for no fading.
        min_confidence: Minimum current confidence of search results. Observations with a lower
            confidence stay stored.
        max_observations: Maximum number of observations of a user.
        max_chars: Maximum characters of an observation's text, and of its metadata as JSON.
    """

    versioned = True
    _stored_form = _StoredForm

    kind: Literal["spatial"] = "spatial"
    dimensions: Literal[2, 3] = 2
    half_life: Duration | None = timedelta(days=30)
    min_confidence: float = Field(default=0.05, ge=0, le=1)
    max_observations: Positive = 100_000
    max_chars: Positive = 4_000

    _embedder: BestEffort = PrivateAttr()
    _indexes: Versioned[PlaceIndex] = PrivateAttr()

    def bind(self, resources: Resources) -> Self:
        bound = super().bind(resources)
        bound._embedder = BestEffort(lambda: resources.embedders(None))
        bound._indexes = Versioned(bound._index_of, len, _MOST_INDEXED, least=1)
        return bound

    def open(self, scope: Scope) -> SpatialHandle:
        """Return the observations of a user, or of a session without a user."""
        return SpatialHandle(self._keyed(scope), self)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return the observations relevant to the message, best first.

        If the message's metadata has a "position", observations near that position are also
        relevant. Without text and position, return the newest observations.
        """
        if not scope.is_somebodys:
            return []
        now = datetime.now(UTC)
        matches = self.open(scope).bearing(message, limit)
        return [
            Recall(
                self.name,
                match.observation.id,
                rendered(match, now),
                match.score,
                created_at=match.observation.at,
                metadata={"position": list(match.observation.position)},
            )
            for match in matches
        ]

    def stored_records(self, scope: Scope) -> list[Recall]:
        return [
            Recall(
                self.name,
                observation.id,
                f"{observation.text} ({', '.join(f'{at:g}' for at in observation.position)})",
                created_at=observation.at,
            )
            for observation in self.open(scope).all()
        ]

    def forget(self, scope: Scope, what: str | Span, why: str) -> list[str]:
        """Forget an observation by its id. Spans have no effect: they cover messages only."""
        return [what] if isinstance(what, str) and self.open(scope).delete(what) else []

    def drop_caches(self, scope: Scope) -> None:
        self._indexes.drop(scope.owner)

    def validate_import(self, record: Record) -> Record:
        super().validate_import(record)
        dimensions = len(record.metadata["position"])
        if dimensions != self.dimensions:
            raise InvalidInput(
                f"block {self.name!r} has {self.dimensions} dimensions, the record has {dimensions}"
            )
        return record

    def tools(self) -> Sequence[Tool]:
        return tools_of(self, space=f"Positions have {self.dimensions} coordinates.")

    @tool(
        "{name}_observe",
        "Write down what is at a place. It can be found by its position later. {space}",
        ("write",),
    )
    def _observe(
        self,
        scope: Scope,
        text: str = Field(min_length=1, description="What was observed, in a few words."),
        position: list[float] = Field(
            description="The position: [x, y], or [x, y, z] in three dimensions."
        ),
        confidence: float = Field(default=1.0, ge=0, le=1, description="Certainty, from 0 to 1."),
    ) -> str:
        observation = self.open(scope).observe(text, position, confidence=confidence, key=scope.key)
        return json.dumps({"id": observation.id})

    @tool(
        "{name}_near",
        "Find observations near a position, best first: those that are near, still certain, and "
        "about the query, if any. {space}",
        ("read",),
    )
    def _near(
        self,
        scope: Scope,
        position: list[float] = Field(description="The position: [x, y], or [x, y, z]."),
        radius: float | None = Field(
            default=None, ge=0, description="The maximum distance. By default, any distance."
        ),
        k: int = Field(default=10, ge=1, le=_MOST, description="The maximum number of results."),
        query: str | None = _QUERY,
    ) -> str:
        return _rendered(self.open(scope).near(position, radius, k, query=query))

    @tool(
        "{name}_within",
        "Find observations in a box between two corners, best first: those that are still "
        "certain, and about the query, if any. {space}",
        ("read",),
    )
    def _within(
        self,
        scope: Scope,
        low: list[float] = Field(
            description="The lowest coordinates of the box: [x, y], or [x, y, z]."
        ),
        high: list[float] = Field(description="The highest coordinates of the box."),
        query: str | None = _QUERY,
    ) -> str:
        return _rendered(self.open(scope).within(low, high, query=query, limit=_MOST))

    def relevance(self, question: str, texts: Sequence[str]) -> np.ndarray:
        """Return for each text the probability that it is relevant to a question."""
        return self._embedder.index(texts).relevance(self._embedder.query(question))

    def _index_of(self, records: Sequence[Record]) -> PlaceIndex:
        from agent_memory.ltm_blocks.spatial.search import PlaceIndex

        for record in records:
            if (dimensions := len(record.metadata["position"])) != self.dimensions:
                raise ConfigError(
                    f"The block {self.name!r} has stored observations in {dimensions} "
                    f"dimensions, but `dimensions` is {self.dimensions}. Set it to {dimensions}, "
                    "or give the block another `name`."
                )
        half_life = None if self.half_life is None else self.half_life.total_seconds()
        return PlaceIndex(self.dimensions, Fading(half_life, self.min_confidence), records)
