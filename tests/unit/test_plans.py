"""Edits of logs: every plan leaves a consistent log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Span, Summary
from agent_memory.core.redaction import DELETED, stands_nowhere
from agent_memory.core.window import begun_anew, ruled
from agent_memory.engine.edit.plans import LogEdit, agreeing, answered, listed, popped, redacted
from agent_memory.errors import InvalidInput, UnsupportedOperation
from agent_memory.stores.kernel.log import entries_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CURSORS = ("none", "some", "all")


@dataclass(frozen=True)
class Session:
    """A session in a store: its head and the rest of its log."""

    head: Head
    log: list[Entry]

    def read(self, after: int, upto: int) -> list[Entry]:
        return [entry for entry in self.log if after < entry.seq <= upto]

    @property
    def messages(self) -> list[Message]:
        return [entry.message for entry in self.log]

    def edited(self, edit: LogEdit) -> Session:
        """Return the session as a store would have it after an edit."""
        assert edit.before == self.head
        log = [*self.read(0, edit.end), *edit.entries]
        end, total = (log[-1].seq, log[-1].total) if log else (0, 0)
        version = edit.after.version + 1
        return Session(replace(edit.after, end=end, total=total, version=version), log)

    def check(self) -> None:
        """Assert that the log and its head agree."""
        head, log = self.head, self.log
        assert [entry.seq for entry in log] == list(range(head.expired + 1, head.end + 1))
        for before, entry in pairwise(log):
            assert entry.before == before.total
        assert head.expired <= head.start <= head.end
        shown = sum(entry.counted for entry in self.read(head.start, head.end))
        pinned = sum(entry.counted for entry in log if entry.seq in head.pinned)
        assert head.pinned_tokens == pinned
        assert head.window_tokens == shown + pinned
        assert all(seq <= head.start for seq in head.pinned)
        assert all(cursor <= head.end for cursor in head.cursors.values())
        if head.summary is not None:
            assert head.summary.upto <= head.start


def message(text: str, role: str = "user", by: str = "ben") -> Message:
    return Message(role=role, content=text, metadata={"agent": by}, created_at=NOW)


def drafted(messages: Sequence[Message]) -> list[Draft]:
    return [Draft(one, len(one.text()) + 3, "test") for one in messages]


def is_anns(one: Message | None) -> bool:
    return one is not None and one.metadata.get("agent") == "ann"


MESSAGES = st.lists(
    st.builds(
        message,
        st.sampled_from(["a", "bb", "ccc"]),
        st.sampled_from(["user", "user", "assistant", "system"]),
        st.sampled_from(["ann", "ben", "ben"]),
    ),
    max_size=9,
)


@st.composite
def sessions(draw: st.DrawFn, least: int = 0) -> Session:
    """Generate sessions whose beginning may have expired and whose window may begin anywhere."""
    said = draw(MESSAGES.filter(lambda found: len(found) >= least))
    entries = entries_after("s", 0, 0, drafted(said))
    end, total = len(entries), entries[-1].total if entries else 0
    head = replace(
        Head("s", draw(st.sampled_from([None, "u"])), created_at=NOW), end=end, total=total
    )
    head = ruled(head, entries)
    expired = draw(st.integers(0, max(0, end - 1)))
    start = draw(st.integers(expired, max(expired, end - 1)))
    log = entries[expired:]
    head = replace(head, expired=expired, version=draw(st.integers(1, 5)))
    head = begun_anew(head, log[0] if log else None)
    if start > expired:
        turns = [one for one in log if one.seq <= start and not one.message.is_system]
        pinned = draw(st.sampled_from(turns)) if turns and draw(st.booleans()) else None
        head = replace(
            head,
            start=start,
            start_total=entries[start - 1].total,
            pinned=(pinned.seq,) if pinned else (),
            pinned_tokens=pinned.tokens if pinned else 0,
            summary=Summary("what was said", 3, draw(st.integers(expired, start)), "model"),
        )
    cursors = {name: draw(st.integers(0, end)) for name in draw(st.sets(st.sampled_from(CURSORS)))}
    session = Session(replace(head, cursors=cursors), log)
    session.check()
    return session


def system_of(session: Session) -> str | None:
    system = session.head.system
    return system.text() if system else None


def last_system(messages: Sequence[Message]) -> str | None:
    """Return the text of the last system messages that are adjacent and by the same agent."""
    runs = groupby(messages, key=lambda one: one.is_system and one.metadata["agent"])
    *_, last = [None, *([one.text() for one in run] for by, run in runs if by)]
    return last and "\n\n".join(dict.fromkeys(last))


def after(session: Session, edit: LogEdit) -> Session:
    """Return the checked session after an edit, with cursors moved as the engine does."""
    names = session.head.cursors
    cursors = {n: 0 if n in edit.anew else min(c, edit.end) for n, c in names.items()}
    edit = replace(edit, after=replace(edit.after, cursors=cursors))
    done = session.edited(edit)
    done.check()
    assert done.read(0, edit.end) == session.read(0, edit.end)
    assert edit.since <= edit.end
    return done


@given(sessions(), st.integers(-1, 12))
def test_a_pop_takes_the_newest(session: Session, count: int) -> None:
    """Wrong: a pop removes other messages, or all of a log that has partly expired."""
    if session.head.expired and len(session.log) == 1 and count > 0:
        with pytest.raises(UnsupportedOperation):
            popped(count)(session.head, session.read)
        return
    edit = popped(count)(session.head, session.read)
    most = len(session.log) - (1 if session.head.expired else 0)
    taken = max(0, min(count, most))
    if edit is None:
        assert taken == 0
        return
    assert list(edit.taken) == session.log[-taken:]
    done = after(session, edit)
    assert done.log == session.log[:-taken]
    assert not edit.only_adds
    assert edit.anew == frozenset()
    if any(entry.message.is_system for entry in edit.taken):
        assert system_of(done) == last_system(done.messages)
    else:
        assert system_of(done) == system_of(session)
    if session.head.start >= edit.end:
        assert (done.head.start, done.head.summary) == (session.head.expired, None)
    else:
        assert done.head.summary == session.head.summary


@given(sessions(least=1), st.data(), MESSAGES)
def test_an_answer_takes_the_place_of_what_followed(
    session: Session, data: st.DataObject, said: list[Message]
) -> None:
    """Wrong: a new answer replaces too much or too little, or loses system messages."""
    first = data.draw(st.sampled_from([entry.seq for entry in session.log]))
    question = session.read(first - 1, first)[0].message
    part = Span("s", first, session.head.end)
    plan = answered(part, question, drafted(said))
    edit = plan(session.head, session.read)
    assert edit is not None
    done = after(session, edit)
    rules = [one for one in session.messages[first - session.head.expired :] if one.is_system]
    begun = [entry.message for entry in session.read(0, first)]
    assert done.messages == [*begun, *rules, *said]
    if any(one.is_system for one in said):
        assert system_of(done) == last_system(said)
    else:
        assert system_of(done) == system_of(session)
    assert edit.only_adds == (first == session.head.end)
    for other in (replace(session.head, end=session.head.end + 1), session.head):
        asked = question if other is not session.head else message("another")
        with pytest.raises(InvalidInput, match="has new messages since the call of regenerate"):
            answered(part, asked, drafted(said))(other, session.read)


@given(sessions(), MESSAGES, st.integers(0, 9), st.sampled_from([None, "u"]))
def test_a_list_stands_as_it_was_given(
    session: Session, more: list[Message], kept: int, user_id: str | None
) -> None:
    """Wrong: a saved list is mixed with the old one, or unchanged messages are written again."""
    wanted = [*session.messages[:kept], *more]
    plan = listed(wanted, user_id, drafted)
    if session.head.expired and not wanted:
        with pytest.raises(UnsupportedOperation):
            plan(session.head, session.read)
        return
    edit = plan(session.head, session.read)
    if edit is None:
        assert session.messages == wanted
        assert user_id in (None, session.head.user_id)
        return
    done = after(session, edit)
    assert done.messages == wanted
    same = agreeing(session.log, wanted, None)
    assert edit.end == session.head.expired + same
    assert edit.only_adds == (wanted[: len(session.log)] == session.messages)
    assert done.head.user_id == (session.head.user_id or user_id)
    if done.head.user_id == session.head.user_id:
        gone = {name for name, cursor in session.head.cursors.items() if cursor > edit.end}
        assert edit.anew == gone
    else:
        assert (edit.anew, edit.after.cursors) == (frozenset(session.head.cursors), {})
    assert plan(done.head, done.read) is None  # nothing is left to change


@given(MESSAGES)
def test_a_list_begins_a_session(said: list[Message]) -> None:
    """Wrong: a saved list, or an empty one, does not begin a session."""
    session = Session(Head("s", "u", created_at=NOW), [])
    edit = listed(said, "u", drafted)(session.head, session.read)
    assert edit.only_adds
    done = after(session, edit)
    assert done.messages == said
    assert system_of(done) == last_system(said)


@given(sessions(), st.sampled_from([None, 1, 3]))
def test_a_redaction_empties_one_authors_messages(session: Session, noted: int | None) -> None:
    """Wrong: a redaction leaves the author's text, removes another's, or changes counts."""
    edit = redacted(session.head, session.read, is_anns, noted)
    theirs = [entry.seq for entry in session.log if is_anns(entry.message)]
    lost = [noted] if noted is not None and noted <= session.head.expired else []
    if edit is None:
        assert not theirs
        assert not lost
        assert not is_anns(session.head.system)
        return
    done = after(session, edit)
    assert not any(is_anns(one) for one in done.messages)
    assert not is_anns(done.head.system)
    assert edit.redacts
    assert edit.since < min([*theirs, *lost], default=1)
    for before, entry in zip(session.log, done.log, strict=True):
        assert (entry.seq, entry.counted, entry.total) == (
            before.seq, before.counted, before.total,
        )  # fmt: skip
        if before.seq in theirs:
            assert entry.message.text() == DELETED or stands_nowhere(entry.message)
        else:
            assert entry == before
    if done.head.summary is not None:
        assert done.head.summary.upto <= edit.since
    again = redacted(done.head, done.read, is_anns, None)
    assert again is None
