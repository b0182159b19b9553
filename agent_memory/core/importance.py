"""How much a turn says, for trimming by importance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.core.records import Entry
from agent_memory.core.text import identifiers, names, terms
from agent_memory.core.transcript import told
from agent_memory.core.window import role_of, turns

_USER_FACTOR = 1.5


def importance(turn: Sequence[Entry]) -> float:
    """What a turn tells per token; a user's words count 1.5 times.

    An identifier counts 3, a name 2, another term 0.2.
    """
    score = 0.0
    for entry in turn:
        text = told(entry.message)
        weight = _USER_FACTOR if role_of(entry.message) == "user" else 1.0
        score += weight * (
            3 * len(identifiers(text)) + 2 * len(names(text)) + 0.2 * len(set(terms(text)))
        )
    return score / (sum(entry.tokens for entry in turn) + 10)


def most_important(
    entries: Sequence[Entry], tokens: int, messages: int | None = None
) -> tuple[int, ...]:
    """Seqs of the whole turns that say most and fit within the bounds, in order.

    Turns that no user message opens are passed over: a window must not begin with them.
    """
    opened = [turn for turn in turns(entries) if role_of(turn[0].message) == "user"]
    chosen: list[int] = []
    for turn in sorted(opened, key=importance, reverse=True):
        cost = sum(entry.tokens for entry in turn)
        if cost <= tokens and (messages is None or len(turn) <= messages):
            chosen += (entry.seq for entry in turn)
            tokens -= cost
            messages = None if messages is None else messages - len(turn)
    return tuple(sorted(chosen))
