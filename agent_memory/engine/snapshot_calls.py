"""The calls of `AgentMemory` that take a session out as a file, and bring it in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from agent_memory.core.records import Head
from agent_memory.engine.calls import Calls

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Parts
    from agent_memory.engine.transfer.snapshots.reading import Reading
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.ltm_blocks.base import Block


class SnapshotCalls(Calls):
    """Snapshots of sessions."""

    _parts: Parts

    def export_session(self, session_id: str, to: str | Path | TextIO) -> Exported:
        """Write a snapshot of a session: its log, its head, and what blocks keep of it.

        It is of one moment, whatever else goes on: messages may be appended meanwhile, and are no
        part of it; what works on the session otherwise waits. What belongs to the user, but to no
        session, is not in it.

        Args:
            session_id: The session.
            to: A path, where the file appears once it is whole, readable by its owner alone; or a
                text file to write to.

        Raises:
            InvalidInput: There is no such session.
            StoreUnavailable: It was worked on for a minute, or deleted while it was written: what
                was written to a text file is not whole then, and `import_session` refuses it.
        """
        from agent_memory.engine.transfer.export import Exporter, written

        self._check(session_id, None)
        parts = self._parts
        exporter = Exporter(parts.store, parts.leases, parts.failures, self._all_blocks)
        with written(to) as file:
            return exporter.run(session_id, file.write)

    def import_session(self, source: str | Path | TextIO | Iterable[str]) -> Head:
        """Bring a session in from its snapshot, as a whole or not at all.

        Nobody sees any of it before the last line was read and all of it is found to be as it was
        written. A block absorbs the log anew where its records can't be taken over, such as
        vectors of another embedding model.

        Args:
            source: A path, a text file, or lines; read once, from the beginning to the end.

        Returns:
            The session's head.

        Raises:
            InvalidSnapshot: It is damaged, cut short, or none; the sentence names the line.
            InvalidId: It names a session or a user that nobody can have.
            SessionExists: There is a session of its id already.
            StoreError: The store failed. What had arrived is erased, by a worker at the latest.
        """
        from agent_memory.engine.transfer.importer import lines_of
        from agent_memory.engine.transfer.snapshots.reading import Reading

        self._check(None, None)
        reading = Reading(lines_of(source))
        self._check(reading.head.session_id, reading.head.user_id)
        return self._bring(reading)

    def _bring(self, reading: Reading) -> Head:
        from agent_memory.engine.transfer.importer import Importer

        parts = self._parts
        importer = Importer(
            parts.services.resources,
            parts.leases,
            parts.deletion,
            parts.failures,
            parts.windows,
            self._all_blocks,
        )
        return importer.run(reading)

    @property
    def _all_blocks(self) -> dict[str, Block]:
        notebook = self._parts.notebook
        return {**self.blocks, notebook.name: notebook}
