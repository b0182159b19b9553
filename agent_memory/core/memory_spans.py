"""Spans of memory operations, as the GenAI conventions name them: see `core.tracing`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

from agent_memory.core.messages import Message
from agent_memory.core.records import Recall
from agent_memory.core.tracing import OPERATION, Attributes, Span, as_json, is_on, records_content
from agent_memory.core.tracing import span as spanned

P = ParamSpec("P")
T = TypeVar("T")

Operation = Literal[
    "search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"
]

Arguments = Mapping[str, Any]
Told = Callable[[Arguments, Any], Attributes]
"""What a span tells of a call that was made: by its arguments, and what it gave."""

PROVIDER = "agent_memory"


def operation(
    name: Operation, store_id: str | None, session_id: str | None = None
) -> AbstractContextManager[Span | None]:
    """A span for an operation: its parts begin in the block. None where nobody takes spans.

    Args:
        name: What is done.
        store_id: Where: the namespace.
        session_id: In which conversation.
    """
    told = {
        OPERATION: name,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.memory.store.id": store_id,
        "gen_ai.conversation.id": session_id,
    }
    return spanned(name, told)


def traced(
    name: Operation, store_id: Callable[[Any], str], told: Told
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have each call of a method be a span, where somebody takes spans.

    Args:
        name: What the method does.
        store_id: Tells, of the object, where.
        told: What more the span tells.
    """

    def around(call: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(call)

        @wraps(call)
        def made(*args: P.args, **kwargs: P.kwargs) -> T:
            if not is_on():
                return call(*args, **kwargs)
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError:
                return call(*args, **kwargs)  # which raises it, and names itself
            with operation(name, store_id(args[0]), _id(given.get("session_id"))) as span:
                result = call(*args, **kwargs)
                if span is not None:
                    span.told(told(given, result))
                return result

        return made

    return around


def tell_search(span: Span | None, query: Message | None, recalls: Iterable[Recall]) -> None:
    """Add to a span what was looked for, and what was found."""
    if span is None:
        return
    found = list(recalls)
    span.told({"gen_ai.memory.record.count": len(found)})
    if records_content():
        text = None if query is None else query.text()
        span.told({"gen_ai.memory.query.text": text, **_records(map(_record, found))})


def tell_absorbed(span: Span | None, block: str, messages: int) -> None:
    """Add to a span what a block is about to absorb."""
    if span is not None:
        span.told({"agent_memory.block": block, "gen_ai.memory.record.count": messages})


def of_messages(given: Arguments, result: Any) -> Attributes:
    """Of messages that were handed over."""
    asked = given["message"]
    messages = list(asked) if isinstance(asked, list | tuple) else [asked]
    count = {"gen_ai.memory.record.count": len(messages)}
    if not records_content():
        return count
    said = [one for each in messages for one in Message.all_of(each)]
    return {**count, **_records({"content": one.to_dict()} for one in said)}


def of_record(given: Arguments, result: Any) -> Attributes:
    """Of a record that is given back."""
    told = {"gen_ai.memory.record.id": result.id, "gen_ai.memory.record.count": 1}
    if not records_content():
        return told
    return {**told, **_records([{"id": result.id, "content": result.text}])}


def of_many(given: Arguments, result: Any) -> Attributes:
    """Of all that is given back."""
    return {"gen_ai.memory.record.count": len(result)}


def of_id(given: Arguments, result: Any) -> Attributes:
    """Of a record that was named, if one was; a list of what became of it may come back."""
    count = len(result) if isinstance(result, list) else int(result is not False)
    named = _id(given.get("note_id", given.get("fact_id")))
    return {"gen_ai.memory.record.id": named, "gen_ai.memory.record.count": count}


def of_nothing(given: Arguments, result: Any) -> Attributes:
    """Nothing more."""
    return {}


def _records(records: Iterable[Mapping[str, Any]]) -> Attributes:
    return {"gen_ai.memory.records": as_json(list(records))}


def _record(recall: Recall) -> dict[str, Any]:
    metadata = {"block": recall.block}
    return {"id": recall.id, "content": recall.text, "score": recall.score, "metadata": metadata}


def _id(given: object) -> str | None:
    return given if isinstance(given, str) else None
