"""`OpenMemory`: the parts of an `AgentMemory`, from opening to closing."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Self

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.idempotency import KeyRecord, WriteKey, as_it_was
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Absorbed, Head, Scope
from agent_memory.core.threads import Handover, is_unwanted, off_main_thread
from agent_memory.engine.assembly import Components
from agent_memory.engine.paging import all_heads
from agent_memory.errors import AgentMemoryError, ConfigError
from agent_memory.models.loading import load_in_background
from agent_memory.stores import url_of
from agent_memory.stores.damage import undamaged

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.engine.append import Update
    from agent_memory.engine.loop.turns import Regenerate
    from agent_memory.engine.sharing.shares import Share
    from agent_memory.engine.stats import Progress
    from agent_memory.engine.transfer.reading import Reading

logger = logging.getLogger(__name__)

_BATCH = 50  # sessions that `Absorber.prepare` takes in one call
# the longest wait of `close` for work on a backlog, which may wait for a write of another process
_BACKLOG_SECONDS = 3.0


class OpenMemory:
    """The part of `AgentMemory` that opens and closes the objects of a configuration."""

    _components: ClassVar[type[Components]] = Components

    def __init__(self, config: AgentMemoryConfig | str | Path | None = None, **fields: Any) -> None:
        if isinstance(config, str | Path):
            fields = {"store": url_of(config), **fields}
            config = None
        if not isinstance(config, AgentMemoryConfig | None):
            raise ConfigError(
                f"A memory cannot be opened from a {type(config).__name__}. Give an "
                "AgentMemoryConfig, or a path or URL. Pass settings by name: "
                "AgentMemory(**settings)."
            )
        if config is not None and fields:
            fields = {**{name: getattr(config, name) for name in config.model_fields_set}, **fields}
        self.config = AgentMemoryConfig(**fields) if config is None or fields else config
        self.components = parts = self._components(self.config)
        self.blocks = parts.blocks
        self._store, self._guard, self._appender = parts.store, parts.guard, parts.appender
        self._shares: weakref.WeakValueDictionary[str, Share] = weakref.WeakValueDictionary()
        self._sharing = fork_safe_lock()
        self._will_ask_models = bool(self.config.language_models)
        in_background = self.config.overflow_mode == "background"
        threads = self.config.background_threads if in_background else 1
        # without background mode, the thread starts when a session has a large backlog
        self._behind = parts.worker(threads, polls=in_background)
        parts.resources.pending.on_many = self._behind.work_off_many
        self._background = self._behind if in_background else None
        if in_background:
            self._behind.start()
        # the threads also end if the memory is garbage-collected without `close`
        weakref.finalize(self, self._behind.stop, 0).atexit = False
        weakref.finalize(self, parts.resources.ahead.stop).atexit = False

    def __repr__(self) -> str:
        return f"AgentMemory(namespace={self.config.namespace!r}, blocks={list(self.blocks)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def warm_up(self, user_id: str | None = None) -> None:
        """Load slow parts: the tokenizer, local embedders, blocks, and litellm if models are used.

        A service calls this before it reports that it is ready. Without this call, the first calls
        load these parts, and the first `completion` takes seconds. Nothing is stored, and no model
        is called. A failure is only logged here. The call that needs the part raises the error.

        Args:
            user_id: A user whose indexes are loaded too. By default, the user's first `get` loads
                them.

        Raises:
            InvalidId: The id is not valid.
        """
        self._guard.check(None, user_id)
        scope = None if user_id is None else Scope(user_id)
        self.components.warm_up(scope)

    def close(self) -> None:
        """Finish background work and release connections. Idempotent.

        Afterwards, other calls raise `MemoryClosed`.
        """
        self._close()

    def _close(self, seconds: float | None = None) -> None:
        """Close as `close` does. Leave work to the next process if it takes more than `seconds`."""
        if not self._guard.closed:
            self._guard.closed = True
            if self._background is None:
                seconds = _BACKLOG_SECONDS
            until = None if seconds is None else monotonic() + seconds
            if self._background is not None:
                self._background.drain(seconds)
            if self._behind.stop(None if until is None else max(0.0, until - monotonic())):
                self.components.close()
            else:
                Handover("memory-close", self._close_later)

    def _close_later(self) -> None:
        self._behind.stop()
        self.components.close()

    def _update_all(self, updates: Sequence[Update]) -> list[Head | Exception]:
        """Run several callers' updates in one transaction. Return the head or the error of each."""

        def accepted(update: Update) -> Update:
            self._guard.check_session(update.session_id, update.user_id)
            new = self.components.new_in(update.session_id, update.messages)
            return update._replace(messages=new)

        results = self._appender.append_all(updates, accepted)
        return [done if isinstance(done, Exception) else self._updated(*done) for done in results]

    def _updated(self, head: Head, before: KeyRecord | None) -> Head:
        """Return the head of an update. For a retry, `before` is the first call's stored key."""
        head = self._settle(head)
        if self._will_ask_models:  # litellm is not imported before the first update
            self._will_ask_models = False
            load_in_background()
        return head if before is None else as_it_was(head, before)

    def _settle(self, head: Head) -> Head:
        """Do the work that follows an update. A failure is only logged."""
        self.components.begun(head)
        for block in self.blocks.values():
            block.messages_appended(Scope(head.user_id, head.session_id))
        try:
            if self.components.work.needed(head):
                if self._background is not None:
                    self.components.work.announce(head)
                    self._background.wake(head)
                else:
                    head = self.components.work.after_update(head)
            self._behind.work_off()
            return head
        except AgentMemoryError:  # exceptions of signal handlers are not caught
            logger.exception("session %r not processed; it will be tried again", head.session_id)
            return head

    def _stored(
        self, session_id: str, key: WriteKey, *, user_id: str | None = None
    ) -> list[Message] | None:
        """Return the messages stored under a key. None if the key or the session is unknown."""
        head = self._guard.owned(session_id, user_id)
        return None if head is None else self._appender.stored(head, key)

    def _flush(self, session_id: str, user_id: str | None = None) -> list[Absorbed]:
        work = self.components.work
        return work.process(session_id, everything=True, user_id=user_id).absorbed

    @off_main_thread
    def _flush_all(
        self, user_id: str | None, progress: Callable[[Progress], object] | None
    ) -> list[Absorbed]:
        """Flush all sessions, or all sessions of a user, one after the other."""
        from agent_memory.engine.stats import Progress

        self.components.deletion.resume()
        total = 0 if progress is None else sum(1 for _ in all_heads(self._store, user_id))
        done: list[Absorbed] = []
        number, heads = 0, all_heads(self._store, user_id)
        while some := list(islice(heads, _BATCH)):
            self.components.absorber.prepare(some)
            for number, head in enumerate(some, number + 1):  # noqa: B020 - counts all pages
                if is_unwanted():
                    return done
                fed = undamaged([head.session_id], self._flush)
                absorbed = [result for results in fed for result in results]
                done += absorbed
                if progress is not None:
                    error = next((result.error for result in absorbed if result.error), None)
                    at = (number, max(number, total))
                    progress(Progress(None, head.session_id, *at, error))
        return done

    def _bring_messages(
        self, session_id: str, messages: Sequence[tuple[str, Message]], user_id: str | None
    ) -> int:
        """Append imported messages without a model call, and return the number of new messages."""
        self._guard.check_session(session_id, user_id)
        bring = partial(self._appender.bring, session_id, messages, user_id)
        return self.components.deletion.retried(session_id, bring)

    def _bring(self, reading: Reading) -> Head:
        from agent_memory.engine.transfer.importer import Importer

        return Importer(self.components).run(reading)

    @property
    def _regenerating(self) -> Regenerate:
        from agent_memory.engine.loop.turns import Regenerate

        return Regenerate(self.components, self._settle)
