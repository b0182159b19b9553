"""`AgentMemory`: the engine. It is synchronous, and threads may share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

from agent_memory.config.settings import NOTES
from agent_memory.core.idempotency import check_end
from agent_memory.core.limits import (
    at_most,
    check_callable,
    check_id,
    check_share,
    how_many,
    place_in_log,
    text_of,
)
from agent_memory.core.notices import with_call_errors
from agent_memory.core.recognition import check_pair
from agent_memory.core.records import Absorbed, Entry, Head, Recall, Scope
from agent_memory.core.tracing import of_id, of_messages, traced
from agent_memory.engine.append import Update
from agent_memory.engine.later import load_rest, with_rest
from agent_memory.engine.opened import OpenMemory
from agent_memory.engine.paging import read_of
from agent_memory.engine.processing.absorb import check_block
from agent_memory.engine.processing.session_work import replay
from agent_memory.errors import InvalidBudget, InvalidInput, SessionDeleting

if TYPE_CHECKING:
    from agent_memory.core.context import Explanation, MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.prompt_log import LoggedPrompt
    from agent_memory.core.receipts import Receipt
    from agent_memory.core.turns import Turn
    from agent_memory.engine.loop.rounds import ToolLike
    from agent_memory.engine.loop.turns import Turns
    from agent_memory.engine.session import Session
    from agent_memory.engine.sharing.shares import Share
    from agent_memory.engine.stats import Progress, Stats
    from agent_memory.engine.user import User
    from agent_memory.engine.values.key_values import KeyValues
    from agent_memory.ltm_blocks.notes import Note, Notes
    from agent_memory.models.embedders.base import Embedder


def _is_plain(message: Any) -> bool:
    """Return whether a message is a text, alone or with a role."""
    if type(message) is not dict:
        return type(message) is str
    return message.keys() <= {"role", "content"} and type(message.get("content")) is str


def _namespace(memory: AgentMemory) -> str:
    return memory.config.namespace


@with_call_errors
@with_rest
class AgentMemory(OpenMemory):
    """The memory of an agent: sessions with a token budget, and long-term memory of each user.

    Pass a configuration or its fields: `AgentMemory(max_tokens=8000, model="openai/gpt-4o-mini")`.
    Threads may share one instance. Use it as a context manager, or call `close`.

    The messages in a session's log have the numbers (`seq`) 1, 2, 3, ... The window is the newest
    part of the log, which contexts show. Blocks absorb messages: they derive records from them,
    which contexts recall. A head is the stored state of a session.

    The first call that names a user for a session makes this user the session's owner. Every call
    that names another user raises `SessionOfAnotherUser` and changes nothing.

    Args:
        config: All settings. None takes the defaults: one SQLite file, no model, a `VectorMemory`.
            A path or a URL names the store: `AgentMemory("me.db")`. The address of a service,
            `AgentMemory("https://...", api_key=...)`, returns a `RemoteMemory`.
        **fields: Fields of `AgentMemoryConfig`, which override those of `config`. For a service,
            the arguments of `RemoteMemory`.

    Attributes:
        config: The settings.
        blocks: The configured long-term blocks, by name.
        components: Internal objects, for other modules of this package. They may change without
            notice.

    Raises:
        ConfigError: The configuration cannot work: an unknown store, a missing extra, or stored
            vectors of another dimension or model.
        InvalidSetting: A field is unknown or its value is invalid.
        StoreError: The store cannot be opened.
    """

    def __new__(cls, config: Any = None, **fields: Any) -> Self:
        if (
            cls is AgentMemory
            and isinstance(config, str)
            and config.startswith(("http://", "https://"))
        ):
            remote = import_module("agent_memory.client.memory").RemoteMemory
            return cast("Self", object.__new__(remote))
        return super().__new__(cls)

    @traced("upsert_memory", _namespace, of_messages)
    def update(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """Append a message, or a list of messages atomically. Shorten the window if it overflows.

        With `overflow_mode="background"`, the window is shortened after this call returns.

        Args:
            message: Text, a `Message`, or a list of messages. A message may also be a dict in the
                format of LangChain or of the API of OpenAI, Anthropic, Gemini or Bedrock, or an
                object or a whole response of their SDKs. A system message replaces the session's
                system message. A list may begin with the messages of the session's last `get`.
                These messages are already stored, and are skipped.
            user_id: The user that the session belongs to.
            key: An idempotency key for this write in its session, such as a UUID. A retry with the
                same key and the same messages stores nothing. Messages with an `id` need no key:
                a message whose `id` is already stored is skipped.
            expected_end: Append only if the log still ends at this seq. Pass the `end` of the last
                head that you have read, or 0 for a new session.

        Returns:
            The session's head afterwards. The messages are durable, even if shortening the window
            failed. A retry returns the `end` and `total` of the first call.

        Raises:
            InvalidInput: An id or a message is not valid. Or a message is larger than
                `max_message_bytes`, or contains recalls or the summary of an earlier `get`. Nothing
                was stored.
            Conflict: The key or an id was used for other content, or the log does not end at
                `expected_end`. Nothing was stored.
            StoreError: The store failed, and nothing was stored. Exception: after a broken
                connection or an interrupted write, the messages may be stored. A retry with the
                same `key` is safe.
        """
        self._guard.check_session(session_id, user_id)
        check_pair(message)
        messages: Sequence[Any] = message if isinstance(message, list | tuple) else [message]
        if not all(map(_is_plain, messages)):
            load_rest()  # the formats of providers are needed
        messages = self.components.new_in(session_id, messages)
        if not messages:
            head = self._guard.owned(session_id, user_id) or Head(
                session_id, user_id, created_at=datetime.now(UTC)
            )
            if expected_end is not None:
                check_end(expected_end, head.end)
            return head
        update = Update(session_id, messages, user_id, key, expected_end)
        append = partial(self._appender.append, update)
        try:
            stored = append()
        except SessionDeleting:
            stored = self.components.deletion.retried(session_id, append)
        return self._updated(*stored)

    def get(
        self,
        session_id: str,
        message: Any = None,
        *,
        user_id: str | None = None,
        max_tokens: int | None = None,
        format: str | None = None,
        window: Sequence[Any] | None = None,
    ) -> MemoryContext:
        """Return the window, plus the records that blocks recall for `message`, within the budget.

        Long messages are shortened and marked. The result's `warnings` say how many messages of
        the newest turn were shortened or left out.

        Args:
            session_id: The conversation. For a session that does not exist yet, the context has
                recalls only.
            message: Text or a message to recall for. It is not stored. If it is a user's message,
                `to_messages()` ends with it. None recalls for the window's newest user message.
            user_id: The user. Required if the session does not exist yet.
            max_tokens: The budget of this call in tokens, smaller than the configured budget.
            format: The provider for `to_arguments()` and `to_messages()`: "openai.chat",
                "openai.responses", "anthropic.messages", "google.contents", "bedrock.converse" or
                "langchain". None means OpenAI's chat. Items that only the provider reads, such as
                its reasoning, are included unchanged. If the provider has compacted the
                conversation itself, its newest compaction replaces all earlier messages.
            window: Messages to show instead of the session's window, each in a form that `update`
                takes. Frameworks pass the messages that they are about to send, with the current
                turn. These messages are not stored. A system message is shown only if it is in this
                list. Messages in the session's window are not recalled.

        Raises:
            InvalidInput: An id, a message or the format is not valid.
            InvalidBudget: `max_tokens` is not a positive number of tokens.
            StoreError: The session store failed. Failed blocks are listed in `warnings`.
        """
        contexts = self.components.contexts
        return contexts.get(session_id, message, user_id, max_tokens, format, window)

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
        blocks: Iterable[str] | None = None,
        roles: Iterable[str] | None = None,
        since: datetime | date | None = None,
        until: datetime | date | None = None,
        where: Mapping[str, Any] | None = None,
        least: float | None = None,
        entries: bool = False,
    ) -> list[Recall]:
        """Return the records and notes that match a query, best first.

        Messages that blocks have not absorbed yet are pending, and are searched too. If no block
        recalls pending messages, a word search covers the newest 5,000 of them. If no block absorbs
        messages, all messages are pending.

        Args:
            query: The text to search for.
            user_id: The user whose memory is searched. If neither a user nor a session is named,
                only records for everyone are searched.
            session_id: Only records from this session, and records from no session, such as notes.
            limit: The maximum number of results.
            blocks: Only records of these blocks, by name. "log" is the word search in the log. For
                an unknown name, a warning is logged.
            roles: Only records from messages of these roles.
            since: Only messages of this time or later: a date (UTC), or a time with a time zone.
            until: Only messages before this time.
            where: Conditions on the messages' metadata, as for `KeyValues.search`.
            least: The minimum score, in place of the setting `min_relevance`. 0 returns the nearest
                records, except those that share nothing with the query.
            entries: Whether each recall includes its source messages.

        Raises:
            InvalidInput: The query is not text, the limit is not a number, or a filter is invalid.
        """
        from agent_memory.engine.recall.merged_search import Filter

        only = Filter.of(blocks, roles, since, until, where, least, entries)
        recalls, _ = self.components.search.run(query, user_id, session_id, limit, only)
        return recalls

    def explain(
        self, question: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> Explanation:
        """Return the records that a question would recall, and the omitted records with reasons.

        A record is left out if it is not relevant enough, is superseded, has no room in the budget
        or is shown already. Warnings name messages that blocks have not absorbed yet or could not
        absorb, and a session that belongs to another user. `print` shows all of this.

        Args:
            user_id: The user who asks.
            session_id: The session in which the user asks. None means a new session.

        Raises:
            InvalidInput: Neither a user nor a session is named, or an id is not valid.
        """
        if user_id is None and session_id is None:
            raise InvalidInput("Say whose memory: give a user_id, or a session_id.")
        text_of("question", question)
        from agent_memory.engine.recall.merged_search import explain

        return explain(self.components, question, user_id, session_id)

    def remember(
        self,
        text: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        at: datetime | date | None = None,
        key: str | None = None,
    ) -> Note:
        """Store a text as a note, without storing a message or calling a model.

        `get` and `search` find the note immediately. With `blocks=[]`, only `search` finds it. A
        note with the same words is not stored twice.

        Args:
            text: The text to remember, ideally one fact in a full sentence.
            user_id: The owner of the note.
            session_id: The session of the note, if any. The note is deleted with the session.
                Without `user_id`, the session is required, and the note belongs to the session.
            at: The time from which the text is true: a date, or a time with a time zone. None means
                now.
            key: An idempotency key, for retries with the same text.

        Raises:
            InvalidInput: The text is empty or too long, there are too many notes, neither a user
                nor a session is named, or `at` has no time zone. Nothing was stored.
            Conflict: The key was used for a stored note with another text.
        """
        scope = self._guard.scope(user_id, session_id)
        return cast("Notes", self.components.open(NOTES, scope)).add(text, at=at, key=key)

    def history(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """Return the log's entries in order, including entries that left the window.

        Args:
            user_id: The user that the session must belong to.
            after: Only entries after this seq.
            limit: The maximum number of entries, from the oldest.
            last: The maximum number of entries, from the newest.

        Returns:
            The entries. An empty list if the session does not exist.

        Raises:
            InvalidInput: Both `limit` and `last` are set, or a number is not valid.
        """
        if last is not None and limit is not None:
            raise InvalidInput("Give `limit` or `last`, not both.")
        after, limit = place_in_log("after", after), at_most("limit", limit)
        last = at_most("last", last)
        head = self._guard.owned(session_id, user_id)
        if head is None:
            return []
        if last is not None:
            after = max(after, head.end - last)
            return read_of(self._store, head, after=after)[-last:] if last else []
        return read_of(self._store, head, after=after, limit=limit)

    def contexts(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[LoggedPrompt]:
        """Return the contexts that models were sent in a session, oldest first.

        These are the contexts of `get`, `before_turn`, `regenerate`, and `completion` with its tool
        rounds. They are stored only while `keep_contexts=True` is set.

        Limitations: If the session does not exist yet, or does not belong to the named user yet,
        its context is not stored immediately. The process holds only the latest of these contexts,
        and stores it after the first message of the session or of this user. If the process ends
        earlier, the context is lost.

        Args:
            user_id: The user that the session must belong to.
            after: Only turns that begin after this seq.
            limit: The maximum number of turns.

        Raises:
            InvalidInput: An id, `after` or `limit` is not valid.
        """
        after, limit = place_in_log("after", after), at_most("limit", limit)
        return self.components.contexts.were(session_id, user_id, after, limit)

    @traced("delete_memory", _namespace, of_id)
    def pop(self, session_id: str, count: int = 1, *, user_id: str | None = None) -> list[Message]:
        """Remove the newest messages and the records derived from them.

        Returns:
            The removed messages, oldest first: fewer than `count` if the log has fewer.

        Raises:
            InvalidInput: `count` is not a whole number of 0 or more.
            UnsupportedOperation: Only the newest message is left, because `retention` has removed
                the others. It cannot be removed. Delete the session instead.
            StoreUnavailable: A worker did not release the session in time. Nothing was removed.
        """
        self._guard.check_session(session_id, user_id)
        return self.components.editor.pop(session_id, how_many("count", count), user_id)

    def prune(self, session_id: str, max_tokens: int, *, user_id: str | None = None) -> Head:
        """Shorten the session's window to `max_tokens` tokens now, even if it does not overflow.

        The oldest messages leave the window, and are summarized and absorbed as after an overflow.
        The log is not changed.

        Returns:
            The head afterwards. Its `window_tokens` are at most `max_tokens`, unless the newest
            message, its question and its tool calls need more.

        Raises:
            InvalidBudget: `max_tokens` is not a positive number of tokens.
            InvalidInput: The session does not exist.
            StoreUnavailable: A worker did not release the session in time. Nothing was changed.
        """
        from agent_memory.engine.recall.contexts import checked_budget

        most = checked_budget(max_tokens)
        if most is None:
            raise InvalidBudget("max_tokens is None. Give a number of tokens above 0.")
        if self._guard.owned(session_id, user_id) is None:
            raise InvalidInput(f"There is no session {session_id!r} to prune.")
        self.components.work.process(session_id, down_to=most, user_id=user_id)
        head = self._guard.owned(session_id, user_id)
        return head or Head(session_id, user_id, created_at=datetime.now(UTC))

    def pin(self, session_id: str, seq: int, *, user_id: str | None = None) -> None:
        """Keep a message in the window, with its question, tool calls and results. Idempotent.

        A message that had left the window returns to the window. Pinned messages take at most half
        of the window. If they need more, the oldest of them leave the window.

        Raises:
            InvalidInput: The log has no message with this seq, or the message is a system message.
        """
        seq = how_many("seq", seq, least=1)
        head = self._guard.owned(session_id, user_id)
        if head is None:
            raise InvalidInput(f"There is no session {session_id!r}.")
        self.components.pins.pin_message(head, seq)

    def unpin(self, session_id: str, seq: int, *, user_id: str | None = None) -> None:
        """Undo `pin`: the message may leave the window at the next overflow. Idempotent."""
        seq = how_many("seq", seq, least=1)
        head = self._guard.owned(session_id, user_id)
        if head is not None:
            self.components.pins.unpin_message(head, seq)

    @traced("update_memory", _namespace)
    def edit(
        self,
        session_id: str,
        change: Callable[[list[Entry]], Iterable[Any]],
        *,
        user_id: str | None = None,
    ) -> Head:
        """Replace a session's log with the result of a function, atomically.

            memory.edit("s-1", lambda log: log[10:])  # without the ten oldest entries
            memory.edit("s-1", lambda log: [*log[:-1], corrected])

        Readers see either the old log or the new log. Entries are renumbered from the first changed
        message on. Blocks delete their records of these entries and absorb the new entries. A
        session that does not exist is created.

        Args:
            change: A function that takes the current entries and returns the new log: entries, or
                messages as for `update`. After a concurrent write it is called again, so it must
                have no side effects.
            user_id: The user that the session belongs to.

        Returns:
            The head afterwards.

        Raises:
            InvalidInput: A message is not valid, or larger than `max_message_bytes`, or `change` is
                not a function. Nothing was changed.
            UnsupportedOperation: The new log is empty, and `retention` has removed messages of the
                session. Delete the session instead.
            StoreError: The store failed, or a worker did not release the session in time. Nothing
                was changed.
        """
        self._guard.check_session(session_id, user_id)
        drafted = partial(self._appender.drafts, session_id=session_id, user_id=user_id)
        head = self.components.deletion.retried(
            session_id, lambda: self.components.editor.change(session_id, change, user_id, drafted)
        )
        return self._settle(head)

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """Return the context for a turn, which ends with the turn's messages. Nothing is stored.

        Args:
            message: The turn so far: the question as text or as a message. Or a list of messages,
                such as the question, an assistant message with tool calls, and their results.
            user_id: The user. Required if the session does not exist yet.

        Returns:
            The turn. Its `messages` suit any chat API and are within `max_tokens`. Recalls and the
            oldest turns are left out to make room for the new messages. Long new messages are
            shortened in `messages`, and complete in `turn_messages`.

        Raises:
            InvalidMessage: There is no question, or a tool call has no result.
        """
        return self.turns.before(session_id, message, user_id)

    def after_turn(
        self, turn: Turn, answer: Any, *, key: str | None = None, expected_end: int | None = None
    ) -> Head:
        """Store a turn with its answer, atomically. A turn of `regenerate` replaces the old answer.

        Args:
            turn: The result of `before_turn` or `regenerate`.
            answer: The model's answer, as text or in any form that `update` takes. Or a list in
                order: assistant messages with tool calls, their results, the answer.
            key: As for `update`. A turn of `regenerate` needs no key: storing the same answer twice
                changes nothing.
            expected_end: As for `update`, for a new turn.

        Raises:
            InvalidMessage: The turn does not end with an answer, a call has no result, or a result
                has no call. Nothing was stored.
            InvalidInput: The session has new messages since `regenerate`. Nothing was stored.
            Conflict: As for `update`. Nothing was stored.
        """
        return self.turns.after(turn, answer, key, expected_end)

    def regenerate(self, session_id: str, *, user_id: str | None = None) -> Turn:
        """Return the context for another answer to the session's newest question. Stores nothing.

        The context excludes the current answer, its tool calls, and records derived from them. Pass
        the new answer to `after_turn`, which replaces the old answer atomically. Until then the old
        answer stays. The newest question may also have no answer yet.

        Raises:
            InvalidInput: The session has no user message.
        """
        turn = self._regenerating.turn(session_id, user_id)
        self.turns.notify(turn, None)
        return turn

    def completion(
        self,
        /,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        model: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        """Recall, call the model, run its tools, and store the turn when the answer is complete.

        If any of this fails or is interrupted, nothing is stored.

        Args:
            message: As for `before_turn`.
            user_id: The user. Required if the session does not exist yet.
            model: Another litellm model than the configured model.
            tools: Tools that the model may call: Python functions, or OpenAI schemas. A function is
                called with checked arguments. The model gets the text of a `ToolRefused`. Other
                exceptions of the function are raised. Schemas from the method `tools` call the
                memory's own tools, which run for this session and user. A call of any other schema
                is returned to the caller: see below.
            stream: Return the chunks of all rounds as they arrive.
            max_rounds: The maximum number of rounds in which the model may call tools. After these
                rounds, the model must answer.
            key: An idempotency key for this turn. If the turn is stored, a retry with the same key
                and question returns the stored answer and calls no model.
            expected_end: As for `update`.
            **options: Further arguments for litellm: `temperature`, `response_format`, ...

        Returns:
            litellm's `ModelResponse`, or with `stream` an iterator of its chunks. If the response
            calls tools that the caller must run, nothing is stored yet. Run them, and continue
            with `completion(session_id, [question, response, *results], ...)`.

        Raises:
            InvalidInput: `message`, a tool or an option is not valid.
            Conflict: The key was used for another question, or its stored answer was removed. Or
                the log does not end at `expected_end` when the answer is to be stored.
            ModelRequired: No model is configured or named.
            ModelError: The model failed.
        """
        ask = self.turns.complete
        arguments = {"tools": tools, "stream": stream, "max_rounds": max_rounds, **options}
        arguments |= {"key": key, "expected_end": expected_end}
        return ask(session_id, message, user_id=user_id, model=model, **arguments)

    def tools(
        self, session_id: str, *, user_id: str | None = None, format: str = "openai.chat"
    ) -> list[dict[str, Any]]:
        """Return the schemas of the memory's tools, for a model.

        They are `memory_read`, `memory_read_message`, `memory_write`, `memory_forget`, and the
        blocks' tools.

        Args:
            user_id: The user, if the session has one.
            format: The provider's form: "openai.chat", "openai.responses", "anthropic.messages",
                "google.contents", "langchain" or "mcp".

        Raises:
            InvalidInput: There is no such format, or it has no form for tools.
            ConfigError: Two tools have the same name.
        """
        return self.components.toolbox.schemas(session_id, user_id, format)

    def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
        key: str | None = None,
    ) -> str:
        """Run a tool call of a model and return the tool's result, as text for the model.

        A failed call returns a text that says what the model should do. If the store or a model
        fails, the call returns such a text too, and logs the failure.

        Args:
            name: The tool's name, as in the model's call.
            arguments: A mapping, or JSON as models send it.
            user_id: The user. Required if the session does not exist yet.
            key: An idempotency key for this call: a retried `memory_write` stores one note. Tools
                of blocks read it as `scope.key`.
        """
        from agent_memory.engine.tool_calls import run_tool

        tools = self.components.toolbox.tools()
        return run_tool(tools, self._guard, session_id, name, arguments, user_id, key)

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """Absorb a session's pending messages, like `flush`, and clear its `WorkingMemory`.

        A `WorkingMemory(persist=True)` is not cleared. The log stays, and the conversation may
        continue.
        """
        self._guard.check_session(session_id, user_id)
        scope = self._guard.scope(user_id, session_id)
        absorbed = self.flush(session_id, user_id=user_id)
        for block in self.blocks.values():
            block.end(scope)
        return absorbed

    def flush(
        self,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> list[Absorbed]:
        """Absorb all pending messages of one session, of one user, or of all users. Idempotent.

        A summary that was made without a model, because the model failed, is replaced if the model
        works again. If there are several sessions, damaged sessions are skipped with a warning.

        Args:
            session_id: Only this session.
            user_id: Only sessions of this user.
            progress: Called after each session. Ignored if `session_id` is set.

        Returns:
            A result for each block and session with pending messages. A failed block raises
            nothing: its result has the `error`.
        """
        if progress is not None:
            check_callable("progress", progress)
        self._guard.admit(session_id, user_id)
        if session_id is not None:
            return self._flush(session_id, user_id)
        return self._flush_all(user_id, progress)

    @traced("delete_memory", _namespace)
    def delete(self, session_id: str, *, user_id: str | None = None) -> Receipt:
        """Delete the session's log and head, and every record that blocks derived from it.

        Idempotent. The next `update`, `flush` or `delete` of the session, or a worker, finishes an
        interrupted deletion. Records of blocks that are no longer configured are deleted too, if
        they are in this memory's own store. `operations.import_session` refuses a session that was
        deleted, unless it is called with `deleted=True`.

        Returns:
            A receipt, with the result for each place that stored data of the session.
        """
        self._guard.check_session(session_id, user_id)
        self._guard.admit(session_id, user_id)
        parts = self.components
        done = parts.deletion.session(session_id, user_id)
        return parts.receipts.of_deletion("session", session_id, done)

    @traced("delete_memory", _namespace)
    def delete_user(self, user_id: str) -> Receipt:
        """Delete all sessions and records of a user, as `delete` does for a session."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        parts = self.components
        return parts.receipts.of_deletion("user", user_id, parts.deletion.user(user_id))

    def checkpoint(self, session_id: str, *, user_id: str | None = None) -> Receipt:
        """Return a receipt which confirms that all messages of the session are durable.

        An agent framework may then remove them from its own context. A `memory://` store is not
        durable, and the receipt says so.

        Raises:
            InvalidInput: The session does not exist.
        """
        head = self._guard.owned(session_id, user_id)
        if head is None:
            raise InvalidInput(f"There is no session {session_id!r} to make a checkpoint of.")
        absorbing = self.components.absorber.blocks
        return self.components.receipts.checkpoint(head, absorbing)

    def sessions(
        self,
        *,
        user_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
        prefix: str | None = None,
        newest: bool = False,
    ) -> list[Head]:
        """Return the heads of a page of sessions, in order of their ids.

        The heads have their `updated_at` and `metadata` set.

        Sessions of shared namespaces are not included: see `Share.sessions`.

        Args:
            user_id: Only sessions of this user.
            limit: The maximum number of sessions.
            after: The id of the last session of the previous page.
            prefix: Only sessions whose ids start with this text.
            newest: Sort by the time of the newest message, latest first. This reads the heads of
                all sessions of the user, or of the whole namespace.

        Raises:
            InvalidInput: `limit` is not a number, or `after` is not a valid id. With `newest`, no
                session has the id `after`.
        """
        self._guard.check(None, user_id)
        return self.components.listing.page(user_id, limit, after, prefix, newest)

    def head(self, session_id: str, *, user_id: str | None = None) -> Head | None:
        """Return a session's head with `updated_at` and `metadata`. None if there is no session."""
        head = self._guard.owned(session_id, user_id)
        return None if head is None else self.components.listing.completed([head])[0]

    def describe(
        self, session_id: str, metadata: dict[str, Any], *, user_id: str | None = None
    ) -> None:
        """Replace a session's metadata, such as a title or tags, for `sessions` and `head`.

        The metadata is deleted with the session. A session that does not exist is created.

        Raises:
            InvalidInput: `metadata` is not a dict, or JSON would change it. Nothing was stored.
        """
        self._guard.check_session(session_id, user_id)
        scope = self._guard.scope(user_id, session_id)
        self.components.listing.describe(session_id, scope, metadata)

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """Return a handle for one session: its methods need no ids."""
        self._guard.check_session(session_id, user_id)
        session: type[Session] = import_module("agent_memory.engine.session").Session
        return session(self, session_id, user_id)

    def user(self, user_id: str) -> User:
        """Return a handle for one user's memory: facts, notes, files, skills, places."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        from agent_memory.engine.user import User

        return User(self, user_id)

    def values(self, user_id: str | None = None, *, embedder: Embedder | None = None) -> KeyValues:
        """Return a store of values by namespace and key, independent of conversations.

        A value is plain JSON, such as settings or the state of an agent. A user's values are
        deleted with the user.

        Args:
            user_id: The owner. None means values without an owner.
            embedder: Embeds the texts of values and queries. None means the memory's own embedder.
        """
        self._guard.check(None, user_id)
        return self.components.values_of(Scope(user_id, None), embedder)

    def share(self, name: str) -> Share:
        """Return a shared namespace, which agents read and write according to their grants.

        The name identifies the namespace in the store, for all processes. Nothing is written before
        the first grant. `name` has 1 to 64 characters.

        Raises:
            InvalidId: The name is not valid.
        """
        self._guard.check(None, None)
        check_share(name)
        from agent_memory.engine.sharing.shares import Share

        share = Share(self, name)
        with self._sharing:
            return self._shares.setdefault(name, share)

    def open(self, kind: str) -> Any:
        """Return a block's handle on data that belongs to no user, such as `open("skills")`.

        Args:
            kind: The block's `kind`, or its name if there are several blocks of that kind.

        Raises:
            ConfigError: No such block is configured, or it has no handle.
            InvalidInput: All data of the block belongs to a user or a session.
        """
        self._guard.check(None, None)
        return self.components.open(kind, Scope())

    def replay(self, block: str) -> Iterator[Progress]:
        """Rebuild one block from the log, and yield the progress after each session.

        Other calls are possible during the rebuild. After an interruption, the next call continues
        after the last finished session.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        self._guard.check(None, None)
        check_block(block, self.components.absorber.blocks)
        return replay(self.components, block)

    def stats(self) -> Stats:
        """Return counts of sessions and messages, the state of each block, model calls and cost."""
        self._guard.check(None, None)
        return self.components.stats()

    @property
    def turns(self) -> Turns:
        """Return the calls of a turn, bound to this memory. For other modules of this package."""
        load_rest()
        from agent_memory.engine.loop.turns import Turns, call_hooks

        return Turns(
            begin=self.components.contexts.begin,
            update=self.update,
            stored=self._stored,
            replaced=self._regenerating.replace,
            call_tool=self.call_tool,
            toolbox=self.components.toolbox.tools,
            models=self.components.resources.models,
            notify=partial(call_hooks, self.blocks.values(), self._guard.scope),
        )
