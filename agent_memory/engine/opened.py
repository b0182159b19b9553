"""`OpenMemory`: what an `AgentMemory` consists of, from its opening to its end."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Self

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.records import Absorbed, Head, Scope
from agent_memory.engine.append import Appender
from agent_memory.engine.assembly import assemble
from agent_memory.engine.edit.regenerate import Regeneration
from agent_memory.engine.loop.regenerate import Regenerate
from agent_memory.engine.processing.worker import Worker
from agent_memory.engine.sharing.shares import Shares
from agent_memory.engine.tool_calls import Toolbox

if TYPE_CHECKING:
    from agent_memory.engine.transfer.snapshots.reading import Reading

logger = logging.getLogger(__name__)

_WAIT = 60.0


class OpenMemory:
    """Opens what a configuration names, and closes it. `AgentMemory` has the calls.

    Args:
        config: See `AgentMemory`.
        **fields: See `AgentMemory`.
    """

    def __init__(self, config: AgentMemoryConfig | None = None, **fields: Any) -> None:
        if config is not None and fields:
            fields = {**{name: getattr(config, name) for name in config.model_fields_set}, **fields}
        self.config = AgentMemoryConfig(**fields) if config is None or fields else config
        self.components = parts = assemble(self.config)
        self.blocks = parts.blocks
        self._store, self._counter = parts.store, parts.services.resources.counter
        self._guard, self._contexts, self._shares = parts.guard, parts.contexts, Shares()
        self._appender = Appender(
            parts.store, self._counter, parts.gate, parts.windows, self.config.max_tokens
        )
        self._will_ask_models = bool(self.config.language_models)
        self._background: Worker | None = None
        if self.config.overflow_mode == "background":
            self._background = parts.worker(self.config.background_threads)
            self._background.start()
            # the threads of a memory that was dropped without `close` end too
            weakref.finalize(self, self._background.stop, 0).atexit = False

    def __repr__(self) -> str:
        return f"AgentMemory(namespace={self.config.namespace!r}, blocks={list(self.blocks)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish background work, release connections. Idempotent.

        Other calls raise `MemoryClosed` afterwards.
        """
        if not self._guard.closed:
            self._guard.closed = True
            if self._background is not None:
                self._background.drain()
                self._background.stop()
            self.components.close()

    def _settle(self, head: Head) -> Head:
        """See to what an update leaves to do; its messages are stored, whatever becomes of it."""
        try:
            if not self.components.work.needed(head):
                return head
            if self._background is not None:
                self._background.wake(head)
                return head
            return self.components.work.after_update(head)
        except Exception:  # the messages are stored: the next call does what is due
            logger.exception("session %r not processed; it will be tried again", head.session_id)
            return head

    def _flush(self, session_id: str) -> list[Absorbed]:
        work = self.components.work
        return work.process(session_id, everything=True, wait=_WAIT).absorbed

    def _open(self, kind: str, scope: Scope) -> Any:
        """The handle of a kind of block, for a scope; `User` and `Session` ask for it."""
        return self.components.block(kind).open(scope)

    def _bring(self, reading: Reading) -> Head:
        """Bring a session in from its snapshot; `operations.import_session` asks for it."""
        from agent_memory.engine.transfer.importer import Importer

        parts = self.components
        importer = Importer(
            parts.services.resources,
            parts.leases,
            parts.deletion,
            parts.dead_letters,
            parts.windows,
            parts.all_blocks,
        )
        return importer.run(reading)

    @property
    def _toolbox(self) -> Toolbox:
        return Toolbox(
            self._guard, self.components.all_blocks, self._open, self.components.search.run
        )

    @property
    def _regenerating(self) -> Regenerate:
        parts = self.components
        asking = Regeneration(parts.store, parts.windows, parts.editor)
        return Regenerate(
            self._guard,
            self._contexts,
            asking,
            parts.editor,
            self._appender,
            self._counter,
            self._settle,
        )
