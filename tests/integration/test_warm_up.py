"""`warm_up` loads what the first calls need."""

import logging
import subprocess
import sys
from typing import Any

import pytest

from agent_memory import AgentMemory, StaticMemory, VectorMemory
from agent_memory.core.records import Scope
from agent_memory.errors import InvalidId, MemoryClosed

SAID = {"role": "user", "content": "My sister lives in Porto."}

_LOADED = """
import sys
from agent_memory import AgentMemory
with AgentMemory(store="memory://", **{fields}) as memory:
    memory.warm_up()
    texts = memory.components.resources.counter._texts
    print("litellm" in sys.modules, texts._built is not None)
"""


class Told(StaticMemory):
    """A block that records what it is asked to load."""

    loaded: list[str] = []

    def load(self) -> None:
        self.loaded.append("load")

    def warm(self, scope: Scope) -> None:
        self.loaded.append(scope.owner)


class Broken(StaticMemory):
    """A block that cannot load."""

    def load(self) -> None:
        raise OSError("no disk")


@pytest.mark.parametrize("model", [None, "openai/any"])
def test_a_process_has_loaded_what_it_will_need(model: str | None) -> None:
    """Wrong: the first `completion` of a warmed-up service takes seconds."""
    code = _LOADED.format(fields={"model": model} if model else {})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(model is not None), "True"]


def test_blocks_load_and_read_for_a_user() -> None:
    """Wrong: a warmed-up user's first question waits for an index."""
    block = Told(name="told", facts=[])
    with AgentMemory(store="memory://", blocks=[block]) as memory:
        memory.warm_up()
        assert block.loaded == ["load"]
        memory.warm_up("ada")
        assert block.loaded == ["load", "load", Scope("ada").owner]
        with pytest.raises(InvalidId):
            memory.warm_up("")
    with pytest.raises(MemoryClosed):
        memory.warm_up()


def test_the_index_of_a_user_is_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the first question of a warmed-up user still reads the user's index from the store."""
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        memory.update("s", SAID, user_id="ada")
        memory.flush()
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        read: list[Any] = []
        run = memory._store._database.read  # type: ignore[attr-defined]

        def noted(work: Any) -> Any:
            read.append(work)
            return run(work)

        monkeypatch.setattr(memory._store._database, "read", noted)  # type: ignore[attr-defined]
        memory.warm_up("ada")
        warmed = len(read)
        read.clear()
        assert memory.search("Where does my sister live?", user_id="ada")
        cold = len(read)
        assert warmed
        read.clear()
        assert memory.search("Where does my sister live?", user_id="ada")
        assert len(read) == cold - 1  # the first search also reads the found records
        assert memory.stats().recalls.asked == 2


def test_what_cannot_be_loaded_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a block that cannot load keeps the service from starting."""
    blocks = [Broken(name="broken", facts=[]), Told(name="told", facts=[], loaded=[])]
    with AgentMemory(store="memory://", blocks=blocks) as memory:
        with caplog.at_level(logging.WARNING):
            memory.warm_up()
        assert "broken" in caplog.text
        assert blocks[1].loaded == ["load"]  # type: ignore[attr-defined]
        assert memory.update("s", SAID).end == 1
