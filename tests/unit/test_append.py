"""Which messages are appended one at a time."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from agent_memory import Message
from agent_memory.engine.append import Gate

SHORT = {"role": "user", "content": "hello"}
LONG = {"role": "user", "content": "word " * 10_000}
CALL = {"role": "assistant", "content": "", "tool_calls": [object()]}
PARTS = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


class Dumped:
    """What other libraries give: making a message of it runs their code."""

    def model_dump(self) -> dict[str, Any]:
        return SHORT


@pytest.mark.parametrize("message", [SHORT, Message(**SHORT)], ids=["dict", "message"])
def test_short_texts_take_turns(message: Any) -> None:
    """Wrong: threads race for the interpreter between the calls of one append."""
    gate = Gate(closed=True)
    inside = []
    with gate.turn([message]):
        other = threading.Thread(target=lambda: _pass(gate, message, inside))
        other.start()
        other.join(0.05)
        assert not inside
    other.join()
    assert inside == [True]


@pytest.mark.parametrize(
    "given",
    [[LONG], [SHORT, SHORT], [CALL], [PARTS], [Dumped()]],
    ids=["long", "many", "call", "parts", "foreign"],
)
def test_what_takes_long_or_runs_code_of_others_holds_nobody_up(given: list[Any]) -> None:
    """Wrong: a long text keeps all threads waiting, or code of others is run under a lock."""
    assert isinstance(Gate(closed=True).turn(given), nullcontext)


def test_with_a_server_nobody_waits() -> None:
    """Wrong: eight threads wait for eight answers one after the other."""
    assert isinstance(Gate(closed=False).turn([SHORT]), nullcontext)


def _pass(gate: Gate, message: Any, inside: list[bool]) -> None:
    with gate.turn([message]):
        inside.append(True)
