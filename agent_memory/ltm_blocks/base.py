"""What a long-term block is: a consumer of the log that can be asked."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from agent_memory.core.addresses import Address
from agent_memory.core.lazy import made_once
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, LeftOut, Recall, Record, Scope, Source, Span
from agent_memory.errors import ConfigError
from agent_memory.stores.pending import Pending

if TYPE_CHECKING:
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.core.tools import Tool
    from agent_memory.core.turns import Turn
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale
    from agent_memory.ltm_blocks.notes import Notes
    from agent_memory.models.embedders.base import Encoder
    from agent_memory.models.llm import LLM
    from agent_memory.stores.base import Store, VectorStore


@dataclass(frozen=True)
class Resources:
    """What the engine gives the blocks it runs.

    Attributes:
        store: Sessions, facts and vectors of the deployment's namespace.
        namespace: The deployment's namespace, for stores that a block opens itself.
        counter: The token counter of the configured model.
        models: Opens a language model by name; for None the configured one, or None without one.
        embedders: Opens an embedder by name; for None the configured one, or the local default.
        vectors: Opens a vector store by its address, for its opener to close; for None it is
            `store`. Encrypted, where that is.
        locked: Holds a lock by its name, in all processes of the deployment; waits for it.
        redact: Takes out of a text what is not to be kept: what blocks are given outright they keep
            as it gives it.
        min_relevance: The relevance that a recall needs; see `AgentMemoryConfig`.
    """

    store: Store
    namespace: str
    counter: TokenCounter
    models: Callable[[str | None], LLM | None]
    embedders: Callable[[Any], Encoder]
    vectors: Callable[[str | None], VectorStore]
    locked: Callable[[str], AbstractContextManager[None]]
    redact: Callable[[str], str] = str
    min_relevance: float = 0.2

    @made_once
    def pending(self) -> Pending:
        """Reads what a block has not absorbed yet."""
        return Pending(self.store)


class Block(BaseModel, ABC):
    """Base of long-term blocks: a frozen value that names its settings.

    A block of your own subclasses this, sets a `kind`, and writes three methods; each may be
    `async def` too. Keep no per-call state on the block: it serves many users and threads.

    Attributes:
        kind: What configuration files call it.
        name: What its records are kept under; must be unique in a deployment. Default: `kind`.
        max_tokens: At most this many tokens of a context; None for no limit of its own.
        store: Another database for what it keeps, by its URL, such as "sqlite:///facts.db"; None
            keeps it with the sessions.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    kind: Any  # a string; typed so that a subclass may narrow it to its literal
    name: str = Field(default="", pattern=r"^([a-z][a-z0-9_]*)?$")
    max_tokens: int | None = Field(default=None, gt=0)
    store: Address[str | None] = Field(default=None, repr=False)

    _resources: Resources | None = PrivateAttr(default=None)

    def model_post_init(self, context: object, /) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.kind)

    @property
    def absorbs(self) -> bool:
        """Whether the engine feeds it the log."""
        return True

    @property
    def routed_to(self) -> str | None:
        """The database in which the engine is to keep its records and vectors; None: the usual."""
        return self.store

    @property
    def recalls_pending(self) -> bool:
        """Whether it recalls messages, and those too that it has not absorbed yet.

        Where no block does, the engine searches the log for what is not absorbed.
        """
        return False

    @property
    def searched(self) -> bool:
        """Whether `search` asks it too; not if it recalls the same whatever is asked."""
        return True

    @property
    def selective(self) -> bool:
        """Whether it recalls only what bears on the message, scored by how much it does.

        Such a block is not asked where a message only thanks or greets. A context leaves out
        recalls that score much less than the best of the block.
        """
        return False

    @property
    def of_session(self) -> bool:
        """Whether what it keeps is a session's, so that its tools need a session at hand."""
        return False

    @property
    def counts_recalls(self) -> bool:
        """Whether it is to be told what of it contexts have; see `recalled`."""
        return False

    def recalled(self, scope: Scope, ids: Sequence[str]) -> None:
        """Told which of its recalls stand in a context that is sent to a model and, more likely
        than not, have to do with what was asked."""

    @property
    def versioned(self) -> bool:
        """Whether it remembers an owner's records until their version changes.

        An import writes a new version for such a block; see `agent_memory.ltm_blocks.versions`.
        """
        return False

    @property
    def vectors(self) -> VectorStore:
        """Where its vectors are, once it is bound."""
        return self.resources.store

    @property
    def language_models(self) -> tuple[str | None, ...]:
        """The language models that it cannot absorb without, by name; None is the configured one.

        Where none is configured, that is said; and litellm is loaded before one is asked.
        """
        return ()

    def bind(self, resources: Resources) -> Self:
        """A copy of this block that works with `resources`. The block itself stays a plain value.

        Raises:
            ConfigError: It cannot work with them (a missing extra, another dimension).
        """
        bound = self.model_copy()
        bound._resources = resources
        return bound

    def load(self) -> None:
        """Called before the first `get`: load what is on this machine and takes long.

        The time limit of an answer begins after it, so that the first question of a process is
        answered too; ten seconds at most are waited for it.
        """

    def warm(self, scope: Scope) -> None:
        """Called by `AgentMemory.warm_up`, after `load`: read what the first `get` for a scope
        would read. No model is asked.
        """

    def said(self, scope: Scope) -> None:
        """Told that a session has new messages, which are stored. Be quick: the caller waits."""

    def prepare(self, entries: Sequence[Entry]) -> None:
        """Told what the next calls of `update` will bring, of several sessions.

        What takes long for one batch at a time, such as asking an embedder, can be done for all at
        once. `update` may be called without it, and an error here is no failure of the block.
        """

    def clear(self, resources: Resources) -> None:
        """Drop what settings of before left that these can't be bound over; before a rebuild."""

    def rebuilding(self) -> bool:
        """Told to a bound block before it is rebuilt.

        Returns:
            Whether what it absorbs now is put in force only by `rebuilt`.

        Raises:
            DimensionMismatch: It could be bound, but not written to: `clear` is to come first.
        """
        return False

    def rebuilt(self) -> None:
        """Told to a bound block once it has absorbed everything anew."""

    def open(self, scope: Scope) -> Any:
        """A handle on what it keeps for a user, or for a session: calls for people and programs.

        Raises:
            ConfigError: It offers none.
        """
        raise ConfigError(
            f"The block {self.name!r} has nothing to open: {type(self).__name__} offers no handle."
        )

    def tools(self) -> Sequence[Tool]:
        """What a model may ask of it, by names that begin with the block's own."""
        return ()

    def outdated(self, scope: Scope, sources: Collection[Source]) -> Mapping[Source, datetime]:
        """Which of some messages, that others recall, tell nothing that holds still, as far as it
        knows; and since when it knows.
        """
        return {}

    def left_out(self, scope: Scope, message: Message, limit: int) -> Sequence[LeftOut]:
        """What it knows that is near to `message` and that `get` leaves out, with the why."""
        return ()

    def all_kept(self, scope: Scope) -> Sequence[Recall]:
        """All that it keeps for a user, each with the id by which `forget` forgets it; for reports
        of what is old or kept twice. Messages of the log are left out: they are reported as said.
        """
        return ()

    def forget(self, scope: Scope, what: str | Span, why: str) -> Sequence[Any]:
        """Forget something for good: one thing by its id, or what comes from a part of a session.

        The tool `memory_forget` asks every block, with an id that `memory_read` gave.

        Returns:
            What is gone; nothing where the block knows no such thing, or cannot forget one.
        """
        return ()

    def validate_import(self, record: Record) -> Record:
        """Check a record that somebody's snapshot says is this block's. Nothing is written yet.

        Returns:
            The record as it is to be kept.

        Raises:
            InvalidInput: The block could not read it; the sentence says why, and the snapshot is
                refused with it and the line. The `ValidationError` of a pydantic model that the
                record's metadata does not fit is understood too.
        """
        return record

    def validate_vectors(self, dimension: int, model: str) -> bool:
        """Whether it could search a snapshot's vectors. If not, it absorbs the session anew.

        Args:
            dimension: How many numbers each has.
            model: The embedding model they are of.
        """
        return self.vectors.vector_blocks().get(self.name) == (dimension, model)

    def turn_began(self, scope: Scope, turn: Turn) -> Awaitable[None] | None:
        """Told that a model is about to be asked: what the user said, and the context that is sent.

        Of turns that the memory is told of: `before_turn`, `regenerate`, `completion`. Be quick,
        the caller waits; what goes wrong is logged. A turn may never end.
        """

    def turn_ended(
        self, scope: Scope, turn: Turn, said: Sequence[Message]
    ) -> Awaitable[None] | None:
        """Told that a turn is stored, by `after_turn` or `completion`; as `turn_began`. `said` is
        all of it: the question, calls of tools and their results, the answer.
        """

    def end(self, scope: Scope) -> None:
        """Told that a session is over: what was kept for its time only can go."""

    def problems(self, resources: Resources) -> Sequence[str]:
        """What is wrong with what it keeps, each with what to do; `agent-memory doctor` asks.

        Changes nothing; the block need not be bound.
        """
        return ()

    def close(self) -> None:
        """Release what `bind` opened."""

    @property
    def resources(self) -> Resources:
        """What `bind` was given."""
        assert self._resources is not None, "the engine binds a block before it uses it"
        return self._resources

    @abstractmethod
    def get(
        self, scope: Scope, message: Message | None, limit: int
    ) -> list[Recall] | Awaitable[list[Recall]]:
        """What this block knows that bears on `message` (None: in general), best first."""
        ...

    @abstractmethod
    def update(self, scope: Scope, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Absorb entries of one session. Called again with the same entries it changes nothing."""
        ...

    @abstractmethod
    def delete(self, scope: Scope) -> Awaitable[None] | None:
        """Forget what derives from a session, from its entries after a seq, or from a user."""
        ...


class ManualBlock(Block):
    """A block that keeps what it is given outright, and absorbs nothing of the log."""

    @property
    def absorbs(self) -> bool:
        return False

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Nothing: what it keeps is written outright."""


class NoteBlock(ManualBlock):
    """A block that takes notes. What `memory_write` writes goes to the first one configured."""

    @abstractmethod
    def open(self, scope: Scope) -> Notes:
        """The notes of a user, or of a session without one."""
        ...


class FactBlock(Block):
    """A block whose records are facts, each with its history."""

    @property
    def versioned(self) -> bool:
        return True

    @abstractmethod
    def facts(
        self,
        scope: Scope,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        superseded: bool = False,
    ) -> list[Fact]:
        """What holds; see `User.facts`."""
        ...

    @abstractmethod
    def stale(self, scope: Scope) -> list[Stale]:
        """Facts that are not worth recalling; see `User.stale`."""
        ...

    @abstractmethod
    def forget(self, scope: Scope, what: str | Span, why: str) -> list[Fact]:
        """Forget a fact by its id, or what comes from a part of a session.

        Returns:
            The facts that are gone.
        """
        ...

    @abstractmethod
    def audit(self, scope: Scope) -> list[Change]:
        """Every change, oldest first; see `User.audit`."""
        ...

    def filled(
        self, scope: Scope, *, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> BaseModel | None:
        """The profile that it fills, as it stood; None for a block that fills none."""
        return None


def batch_id(block: str, owner: str, session_id: str, first: int, last: int) -> str:
    """The id of the one record that a block keeps of a batch of a session's entries."""
    return record_id(block, owner, session_id, first, last, "batch")


def message_id(block: str, owner: str, session_id: str, seq: int, number: int = 0) -> str:
    """The id of the record that a block keeps of one message, or of a further passage of it.

    Args:
        block: The block's name.
        owner: As `Scope.owner`.
        session_id: The session.
        seq: The message's.
        number: The passage's, counted from 0.
    """
    place = (block, owner, session_id, seq)
    # no number at its end: else it could be a message's, of a session named like this place
    return record_id(*place, f"passage {number}") if number else record_id(*place)


def record_id(*parts: object) -> str:
    """A deterministic id: the same parts name the same record, so a retry overwrites itself."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
