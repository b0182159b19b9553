"""Ranking the turns of conversations for a question.

The views, their weights and the priors are those that held on every kind of conversation they were
tried on, short turns between people and long answers of assistants alike. Each view is divided by
its best score, so that a clear winner stays one; ranks alone, as reciprocal rank fusion takes them,
would throw that away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from agent_memory.ranking.bm25 import BM25
from agent_memory.ranking.dates import dates
from agent_memory.ranking.surroundings import surrounded
from agent_memory.ranking.words import words, words_of

_OWN = 0.15
_SURROUNDED = 0.30

_MEANT_SPEAKER = 0.15
_MEANT_DATE = 0.15
_FULL = 12  # words of a turn that says enough to be an answer
_SAYS_LITTLE = 0.3
_ONLY_ASKS = 0.1

_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|me|my|mine|myself)\b")


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said.

    Attributes:
        speaker: A name, or a role.
        text: What was said.
        said_at: When.
        is_user: Whether a user said it, rather than an assistant.
    """

    speaker: str
    text: str
    said_at: datetime
    is_user: bool


class Turns:
    """The turns of some conversations, ready to be searched.

    Args:
        conversations: The turns of each, in order.
    """

    def __init__(self, conversations: Iterable[Sequence[Turn]]) -> None:
        self._turns: list[Turn] = []
        own: list[list[str]] = []
        within: list[list[str]] = []
        for turns in conversations:
            written = [f"{turn.speaker}: {turn.text}".split() for turn in turns]
            for place, turn in enumerate(turns):
                day = f"{turn.said_at:%d %B %Y}".split()
                own.append(_words([*day, *written[place]]))
                within.append(_words([*day, *surrounded(written, place)]))
            self._turns += turns
        self._own, self._within = BM25(own), BM25(within)
        self._said = np.array([len(words(turn.text)) for turn in self._turns], np.float32)
        ends = [turn.text.rstrip().endswith(("?", "\uff1f")) for turn in self._turns]
        self._asks = np.array(ends, bool) & (self._said < _FULL)

    def scores(self, question: str) -> np.ndarray:
        """For each turn, in order, how much it bears on a question.

        0 and below: not at all. The blend of the views is between 0 and 1, the priors come on top.
        """
        asked = words(question)
        views = ((_OWN, self._own.scores(asked)), (_SURROUNDED, self._within.scores(asked)))
        whole = sum(weight for weight, _ in views)
        blend = np.zeros(len(self._turns), np.float32)
        for weight, scores in views:
            best = scores.max(initial=0.0)
            if best > 0:
                blend += weight / whole * scores / best
        return np.where(blend > 0, blend + self._priors(question), 0.0)

    def _priors(self, question: str) -> np.ndarray:
        short = np.maximum(0.0, _FULL - self._said) / _FULL
        priors = -_SAYS_LITTLE * short - _ONLY_ASKS * self._asks
        named = dates(question)
        if named:
            there = [any(date.holds(turn.said_at) for date in named) for turn in self._turns]
            priors = priors + _MEANT_DATE * np.array(there, np.float32)
        return priors + _MEANT_SPEAKER * self._meant(question)

    def _meant(self, question: str) -> np.ndarray:
        """Whose turns are meant: a speaker's who is named, or a user's who asks of himself."""
        asked = set(re.findall(r"\w+", question.casefold()))
        named = {
            speaker
            for speaker in {turn.speaker for turn in self._turns}
            if set(speaker.casefold().split()[:1]) & asked
        }
        if named:
            return np.array([turn.speaker in named for turn in self._turns], np.float32)
        if _FIRST_PERSON.search(question):
            return np.array([turn.is_user for turn in self._turns], np.float32)
        return np.zeros(len(self._turns), np.float32)


def _words(written: Sequence[str]) -> list[str]:
    return [word for one in written for word in words_of(one)]
