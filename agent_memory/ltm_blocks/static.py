"""`StaticMemory`: facts from the configuration, the same for every user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, JsonValue, PrivateAttr, TypeAdapter, field_validator

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.core.text import overlap_scores
from agent_memory.errors import UnsupportedOperation
from agent_memory.ltm_blocks.base import Block, QueryThread, Resources, record_id
from agent_memory.ltm_blocks.llm_reranker import FactChooser
from agent_memory.models.loading import load_litellm

_FACT: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_READ_ONLY = "StaticMemory is read-only. Change its facts in the configuration."


class StaticMemory(Block):
    """Read-only facts for every user and session.

    If all facts fit into the token limits, all are recalled. Otherwise the most relevant facts are
    recalled. With `choose`, only the facts that a model chooses are recalled. A search ranks facts
    by the query's words in them, among the results of other blocks.

    Attributes:
        facts: Texts, plain JSON or pydantic models. If a fact is a dict, its key `text` or
            `content` holds the text, and `id` the id. A dict without a text is written out key by
            key: "office city: Berlin". If `facts` itself is a dict, each key is one fact. A
            repeated fact counts once.
        choose: An LLM reranker for the facts.
    """

    absorbs = False

    kind: Literal["static"] = "static"
    facts: Annotated[Sequence[Any], AfterValidator(tuple)] = ()
    choose: FactChooser | None = None

    _texts: dict[str, str] = PrivateAttr()

    @field_validator("facts", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        if isinstance(value, dict):
            value = [{key: fact} for key, fact in value.items()]
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple | set | frozenset):
            return value
        facts = (
            fact.model_dump(mode="json") if isinstance(fact, BaseModel) else fact for fact in value
        )
        return tuple(map(_FACT.validate_python, facts))

    @property
    def selective(self) -> bool:  # type: ignore[override]
        return self.choose is not None

    @property
    def language_models(self) -> tuple[str | None, ...]:
        return () if self.choose is None else (self.choose.model,)

    @property
    def query_thread(self) -> QueryThread:
        return "caller" if self.choose is None else "own"

    def load(self) -> None:
        if self.choose is not None:
            load_litellm()

    def bind(self, resources: Resources) -> Self:
        bound = super().bind(resources)
        bound._texts = {_id(fact): _text(fact) for fact in self.facts}
        return bound

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        scores = overlap_scores(message.text() if message else "", [*self._texts.values()])
        choose = None if message is None or scope.floor == 0 else self.choose
        # a score of at least 1 places configured facts before the recalls of other blocks
        first = scope.in_context or choose is not None
        recalls = [
            Recall(self.name, fact_id, text, first + score, relevance=None if first else score)
            for (fact_id, text), score in zip(self._texts.items(), scores, strict=True)
        ]
        ranked = sorted(recalls, key=lambda recall: -recall.score)
        if choose is not None and message is not None:
            ranked = choose.choose(self.resources, message.text(), ranked)
        return ranked[:limit]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        raise UnsupportedOperation(_READ_ONLY)

    def delete(self, scope: Scope) -> None:
        raise UnsupportedOperation(_READ_ONLY)


def _text(fact: Any) -> str:
    if not isinstance(fact, dict):
        return fact if isinstance(fact, str) else "; ".join(_texts("", fact))
    for key in ("text", "content"):
        if isinstance(text := fact.get(key), str):
            return text
    parts: list[str] = []
    for key, item in fact.items():
        if key != "id" or len(fact) == 1:
            is_content = key in ("text", "content") and isinstance(item, dict | list)
            parts += _texts("" if is_content else str(key), item)
    return "; ".join(parts)


def _texts(name: str, value: object) -> Iterator[str]:
    """Yield one text for each item of a value, such as "office city: Berlin"."""
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        inner = enumerate(value, 1)
    name = name.replace("_", " ")
    if not inner:
        yield f"{name}: {_word(value)}" if name else _word(value)
    for key, item in inner:
        yield from _texts(f"{name} {key}".strip(), item)


def _word(value: object) -> str:
    if isinstance(value, list) and value:
        return ", ".join(map(_word, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in (None, [], {}) else str(value)


def _id(fact: Any) -> str:
    fact_id = fact.get("id") if isinstance(fact, dict) else None
    return str(fact_id) if fact_id is not None else record_id(_text(fact))
