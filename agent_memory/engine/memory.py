"""`AgentMemory`: the engine. Synchronous, safe to share between threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

from agent_memory.config.settings import NOTES
from agent_memory.core.context import MemoryContext
from agent_memory.core.explanation import Explanation
from agent_memory.core.ids import check_id
from agent_memory.core.limits import at_most, check_callable, how_many, place_in_log, text_of
from agent_memory.core.memory_spans import of_many, of_messages, of_nothing, traced
from agent_memory.core.messages import Message
from agent_memory.core.once import check_end
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Absorbed, Entry, Head, Recall, Scope, empty_head
from agent_memory.core.sent import SentContext
from agent_memory.core.turns import Turn
from agent_memory.engine.append import drafts_of
from agent_memory.engine.loop.telling import Telling
from agent_memory.engine.loop.turns import Turns
from agent_memory.engine.opened import OpenMemory
from agent_memory.engine.paging import newest_of, read_of
from agent_memory.engine.pins import check_seq
from agent_memory.engine.processing.absorb import check_block
from agent_memory.engine.recall.contexts import checked_budget
from agent_memory.engine.recall.explain import Explainer
from agent_memory.engine.recall.filtering import Filter
from agent_memory.engine.session import Session
from agent_memory.engine.sharing.shares import Share
from agent_memory.engine.stats import Progress, Stats
from agent_memory.engine.user import User
from agent_memory.engine.values.key_values import KeyValues
from agent_memory.errors import InvalidBudget, InvalidInput

if TYPE_CHECKING:
    from agent_memory.engine.loop.offering import GivenTool
    from agent_memory.ltm_blocks.notes import Note, Notes
    from agent_memory.models.embedders.base import Embedder


_SERVICES = ("http://", "https://")
_REMOTE = "agent_memory.client.memory:RemoteMemory"


def _namespace(memory: AgentMemory) -> str:
    return memory.config.namespace


class AgentMemory(OpenMemory):
    """Memory of an agent: sessions within a token budget, long-term blocks per user.

    Give a configuration, or its fields: `AgentMemory(max_tokens=8000, model="openai/gpt-4o-mini")`.
    Share one between threads; use it as a context manager, or call `close`.

    A session belongs to the first user named for it. Every call that names a user raises
    `SessionOfAnotherUser` for a session of another one, and does nothing.

    Args:
        config: All settings; None takes the defaults: one SQLite file, no model, a `VectorMemory`.
            A path or a URL says where memory is kept: `AgentMemory("me.db")`. The address of a
            service, `AgentMemory("https://...", api_key=...)`, gives a `RemoteMemory`.
        **fields: Fields of `AgentMemoryConfig`, over those of `config`; for a service, what
            `RemoteMemory` takes.

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
        """Append a message of any size, or a list of them atomically; make room where the window
        overflows.

        With `overflow_mode="background"` the room is made after this returns.

        Args:
            session_id: The conversation.
            message: An OpenAI chat dict, a `Message`, an object with `model_dump()`, a response of
                OpenAI's Responses API (for its output items), or a list of these. A system message
                replaces the session's system message.
            user_id: The user it belongs to.
            key: Names this write in its session, such as a UUID. A retry with the same key and the
                same messages stores nothing. So it is without a key with each message that carries
                an `id`: of a list, only those are stored whose ids are new.
            expected_end: Append only if the log still ends at this seq: the `end` of the head that
                you know, 0 for a new session.

        Returns:
            The session's head afterwards. The messages are durable, whatever became of making room.
            For a retry, with the `end` and `total` that it had after the first.

        Raises:
            InvalidInput: An id or a message is not usable, or a message is larger than
                `max_message_bytes`; nothing was stored.
            Conflict: The key, or an id, was used for other content; or the log does not end at
                `expected_end`. Nothing was stored.
            StoreError: The store failed; nothing was stored.
        """
        self._guard.check_session(session_id, user_id)
        given = message if isinstance(message, list | tuple) else [message]
        if not given:
            head = self._guard.owned(session_id, user_id) or empty_head(
                session_id, user_id, datetime.now(UTC)
            )
            if expected_end is not None:
                check_end(expected_end, head.end)
            return head
        return self._updated(
            *self.components.deletion.retried(
                session_id,
                lambda: self._appender.append(session_id, given, user_id, key, expected_end),
            )
        )

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
        """The window, plus what the blocks recall for `message`; never above the budget.

        What is too long for it is shown in part, and says so; `warnings` name what of the newest
        turn that befell.

        Args:
            session_id: The conversation; one that does not exist yet gives recalls only.
            message: Text or a message to recall for. It is not stored; `to_messages()` ends with
                it, where a user says it. None recalls for the newest user message of the window.
            user_id: The user, needed where the session does not exist yet.
            max_tokens: A smaller budget than the configured one, for this call.
            format: In which format `to_messages()` gives it, such as "openai.responses" or
                "anthropic.messages"; None for OpenAI's chat. The provider's own items are in it as
                they are, from its newest compaction on.
            window: What to show in the place of the session's window: messages as a framework is
                about to send them, its own turn so far among them, each as `update` takes it. They
                are not stored. The system message is the one among them, if any. What the session's
                window holds is taken as shown by them, and not recalled.

        Raises:
            InvalidInput: An id, a message or the format is not usable.
            InvalidBudget: `max_tokens` is no number of tokens.
            StoreError: The session store failed. Blocks that fail are named in `warnings`.
        """
        return self._contexts.get(session_id, message, user_id, max_tokens, format, window)

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
        """What blocks recall, and what was noted, merged best first, without a window.

        What was said a moment ago is found too, in whatever session. Where no block recalls
        messages, the log is searched by its words: what is not absorbed yet, or, where nothing
        absorbs, the newest 5,000 messages.

        Args:
            query: What to look for.
            user_id: Whose memory to search; without user and session, what holds for everyone.
            session_id: Only what comes from this session, what was noted outright, and what holds
                for everyone.
            limit: At most this many.
            blocks: Only what these blocks recall, by their names; "log" for the log's words. A
                warning tells of a name that no block has.
            roles: Only what comes from messages of these roles.
            since: Only what was said then or later, as a date (UTC) or with a time zone.
            until: Only what was said before.
            where: What the metadata of the messages must have, as for `KeyValues.search`.
            least: Only what has this score. With one, nothing is left out for bearing little on the
                query: 0 gives the nearest, however far, but for what has nothing in common with it.
            entries: Whether each recall brings the messages that it comes from.

        Raises:
            InvalidInput: The query is no text, the limit no number, or something else not usable.
        """
        only = Filter.of(blocks, roles, since, until, where, least, entries)
        found, _ = self.components.search.run(query, user_id, session_id, limit, only)
        return found

    def explain(
        self, question: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> Explanation:
        """What would be recalled for a question, what is left out, and why: below a floor, no room,
        superseded, given up, waiting, another user's. `print` shows it whole.

        Args:
            question: The question.
            user_id: Who asks.
            session_id: In which chat; None for a new one.

        Raises:
            InvalidInput: Nobody is named, or an id is not usable.
        """
        if user_id is None and session_id is None:
            raise InvalidInput("Say whose memory: give a user_id, or a session_id.")
        text_of("question", question)
        parts = self.components
        explainer = Explainer(parts.contexts, parts.dead_letters.dead, parts.store)
        return explainer.run(question, user_id, session_id)

    def remember(
        self,
        text: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        at: datetime | date | None = None,
        key: str | None = None,
    ) -> Note:
        """Put something down outright, as a note: no message, no model. `get` and `search` find it
        from now on. One that says the same in the same words is not written twice.

        With `blocks=[]` only `search` finds it.

        Args:
            text: What to remember: best one fact, in a whole sentence.
            user_id: Whose memory.
            session_id: The session in which it was said, if any: it goes with it. Needed for a
                session without a user, whose memory is its own.
            at: When it was said to hold, as a date (UTC) or with a time zone; None for now.
            key: Names this write, where it may be retried in other words.

        Raises:
            InvalidInput: It is empty or too long, there are too many notes, nobody is named, or
                `at` has no time zone. Nothing was stored.
            Conflict: The key was used for a note that is there, and says something else.
            SessionOfAnotherUser: The session belongs to another user.
        """
        scope = self._guard.scope(user_id, session_id)
        return cast("Notes", self._open(NOTES, scope)).add(text, at=at, key=key)

    def history(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """The log, past the window too: entries with seq above `after`, in order.

        Args:
            session_id: The conversation.
            user_id: The user whose it has to be.
            after: Only what follows this seq.
            limit: At most so many, from there on.
            last: At most so many of the newest, in place of `limit`.

        Raises:
            InvalidInput: Both `limit` and `last` are given, or one of the three is no such number.
        """
        self._guard.check_session(session_id, user_id)
        if last is not None and limit is not None:
            raise InvalidInput("Give `limit` or `last`, not both.")
        after, limit = place_in_log("after", after), at_most("limit", limit)
        last = at_most("last", last)
        head = self._guard.owned(session_id, user_id)
        if head is None:
            return []
        if last is not None:
            return newest_of(self._store, head, last, after)
        return read_of(self._store, head, after=after, limit=limit)

    def contexts(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[SentContext]:
        """What models were sent in a session: each context that `get`, a turn or a round of its
        tools made, oldest first. It needs `keep_contexts=True` in the settings from then on.

        Of a context that was made for a session before its first message only the latest is kept,
        by the process that stores the message; so of one that was made for a user in a session
        that is nobody's, once it is the user's.

        Args:
            session_id: The conversation.
            user_id: The user whose it has to be.
            after: Only of turns that begin after this seq.
            limit: Of at most so many turns.

        Raises:
            InvalidInput: An id, `after` or `limit` is not usable.
        """
        self._guard.check_session(session_id, user_id)
        after, limit = place_in_log("after", after), at_most("limit", limit)
        return self._contexts.were(session_id, user_id, after, limit)

    @traced("delete_memory", _namespace, of_many)
    def pop(self, session_id: str, count: int = 1, *, user_id: str | None = None) -> list[Message]:
        """Take the newest messages back, with the records derived from them.

        Returns:
            The messages taken, oldest first; fewer than `count` where there are no more.

        Raises:
            InvalidInput: `count` is no number of messages.
        """
        self._guard.check_session(session_id, user_id)
        return self.components.editor.pop(session_id, how_many("count", count), user_id)

    def prune(self, session_id: str, max_tokens: int, *, user_id: str | None = None) -> Head:
        """Have the strategy cut the session's window down to so many tokens of turns, now, though
        it has room. What leaves goes on as ever: into the summary, to blocks. The log stays whole.

        Returns:
            The head afterwards; its `window_tokens` are no more than `max_tokens`, but for the
            newest step with its question, which stays.

        Raises:
            InvalidBudget: `max_tokens` is no number of tokens.
            InvalidInput: There is no such session.
            StoreUnavailable: A worker did not let go of it; nothing was changed.
        """
        most = checked_budget(max_tokens)
        self._guard.check_session(session_id, user_id)
        if most is None:
            raise InvalidBudget("max_tokens is None. Give a number of tokens above 0.")
        if self._guard.owned(session_id, user_id) is None:
            raise InvalidInput(f"There is no session {session_id!r} to prune.")
        self.components.work.process(session_id, down_to=most, user_id=user_id)
        head = self._guard.owned(session_id, user_id)
        return head or empty_head(session_id, user_id, datetime.now(UTC))

    def pin(self, session_id: str, seq: int, *, user_id: str | None = None) -> None:
        """Have a message stay in the window, by its number in the log, with its question and what a
        call cannot do without. It comes back where it had left. What is pinned takes half of the
        window at most: beyond that the oldest leave as others do. Idempotent.

        Raises:
            InvalidInput: The log has no such message.
        """
        seq = check_seq(seq)
        self._guard.check_session(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        if head is None:
            raise InvalidInput(f"There is no session {session_id!r}.")
        self.components.pins.pin_message(head, seq)

    def unpin(self, session_id: str, seq: int, *, user_id: str | None = None) -> None:
        """Have a message leave the window as others do, with the next cut. Idempotent."""
        seq = check_seq(seq)
        self._guard.check_session(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        if head is not None:
            self.components.pins.unpin_message(head, seq)

    @traced("update_memory", _namespace, of_nothing)
    def edit(
        self,
        session_id: str,
        change: Callable[[list[Entry]], Iterable[Any]],
        *,
        user_id: str | None = None,
    ) -> Head:
        """Have a session's log be what a function makes of it, in one step.

            memory.edit("s-1", lambda log: log[10:])  # without its ten oldest
            memory.edit("s-1", lambda log: [*log[:-1], corrected])

        Readers see the log as it was, or as it is then. From the first message that is another,
        numbers are given anew, and blocks forget and absorb again. The session begins if need be.

        Args:
            session_id: The conversation.
            change: Given the entries that the log has, gives what it is to have: entries, or
                messages as `update` takes them. It is asked anew where somebody else came first,
                so it must do nothing else.
            user_id: The user it belongs to.

        Returns:
            The head afterwards.

        Raises:
            InvalidInput: A message is not usable, or `change` is no function; nothing was changed.
            SessionOfAnotherUser: The session belongs to another user.
            UnsupportedOperation: Nothing is left, of a log whose messages a `retention` has
                removed: delete it.
            StoreError: The store failed, or a worker did not let go; nothing was changed.
        """
        self._guard.check_session(session_id, user_id)
        counter = self.components.services.resources.counter
        drafted = partial(drafts_of, counter=counter, redact=self.config.redact)
        head = self.components.deletion.retried(
            session_id, lambda: self.components.editor.change(session_id, change, user_id, drafted)
        )
        return self._settle(head)

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn:
        """What to send a model: the context for a turn, with the turn at its end. Stores nothing.

        Args:
            session_id: The conversation.
            message: The turn so far: the question as text or as a message, or a list of messages,
                such as the question, an assistant message with calls of tools, and their results.
            user_id: The user, needed where the session does not exist yet.

        Returns:
            The turn; its `messages` are for any chat API, within `max_tokens`. Of the context
            recalls and the oldest turns give way to the turn. What of the turn itself is too long
            is shown in part; the turn's `asked` has it whole.

        Raises:
            InvalidMessage: Nothing is asked, or a call of a tool has no result.
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
        """Store a turn with its answer, all of it or nothing.

        What `regenerate` gave is put in the place of the old answer.

        Args:
            turn: What `before_turn` or `regenerate` gave.
            answer: What the model said, as text or in any form that `update` takes; or a list, in
                order: assistant messages with calls of tools, their results, the answer.
            key: As for `update`. What `regenerate` gave needs none: an answer that is in its place
                already is not put there twice.
            expected_end: As for `update`, for a new turn.

        Raises:
            InvalidMessage: The turn does not end with an answer, or a call has no result, or a
                result no call. Nothing was stored.
            InvalidInput: The session went on since `regenerate`. Nothing was stored.
            Conflict: As for `update`. Nothing was stored.
        """
        return self.turns.after(turn, answer, key, expected_end)

    def regenerate(self, session_id: str, *, user_id: str | None = None) -> Turn:
        """What to send a model for another answer to the session's newest question. Stores nothing.

        The context is that of before the question: the answer that it has by now, the calls of
        tools between them, and what blocks derived from these are not in it. Give the new answer to
        `after_turn`, which puts it in the old one's place, in one step; until then the old one
        stays. A question that has no answer yet is simply asked.

        Raises:
            InvalidInput: The session has no message of a user.
        """
        turn = self._regenerating.turn(session_id, user_id)
        self.turns.told(turn, None)
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
            key: Names this turn in its session. Asked again with the same key and question, once
                the turn is stored, no model is asked: the answer of then is given.
            expected_end: As for `update`.
            **options: What else litellm is to send: `temperature`, `response_format`, ...

        Returns:
            litellm's `ModelResponse`, or with `stream` an iterator of its chunks. Where it calls
            tools that the caller has to run, nothing is stored yet: go on with
            `completion(session_id, [question, response, *results], ...)`.

        Raises:
            InvalidInput: The turn so far, a tool or an option is not usable.
            Conflict: The key was used for another question, or the log does not end at
                `expected_end` once the answer is there; or the answer was taken out of the log.
            ModelRequired: No model is configured or named.
            ModelError: The model failed.
        """
        ask = self.turns.complete
        given = {"tools": tools, "stream": stream, "max_rounds": max_rounds, **options}
        given |= {"key": key, "expected_end": expected_end}
        return ask(session_id, message, user_id=user_id, model=model, **given)

    def tools(self, session_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """What a model may ask of the memory, in OpenAI's form: `memory_read`,
        `memory_read_message`, `memory_write`, `memory_forget`, and what each block offers.

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
        key: str | None = None,
    ) -> str:
        """Do what a model asked for; the text is the tool's result, for the model to read.

        What it asked for in vain comes back as a text that tells it what to do; so does an outage
        of the store, which is logged.

        Args:
            session_id: The session at hand.
            name: The tool's name, as the model gave it.
            arguments: Its arguments: a mapping, or JSON as models send it.
            user_id: The user, needed where the session does not exist yet.
            key: Names this call, where it may be retried: `memory_write` notes once for it. Tools
                of blocks find it in the scope.
        """
        return self._toolbox.call(session_id, name, arguments, user_id, key)

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """Say that a conversation is over for now: what is pending is absorbed, what was kept for
        its time only (`WorkingMemory`) is cleared. The log stays, and it may go on.
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
        """Absorb whatever is pending, now: of one session, of one user's, or of all. Idempotent.

        A stand-in summary is redone too, where the model is back. Of many, a session that is
        damaged in the store is passed over, with a warning.

        Args:
            session_id: Only this session.
            user_id: Only sessions of this user.
            progress: Of many sessions, called after each.
        """
        if progress is not None:
            check_callable("progress", progress)
        self._guard.admit(session_id, user_id)
        if session_id is not None:
            return self._flush(session_id, user_id)
        return self._flush_all(user_id, progress)

    @traced("delete_memory", _namespace, of_nothing)
    def delete(self, session_id: str, *, user_id: str | None = None) -> Receipt:
        """Remove the session's log and head, and every record that blocks derived from it.

        Idempotent; a deletion that was interrupted is resumed by the next call for the session.
        Blocks that are no longer configured are deleted from too, in this memory's own store.
        `import_session` does not bring it back unless told to.

        Returns:
            What became of each place; see `Receipt`.
        """
        self._guard.check_session(session_id, user_id)
        self._guard.admit(session_id, user_id)
        parts = self.components
        done = parts.deletion.session(session_id, user_id)
        return parts.receipts.of_deletion("session", session_id, done)

    @traced("delete_memory", _namespace, of_nothing)
    def delete_user(self, user_id: str) -> Receipt:
        """The same for all of a user's sessions and records."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        parts = self.components
        return parts.receipts.of_deletion("user", user_id, parts.deletion.user(user_id))

    def checkpoint(self, session_id: str, *, user_id: str | None = None) -> Receipt:
        """A receipt for everything up to the newest message: it is durable, so that a host may cut
        it out of its own context.

        Raises:
            InvalidInput: There is no such session.
        """
        self._guard.check(session_id, user_id)
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
        """A page of sessions in order of their ids, each with `updated_at` and `metadata`.

        Those of shared namespaces are not among them: see `Share.sessions`.

        Args:
            user_id: Only this user's.
            limit: At most so many.
            after: Only those after the session of this id, in the order that is asked for.
            prefix: Only those whose ids begin so.
            newest: The one that was spoken in last first. That looks at all of them.

        Raises:
            InvalidInput: `limit` is no number, or `after` no id; or, of the newest, no session's.
        """
        self._guard.check(None, user_id)
        return self._listing.page(user_id, limit, after, prefix, newest)

    def head(self, session_id: str, *, user_id: str | None = None) -> Head | None:
        """How a session stands: its end, its window, its `updated_at` and `metadata`; None where
        there is none.
        """
        self._guard.check_session(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        return None if head is None else self._listing.told([head])[0]

    def describe(
        self, session_id: str, metadata: dict[str, Any], *, user_id: str | None = None
    ) -> None:
        """Keep what a session is called, as `sessions` and `head` tell it: a title, tags, whatever
        plain JSON holds. It takes the place of what was kept, and goes with the session, which
        begins if need be.

        Raises:
            InvalidInput: It is no dict that JSON would give back exactly. Nothing was kept.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._guard.check_session(session_id, user_id)
        self._listing.describe(session_id, self._guard.scope(user_id, session_id), metadata)

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """The calls for one conversation, with the ids bound."""
        self._guard.check_session(session_id, user_id)
        return Session(self, session_id, user_id)

    def user(self, user_id: str) -> User:
        """What is known of a user, and kept for them: facts, notes, files, skills, places."""
        check_id("user_id", user_id)
        self._guard.check(None, user_id)
        return User(self, user_id)

    def values(self, user_id: str | None = None, *, embedder: Embedder | None = None) -> KeyValues:
        """Values by namespace and key, beside what conversations are: settings, states of an agent,
        whatever JSON gives back. A user's go with the user.

        Args:
            user_id: Whose; None for what is nobody's.
            embedder: What gives texts a meaning; the memory's own by default.
        """
        self._guard.check(None, user_id)
        return self._values(Scope(user_id, None), embedder)

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
            begin=self._contexts.begin,
            update=self.update,
            stored=self._stored,
            replaced=self._regenerating.replace,
            call_tool=self.call_tool,
            toolbox=self._toolbox.tools,
            models=self.components.services.resources.models,
            told=Telling(self.blocks.values(), self._guard.scope),
        )
