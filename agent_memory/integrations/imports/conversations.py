"""Events that readers yield in order, and the branches of a conversation. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from agent_memory.core.ids import MAX_ID
from agent_memory.core.limits import UNREADABLE
from agent_memory.integrations.loose import Json

_SURROGATE = re.compile("[\ud800-\udfff]")
_UNUSABLE = re.compile("[\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Begun:
    """A session whose messages follow. It may be repeated: the first one counts.

    Attributes:
        session_id: Its id here.
        user_id: Its user in the source.
        about: Its title and other metadata, for `describe`.
        branch: The session that it branches from; None for a main session.
        first: The id of the first message of a branch.
        is_tree: Whether a later export may continue another branch.
    """

    session_id: str
    user_id: str | None = None
    about: Json = field(default_factory=dict)
    branch: str | None = None
    first: str | None = None
    is_tree: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One message.

    Attributes:
        session_id: Its session, which was yielded before.
        id: Its id in the source, unique within its session.
        message: Its fields for `update`; the importer adds its origin.
        where: Its place in the source.
        is_again: Whether it is in another session too.
    """

    session_id: str
    id: str
    message: Json
    where: str
    is_again: bool = False

    @property
    def is_question(self) -> bool:
        """Whether a user says it."""
        return self.message.get("role") == "user"


@dataclass(frozen=True, slots=True)
class Noted:
    """An item of another memory about a user.

    Attributes:
        id: Its id in the source.
        text: Its text.
        user_id: Its user in the source.
        at: Its time.
        where: Its place in the source.
        about: Its other metadata in the source.
    """

    id: str
    text: str
    user_id: str | None
    at: datetime | None
    where: str
    about: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unread:
    """A part that could not be read or stored.

    Attributes:
        where: Its place in the source.
        why: The reason.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class Omitted:
    """A part that does not belong to a conversation, such as a setting.

    Attributes:
        kind: Its kind, for people.
    """

    kind: str


Event = Begun | Said | Noted | Unread | Omitted
Part = TypeVar("Part")


def read_each(
    parts: Iterable[Part | Unread], read: Callable[[Part], Iterable[Event]]
) -> Iterator[Event]:
    """Yield the content of each part, and the parts that could not be read."""
    for part in parts:
        if isinstance(part, Unread):
            yield part
        else:
            yield from whole(getattr(part, "where", None), read(part))


def whole(where: str | None, events: Iterable[Event]) -> Iterator[Event]:
    """Yield the content of a part, or an `Unread` if it cannot be read.

    Args:
        where: The part's place; None for a file, whose parts are read one by one.
        events: The part's content.
    """
    if where is None:
        yield from events
        return
    try:
        found = list(events)
    except UNREADABLE:  # the format is not specified: any value may have any type
        yield Unread(where, "a field of it has another type than it should")
        return
    yield from found


def named(source: str, *parts: object) -> str:
    """Return a session's id from its source and its id there: `chatgpt/6938...`."""
    return usable("/".join([source, *(str(part) for part in parts)]))


def usable(text: str) -> str:
    """Return a text as a valid id: unchanged, or its valid characters and a digest."""
    if text.strip() and len(text) <= MAX_ID and not _UNUSABLE.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{_UNUSABLE.sub('', text)[: MAX_ID - 17].strip()}~{digest}"


def again(said: Said) -> Said:
    """Return a message for a second session: the question that a branch answers."""
    return replace(said, id=f"{said.id}~again", is_again=True)


def id_by_place(place: int, fields: object) -> str:
    """Return an id for a message without one: its place in the
    session and a digest of its content.
    """
    told = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)
    return f"{place}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


def titled(title: object, **more: object) -> Json:
    """Return a session's title and other metadata, without unknown values."""
    told = {"title": title, **more}
    return {
        key: _SURROGATE.sub("\ufffd", value)
        for key, value in told.items()
        if isinstance(value, str) and value
    }


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a tree; each node is in exactly one.

    Attributes:
        nodes: Its nodes in order.
        after: The parent of the first node; None for a root.
    """

    nodes: list[str]
    after: str | None


def branches(parents: Mapping[str, str | None], current: str | None) -> Iterator[Branch]:
    """Yield the branches, first the path to the current node. Each node is in one branch.

    Other branches contain only the nodes after their fork, so the output is never larger than the
    tree. Cycles are cut.

    Args:
        parents: The parent of each node, in the order of the source.
        current: The conversation's current node; None for the last leaf.
    """
    answers: dict[str, list[str]] = defaultdict(list)
    for node, parent in parents.items():
        if parent in parents and parent is not None:
            answers[parent].append(node)
    if current not in parents:
        current = next((node for node in reversed(list(parents)) if not answers[node]), None)
    taken: set[str] = set()
    chosen: list[str] = []
    at = current
    while at in parents and at is not None and at not in taken:
        taken.add(at)
        chosen.append(at)
        at = parents[at]
    if chosen:
        yield Branch(chosen[::-1], None)
    beginnings = [node for node, parent in parents.items() if parent not in parents]
    for first in (*chosen[::-1], *beginnings, *parents):  # the last finds only cycles
        waiting = deque([first])
        if first not in taken:
            yield _down(first, None, answers, taken, waiting)
        while waiting:
            parent = waiting.popleft()
            for child in answers[parent]:
                if child not in taken:
                    yield _down(child, parent, answers, taken, waiting)


def _down(
    first: str,
    after: str | None,
    answers: Mapping[str, list[str]],
    taken: set[str],
    waiting: deque[str],
) -> Branch:
    """Return the branch from a node along the newest answers."""
    nodes: list[str] = []
    node: str | None = first
    while node is not None:
        taken.add(node)
        nodes.append(node)
        node = next((one for one in reversed(answers[node]) if one not in taken), None)
    waiting.extend(nodes)
    return Branch(nodes, after)


def upwards(node: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a node and its ancestors; stops where a cycle closes."""
    seen: set[str] = set()
    while node is not None and node in parents and node not in seen:
        seen.add(node)
        yield node
        node = parents[node]


class Questions:
    """The questions of a tree; each node is converted once.

    Args:
        parents: The parent of each node.
        said: Returns the messages of a node.
    """

    def __init__(
        self, parents: Mapping[str, str | None], said: Callable[[str], Sequence[Said]]
    ) -> None:
        self._parents = parents
        self._said = said
        self._nearest: dict[str, Said | None] = {}

    def before(self, node: str | None) -> Said | None:
        """Return the question of a node, or of its nearest ancestor with one."""
        passed: list[str] = []
        found: Said | None = None
        for key in upwards(node, self._parents):
            if key in self._nearest:
                found = self._nearest[key]
                break
            passed.append(key)
            first = next(iter(self._said(key)), None)
            if first is not None and first.is_question:
                found = first
                break
        self._nearest.update(dict.fromkeys(passed, found))
        return found


def begun(
    main: str, about: Json, branch: Branch | None, said: Sequence[Said], questions: Questions
) -> tuple[Begun, Sequence[Said]]:
    """Return the start of a branch and its messages, with the question repeated before an answer.

    Args:
        main: The main session.
        about: The conversation's metadata.
        branch: The branch; None for the main line.
        said: Its messages.
        questions: The tree's questions.
    """
    if branch is None:
        return Begun(main, about=about, is_tree=True), said
    session_id = usable(f"{main}~{branch.nodes[0]}")
    begins = Begun(session_id, None, {**about, "branch_of": main}, main, said[0].id)
    question = None if said[0].is_question else questions.before(branch.after)
    return begins, said if question is None else [again(question), *said]
