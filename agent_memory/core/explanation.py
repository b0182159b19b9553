"""`Explanation`: what is recalled for a question, what is not, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent_memory.core.context import MemoryContext
from agent_memory.core.reasons import reason
from agent_memory.core.records import DeadLetter, LeftOut, Recall

_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a context holds for a question, and what was left out; `print` shows it whole.

    Attributes:
        question: The question.
        context: What `get` gives for it.
        left_out: What blocks know that is near to the question and is not in the context, with the
            why: below a floor, not in force any more, no room, said elsewhere, shown by the window.
        dead_letters: The user's messages that a block gave up: it knows nothing of them.
        warnings: What waits to be absorbed, blocks that failed, and a session of another user.
    """

    question: str
    context: MemoryContext
    left_out: list[LeftOut]
    dead_letters: list[DeadLetter]
    warnings: list[str]

    @property
    def recalls(self) -> list[Recall]:
        """What is recalled, best first."""
        return self.context.recalls

    def __str__(self) -> str:
        recalled = [_line(recall, reason(recall)) for recall in self.recalls]
        left_out = [_line(one.recall, one.why) for one in self.left_out]
        return "\n".join(
            [
                f"Question: {self.question}",
                *_part("Recalled", recalled),
                *_part("Left out", left_out),
                *_part("Given up", map(str, self.dead_letters)),
                *_part("Warnings", self.warnings),
            ]
        )


def left_out_of(
    found: Iterable[Recall],
    merged: Iterable[Recall],
    bearing: Iterable[Recall],
    context: MemoryContext,
) -> list[LeftOut]:
    """What blocks recalled for a context that is not in it, with the why. Pure.

    Args:
        found: What they recalled.
        merged: What was left of it once what says the same was folded.
        bearing: What was left of that to choose from.
        context: What was chosen.
    """
    kept = {(one.block, one.id) for one in merged}
    near = {(one.block, one.id) for one in bearing}
    chosen = {(one.block, source) for one in context.recalls for source in one.sources}
    chosen_ids = {(one.block, one.id) for one in context.recalls}
    out = []
    for one in found:
        sources = {(one.block, source) for source in one.sources}
        if (one.block, one.id) in chosen_ids or (sources and sources <= chosen):
            continue
        why = "there was no room"
        if (one.block, one.id) not in kept:
            why = "the window shows it, or another says the same"
        elif (one.block, one.id) not in near:
            why = "it has much less to do with the question than the best"
        out.append(LeftOut(one, why))
    return out


def _part(title: str, lines: Iterable[str]) -> list[str]:
    return [f"{title}:", *([f"  {line}" for line in lines] or ["  nothing"])]


def _line(recall: Recall, why: str) -> str:
    text = " ".join(str(recall).split())
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"
    place = ", ".join(f"{session} #{seq}" for session, seq in recall.sources)
    return f"{recall.block}: {short}" + (f" ({place})" if place else "") + f": {why}"
