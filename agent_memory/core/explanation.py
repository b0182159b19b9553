"""`Explanation`: which records are recalled for a question, which are not, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_memory.core.context import MemoryContext
from agent_memory.core.records import DeadLetter, Entry, Head, LeftOut, Recall, Source

_NEAR, _NEARER = 0.16, 0.32
_SOME, _MOST, _ALL = 0.02, 0.1, 0.19
_WORDS = 0.6
_LESS = -0.1
# The terms of `retrieval.score` in `Recall.views`, each with its weight.


def reason(recall: Recall) -> str:
    """Return the reasons for and against a recall.

    An example: "98 % likely: close in meaning, said by who is meant". For a recall without a
    relevance, return its score.
    """
    views = recall.views
    if recall.relevance is None:
        return f"score {recall.score:.2f}"
    reasons = [*_meaning(views), *_words(views)]
    if views.get("meant", 0) > 0:
        reasons.append("said by who is meant")
    if views.get("dated", 0) > 0:
        reasons.append("said in the time that is asked about")
    if views.get("long", 0) < _LESS:
        reasons.append("though it is long")
    if views.get("asks", 0) < _LESS:
        reasons.append("though it asks itself")
    likely = f"{min(99, round(100 * recall.relevance))} % likely"
    return f"{likely}: {', '.join(reasons)}" if reasons else likely


def _meaning(views: Mapping[str, float]) -> list[str]:
    if "unread" in views:
        return ["by its words alone, as long as it has no vector"]
    near = views.get("meaning", 0)
    if near >= _NEARER:
        return ["close in meaning"]
    return ["somewhat close in meaning"] if near >= _NEAR else []


def _words(views: Mapping[str, float]) -> list[str]:
    covered = views.get("coverage_around", 0)
    for least, share in ((_ALL, "all"), (_MOST, "most"), (_SOME, "some")):
        if covered >= least:
            return [f"it or its neighbours have {share} of the question's words"]
    return ["has words like the question's"] if views.get("words", 0) >= _WORDS else []


_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Explanation:
    """The context for a question, and the records that were left out. `print` shows all of it.

    Attributes:
        question: The question.
        context: The context that `get` returns for the question.
        left_out: Records near to the question that are not in the context, each with a reason. It
            is below a threshold, no longer valid, without room, a near-duplicate, or shown by the
            window.
        dropped: Messages of the session that the context does not show whole, by number. They left
            the window, or the window shortens, clears or omits them. Messages that the summary or
            a recall covers are named.
        dead_letters: The user's messages that a block gave up. The block knows nothing of them.
        warnings: Pending messages, blocks that failed, and a session of another user.
    """

    question: str
    context: MemoryContext
    left_out: list[LeftOut]
    dropped: list[str]
    dead_letters: list[DeadLetter]
    warnings: list[str]

    @property
    def recalls(self) -> list[Recall]:
        """Return the recalls, best first."""
        return self.context.recalls

    def __str__(self) -> str:
        recalled = [_line(recall, reason(recall)) for recall in self.recalls]
        left_out = [_line(item.recall, item.why) for item in self.left_out]
        return "\n".join(
            [
                f"Question: {self.question}",
                *_part("Recalled", recalled),
                *_part("Left out", left_out),
                *_part("Not shown whole, by number", self.dropped),
                *_part("Given up", map(str, self.dead_letters)),
                *_part("Warnings", self.warnings),
            ]
        )


def dropped_of(
    head: Head | None, window: Iterable[Entry], shown: Collection[Source], recalls: Iterable[Recall]
) -> list[str]:
    """Describe the messages of a session that a context does not show whole. Pure.

    Args:
        head: The session's head; None for a new session.
        window: The session's window.
        shown: Sources of the messages that are shown whole.
        recalls: The recalls of the context.
    """
    if head is None:
        return []
    own = {seq for session, seq in shown if session == head.session_id}
    left = [seq for seq in range(head.expired + 1, head.start + 1) if seq not in own]
    upto = head.summary.upto if head.summary is not None else 0
    recalled = {
        seq for one in recalls for session, seq in one.sources if session == head.session_id
    }
    parts = {
        "left the window": left,
        "of these in the summary": [seq for seq in left if seq <= upto],
        "of these recalled": [seq for seq in left if seq in recalled],
        "of these in neither": [seq for seq in left if seq > upto and seq not in recalled],
        "in the window, but a stub, shortened or left out": [
            one.seq for one in window if one.seq not in own and not one.message.is_system
        ],
    }
    return [f"{how}: {_numbers(seqs)}" for how, seqs in parts.items() if seqs]


def left_out_of(
    recalled: Iterable[Recall],
    merged: Iterable[Recall],
    relevant: Iterable[Recall],
    context: MemoryContext,
) -> list[LeftOut]:
    """Return the recalls that are not in a context, each with the reason. Pure.

    Args:
        recalled: The recalls of all blocks.
        merged: The recalls that remain after near-duplicates were merged.
        relevant: The merged recalls that are relevant enough.
        context: The context, with the chosen recalls.
    """
    merged_ids = {(one.block, one.id) for one in merged}
    relevant_ids = {(one.block, one.id) for one in relevant}
    chosen = {(one.block, source) for one in context.recalls for source in one.sources}
    chosen_ids = {(one.block, one.id) for one in context.recalls}
    out = []
    for one in recalled:
        sources = {(one.block, source) for source in one.sources}
        if (one.block, one.id) in chosen_ids or (sources and sources <= chosen):
            continue
        why = "there was no room"
        if (one.block, one.id) not in merged_ids:
            why = "the window shows it, or another says the same"
        elif (one.block, one.id) not in relevant_ids:
            why = "it has much less to do with the question than the best"
        out.append(LeftOut(one, why))
    return out


def _numbers(seqs: Sequence[int]) -> str:
    """Return ascending numbers as runs: "1 to 3, 7"."""
    runs: list[list[int]] = []
    for seq in seqs:
        if runs and seq == runs[-1][1] + 1:
            runs[-1][1] = seq
        else:
            runs.append([seq, seq])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)


def _part(title: str, lines: Iterable[str]) -> list[str]:
    return [f"{title}:", *([f"  {line}" for line in lines] or ["  nothing"])]


def _line(recall: Recall, why: str) -> str:
    text = " ".join(str(recall).split())
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"
    place = ", ".join(f"{session} #{seq}" for session, seq in recall.sources)
    return f"{recall.block}: {short}" + (f" ({place})" if place else "") + f": {why}"
