"""The events that readers yield, the branches of conversations, and the result of an import."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from agent_memory.core.limits import MAX_ID, UNREADABLE
from agent_memory.core.messages import Message
from agent_memory.integrations.transcripts import Json

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class SessionBegin:
    """A session whose messages follow. Later events of a session count only if it has no user."""

    session_id: str
    user_id: str | None = None
    about: Json = field(default_factory=dict)  # the session's metadata
    # the id of the session from which this session branches; None for a main session
    branch: str | None = None
    # Whether the conversation can have branches. If so, the stored log may be another branch than
    # the main line of a later export.
    is_tree: bool = False


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message."""

    session_id: str
    id: str
    message: Json
    where: str  # the message's place in the source
    is_again: bool = False  # whether the message is a copy of a question in another session
    user_id: str | None = None  # the user that the message itself names

    @property
    def is_question(self) -> bool:
        return self.message.get("role") == "user"


@dataclass(frozen=True, slots=True)
class SourceNote:
    """An item of another program's memory about a user."""

    id: str
    text: str
    user_id: str | None
    at: datetime | None
    where: str
    about: Json = field(default_factory=dict)


class Element(NamedTuple):
    """A parsed part of a source: an element of a list, a line, or a row of a table."""

    where: str
    value: Any


@dataclass(frozen=True, slots=True)
class Unread:
    """A part of a source that could not be read or stored."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part of a source that is left out, such as a setting or an empty message."""

    kind: str


Event = SessionBegin | SourceMessage | SourceNote | Unread | Skipped
Part = TypeVar("Part")


def read_each(
    parts: Iterable[Part | Unread], read: Callable[[Part], Iterable[Event]]
) -> Iterator[Event]:
    """Yield the events of each part, as `read` returns them. Yield an `Unread` unchanged."""
    for part in parts:
        if isinstance(part, Unread):
            yield part
        else:
            yield from guard(part.where, read(part)) if isinstance(part, Element) else read(part)


def guard(where: str, events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of a part, or a single `Unread` if a field of the part has a wrong type."""
    try:
        complete = list(events)
    except UNREADABLE:  # the format is not specified: any value may have any type
        yield Unread(where, "one of its fields has a wrong type")
        return
    yield from complete


def named(source: str, *parts: object) -> str:
    """Return a session's id: the source and the id in the source, such as "chatgpt/6938"."""
    return usable("/".join([source, *(str(part) for part in parts)]))


def usable(text: str) -> str:
    """Return a text as a valid id: unchanged, or reduced to valid characters and a digest."""
    if text.strip() and len(text) <= MAX_ID and not _UNUSABLE.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{_UNUSABLE.sub('', text)[: MAX_ID - 17].strip()}~{digest}"


def again(question: SourceMessage) -> SourceMessage:
    """Return a copy of a question, with another id, for a branch that begins with its answer."""
    return replace(question, id=f"{question.id}~again", is_again=True)


def id_by_place(place: int, fields: object) -> str:
    """Return an id for a message that has none, from its position and a digest of its fields."""
    encoded = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)
    return f"{place}-{hashlib.sha256(encoded.encode()).hexdigest()[:16]}"


def titled(title: object, **more: object) -> Json:
    """Return metadata with a session's title and `more`, without values of None."""
    fields = {"title": title, **more}
    texts = {key: text for key, text in fields.items() if isinstance(text, str) and text}
    return {key: _SURROGATE.sub("\ufffd", text) for key, text in texts.items()}


def sessions_of(
    main: str,
    about: Json,
    parents: Mapping[str, str | None],
    current: str | None,
    read: Callable[[str], Iterable[Event]],
    finish: Callable[[Sequence[SourceMessage]], Iterable[SourceMessage]] = iter,
) -> Iterator[Event]:
    """Yield the branches of a tree as sessions, the main branch first.

    If another branch begins with an answer, a copy of the question precedes the answer.

    Args:
        current: The conversation's current node; None for the last leaf.
        read: Returns the events of a node. It is called for a node's parent before the node.
        finish: Converts the messages of a session's nodes to the messages to yield.
    """
    questions: dict[str | None, SourceMessage | None] = {}
    for number, (nodes, after) in enumerate(branches(parents, current)):
        question = earlier = questions.get(after)
        messages: list[SourceMessage] = []
        for node in nodes:
            events = list(read(node))
            added = [event for event in events if isinstance(event, SourceMessage)]
            yield from (event for event in events if not isinstance(event, SourceMessage))
            question = added[0] if added and added[0].is_question else question
            questions[node] = question
            messages += added
        if not messages:
            continue
        begins = SessionBegin(main, about=about, is_tree=True)
        if number:
            branch = usable(f"{main}~{nodes[0]}")
            begins = SessionBegin(branch, None, {**about, "branch_of": main}, main)
            if earlier is not None and not messages[0].is_question:
                messages.insert(0, again(earlier))
        yield begins
        yield from (replace(message, session_id=begins.session_id) for message in finish(messages))


def branches(
    parents: Mapping[str, str | None], current: str | None
) -> Iterator[tuple[list[str], str | None]]:
    """Yield the nodes of each branch, and the node from which the branch forks, if there is one.

    The first branch is the path to the current node. Each other branch contains only the nodes
    after its fork, so that each node is in one branch. Cycles are cut.
    """
    answers: defaultdict[str | None, list[str]] = defaultdict(list)
    for node, parent in parents.items():
        answers[parent if parent in parents else None].append(node)
    if current not in parents:
        current = next((node for node in reversed(list(parents)) if not answers[node]), None)
    chosen: dict[str, None] = {}
    while current in parents and current is not None and current not in chosen:
        chosen[current] = None
        current = parents[current]
    if chosen:
        yield [*reversed(chosen)], None
    taken = set(chosen)
    for begin in (None, *reversed(chosen), *parents):  # `parents` also has the nodes of cycles
        waiting = deque([begin])
        while waiting:
            after = waiting.popleft()
            for first in answers[after]:
                nodes: list[str] = []
                following: str | None = first
                while following is not None and following not in taken:
                    taken.add(following)
                    nodes.append(following)
                    following = next(reversed(answers[following]), None)
                if nodes:
                    yield nodes, after
                    waiting.extend(nodes)


_MOST = 10_000


@dataclass(slots=True)
class Imported:
    """The result of an import.

    Attributes:
        sessions: Sessions in the source.
        messages: Readable messages in the source.
        notes: Notes in the source.
        new_sessions: Sessions that this import created; 0 for a dry run.
        new_messages: Messages that this import stored; the others existed before.
        new_notes: Notes that this import wrote.
        first: Time of the oldest message, if known.
        last: Time of the newest message, if known.
        deleted: Sessions and notes that were deleted earlier, and that this import did not restore
            or restored only in part.
        assigned: Sessions without a user that this import assigned to the user.
        elsewhere: The number of earlier imported sessions of each user other than `user_id`. The
            key None counts sessions without a user.
        unread: The first 10,000 parts that could not be read or stored, with the reason.
        failed: Number of all parts that could not be read or stored.
        left_out: The number of parts that were left out, by kind, such as "empty messages".
    """

    sessions: int = 0
    messages: int = 0
    notes: int = 0
    new_sessions: int = 0
    new_messages: int = 0
    new_notes: int = 0
    first: datetime | None = None
    last: datetime | None = None
    deleted: int = 0
    assigned: int = 0
    elsewhere: Counter[str | None] = field(default_factory=Counter)
    unread: list[Unread] = field(default_factory=list)
    failed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def fail(self, where: str, why: str) -> None:
        self.failed += 1
        if len(self.unread) < _MOST:
            self.unread.append(Unread(where, why))

    def saw(self, message: Message) -> None:
        self.messages += 1
        if "created_at" in message.model_fields_set:
            at = message.created_at
            self.first = at if self.first is None else min(self.first, at)
            self.last = at if self.last is None else max(self.last, at)
