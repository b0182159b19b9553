"""`AgentMemory`: the engine. Synchronous, safe to share between threads."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_memory.core.context import MemoryContext
from agent_memory.core.ids import check_id
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Entry, Head, Recall, Scope, empty_head
from agent_memory.core.turns import Turn
from agent_memory.engine.loop.turns import Turns
from agent_memory.engine.opened import OpenMemory
from agent_memory.engine.paging import all_heads, page_of
from agent_memory.engine.processing.absorb import check_block
from agent_memory.engine.session import Session
from agent_memory.engine.sharing.shares import Share
from agent_memory.engine.stats import Progress, Stats
from agent_memory.engine.user import User
from agent_memory.models.loading import load_in_background

if TYPE_CHECKING:
    from agent_memory.engine.loop.offering import GivenTool

logger = logging.getLogger(__name__)


class AgentMemory(OpenMemory):
    """Memory of an agent: sessions within a token budget, long-term blocks per user.

    Give a configuration, or its fields: `AgentMemory(max_tokens=8000, model="openai/gpt-4o-mini")`.
    Share one between threads; use it as a context manager, or call `close`.

    A session belongs to the first user named for it. Every call that names a user raises
    `SessionOfAnotherUser` for a session of another one, and does nothing.

    Args:
        config: All settings; None takes the defaults (one SQLite file, no model).
        **fields: Fields of `AgentMemoryConfig`, over those of `config`.

    Attributes:
        config: The settings.
        blocks: The configured long-term blocks, by name.
        components: What it delegates to. For this package's own faces; it may change at any time.

    Raises:
        ConfigError: The configuration cannot work: an unknown store, a missing extra, vectors of
            another dimension.
        pydantic.ValidationError: A field is unknown or its value bad.
        StoreError: The store cannot be opened.
    """

    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """Append a message, or a list of them atomically; make room where the window overflows.

        With `overflow_mode="background"` the room is made after this returns.

        Args:
            session_id: The conversation.
            message: An OpenAI chat dict, a `Message`, an object with `model_dump()`, or a list of
                these. A system message replaces the session's system message.
            user_id: The user it belongs to.

        Returns:
            The session's head afterwards. The messages are durable, whatever became of making room.

        Raises:
            InvalidInput: An id or a message is not usable, or a message could never fit the budget;
                nothing was stored.
            StoreError: The store failed; nothing was stored.
        """
        self._guard.check(session_id, user_id)
        given = message if isinstance(message, list | tuple) else [message]
        if not given:
            return self._guard.owned(session_id, user_id) or empty_head(
                session_id, user_id, datetime.now(UTC)
            )
        head = self.components.deletion.retried(
            session_id, lambda: self._appender.append(session_id, given, user_id)
        )
        head = self._settle(head)
        if self._will_ask_models:  # begun after the first update, the import delays it least
            self._will_ask_models = False
            load_in_background()
        return head

    def get(
        self, session_id: str, message: Any = None, *, user_id: str | None = None
    ) -> MemoryContext:
        """The window, plus what the blocks recall for `message`; never above the budget.

        Args:
            session_id: The conversation; one that does not exist yet gives recalls only.
            message: Text or a message to recall for. It is not stored; `to_messages()` ends with
                it, where a user says it. None recalls for the newest user message of the window.
            user_id: The user, needed where the session does not exist yet.

        Raises:
            InvalidInput: An id or the message is not usable.
            StoreError: The session store failed. Blocks that fail are named in `warnings`.
        """
        return self._contexts.get(session_id, message, user_id)

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """What blocks recall, and what was noted, merged best first, without a window.

        Where no block absorbs, a session is searched in its log, by words alone: the newest 5,000
        messages, for which an index is made each time.

        Args:
            query: What to look for.
            user_id: Whose memory to search; without user and session, what holds for everyone.
            session_id: Only what comes from this session, what was noted outright, and what holds
                for everyone.
            limit: At most this many.
        """
        found, warnings = self.components.search.run(query, user_id, session_id, limit)
        for warning in warnings:
            logger.warning("search: %s", warning)
        return found

    def history(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Entry]:
        """The log, past the window too: entries with seq above `after`, at most `limit`."""
        self._guard.check(session_id, user_id)
        if self._guard.owned(session_id, user_id) is None:
            return []
        return self._store.read(session_id, after=after, limit=limit)

    def pop(self, session_id: str, count: int = 1, *, user_id: str | None = None) -> list[Message]:
        """Take the newest messages back, with the records derived from them.

        Returns:
            The messages taken, oldest first; fewer than `count` where there are no more.
        """
        self._guard.admit(session_id, user_id)
        return self.components.editor.pop(session_id, count)

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """What to send a model: the context for a turn, with the turn at its end. Stores nothing.

        Args:
            session_id: The conversation.
            message: The turn so far: the question as text or as a message, or a list of messages,
                such as the question, an assistant message with calls of tools, and their results.
            user_id: The user, needed where the session does not exist yet.

        Returns:
            The turn; its `messages` are for any chat API, within `max_tokens`. Of the context
            recalls give way to the turn first, then the oldest turns.

        Raises:
            InvalidMessage: Nothing is asked, or a call of a tool has no result.
            MessageTooLarge: The turn alone with the system message does not fit.
        """
        return self.turns.before(session_id, message, user_id)

    def after_turn(self, turn: Turn, answer: Any) -> Head:
        """Store a turn with its answer, all of it or nothing.

        What `regenerate` gave is put in the place of the old answer.

        Args:
            turn: What `before_turn` or `regenerate` gave.
            answer: What the model said, as text or in any form that `update` takes; or a list, in
                order: assistant messages with calls of tools, their results, the answer.

        Raises:
            InvalidMessage: The turn does not end with an answer, or a call has no result, or a
                result no call. Nothing was stored.
            InvalidInput: The session went on since `regenerate`. Nothing was stored.
            MessageTooLarge: One of the messages could never fit the budget. Nothing was stored.
        """
        return self.turns.after(turn, answer)

    def regenerate(self, session_id: str, *, user_id: str | None = None) -> Turn:
        """What to send a model for another answer to the session's newest question. Stores nothing.

        The context is that of before the question: the answer that it has by now, the calls of
        tools between them, and what blocks derived from these are not in it. Give the new answer to
        `after_turn`, which puts it in the old one's place, in one step; until then the old one
        stays. A question that has no answer yet is simply asked.

        Raises:
            InvalidInput: The session has no message of a user.
            MessageTooLarge: The question alone with the system message does not fit.
        """
        return self._regenerating.turn(session_id, user_id)

    def completion(
        self,
        /,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        **options: Any,
    ) -> Any:
        """Recall, ask the model, run its tools, and store the turn once the answer is there.

        Whatever fails or is broken off on the way, nothing is stored.

        Args:
            session_id: The conversation.
            message: As for `before_turn`.
            user_id: The user, needed where the session does not exist yet.
            model: Another litellm model than the configured one.
            tools: What the model may call. Schemas of the memory's own tools (see `tools`) are run
                for this session and user; functions are called with checked arguments, and what
                they raise is raised, but for `ToolRefused`, which the model reads. A call of any
                other schema is handed back: see below.
            stream: Give litellm's chunks as they arrive, of all rounds.
            max_rounds: How often tools may be run; then the model has to answer without.
            **options: What else litellm is to send: `temperature`, `response_format`, ...

        Returns:
            litellm's `ModelResponse`, or with `stream` an iterator of its chunks. Where it calls
            tools that the caller has to run, nothing is stored yet: go on with
            `completion(session_id, [question, response, *results], ...)`.

        Raises:
            InvalidInput: The turn so far, a tool or an option is not usable.
            MessageTooLarge: The turn does not fit the budget, or the answer never could.
            ModelRequired: No model is configured or named.
            ModelError: The model failed.
        """
        ask = self.turns.complete
        given = {"tools": tools, "stream": stream, "max_rounds": max_rounds, **options}
        return ask(session_id, message, user_id=user_id, model=model, **given)

    def tools(self, session_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """What a model may ask of the memory, in OpenAI's form: `memory_read`, `memory_write`,
        `memory_forget`, and what each block offers.

        Raises:
            ConfigError: Two tools have the same name.
        """
        return self._toolbox.schemas(session_id, user_id)

    def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
    ) -> str:
        """Do what a model asked for; the text is the tool's result, for the model to read.

        What it asked for in vain comes back as a text that tells it what to do; so does an outage
        of the store, which is logged.

        Args:
            session_id: The session at hand.
            name: The tool's name, as the model gave it.
            arguments: Its arguments: a mapping, or JSON as models send it.
            user_id: The user, needed where the session does not exist yet.
        """
        return self._toolbox.call(session_id, name, arguments, user_id)

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """Say that a conversation is over for now: what is pending is absorbed, what was kept for
        its time only (`WorkingMemory`) is cleared. The log stays, and it may go on.
        """
        scope = self._guard.scope(user_id, session_id)
        absorbed = self.flush(session_id)
        for block in self.blocks.values():
            block.end(scope)
        return absorbed

    def flush(self, session_id: str | None = None, *, user_id: str | None = None) -> list[Absorbed]:
        """Absorb whatever is pending, now: of one session, of one user's, or of all. Idempotent.

        A stand-in summary is redone too, where the model is back.
        """
        self._guard.admit(session_id, user_id)
        if session_id is not None:
            return self._flush(session_id)
        self.components.deletion.resume()
        heads = all_heads(self._store, user_id)
        return [one for head in heads for one in self._flush(head.session_id)]

    def delete(self, session_id: str, *, user_id: str | None = None) -> None:
        """Remove the session's log and head, and every record that blocks derived from it.

        Idempotent; a deletion that was interrupted is resumed by the next call for the session.
        Blocks that are no longer configured are deleted from too, in this memory's own store.
        """
        self._guard.admit(session_id, user_id)
        self.components.deletion.session(session_id)

    def delete_user(self, user_id: str) -> None:
        """The same for all of a user's sessions and records."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        self.components.deletion.user(user_id)

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """A page of sessions in order of their ids: those after `after`, of one user if named.

        Those of shared namespaces are not among them: see `Share.sessions`.
        """
        self._guard.check(None, user_id)
        return page_of(self._store, user_id, limit=limit, after=after)

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """The calls for one conversation, with the ids bound."""
        self._guard.check(session_id, user_id)
        return Session(self, session_id, user_id)

    def user(self, user_id: str) -> User:
        """What is known of a user, and kept for them: facts, notes, files, skills, places."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        return User(self, user_id)

    def share(self, name: str) -> Share:
        """A namespace that several agents read and write, each as far as it was granted.

        There is one of a name in a store, for all processes, and in this memory one object. Nothing
        is written until something is granted. `name` has 1 to 64 characters.

        Raises:
            InvalidId: The name is not usable.
        """
        self._guard.check(None, None)
        return self._shares.of(self, name)

    def open(self, kind: str) -> Any:
        """The handle of a kind of block on what is everybody's, such as `open("skills")`.

        Raises:
            ConfigError: No block of that kind is configured, or it offers no handle.
            InvalidInput: Nothing that it keeps is everybody's.
        """
        self._guard.check(None, None)
        return self._open(kind, Scope())

    def replay(self, block: str) -> Iterator[Progress]:
        """Rebuild one block, by its name, from the log, session by session, while other calls go
        on; progress after each. One that was interrupted goes on where it stopped.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        self._guard.check(None, None)
        check_block(block, self.components.absorber.blocks)
        return self.components.replay.run(block)

    def stats(self) -> Stats:
        """Counts, what each block still has to absorb, model calls, tokens and cost."""
        self._guard.check(None, None)
        return self.components.stats()

    @property
    def turns(self) -> Turns:
        """The calls about a turn, over this memory's. For this package's own faces."""
        return Turns(
            get=self.get,
            update=self.update,
            replaced=self._regenerating.replace,
            call_tool=self.call_tool,
            toolbox=self._toolbox.tools,
            models=self.components.services.resources.models,
            counter=self._counter,
        )
