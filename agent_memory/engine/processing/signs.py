"""Signs of life: when a worker last looked for work, and when each block last absorbed something,
in whatever process that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time

from agent_memory.engine.system_records import Kind, SystemRecords

_WORKER = "worker"
_BLOCK = "block "


class Signs:
    """Gives them, and reads them.

    Args:
        records: Where they are kept.
    """

    def __init__(self, records: SystemRecords) -> None:
        self._records = records
        self._absorbed: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def absorbed(self, block: str) -> None:
        """A block took a batch; it is told at the next `beat`."""
        self._absorbed[block] = time()

    def beat(self) -> None:
        """A worker of this process looks for work."""
        self._records.write(Kind.SIGNS, _WORKER, at=time())
        for block, at in list(self._absorbed.items()):
            if self._told.get(block) != at:
                self._records.write(Kind.SIGNS, f"{_BLOCK}{block}", at=at)
                self._told[block] = at

    def read(self) -> LastSeen:
        """When what was seen last."""
        found = {name: float(note["at"]) for name, note in self._records.read(Kind.SIGNS).items()}
        blocks = {
            name.removeprefix(_BLOCK): at for name, at in found.items() if name.startswith(_BLOCK)
        }
        return LastSeen(found.get(_WORKER, 0.0), blocks)


class LastSeen:
    """When what was seen last.

    Args:
        worker: A worker that looks for work, in seconds since the epoch; 0 for never.
        blocks: Each block that absorbed something, by its name.

    Attributes:
        worker: As given.
    """

    def __init__(self, worker: float, blocks: Mapping[str, float]) -> None:
        self.worker = worker
        self._blocks = blocks

    def absorbed(self, block: str) -> float:
        """When a block absorbed something; 0 for never."""
        return self._blocks.get(block, 0.0)
