"""What came out of a conversation, held against its oracle. Pure: counts, to be added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent_memory.core.text import STOP_WORDS
from benchmarks.oracles import Sign, Told, Turns
from benchmarks.wording import alike, dates, plain, says

VIEWS = ("facts", "messages", "both")
"""What a context is made of: facts alone, messages alone, or both."""


@dataclass(frozen=True)
class Found:
    """A fact that came out.

    Attributes:
        text: What it says.
        begin: Since when it held; None where that is not known.
        end: Until when, that moment excluded.
        turns: What it rests on.
        current: Whether it is current at the end.
    """

    text: str
    begin: datetime | None
    end: datetime | None
    turns: Turns
    current: bool

    @property
    def dates(self) -> list[str]:
        """All days that it tells: when it begins, its last day, and those in its text."""
        last = self.end and self.end - timedelta(days=1)
        return [f"{one:%Y-%m-%d}" for one in (self.begin, last) if one] + dates(self.text)


@dataclass(frozen=True)
class Context:
    """What a model was shown for a question: the text, and the turns that it rests on."""

    text: str
    turns: Turns


@dataclass
class Judged:
    """Counts by name, and sentences on what is amiss."""

    counts: Counter[str] = field(default_factory=Counter)
    amiss: list[str] = field(default_factory=list)

    def share(self, of: str, among: str) -> float | None:
        """In percent; None where there is nothing to have a share of."""
        return 100 * self.counts[of] / self.counts[among] if self.counts[among] else None


def judge(told: Told, found: Sequence[Found], contexts: Sequence[Mapping[str, Context]]) -> Judged:
    """Count.

    Args:
        told: The conversation.
        found: All facts, those that are superseded too.
        contexts: For each question, what was shown under each of `VIEWS`.
    """
    judged = Judged()
    counts, amiss = judged.counts, judged.amiss
    current = [one for one in found if one.current]
    behind = frozenset().union(*(one.turns for one in found))
    counts["messages"] = sum(map(len, told.sessions.values()))
    counts["facts"], counts["current"] = len(found), len(current)
    counts["evidence"] = len(told.evidence)
    counts["evidence behind"] = len(told.evidence & behind)
    for sign in told.facts:
        fitting = [one for one in found if sign.fits(one.text)]
        counts["expected"] += 1
        counts["expected found"] += bool(fitting)
        if not fitting:
            amiss.append(f"not found: {_shown(sign)}")
        elif sign.date is not None:
            counts["dated" if sign.date != "none" else "dateless"] += 1
            if verdict := _dating(sign.date, fitting):
                counts[verdict] += 1
                if verdict != "date right":
                    amiss.append(f"{verdict}: {_shown(sign)}, not {fitting[0].dates or 'none'}")
    for name, signs, those in (("never", told.never, found), ("gone", told.gone, current)):
        for sign in signs:
            wrong = [one.text for one in those if sign.fits(one.text)]
            counts[name] += 1
            counts[f"{name} there"] += bool(wrong)
            amiss += [f"{name}, {sign.why}: {text}" for text in wrong]
    again = _duplicates(current, told.facts)
    counts["duplicates"] = len(again)
    amiss += [f"said twice: {text}" for text in again]
    for (question, answer, evidence), shown in zip(told.questions, contexts, strict=True):
        counts["questions"] += 1
        counts["answers known"] += bool(answer)
        right = {view for view in VIEWS if answer and _answers(answer, shown[view].text)}
        for view in VIEWS:
            counts[f"answered by {view}"] += view in right
            counts[f"evidence in {view}"] += evidence <= shown[view].turns
        counts["answered by either"] += bool(right & {"facts", "messages"})
        if answer and "both" not in right:
            amiss.append(f"not answered by both: {question}")
    return judged


def _answers(answer: Sequence[str], text: str) -> bool:
    return all(says(text, one) for one in answer)


def _dating(date: str, fitting: Sequence[Found]) -> str:
    """What is to be said of the date of facts; the best of them counts."""
    if date == "none":
        return "date invented" if all(one.dates for one in fitting) else ""
    told = [day for one in fitting for day in one.dates]
    if any(day.startswith(date) for day in told):
        return "date right"
    return "date wrong" if told else "date missing"


def _duplicates(current: Sequence[Found], expected: Sequence[Sign]) -> list[str]:
    """The facts that say again what another says: in nearly the same words, or of a thing that the
    oracle knows for one that is said more than once."""
    words = [frozenset(plain(one.text).strip(".").split()) - STOP_WORDS for one in current]
    again: set[int] = {
        place
        for place, one in enumerate(words)
        if any(alike(one, other) for other in words[:place])
    }
    for sign in expected:
        fitting = [place for place, one in enumerate(current) if sign.fits(one.text)]
        if sign.again and fitting:
            first = current[fitting[0]].turns
            again |= {place for place in fitting if not current[place].turns & first}
    return [current[place].text for place in sorted(again)]


def _shown(sign: Sign) -> str:
    date = f" ({sign.date})" if sign.date else ""
    return " ".join(sign.keywords) + date
