"""Since when and until when a finding holds: by what was said, not what a model fills in. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.grounding import find
from agent_memory.ltm_blocks.extractive.history.periods import Period, day_of, parse
from agent_memory.ltm_blocks.extractive.history.phrases import meant
from agent_memory.ltm_blocks.extractive.history.sources import Said

_VAGUE = re.compile(
    r"\b(?:few|couple|several|some|recent(?:ly)?|lately|soon|while|ages|once|some ?day|one day"
    r"|these days|nowadays|in the past|long|in the future|eventually|later|before)\b"
)
_TIME = re.compile(
    r"\b(?:(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)|\d{1,2}[./-]\d{1,2}|ago|last|next|since|yesterday"
    r"|today|tonight|tomorrow|this|(?:week|month|year|day)(?:s|end|ends)?|morning|evening"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|jan(?:uary)?|feb(?:ruary)?|march|april|may|june"
    r"|july|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b"
)
_TODAY = re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening)|just|now|earlier)\b")

Times = tuple[datetime | None, datetime | None, str]


def times(one: Candidate, said: Said, shown: Sequence[Said]) -> Times:
    """Since when a finding holds, until when (that moment excluded), and words too vague for both.

    What the words mean by the calendar goes before the model's arithmetic, and where nobody told a
    time there is none. An event has a beginning and an end, or neither. An end before the
    beginning, and what is no date, count as not given.

    Args:
        one: The finding. Where it was not asked for the words, its dates are taken as they are.
        said: The message that it quotes.
        shown: All messages: the words may stand in another.
    """
    first, last = parse(one.since), parse(one.until)
    words = one.when
    if words is not None:
        told = next((by for by in (said, *shown) if words.strip() and find(words, by.text)), None)
        spoken = meant(words, told.entry.created_at) if told is not None else None
        if spoken is not None:
            goes_on = spoken.is_beginning or one.kind in ("state", "")
            first, last = spoken.period, last if goes_on else spoken.period
        elif not (_is_exact(words) if told is not None else _may_be_dated(said, first)):
            first = last = None
        words = words if told is not None and first is last is None else ""
    if one.kind == "event":
        first, last = first or last, last or first
    begin, end = (first[0] if first else None), (last[1] if last else None)
    if begin is not None and end is not None and end <= begin:
        end = first[1] if one.kind == "event" and first else None
    return begin, end, words or ""


def _is_exact(words: str) -> bool:
    return _VAGUE.search(words.casefold()) is None


def _may_be_dated(said: Said, first: Period | None) -> bool:
    """Whether a message tells a time; its own day is one only where it says so."""
    text = said.text.casefold()
    if first is not None and first[0] == day_of(said.entry.created_at):
        return bool(_TODAY.search(text))
    return bool(_TIME.search(text))
