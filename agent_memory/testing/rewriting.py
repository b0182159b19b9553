"""Contract tests for rewriting a log from a seq on; see `agent_memory.testing.contract`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Summary
from agent_memory.stores.base import Counts, Store
from agent_memory.testing.contract import (
    DAY,
    Contract,
    draft,
    seqs_of,
    stored,
    texts_of,
    together,
)


def entries(first: int, last: int, suffix: str = "", total: int = 0) -> list[Entry]:
    """Return entries as if read from another store: one for each day, each with 3 tokens.

    `total` is the running total of tokens before the first entry.
    """
    return [
        Entry(
            "s",
            seq,
            Message(role="user", content=f"{seq}{suffix}", created_at=DAY + timedelta(seq)),
            3,
            total + 3 * (seq - first + 1),
            "elsewhere",
            DAY + timedelta(seq),
        )
        for seq in range(first, last + 1)
    ]


def begun(**fields: Any) -> Head:
    """Return the head of a session to be imported."""
    return replace(Head("s", "u", created_at=DAY), **fields)


def _again(entry: Entry) -> Entry:
    message = Message(role="user", content=f"{entry.message.text()}+", created_at=DAY)
    return replace(entry, message=message, created_at=DAY)


class RewriteContract(Contract):
    """Contract of a `SessionStore` for rewriting a log from a seq on."""

    def test_an_import_keeps_seqs_times_and_totals(self, store: Store, other: Store) -> None:
        """Wrong: an import changes a session's seqs, times or totals."""
        summary = Summary("so far", 6, 3, "local", redo_after=0)
        system = Message(role="system", content="rules", created_at=DAY)
        head = begun(
            start=4, start_total=12, pinned=(2,), pinned_tokens=3, system=system,
            system_tokens=4, summary=summary, cursors={"vector": 7},
        )  # fmt: skip
        log = entries(1, 40)
        written = store.rewrite(head, 0, log)
        assert written == replace(head, end=40, total=120, version=1)
        assert stored(other) == written
        for handle in (store, other):
            assert handle.read("s") == log
            assert handle.pick("s", [1, 40]) == [log[0], log[-1]]
        assert store.counts() == Counts(sessions=1, entries=40)
        assert [head.session_id for head in other.sessions(user_id="u")] == ["s"]
        assert [head.session_id for head in other.due()] == ["s"]
        grown = other.append("s", [draft("more", 5)], "u")
        assert (grown.end, grown.total, grown.created_at) == (41, 125, DAY)
        assert store.append("s", [draft("again", 5)]).end == 42

    def test_one_of_several_concurrent_imports_succeeds(self, store: Store, other: Store) -> None:
        """Wrong: two concurrent imports of a session mix their logs."""
        handles = [store, other] * 3
        calls = [
            partial(handle.rewrite, begun(cursors={"n": n}), 0, entries(1, 5, f" by {n}"))
            for n, handle in enumerate(handles)
        ]
        (winner,) = [head for head in together(calls) if head is not None]
        assert winner == stored(store)
        assert texts_of(other) == [f"{seq} by {winner.cursors['n']}" for seq in range(1, 6)]

    def test_concurrent_appends_and_rewrites_lose_nothing(self, store: Store, other: Store) -> None:
        """Wrong: a rewrite removes a message that was appended meanwhile, or seqs have gaps."""
        store.append("s", [draft("first")])

        def append(handle: Store, name: str) -> None:
            for n in range(15):
                handle.append("s", [draft(f"{name}{n}"), draft(f"{name}{n}!")])

        def rewrite(handle: Store) -> None:
            for _ in range(15):
                head = stored(handle)
                after = max(head.end - 3, 0)
                log = handle.read("s", after=after, limit=head.end - after)
                handle.rewrite(head, after, [_again(entry) for entry in log])

        writers = [partial(append, handle, name) for handle, name in ((store, "a"), (other, "b"))]
        together([*writers, partial(rewrite, store), partial(rewrite, other)])
        log = store.read("s")
        assert seqs_of(log) == list(range(1, 62))
        assert [entry.total for entry in log] == list(range(3, 186, 3))
        assert sorted(text.rstrip("+") for text in texts_of(store)) == sorted(
            ["first", *(f"{name}{n}{end}" for name in "ab" for n in range(15) for end in ("", "!"))]
        )
        assert (stored(other).end, stored(other).total) == (61, 183)
