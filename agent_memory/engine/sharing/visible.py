"""What calls on a shared namespace give, under the ids by which its agents know it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.ids import share_of, visible_id
from agent_memory.core.records import Entry, Head, Recall

if TYPE_CHECKING:
    from agent_memory.core.context import MemoryContext
    from agent_memory.ltm_blocks.extractive.history.fact import Fact


def visible_head(head: Head) -> Head:
    """A head; its user is the namespace."""
    session_id = visible_id(head.session_id)
    return replace(head, session_id=session_id, user_id=share_of(head.session_id))


def visible_entry(entry: Entry) -> Entry:
    """An entry."""
    return replace(entry, session_id=visible_id(entry.session_id))


def visible_recall(recall: Recall) -> Recall:
    """A recall; where its id is made of the session's, that too."""
    sources = tuple((visible_id(session_id), seq) for session_id, seq in recall.sources)
    return replace(recall, id=visible_id(recall.id), sources=sources)


def visible_fact(fact: Fact) -> Fact:
    """A fact."""
    evidence = (replace(one, session_id=visible_id(one.session_id)) for one in fact.evidence)
    return replace(fact, evidence=tuple(evidence))


def visible_context(context: MemoryContext) -> MemoryContext:
    """A context."""
    recalls = [visible_recall(recall) for recall in context.recalls]
    head = None if context.head is None else visible_head(context.head)
    return replace(context, recalls=recalls, head=head)
