"""Contract tests for `AgentMemory` when its store's server goes away."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from uuid import uuid4

import pytest

from agent_memory import AgentMemory, FlushToLTM, VectorMemory
from agent_memory.errors import StoreUnavailable
from tests.kit import texts, user
from tests.servers.sql import hides

SECRETS = ("s3cr3t", "tiger", "hunter2")


def _notes(first: int, last: int) -> list[dict[str, str]]:
    return [
        user(f"Note number {n}: the lamp of room {n} is to be mended.") for n in range(first, last)
    ]


class MemoryOutageContract:
    """When the session store is down, calls fail whole. Afterwards work continues."""

    @pytest.fixture
    def away(self) -> tuple[Any, str]:
        """The server to stop, and the URL of a store on it."""
        pytest.fail("Give the contract an `away` fixture.")

    @pytest.mark.parametrize("mode", ["inline", "background"])
    def test_a_memory_works_again_after_an_outage(
        self,
        away: tuple[Any, str],
        mode: Literal["inline", "background"],
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Wrong: an outage stores half of an update, or the memory must be reopened after it."""
        caplog.set_level(logging.DEBUG)
        # a lease held during the outage expires some time later
        monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 1.0)
        monkeypatch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 0.2)
        server, url = away
        with _memory(url, mode) as memory:
            memory.update("s", _notes(0, 12), user_id="ann")
            memory.update("t", _notes(0, 2), user_id="bob")
            with _stopped(server):
                for call in _calls(memory):
                    with pytest.raises(StoreUnavailable) as caught:
                        call()
                    assert hides(caught.value, *SECRETS, "room 12")
            head = memory.update("s", _notes(12, 14))
            assert head.end == 14
            memory.update("s", _notes(14, 20))
            assert texts(memory, "s") == [one["content"] for one in _notes(0, 20)]
            assert texts(memory, "t") == [one["content"] for one in _notes(0, 2)]
            assert memory.get("new").head is None
            memory.flush()
            assert memory.stats().blocks["vector"].lag == 0
            found = memory.search("Which lamp is to be mended?", user_id="ann", limit=50)
            assert sorted(source for recall in found for source in recall.sources) == [
                ("s", seq) for seq in range(1, 21)
            ]
            assert memory.get("s", "And room 3?").warnings == []
            memory.delete("s")
            assert memory.history("s") == []
        assert not any(secret in caplog.text for secret in SECRETS)


def _calls(memory: AgentMemory) -> list[Callable[[], Any]]:
    return [
        lambda: memory.update("s", _notes(12, 13)), lambda: memory.update("s", _notes(12, 14)),
        lambda: memory.update("new", _notes(12, 13), user_id="ann"),
        lambda: memory.get("s", "And room 3?"), lambda: memory.history("s"),
        lambda: memory.pop("s"), lambda: memory.delete("t"), lambda: memory.flush("s"),
    ]  # fmt: skip


@contextmanager
def _memory(url: str, mode: Literal["inline", "background"]) -> Iterator[AgentMemory]:
    blocks = FlushToLTM(blocks=[VectorMemory()], max_stm_ratio=0.3)
    with AgentMemory(
        store=url, namespace=uuid4().hex, max_tokens=600, overflow=blocks, overflow_mode=mode
    ) as memory:
        yield memory


@contextmanager
def _stopped(server: Any) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()
