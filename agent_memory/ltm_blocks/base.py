"""The base classes of long-term blocks.

A block absorbs a log: it derives its own data from the messages, and recalls it for contexts.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, Field, PrivateAttr

from agent_memory.core.lazy import lazy_property
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, LeftOut, Recall, Record, Scope, Source, Span
from agent_memory.core.settings_model import Address, Positive, SettingsModel
from agent_memory.core.threads import EncodeAhead
from agent_memory.core.timestamps import IN_UTC, Zones
from agent_memory.errors import ConfigError
from agent_memory.stores.pending import Pending

if TYPE_CHECKING:
    from agent_memory.core.token_counter import TokenCounter
    from agent_memory.core.tools import Tool
    from agent_memory.core.turns import Turn
    from agent_memory.ltm_blocks.extractive.history.fact import Fact, Stale
    from agent_memory.ltm_blocks.extractive.history.history import Change
    from agent_memory.ltm_blocks.notes import Notes
    from agent_memory.models.embedders.base import Encoder
    from agent_memory.models.llm import LLM
    from agent_memory.stores.base import Store, VectorStore


QueryThread: TypeAlias = Literal["own", "shared", "caller"]
"""The values of `Block.query_thread`."""


@dataclass(frozen=True)
class Resources:
    """The engine's services for its blocks.

    Attributes:
        store: Sessions, facts and vectors of the deployment's namespace.
        namespace: The deployment's namespace, for stores that a block opens itself.
        counter: The token counter of the configured model.
        models: Opens a language model by name. The name None opens the configured model, and
            returns None if no model is configured.
        embedders: Opens an embedder by name. The name None opens the configured embedder, or the
            local default.
        vectors: Opens a vector store by its address. If `store` is encrypted, so is the opened
            store. The caller closes the opened store. The address None returns `store`.
        locked: Waits for a named lock, and takes it. All processes of the deployment share locks.
        redact: Redacts a text. Blocks call it on the data that users and tools write to them.
        min_relevance: The minimum relevance of a recall; see `AgentMemoryConfig`.
        zones: The users' time zones, for messages whose time has no UTC offset of its own.
        is_local: Whether the store and the configured embedder need no network.
    """

    store: Store
    namespace: str
    counter: TokenCounter
    models: Callable[[str | None], LLM | None]
    embedders: Callable[[Any], Encoder]
    vectors: Callable[[str | None], VectorStore]
    locked: Callable[[str], AbstractContextManager[None]]
    redact: Callable[[str], str] = str
    min_relevance: float = 0.1
    zones: Zones = IN_UTC
    is_local: bool = False

    def today(self, scope: Scope, message: Message) -> date:
        """Return the day of a message, by its own UTC offset or else in the user's time zone."""
        return self.local(scope, message.created_at).date()

    def local(self, scope: Scope, at: datetime) -> datetime:
        """Convert a time in UTC to the user's time zone. Return any other time unchanged."""
        zone = self.zones.of(scope.user_id)
        return at.astimezone(zone) if zone is not None and at.tzinfo is UTC else at

    @lazy_property
    def pending(self) -> Pending:
        """The reader of entries that a block has not absorbed yet."""
        return Pending(self.store)

    @lazy_property
    def ahead(self) -> EncodeAhead:
        """The thread that encodes new messages in the background."""
        return EncodeAhead()


_Call = TypeVar("_Call", bound=Callable[..., Any])


def by_owner(delete: _Call) -> _Call:
    """Decorate a block's `delete` that only removes data from the session store.

    To delete a session or a user, the engine may then remove the block's records and vectors
    itself, in one transaction. The engine then calls `drop_caches` instead of `delete`.
    """
    delete.by_owner = True  # type: ignore[attr-defined]
    return delete


class Block(SettingsModel, ABC):
    """Base of long-term blocks: an immutable value that holds its settings.

    To write your own block, subclass this, set a `kind`, and write `get`, `update` and `delete`.
    Each method may be `async def`. Keep no per-call state on the block, which serves many users and
    threads.

    Attributes:
        absorbs: Whether the engine passes the log to the block.
        recalls_pending: Whether the block also recalls messages that it has not absorbed yet. If no
            block does, the engine itself searches those messages.
        searched: Whether `search` includes the block. Set it to False if the recalls ignore the
            query.
        selective: Whether the block recalls only what is relevant to the message, with scores. Such
            a block is skipped if a message is only small talk. A context leaves out recalls that
            score much lower than the block's best recall.
        of_session: Whether the block's data belongs to a session. Its tools then need a session.
        versioned: Whether the block caches an owner's records until their version changes. An
            import writes a new version for such a block; see `agent_memory.ltm_blocks.versions`.
        kind: The name of the class in configuration files.
        name: The name of the block and its records, unique in a deployment. Default: `kind`.
        max_tokens: Maximum tokens of the block's recalls in a context; None for no separate limit.
        store: URL of a separate database for the block's data, such as "sqlite:///facts.db". None
            stores the data with the sessions.
    """

    absorbs: ClassVar[bool] = True
    recalls_pending: ClassVar[bool] = False
    searched: ClassVar[bool] = True
    selective: ClassVar[bool] = False
    of_session: ClassVar[bool] = False
    versioned: ClassVar[bool] = False

    kind: Any  # a string; `Any` lets a subclass narrow it to a literal
    name: str = Field(default="", pattern=r"^([a-z][a-z0-9_]*)?$")
    max_tokens: Positive | None = None
    store: Address[str | None] = Field(default=None, repr=False)

    _resources: Resources | None = PrivateAttr(default=None)

    def model_post_init(self, context: object, /) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.kind)

    @property
    def routed_to(self) -> str | None:
        """URL of the database for the block's data; None for the database of the sessions."""
        return self.store

    @property
    def query_thread(self) -> QueryThread:
        """The thread on which the engine calls `get`.

        "own": a thread for each call, with a time limit. "shared": one thread for all such blocks,
        with a time limit, for queries that wait for no network. "caller": the caller's thread,
        without a limit, for queries that only read a few records of a local store.
        """
        return "own"

    @property
    def counts_recalls(self) -> bool:
        """Whether the engine calls `recalled`."""
        return False

    def recalled(self, scope: Scope, ids: Sequence[str]) -> None:
        """Receive the ids of a new context's recalls whose relevance is at least 0.5 or None."""

    @property
    def vectors(self) -> VectorStore:
        """The store of the block's vectors. The block must be bound."""
        return self.resources.store

    @property
    def language_models(self) -> tuple[str | None, ...]:
        """The names of the language models that the block calls; None is the configured model.

        The engine reports a missing model, and loads litellm before the first call.
        """
        return ()

    def bind(self, resources: Resources) -> Self:
        """Return a copy of this block that uses `resources`. The block itself is unchanged.

        Raises:
            ConfigError: An extra is missing, or the dimension of the vectors differs.
        """
        bound = self.model_copy()
        bound._resources = resources
        return bound

    def load(self) -> None:
        """Load local resources that take long to load. Called before the first `get`.

        The engine waits at most ten seconds, before the time limit of `get` begins.
        """

    def warm(self, scope: Scope) -> None:
        """Read the data that the first `get` for a scope needs, without calling a model.

        Called by `AgentMemory.warm_up` after `load`.
        """

    def messages_appended(self, scope: Scope) -> None:
        """Receive a notification of new messages in a session. Return quickly: the caller waits."""

    def prepare(self, entries: Sequence[Entry]) -> None:
        """Receive the entries of the next calls of `update`, from several sessions.

        Override it to batch slow work, such as embedding. `update` may run without this call. An
        error here does not count as a failure of the block.
        """

    def clear(self, resources: Resources) -> None:
        """Drop data of former settings that would make `bind` fail. Called before a rebuild."""

    def open(self, scope: Scope) -> Any:
        """Return a handle, by which people and programs use the data of a user or a session.

        Raises:
            ConfigError: The block has no handle.
        """
        raise ConfigError(
            f"The block {self.name!r} cannot be opened: {type(self).__name__} has no handle."
        )

    def tools(self) -> Sequence[Tool]:
        """Return the tools for a model; their names begin with the block's name.

        By default, they are the methods decorated with `agent_memory.core.tools.tool`.
        """
        from agent_memory.core.tools import tools_of

        return tools_of(self)

    def outdated(self, scope: Scope, sources: Collection[Source]) -> Mapping[Source, datetime]:
        """Return the outdated messages among `sources`, each with the time of the correction."""
        return {}

    def left_out(self, scope: Scope, message: Message, limit: int) -> Sequence[LeftOut]:
        """Return near matches of `message` that `get` leaves out, each with the reason."""
        return ()

    def stored_records(self, scope: Scope) -> Sequence[Recall]:
        """Return all records of a user that `User.surplus` may report, but no messages of the log.

        Each record has the id that `forget` takes.
        """
        return ()

    def forget(self, scope: Scope, what: str | Span, why: str) -> Sequence[Any]:
        """Permanently forget a record by its id, or all records from a part of a session.

        The tool `memory_forget` calls the blocks in turn until a block has the id.

        Returns:
            The forgotten records; empty if there are none, or if the block cannot forget single
            records.
        """
        return ()

    def validate_import(self, record: Record) -> Record:
        """Validate a record of this block from a snapshot. Nothing is written yet.

        Returns:
            The record to store.

        Raises:
            InvalidInput: The block could not read the record. The import refuses the snapshot with
                this reason and the line number. A pydantic `ValidationError` has the same effect.
        """
        return record

    def validate_vectors(self, dimension: int, model: str) -> bool:
        """Return whether the block can search a snapshot's vectors of this dimension and model.

        If not, the block absorbs the log again after the import.
        """
        return self.vectors.vector_blocks().get(self.name) == (dimension, model)

    def turn_began(self, scope: Scope, turn: Turn) -> Awaitable[None] | None:
        """Receive the user's message and the context before a model is called.

        Called by `before_turn`, `regenerate` and `completion`. Return quickly: the caller waits.
        Errors are logged. `turn_ended` may not follow, for example if the model fails.
        """

    def turn_ended(
        self, scope: Scope, turn: Turn, messages: Sequence[Message]
    ) -> Awaitable[None] | None:
        """Receive a finished turn that `after_turn` or `completion` stored. See `turn_began`.

        `messages` is the whole turn: the question, tool calls and results, and the answer.
        """

    def end(self, scope: Scope) -> None:
        """Drop the data that is stored only during a session. Called when the session ends."""

    def problems(self, resources: Resources) -> Sequence[str]:
        """Return problems of the stored data, each with its remedy, for `agent-memory doctor`.

        Change nothing. The block need not be bound.
        """
        return ()

    def close(self) -> None:
        """Release the resources that `bind` opened."""

    @property
    def resources(self) -> Resources:
        """The resources that `bind` received."""
        assert self._resources is not None, "the engine binds a block before it uses it"
        return self._resources

    @abstractmethod
    def get(
        self, scope: Scope, message: Message | None, limit: int
    ) -> list[Recall] | Awaitable[list[Recall]]:
        """Return at most `limit` recalls that are relevant to `message`, best first.

        If `message` is None, return recalls that are useful with any message.
        """

    @abstractmethod
    def update(self, scope: Scope, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Absorb entries of one session. Idempotent for the same entries."""

    @abstractmethod
    def delete(self, scope: Scope) -> Awaitable[None] | None:
        """Delete the data of a user, of a session, or of its entries after `scope.after`."""

    @property
    def deletes_by_owner(self) -> bool:
        """Whether all of the block's data is in the session store; see `by_owner`."""
        return self.store is None and getattr(type(self).delete, "by_owner", False)

    def drop_caches(self, scope: Scope) -> None:
        """Drop this process's caches for an owner whose data was deleted."""


class ManualBlock(Block):
    """A block to which users and tools write directly. It absorbs nothing from the log."""

    absorbs = False

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Do nothing."""


class NoteBlock(ManualBlock):
    """A block that takes notes. The tool `memory_write` uses the first such block."""

    @abstractmethod
    def open(self, scope: Scope) -> Notes:
        """Return the notes of a user, or of a session without a user."""


class FactBlock(Block):
    """A block whose records are facts, each with its history."""

    versioned = True

    @abstractmethod
    def facts(
        self,
        scope: Scope,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        superseded: bool = False,
    ) -> list[Fact]:
        """Return the facts that are true now, or at `as_of`; see `User.facts`."""

    @abstractmethod
    def stale(self, scope: Scope) -> list[Stale]:
        """Return facts that are not worth recalling; see `User.stale`."""

    @abstractmethod
    def forget(self, scope: Scope, what: str | Span, why: str) -> list[Fact]:
        """Forget a fact by its id, or everything that comes from a part of a session.

        Returns:
            The forgotten facts.
        """

    @abstractmethod
    def audit(self, scope: Scope) -> list[Change]:
        """Return every change, oldest first; see `User.audit`."""

    def filled(
        self, scope: Scope, *, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> BaseModel | None:
        """Return the block's profile, a model whose fields are facts, as it was at a time.

        Return None if the block has no profile.
        """
        return None


def batch_id(block: str, owner: str, session_id: str, first: int, last: int) -> str:
    """Return the id of a block's record for a batch of a session's entries."""
    return record_id(block, owner, session_id, first, last, "batch")


def message_id(block: str, owner: str, session_id: str, seq: int, number: int = 0) -> str:
    """Return the id of a block's record for passage `number` of a message, counted from 0."""
    place = (block, owner, session_id, seq)
    # "passage" avoids equal ids: a session id may contain the separator, and end like a seq
    return record_id(*place, f"passage {number}") if number else record_id(*place)


def with_successors(ids: Iterable[str], facts: Iterable[Fact]) -> frozenset[str]:
    """Return ids of records, and the ids of the facts that superseded them."""
    successors = {fact.id: fact.superseded_by for fact in facts}
    result = set[str]()
    for name in ids:
        at: str | None = name
        while at is not None and at not in result:
            result.add(at)
            at = successors.get(at)
    return frozenset(result)


def superseded_facts(name: str, facts: Iterable[Fact]) -> list[str]:
    """Return the ids of the facts that a fact superseded, directly or through other facts."""
    successors = {fact.id: fact.superseded_by for fact in facts}
    result = [name]
    for at in result:
        result += [old for old, new in successors.items() if new == at and old not in result]
    return result[1:]


def record_id(*parts: object) -> str:
    """Return an id that depends only on the parts, so that a retry overwrites its own record."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
