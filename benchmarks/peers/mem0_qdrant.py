"""mem0 without a model (`infer=False`) on a local Qdrant: `mem0_qdrant.py FOLDER`.

The embedder returns a constant vector, so that only mem0's own cost is measured.
"""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["MEM0_TELEMETRY"] = "False"

from mem0 import Memory

from benchmarks.messages import Chat
from benchmarks.speed.backend import SyncBackend
from benchmarks.speed.serving import About, Server, serve

_DIMENSION = 256
_ALL = 1_000_000
_WINDOW = 60  # about as many messages of 60 tokens as fit into 4,096


class _Constant:
    """An embedder that costs nothing."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [1.0] * _DIMENSION

    def embed_batch(self, texts: Sequence[str], memory_action: str = "add") -> list[list[float]]:
        return [[1.0] * _DIMENSION for _ in texts]


class Mem0(SyncBackend):
    """mem0. A session is a `run_id`, and a get lists the session's memories."""

    chunk = 100

    def __init__(self, folder: Path, budget: int | None) -> None:
        super().__init__(folder, budget)
        unused = {"api_key": "unused"}
        place = {"path": str(folder / "qdrant"), "on_disk": True}
        qdrant = {**place, "embedding_model_dims": _DIMENSION}
        settings = {
            "vector_store": {"provider": "qdrant", "config": qdrant},
            "embedder": {"provider": "openai", "config": unused},
            "llm": {"provider": "openai", "config": unused},
            "history_db_path": str(folder / "history.db"),
        }
        self._memory: Any = Memory.from_config(settings)
        self._memory.embedding_model = _Constant()

    def fill(self, session: str, messages: Sequence[Chat]) -> None:
        self._memory.add(list(messages), run_id=session, infer=False)

    def append(self, session: str, message: Chat) -> None:
        self._memory.add([message], run_id=session, infer=False)

    def get(self, session: str) -> int:
        return len(self._list(session, _ALL if self.budget is None else _WINDOW))

    def read(self, session: str) -> list[str]:
        found = sorted(self._list(session, _ALL), key=lambda memory: memory["created_at"])
        return [memory["memory"] for memory in found]

    def close(self) -> None:
        self._memory.vector_store.client.close()

    def _list(self, session: str, limit: int) -> list[dict[str, Any]]:
        found = self._memory.get_all(filters={"run_id": session}, top_k=limit)
        return list(found["results"])


def make(folder: Path) -> Server:
    """Serve it."""
    about = About(
        version("mem0ai"),
        "power (rollback journal, synchronous=FULL)",
        f"no model, a constant embedder; counts no tokens; for 4k it gives {_WINDOW} memories",
        budgets=True,
    )
    return Server(about, Mem0, folder)


if __name__ == "__main__":
    serve(make)
