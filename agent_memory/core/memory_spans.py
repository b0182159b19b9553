"""Spans of memory operations, named by the GenAI conventions; see `core.tracing`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from agent_memory.core.messages import Message
from agent_memory.core.records import Recall
from agent_memory.core.tracing import (
    OPERATION,
    Attributes,
    Span,
    as_json,
    is_on,
    records_content,
    span,
)

if TYPE_CHECKING:
    pass

P = ParamSpec("P")
T = TypeVar("T")


Operation = Literal[
    "search_memory", "create_memory", "update_memory", "upsert_memory", "delete_memory"
]


Arguments = Mapping[str, Any]


Told = Callable[[Arguments, Any], Attributes]
"""Returns a span's attributes from the arguments and the result of a call."""


PROVIDER = "agent_memory"


def operation(
    name: Operation, store_id: str | None, session_id: str | None = None
) -> AbstractContextManager[Span | None]:
    """Start a span for an operation, with its parts as children. None without a provider."""
    attributes = {
        OPERATION: name,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.memory.store.id": store_id,
        "gen_ai.conversation.id": session_id,
    }
    return span(name, attributes)


def traced(
    name: Operation, store_id: Callable[[Any], str], told: Told
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Trace each call of a method as a span, if a provider is set."""

    def decorate(call: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(call)

        @wraps(call)
        def traced_call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not is_on():
                return call(*args, **kwargs)
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError:
                return call(*args, **kwargs)  # raises the TypeError under its own name
            with operation(name, store_id(args[0]), _id(arguments.get("session_id"))) as span:
                result = call(*args, **kwargs)
                if span is not None:
                    span.told(told(arguments, result))
                return result

        return traced_call

    return decorate


def tell_search(span: Span | None, query: Message | None, recalls: Iterable[Recall]) -> None:
    """Add the query and the found records to a span."""
    if span is None:
        return
    records = list(recalls)
    span.told({"gen_ai.memory.record.count": len(records)})
    if records_content():
        text = None if query is None else query.text()
        span.told({"gen_ai.memory.query.text": text, **_records(map(_record, records))})


def tell_absorbed(span: Span | None, block: str, messages: int) -> None:
    """Add to a span the block, and the number of messages that it is about to absorb."""
    if span is not None:
        span.told({"agent_memory.block": block, "gen_ai.memory.record.count": messages})


def of_messages(given: Arguments, result: Any) -> Attributes:
    """Return the attributes of messages that were passed."""
    argument = given["message"]
    messages = list(argument) if isinstance(argument, list | tuple) else [argument]
    count = {"gen_ai.memory.record.count": len(messages)}
    if not records_content():
        return count
    passed = [message for value in messages for message in Message.all_of(value)]
    return {**count, **_records({"content": message.to_dict()} for message in passed)}


def of_record(given: Arguments, result: Any) -> Attributes:
    """Return the attributes of a returned record."""
    attributes = {"gen_ai.memory.record.id": result.id, "gen_ai.memory.record.count": 1}
    if not records_content():
        return attributes
    return {**attributes, **_records([{"id": result.id, "content": result.text}])}


def of_many(given: Arguments, result: Any) -> Attributes:
    """Return the attributes of a list of returned records."""
    return {"gen_ai.memory.record.count": len(result)}


def of_id(given: Arguments, result: Any) -> Attributes:
    """Return the attributes of a record that was named. The result may be a list of changed
    records.
    """
    count = len(result) if isinstance(result, list) else int(result is not False)
    record_id = _id(given.get("note_id", given.get("fact_id")))
    return {"gen_ai.memory.record.id": record_id, "gen_ai.memory.record.count": count}


def of_nothing(given: Arguments, result: Any) -> Attributes:
    """Return no attributes."""
    return {}


def _records(records: Iterable[Mapping[str, Any]]) -> Attributes:
    return {"gen_ai.memory.records": as_json(list(records))}


def _record(recall: Recall) -> dict[str, Any]:
    metadata = {"block": recall.block}
    return {"id": recall.id, "content": recall.text, "score": recall.score, "metadata": metadata}


def _id(given: object) -> str | None:
    return given if isinstance(given, str) else None
