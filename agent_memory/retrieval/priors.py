"""What speaks for or against a turn before its words are looked at. Pure.

In units of a blend that is between 0 and 1. They are guarded: a long turn gains nothing by being
long, and only short ones are taken for mere questions. Without these guards what was found on
people chatting in short turns collapses on long answers of assistants.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from agent_memory.retrieval.dates import dates
from agent_memory.retrieval.features import Turn
from agent_memory.retrieval.languages import persons
from agent_memory.retrieval.telling import FULL, only_asks
from agent_memory.retrieval.words import words_up_to

_MEANT_SPEAKER = 0.15
_OF_ONESELF = 0.25
_MEANT_CONVERSATION = 0.1
_MEANT_DATE = 0.15
_NEIGHBOUR = 0.2
_NEAR = (-2, -1, 1, 2)
_SAYS_LITTLE = 0.3
_ONLY_ASKS = 0.1

_MOST_KNOWN = 4_000

# of English, where "i" is also a name for much else
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|me|my|mine|myself)\b")
_SECOND_PERSON = re.compile(r"\byou(?:r|rs)?\b", re.IGNORECASE)


def priors(question: str, turns: Sequence[Turn]) -> np.ndarray:
    """What is to be added to each turn's blend."""
    against = np.array([_against(turn.text) for turn in turns], np.float32)
    said = _meant(question, turns)
    if named := dates(question):
        there = [any(date.holds(turn.said_at) for date in named) for turn in turns]
        said = said + _MEANT_DATE * np.array(there, np.float32)
    return np.asarray(said - against, np.float32)


@lru_cache(_MOST_KNOWN)
def _against(text: str) -> float:
    """What a text loses by saying little, or by only asking."""
    short = _SAYS_LITTLE * (FULL - words_up_to(FULL, text)) / FULL
    return short + _ONLY_ASKS if only_asks(text) else short


def of_conversation(scores: np.ndarray, conversations: Sequence[str]) -> np.ndarray:
    """What is to be added for the conversation that a turn is of: most for that of the best.

    Args:
        scores: The turns' blends and priors.
        conversations: For each turn, which it is of.
    """
    best: dict[str, float] = {}
    for conversation, score in zip(conversations, scores.tolist(), strict=True):
        best[conversation] = max(score, best.get(conversation, 0.0))
    most = max(best.values(), default=0.0)
    shares = [best[one] / most if most > 0 else 0.0 for one in conversations]
    return np.array(shares, np.float32) * _MEANT_CONVERSATION


def of_neighbours(scores: np.ndarray, places: Sequence[tuple[str, int]]) -> np.ndarray:
    """What is to be added for the best of the two turns before it and the two after.

    Args:
        scores: The turns' scores.
        places: For each turn, its session and its number there.
    """
    best: dict[tuple[str, int], float] = {}
    for place, score in zip(places, scores.tolist(), strict=True):
        best[place] = max(score, best.get(place, 0.0))
    near = [
        max([best.get((session, seq + step), 0.0) for step in _NEAR]) for session, seq in places
    ]
    return np.array(near, np.float32) * _NEIGHBOUR


def _meant(question: str, turns: Sequence[Turn]) -> np.ndarray:
    """For turns of whom is meant: of a speaker who is named, or of a user who asks of himself.

    Of himself, and not of what he was told: then it may be the assistant's turn that he wants.
    """
    asked = set(re.findall(r"\w+", question.casefold()))
    named = {
        speaker
        for speaker in {turn.speaker for turn in turns}
        if set(speaker.casefold().split()[:1]) & asked
    }
    if named:
        return _MEANT_SPEAKER * np.array([turn.speaker in named for turn in turns], np.float32)
    first, second = persons(question)
    if not (first or _FIRST_PERSON.search(question)):
        return np.zeros(len(turns), np.float32)
    worth = _MEANT_SPEAKER if second or _SECOND_PERSON.search(question) else _OF_ONESELF
    return worth * np.array([turn.is_user for turn in turns], np.float32)
