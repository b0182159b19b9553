"""`AgentMemory`: the engine. Synchronous, safe to share between threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

from agent_memory.config.settings import NOTES
from agent_memory.core.idempotency import check_end
from agent_memory.core.ids import check_id, check_share
from agent_memory.core.limits import at_most, check_callable, how_many, place_in_log, text_of
from agent_memory.core.notices import with_call_errors
from agent_memory.core.recognition import check_pair
from agent_memory.core.records import Head, Scope
from agent_memory.core.tracing import of_id, of_messages, traced
from agent_memory.engine.append import Update
from agent_memory.engine.later import load_rest, with_rest
from agent_memory.engine.opened import OpenMemory
from agent_memory.engine.paging import read_of
from agent_memory.engine.processing.absorb import check_block
from agent_memory.errors import InvalidBudget, InvalidInput, SessionDeleting

if TYPE_CHECKING:
    from agent_memory.core.context import Explanation, MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.prompt_log import SentContext
    from agent_memory.core.receipts import Receipt
    from agent_memory.core.records import Absorbed, Entry, Recall
    from agent_memory.core.turns import Turn
    from agent_memory.engine.loop.rounds import GivenTool
    from agent_memory.engine.loop.turns import Turns
    from agent_memory.engine.session import Session
    from agent_memory.engine.sharing.shares import Share
    from agent_memory.engine.stats import Progress, Stats
    from agent_memory.engine.user import User
    from agent_memory.engine.values.key_values import KeyValues
    from agent_memory.ltm_blocks.notes import Note, Notes
    from agent_memory.models.embedders.base import Embedder


_SERVICES = ("http://", "https://")
_REMOTE = "agent_memory.client.memory:RemoteMemory"


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
    """Memory of an agent: sessions within a token budget, long-term blocks per user.

    Pass a configuration or its fields: `AgentMemory(max_tokens=8000, model="openai/gpt-4o-mini")`.
    Threads may share one instance. Use it as a context manager, or call `close`.

    A session belongs to the first user named for it. Every call that names another user raises
    `SessionOfAnotherUser` and changes nothing.

    Args:
        config: All settings. None takes the defaults: one SQLite file, no model, a `VectorMemory`.
            A path or a URL names the store: `AgentMemory("me.db")`. The address of a service,
            `AgentMemory("https://...", api_key=...)`, returns a `RemoteMemory`.
        **fields: Fields of `AgentMemoryConfig`, which override those of `config`. For a service,
            the arguments of `RemoteMemory`.

    Attributes:
        config: The settings.
        blocks: The configured long-term blocks, by name.
        components: Internal parts, for this package's own interfaces. They may change at any time.

    Raises:
        ConfigError: The configuration cannot work: an unknown store, a missing extra, or stored
            vectors of another dimension or model.
        InvalidSetting: A field is unknown or its value is invalid.
        StoreError: The store cannot be opened.
    """

    def __new__(cls, config: Any = None, **fields: Any) -> Self:
        if cls is AgentMemory and isinstance(config, str) and config.startswith(_SERVICES):
            module, name = _REMOTE.split(":")
            return cast("Self", object.__new__(getattr(import_module(module), name)))
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
        """Append a message, or a list of messages atomically, and shorten a window that overflows.

        With `overflow_mode="background"` the window is shortened after this call returns.

        Args:
            session_id: The conversation.
            message: Text, a `Message`, or a list of messages. A message may also be a dict in the
                shape of OpenAI's, Anthropic's, Gemini's or Bedrock's API or of LangChain, or an
                object or a whole response of their SDKs. A system message replaces the session's
                system message. Messages at the start of a list that come from the session's last
                `get` are already stored and are skipped.
            user_id: The user it belongs to.
            key: An idempotency key for this write in its session, such as a UUID. A retry with the
                same key and the same messages stores nothing. Messages with an `id` are
                deduplicated without a key: only new ids are stored.
            expected_end: Append only if the log still ends at this seq: the `end` of the last known
                head, 0 for a new session.

        Returns:
            The session's head afterwards. The messages are durable, even if shortening the window
            failed. A retry returns the `end` and `total` of the first call.

        Raises:
            InvalidInput: An id or a message is not valid. Or a message is larger than
                `max_message_bytes`, or contains recalls or the summary of an older context.
                Nothing was stored.
            Conflict: The key or an id was used for other content, or the log does not end at
                `expected_end`. Nothing was stored.
            StoreError: The store failed. Nothing was stored, unless the connection to a server
                broke during the write, or the write was interrupted. A retry with `key` is safe.
        """
        self._guard.check_session(session_id, user_id)
        check_pair(message)
        messages: Sequence[Any] = message if isinstance(message, list | tuple) else [message]
        if not all(map(_is_plain, messages)):
            load_rest()  # with the formats of providers
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

        Long messages are shortened and marked. `warnings` lists the messages of the newest turn
        that were shortened.

        Args:
            session_id: The conversation. A session that does not exist yet has recalls only.
            message: Text or a message to recall for. It is not stored. If it is a user's message,
                `to_messages()` ends with it. None recalls for the window's newest user message.
            user_id: The user. Required if the session does not exist yet.
            max_tokens: A smaller budget than the configured one, for this call.
            format: The provider for `to_arguments()` and `to_messages()`: "openai.chat",
                "openai.responses", "anthropic.messages", "google.contents", "bedrock.converse" or
                "langchain". None means OpenAI's chat. The provider's own items are included
                unchanged, from its newest compaction on.
            window: Messages to show instead of the session's window, such as the messages that a
                framework is about to send, including its current turn. Each has a form that
                `update` takes. They are not stored. A system message is shown only if it is among
                them. Messages of the session's window count as shown and are not recalled.

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
        """Return the records and notes that match a query, best first, without a window.

        Pending messages, which blocks have not absorbed yet, are included. If no block recalls
        them, a word search covers the newest 5,000. Without an absorbing block, all messages are
        pending.

        Args:
            query: The text to search for.
            user_id: The user whose memory is searched. Without user and session, only records for
                everyone are searched.
            session_id: Only records from this session, notes, and records for everyone.
            limit: The maximum number of results.
            blocks: Only records of these blocks, by name. "log" is the search in the log. An
                unknown name logs a warning.
            roles: Only records from messages of these roles.
            since: Only messages of this time or later, as a date (UTC) or with a time zone.
            until: Only messages before this time.
            where: Conditions on the messages' metadata, as for `KeyValues.search`.
            least: The minimum score. If it is set, the relevance floor is off: 0 returns the
                nearest records, except those that share nothing with the query.
            entries: Whether each recall includes its source messages.

        Raises:
            InvalidInput: The query is not text, the limit is not a number, or a filter is invalid.
        """
        from agent_memory.engine.recall.merged_search import Filter

        only = Filter.of(blocks, roles, since, until, where, least, entries)
        found, _ = self.components.search.run(query, user_id, session_id, limit, only)
        return found

    def explain(
        self, question: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> Explanation:
        """Return the records that a question would recall, and why it would not recall the others.

        Reasons are: below a floor, no room, superseded, given up, pending, or another user's data.
        `print` shows it in full.

        Args:
            question: The question.
            user_id: The user who asks.
            session_id: The session in which it is asked. None for a new one.

        Raises:
            InvalidInput: Neither a user nor a session is named, or an id is not valid.
        """
        if user_id is None and session_id is None:
            raise InvalidInput("Say whose memory: give a user_id, or a session_id.")
        text_of("question", question)
        from agent_memory.engine.recall.explain import Explainer

        return Explainer(self.components).run(question, user_id, session_id)

    def remember(
        self,
        text: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        at: datetime | date | None = None,
        key: str | None = None,
    ) -> Note:
        """Store a text as a note, without a message and without a model.

        `get` and `search` find it immediately. A note with the same words is not stored twice. With
        `blocks=[]` only `search` finds it.

        Args:
            text: The text to remember, ideally one fact in a full sentence.
            user_id: The owner of the note.
            session_id: The session of the note, if any. The note is deleted with the session.
                Required for a session without a user, which has its own memory.
            at: The time from which the text holds, as a date (UTC) or with a time zone. None for
                now.
            key: An idempotency key, for retries with the same text.

        Raises:
            InvalidInput: The text is empty or too long, or there are too many notes. Or neither a
                user nor a session is named, or `at` has no time zone. Nothing was stored.
            Conflict: The key was used for a stored note with another text.
            SessionOfAnotherUser: The session belongs to another user.
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
        """Return the log's entries with a seq above `after`, in order. Entries that left the window
        are included.

        Args:
            session_id: The conversation.
            user_id: The user it must belong to.
            after: Only entries after this seq.
            limit: The maximum number of entries, from there on.
            last: The maximum number of newest entries, in place of `limit`.

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
    ) -> list[SentContext]:
        """Return the contexts that models were sent in a session, oldest first.

        These are the contexts of `get`, of turns and of their tool rounds. Contexts are stored from
        the moment `keep_contexts=True` is set.

        Limitations: Before a session's first message, only the latest context is stored, by the
        process that stores the message. The same holds for a user's context in a session without a
        user, until the session belongs to the user.

        Args:
            session_id: The conversation.
            user_id: The user it must belong to.
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
            The removed messages, oldest first. Fewer than `count` if the log has fewer.

        Raises:
            InvalidInput: `count` is not a whole number of 0 or more.
            StoreUnavailable: A worker did not release the session. Nothing was removed.
        """
        self._guard.check_session(session_id, user_id)
        return self.components.editor.pop(session_id, how_many("count", count), user_id)

    def prune(self, session_id: str, max_tokens: int, *, user_id: str | None = None) -> Head:
        """Cut the session's window to `max_tokens` tokens of turns now, even if it has room.

        Messages that leave the window go to the summary and to blocks as usual. The log is not
        changed.

        Returns:
            The head afterwards. The head's `window_tokens` are at most `max_tokens`, unless the
            newest step and its question alone are larger.

        Raises:
            InvalidBudget: `max_tokens` is not a positive number of tokens.
            InvalidInput: The session does not exist.
            StoreUnavailable: A worker did not release the session. Nothing was changed.
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
        """Keep a message in the window, with its question and the tool calls it depends on.

        A message that had left the window returns to it. Pinned messages take at most half of the
        window: beyond that, the oldest leave as usual. Idempotent.

        Raises:
            InvalidInput: The log has no message with this seq, or it is a system message.
        """
        from agent_memory.engine.pins import check_seq

        seq = check_seq(seq)
        head = self._guard.owned(session_id, user_id)
        if head is None:
            raise InvalidInput(f"There is no session {session_id!r}.")
        self.components.pins.pin_message(head, seq)

    def unpin(self, session_id: str, seq: int, *, user_id: str | None = None) -> None:
        """Let a pinned message leave the window with the next cut. Idempotent."""
        from agent_memory.engine.pins import check_seq

        seq = check_seq(seq)
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

            memory.edit("s-1", lambda log: log[10:])  # without its ten oldest
            memory.edit("s-1", lambda log: [*log[:-1], corrected])

        Readers see the old log or the new one. Entries are renumbered from the first changed
        message on. Blocks delete their records of these entries and absorb the new log. A session
        that does not exist is created.

        Args:
            session_id: The conversation.
            change: Takes the current entries and returns the new ones: entries, or messages as
                `update` takes them. A concurrent write causes another call, so the function must
                have no side effects.
            user_id: The user it belongs to.

        Returns:
            The head afterwards.

        Raises:
            InvalidInput: A message is not valid, or larger than `max_message_bytes`, or `change` is
                not a function. Nothing was changed.
            SessionOfAnotherUser: The session belongs to another user.
            UnsupportedOperation: The new log is empty, and a `retention` has removed messages.
                Delete the session instead.
            StoreError: The store failed, or a worker did not release the session. Nothing was
                changed.
        """
        self._guard.check_session(session_id, user_id)
        drafted = partial(self._appender.drafts, session_id=session_id, user_id=user_id)
        head = self.components.deletion.retried(
            session_id, lambda: self.components.editor.change(session_id, change, user_id, drafted)
        )
        return self._settle(head)

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """Return the context for a turn, with the turn at its end. Stores nothing.

        Args:
            session_id: The conversation.
            message: The turn so far: the question as text or as a message. Or a list of messages,
                such as the question, an assistant message with tool calls, and their results.
            user_id: The user. Required if the session does not exist yet.

        Returns:
            The turn. Its `messages` suit any chat API and are within `max_tokens`. The turn has
            priority over recalls and the oldest turns. Long messages of the turn itself are
            shortened. The turn's `asked` holds them in full.

        Raises:
            InvalidMessage: There is no question, or a tool call has no result.
        """
        return self.turns.before(session_id, message, user_id)

    def after_turn(
        self,
        turn: Turn,
        answer: Any,
        *,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """Store a turn with its answer, atomically.

        A turn of `regenerate` replaces the old answer.

        Args:
            turn: The turn of `before_turn` or `regenerate`.
            answer: The model's answer, as text or in any form that `update` takes. Or a list in
                order: assistant messages with tool calls, their results, the answer.
            key: As for `update`. A turn of `regenerate` needs none: storing the same answer twice
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

        The context is the one before the question. It excludes the current answer, its tool calls,
        and records derived from these. Pass the new answer to `after_turn`, which replaces the old
        one atomically. Until then the old answer stays. A question without an answer is asked as
        usual.

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
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
        **options: Any,
    ) -> Any:
        """Recall, call the model, run its tools, and store the turn when the answer is complete.

        If a step fails or is interrupted, nothing is stored.

        Args:
            session_id: The conversation.
            message: As for `before_turn`.
            user_id: The user. Required if the session does not exist yet.
            model: Another litellm model than the configured one.
            tools: Tools that the model may call. Schemas of the memory's own tools (see `tools`)
                run for this session and user. Functions are called with checked arguments. Their
                exceptions are raised, except `ToolRefused`, which the model reads. A call of any
                other schema is returned to the caller: see below.
            stream: Return litellm's chunks as they arrive, of all rounds.
            max_rounds: The maximum number of tool rounds. After that, the model must answer.
            key: An idempotency key for this turn. If the turn is stored, a retry with the same key
                and question returns the stored answer and calls no model.
            expected_end: As for `update`.
            **options: Further arguments for litellm: `temperature`, `response_format`, ...

        Returns:
            litellm's `ModelResponse`, or with `stream` an iterator of its chunks. If it calls
            tools that the caller must run, nothing is stored yet. Continue with
            `completion(session_id, [question, response, *results], ...)`.

        Raises:
            InvalidInput: The turn so far, a tool or an option is not valid.
            Conflict: The key was used for another question, or its stored answer was removed. Or
                the log does not end at `expected_end` when the answer is complete.
            ModelRequired: No model is configured or named.
            ModelError: The model failed.
        """
        ask = self.turns.complete
        arguments = {"tools": tools, "stream": stream, "max_rounds": max_rounds, **options}
        arguments |= {"key": key, "expected_end": expected_end}
        return ask(session_id, message, user_id=user_id, model=model, **arguments)

    def tools(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        format: str = "openai.chat",
    ) -> list[dict[str, Any]]:
        """Return the schemas of the memory's tools.

        These are `memory_read`, `memory_read_message`, `memory_write`, `memory_forget`, and the
        tools of each block.

        Args:
            session_id: The session.
            user_id: The user, if the session has one.
            format: The provider's form: "openai.chat", "openai.responses", "anthropic.messages",
                "google.contents", "langchain" or "mcp".

        Raises:
            InvalidInput: Tools have no form in this format.
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

        A failed call returns a text that says what the model should do. A failure of the store or
        of a model does the same and is logged.

        Args:
            session_id: The current session.
            name: The tool's name, as in the model's call.
            arguments: The arguments: a mapping, or JSON as models send it.
            user_id: The user. Required if the session does not exist yet.
            key: An idempotency key for this call: a retried `memory_write` stores one note. Tools
                of blocks find it in the scope.
        """
        return self.components.toolbox.call(session_id, name, arguments, user_id, key)

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """Close a conversation for now: absorb its pending messages and clear `WorkingMemory`.

        A `WorkingMemory(persist=True)` stays. The log stays, and the conversation may continue.
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
        """Absorb all pending messages of one session, of one user, or of all. Idempotent.

        A fallback summary is replaced if the model is available again. Among several sessions, a
        damaged one is skipped with a warning.

        Args:
            session_id: Only this session.
            user_id: Only sessions of this user.
            progress: Called after each session. Ignored with `session_id`.
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
        interrupted deletion. Records of blocks that are no longer configured are deleted too, in
        this memory's own store. `import_session` restores a deleted session only on request.

        Returns:
            The result of each place: see `Receipt`.
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
        """Return a receipt for all messages up to the newest one.

        The messages are durable, so a host may remove them from its own context. A `memory://`
        store is not durable, and the receipt says so.

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
        """Return a page of sessions in order of their ids, each with `updated_at` and `metadata`.

        Sessions of shared namespaces are not included: see `Share.sessions`.

        Args:
            user_id: Only this user's.
            limit: The maximum number of sessions.
            after: Only sessions after the session of this id, in the requested order.
            prefix: Only sessions whose ids start with this.
            newest: Sort by the newest message first, which requires a read of all heads.

        Raises:
            InvalidInput: `limit` is not a number, or `after` is not an id. With `newest`, `after`
                is not the id of a session.
        """
        self._guard.check(None, user_id)
        return self.components.listing.page(user_id, limit, after, prefix, newest)

    def head(self, session_id: str, *, user_id: str | None = None) -> Head | None:
        """Return a session's head with `updated_at` and `metadata`. None if it does not exist."""
        head = self._guard.owned(session_id, user_id)
        return None if head is None else self.components.listing.completed([head])[0]

    def describe(
        self, session_id: str, metadata: dict[str, Any], *, user_id: str | None = None
    ) -> None:
        """Store a session's metadata, which `sessions` and `head` return: a title, tags, any JSON.

        The metadata replaces the stored metadata and is deleted with the session. A session that
        does not exist is created.

        Raises:
            InvalidInput: `metadata` is not a dict that JSON reproduces exactly. Nothing was stored.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._guard.check_session(session_id, user_id)
        self.components.listing.describe(
            session_id, self._guard.scope(user_id, session_id), metadata
        )

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """Return the calls for one conversation, with the ids bound."""
        self._guard.check_session(session_id, user_id)
        from agent_memory.engine.session import Session

        return Session(self, session_id, user_id)

    def user(self, user_id: str) -> User:
        """Return the calls for one user: facts, notes, files, skills, places."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        from agent_memory.engine.user import User

        return User(self, user_id)

    def values(self, user_id: str | None = None, *, embedder: Embedder | None = None) -> KeyValues:
        """Return values by namespace and key, independent of conversations.

        Examples are settings or the state of an agent: any value that JSON reproduces. A user's
        values are deleted with the user.

        Args:
            user_id: The owner. None for values without an owner.
            embedder: Embeds the texts. By default the memory's own embedder.
        """
        self._guard.check(None, user_id)
        return self.components.values_of(Scope(user_id, None), embedder)

    def share(self, name: str) -> Share:
        """Return a namespace that several agents read and write, according to their grants.

        A name stands for one share per store, in all processes, and for one object per memory.
        Nothing is written before the first grant. `name` has 1 to 64 characters.

        Raises:
            InvalidId: The name is not valid.
        """
        self._guard.check(None, None)
        check_share(name)
        from agent_memory.engine.sharing.shares import Share

        made = Share(self, name)
        with self._sharing:
            return self._shares.setdefault(name, made)

    def open(self, kind: str) -> Any:
        """Return the handle of a kind of block for data of everyone, such as `open("skills")`.

        Raises:
            ConfigError: No block of that kind is configured, or it has no handle.
            InvalidInput: The block stores no data for everyone.
        """
        self._guard.check(None, None)
        return self.components.open(kind, Scope())

    def replay(self, block: str) -> Iterator[Progress]:
        """Rebuild one block from the log, session by session, and yield the progress after each.

        Other calls continue meanwhile. An interrupted replay resumes after its last finished
        session.

        Raises:
            ConfigError: No absorbing block has that name.
        """
        self._guard.check(None, None)
        check_block(block, self.components.absorber.blocks)
        return self.components.replay(block)

    def stats(self) -> Stats:
        """Return counts, pending messages of each block, model calls, tokens and cost."""
        self._guard.check(None, None)
        return self.components.stats()

    @property
    def turns(self) -> Turns:
        """Return the calls about a turn, bound to this memory. For this package's interfaces."""
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
