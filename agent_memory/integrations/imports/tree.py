"""The branches of a conversation whose messages name what they answer. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from agent_memory.integrations.imports.chats import Begun, Said, again, usable
from agent_memory.integrations.loose import Json


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a tree: each node is in just one.

    Attributes:
        nodes: Its nodes, from the first on.
        after: The node that the first one answers; None for a beginning.
    """

    nodes: list[str]
    after: str | None


def branches(parents: Mapping[str, str | None], current: str | None) -> Iterator[Branch]:
    """The branches, each node in one: first what leads to the current node.

    The others hold what is theirs alone, from where they part on. So a tree never gives more than
    it has, however often it parts. Links that go in a circle are cut.

    Args:
        parents: For each node, in the order of the source, the one that it answers.
        current: The node at which the conversation stands; None: the last that nothing answers.
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
    for first in (*chosen[::-1], *beginnings, *parents):  # the last finds circles alone
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
    """From a node on to the newest answer, and its newest, and so on."""
    nodes: list[str] = []
    node: str | None = first
    while node is not None:
        taken.add(node)
        nodes.append(node)
        node = next((one for one in reversed(answers[node]) if one not in taken), None)
    waiting.extend(nodes)
    return Branch(nodes, after)


def upwards(node: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    """A node, what it answers, and so on to the beginning. A circle ends where it closes."""
    seen: set[str] = set()
    while node is not None and node in parents and node not in seen:
        seen.add(node)
        yield node
        node = parents[node]


def begun(
    main: str,
    about: Json,
    branch: Branch | None,
    said: Sequence[Said],
    asked: Iterable[Sequence[Said]],
) -> tuple[Begun, Sequence[Said]]:
    """How a branch begins, and what it says: before an answer stands its question, once more.

    Args:
        main: The session of what goes on.
        about: What is told of the conversation.
        branch: The branch; None for what goes on.
        said: What it says.
        asked: What each message before it says, the nearest first.
    """
    if branch is None:
        return Begun(main, about=about, is_tree=True), said
    session_id = usable(f"{main}~{branch.nodes[0]}")
    begins = Begun(session_id, None, {**about, "branch_of": main}, main, said[0].id)
    if said[0].is_question:
        return begins, said
    questions = (one[0] for one in asked if one and one[0].message.get("role") == "user")
    return begins, [*(again(one) for one in islice(questions, 1)), *said]
