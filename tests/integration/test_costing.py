"""What a chat log would cost: the same as the engine would take, and no model is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_memory import Message
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.integrations.costing import STRATEGIES, Bill, costs, read_chat
from agent_memory.models.usage import Price
from tests.kit import invoke

WORDS = "the garden gate was painted green by Ana in spring and the fence by Bo in autumn of 2021"
CHAT = [
    ("one", Message(role=("user", "assistant")[n % 2], content=f"{n}: {WORDS}")) for n in range(60)
]
PRICES = {"mine": Price(input=1.0, output=10.0)}


@pytest.fixture(scope="module")
def bills() -> dict[str, Bill]:
    found = costs(CHAT, model="mine", max_tokens=400, prices=PRICES)
    return {bill.strategy: bill for bill in found}


def test_the_full_history_is_added_up(bills: dict[str, Bill]) -> None:
    """Wrong: an answer is sent less than all that was said before it, or is sent itself."""
    counter, total, sent = TokenCounter("mine"), 0, 0
    for _, message in CHAT:
        if message.role == "assistant":
            sent += counter.context(
                [one.to_openai() or {} for _, one in CHAT[: CHAT.index((_, message))]]
            )
        total += counter.message(message)
    bill = bills["full history"]
    assert (bill.calls, bill.prompt_tokens) == (30, sent)
    assert bill.cost == pytest.approx((sent * 1.0 + bill.completion_tokens * 10.0) / 1e6)


def test_each_strategy_is_priced(bills: dict[str, Bill]) -> None:
    """Wrong: a strategy is left out, passes the budget, or hides what memory itself asks."""
    assert tuple(bills) == STRATEGIES
    for name in STRATEGIES[1:]:
        assert 0 < bills[name].prompt_tokens <= 30 * 400
    assert bills["trim"].memory_calls == bills["flush to vector"].memory_calls == 0
    assert bills["trim"].recalled_tokens == 0
    recalled = bills["flush to vector"].recalled_tokens
    assert recalled is not None
    assert recalled > 0
    for name in ("summarize", "facts"):
        assert bills[name].memory_calls > 0
        assert bills[name].memory_tokens > 0
        assert bills[name].is_estimated
    assert bills["facts"].recalled_tokens is None
    costs_of = [bill.cost for bill in bills.values()]
    assert None not in costs_of


def test_a_log_is_priced_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: the command asks a model, leaves a store behind, or shows a price that nobody knows
    as nothing."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "chat.jsonl"
    log.write_text(
        "".join(
            json.dumps({"session_id": s, "role": one.role, "content": one.content}) + "\n"
            for s, one in CHAT[:10]
        ),
        encoding="utf-8",
    )
    done = invoke(["cost", str(log), "--json", "--max-tokens", "300"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["messages"], told["sessions"], told["max_tokens"]) == (10, 1, 300)
    assert [one["cost"] for one in told["strategies"]] == [None] * 5
    shown = invoke(["cost", str(log), "--from", "jsonl"])
    assert shown.exit_code == 0, shown.output
    assert "full history" in shown.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["chat.jsonl"]
    assert read_chat(log, "jsonl")[0][0] == "one"
