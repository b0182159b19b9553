"""Spending limits, shared by processes and counted by day. No data is lost over them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, Summarize, TokenCounter
from agent_memory.core.system_collections import SPENDING
from agent_memory.core.usage import SpendingLimit, SpendingLimits
from agent_memory.engine import spending
from agent_memory.models.usage import Account, Call, Charges, Prices
from agent_memory.stores import MemoryStore
from agent_memory.testing import FakeLLM
from tests.kit import model_at

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEXT = datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC)


def answer(body: dict[str, Any]) -> str:
    """Return a summary, or one fact for each message."""
    told = body["messages"][-1]["content"]
    if "<summary>" in told:
        return "They spoke of items."
    if told.startswith("<facts>"):
        return json.dumps({"answers": []})
    found = re.findall(r"^\[(\d+)\] .*: (Item \S+) ", told, re.MULTILINE)
    facts = [{"text": f"Owns {n}.", "message": int(k), "quote": n} for k, n in found]
    return json.dumps({"facts": facts})


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(answer) as opened:
        yield opened


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    now = [DAY]
    monkeypatch.setattr(spending, "now_utc", lambda: now[0])
    return now


def opened(fake: FakeLLM, url: str = "memory://", **fields: Any) -> AgentMemory:
    facts = FlushToLTM(blocks=[ExtractiveMemory()], absorb="every_update")
    fields = {"overflow": facts, "quiet_seconds": 0, **model_at(fake), **fields}
    return AgentMemory(store=url, **fields)


def calls(most: int, **others: Any) -> dict[str, Any]:
    return {"total": {"calls": most}, **others}


def add_item(memory: AgentMemory, session: str, number: int, user: str = "ana") -> None:
    memory.update(session, {"role": "user", "content": f"Item {number} is mine."}, user_id=user)


WORKER = """
import sys
from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, Summarize, Chain
url, api_base, name, day = sys.argv[1:]
from datetime import datetime, UTC
from agent_memory.engine import spending
spending.now_utc = lambda: datetime.fromisoformat(day)
strategy = Chain([FlushToLTM(blocks=[ExtractiveMemory()], absorb="every_update"),
                  Summarize(max_summary_tokens=60)])
memory = AgentMemory(store=url, api_base=api_base, api_key="k", model="openai/any",
                     overflow=strategy, quiet_seconds=0, max_tokens=600,
                     spending_limits={"total": {"calls": 10}})
with memory:
    for n in range(50):
        memory.update(name, {"role": "user", "content": f"Item {name}.{n} is mine, of course."},
                      user_id=f"u-{name}")
    assert memory.stats().spending.spent.calls <= 10
    context = memory.get(name, "What is mine?", user_id=f"u-{name}")
    assert any("10 of 10 calls" in told for told in context.warnings), context.warnings
    assert memory.stats().dead_letters == 0
"""


def test_four_processes_share_a_call_limit(fake: FakeLLM, url: str, clock: list[datetime]) -> None:
    """Wrong: each process has its own limit, or concurrent calls exceed it."""
    command = [sys.executable, "-c", WORKER, url, fake.api_base]
    running = [subprocess.Popen([*command, f"s{n}", DAY.isoformat()]) for n in range(4)]
    assert [one.wait(300) for one in running] == [0] * 4
    assert len(fake.requests) == 10
    clock[0] = NEXT
    facts = FlushToLTM(blocks=[ExtractiveMemory()])
    with opened(fake, url, overflow=facts, spending_limits=calls(10_000)) as memory:
        assert memory.stats().entries == 200
        assert memory.stats().blocks["extractive"].lag > 0
        assert memory.stats().blocks["extractive"].error is None
        assert not [one for one in memory.flush() if one.error]
        assert memory.stats().blocks["extractive"].lag == 0
        assert memory.stats().dead_letters == 0
        for n in range(4):
            assert len(memory.user(f"u-s{n}").facts()) == 50
        spent = memory.stats().spending
        assert (spent.day, spent.spent.calls) == ("2026-03-02", len(fake.requests) - 10)


KILLED = """
import os, sys
from agent_memory.engine import spending
from agent_memory import AgentMemory
from agent_memory.models.provider import Provider
Provider.send = lambda *args, **fields: os._exit(9)
url, api_base = sys.argv[1:]
memory = AgentMemory(store=url, api_base=api_base, api_key="k", model="openai/any",
                     spending_limits={"total": {"calls": 2, "tokens": 100_000}})
memory.components.resources.models(None).complete([{"role": "user", "content": "Hi"}])
"""


def test_a_killed_call_leaves_its_reservation(fake: FakeLLM, url: str) -> None:
    """Wrong: a call that a killed process had reserved is not counted, or blocks all others."""
    done = subprocess.run([sys.executable, "-c", KILLED, url, fake.api_base], check=False)
    assert done.returncode == 9
    limits = {"total": {"calls": 2, "tokens": 100_000}}
    with opened(fake, url, spending_limits=limits) as memory:
        today = memory.stats().spending
        assert today.spent.calls == 1
        assert 0 < today.spent.tokens < 3_000
        add_item(memory, "s", 1)
        add_item(memory, "s", 2)
        assert len(fake.requests) == 1
        assert memory.flush()[0].error is not None
        assert len(fake.requests) == 1


def test_one_user_over_the_limit_stops_no_other(fake: FakeLLM, clock: list[datetime]) -> None:
    """Wrong: one user's limit blocks another user, or applies to each session."""
    with opened(fake, spending_limits={"per_user": {"calls": 2}}) as memory:
        for number in range(4):
            add_item(memory, "ana", number)
        add_item(memory, "ana-2", 4)
        assert len(fake.requests) == 2
        add_item(memory, "ben", 0, "ben")
        assert len(fake.requests) == 3
        assert memory.user("ben").facts()
        assert any("limit" in told for told in memory.get("ana").warnings)
        assert not any("limit" in told for told in memory.get("ben").warnings)
        assert memory.stats().spending is None  # no total limit is set


def test_a_summary_over_the_limit_is_redone_later(fake: FakeLLM, clock: list[datetime]) -> None:
    """Wrong: over the limit the window overflows, or the local extract is never replaced."""
    strategy = Summarize(max_summary_tokens=60)
    with opened(fake, overflow=strategy, max_tokens=300, spending_limits=calls(1)) as memory:
        for number in range(60):
            add_item(memory, "s", number)
        context = memory.get("s", "And?", user_id="ana")
        assert context.tokens <= 300
        assert context.head.summary.by == "local"
        assert len(fake.requests) == 1
        told = " ".join(context.warnings)
        assert "1 of 1 calls" in told
        assert "failed" not in told
        clock[0] = NEXT
        memory.flush("s")
        head = memory.head("s")
        assert head.summary.by == "openai/any"
        assert len(fake.requests) == 2


@pytest.mark.parametrize("limit", [{"tokens": 9_000}, {"cost": 0.0045}, {"calls": 9}], ids=str)
def test_usage_counts_calls(fake: FakeLLM, clock: list[datetime], limit: dict[str, float]) -> None:
    """Wrong: a call counts by its estimate instead of its actual usage."""
    prices = {"openai/any": {"input": 0.5, "output": 0.5}}
    with opened(fake, spending_limits={"total": limit}, prices=prices) as memory:
        asked = 0
        for number in range(40):
            add_item(memory, "s", number)
            asked, before = len(fake.requests), asked
            if asked == before:
                break
        usage = memory.stats().usage
        today = memory.stats().spending
        assert today.reached is not None
        assert 2 < asked == today.spent.calls < 40
        assert today.spent.tokens == usage.prompt_tokens + usage.completion_tokens < 9_000
        assert usage.cost == pytest.approx(today.spent.tokens * 0.5e-6)


def test_an_unknown_price_is_reported_as_a_failure_of_the_block(
    fake: FakeLLM, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: the model is called, or no warning, statistic or log line has the reason."""
    with opened(
        fake, spending_limits={"total": {"cost": 1.0}}, overflow_mode="background"
    ) as memory:
        for number in range(3):
            add_item(memory, "s", number)
            memory.flush()
        assert any("prices={" in warning for warning in memory.get("s", user_id="ana").warnings)
        assert "prices={" in (memory.stats().blocks["extractive"].error or "")
        assert caplog.text.count("prices={") == 1
        assert fake.requests == []
        assert memory.stats().dead_letters == 0


def test_an_unknown_price_is_the_reason_for_a_local_extract(fake: FakeLLM) -> None:
    """Wrong: a model with an unknown price writes no summary, and no warning has the reason."""
    summaries = {"overflow": Summarize(max_summary_tokens=60), "max_tokens": 600}
    with opened(fake, spending_limits={"total": {"cost": 1.0}}, **summaries) as memory:
        for number in range(120):
            add_item(memory, "s", number)
        assert any("prices={" in warning for warning in memory.get("s", user_id="ana").warnings)
        assert fake.requests == []


def test_a_limit_of_0_calls_no_model(fake: FakeLLM) -> None:
    """Wrong: a limit of 0 calls still calls a model, or adds a warning to every context."""
    with opened(
        fake, overflow=Summarize(max_summary_tokens=60), max_tokens=300, spending_limits=calls(0),
        blocks=[ExtractiveMemory()],
    ) as memory:  # fmt: skip
        for number in range(60):
            add_item(memory, "s", number)
        context = memory.get("s", "And?", user_id="ana")
        assert not [one for one in context.warnings if "limit" in one]
        memory.flush()
        assert fake.requests == []
        assert memory._store.owners(SPENDING.name, "") == []
        memory.completion("s", "Hello?", user_id="ana")
        assert len(fake.requests) == 1


def test_completion_does_not_count_towards_spending_limits(fake: FakeLLM) -> None:
    """Wrong: `completion` is refused by the spending limit, or counts towards it."""
    fake.default = "Hello."
    with opened(fake, spending_limits=calls(1), model="openai/gpt-4o-mini") as memory:
        costs = [memory.completion("s", "Hello?", user_id="ana").cost for _ in range(2)]
        assert min(costs) > 0
        today = memory.stats().spending
        assert today.spent.calls <= 1
        by = memory.stats().usage_by_purpose
        assert by["completion"].calls == 2
        assert by["completion"].cost == pytest.approx(sum(costs))


def test_a_paid_embedder_is_charged_and_limited(fake: FakeLLM) -> None:
    """Wrong: the cost of embedding a question is not reported, or is not limited."""
    fields = {"embedding": "openai/text-embedding-3-small", "overflow": None, "model": None}
    fake.dimension = 1536
    with opened(fake, spending_limits={"per_user": {"calls": 3}}, **fields) as memory:
        add_item(memory, "s", 1)
        memory.flush()
        context = memory.get("t", "What item is mine?", user_id="ana")
        assert context.usage.embedding_calls == 1
        assert context.cost is not None
        assert context.cost > 0
        assert memory.before_turn("x", "A new item of mine?", user_id="ana").cost
        for number in range(4):
            refused = memory.get("t", f"Which item is it, number {number}?", user_id="ana")
            assert refused.usage.embedding_calls == 0
        assert any("limit" in one for one in refused.warnings)
        assert memory.get("t", "Whose item is it?", user_id="ben").usage.embedding_calls == 1


@pytest.mark.parametrize(
    ("limit", "purpose", "counts"),
    [
        (SpendingLimit(calls=9), "summary", 0),
        (SpendingLimit(tokens=9_000), "completion", 0),
        (SpendingLimit(tokens=9_000), "summary", 1),
    ],
)
def test_only_token_limits_count_tokens(limit: SpendingLimit, purpose: Any, counts: int) -> None:
    """Wrong: a long request waits for a count that no limit needs."""
    counted: list[object] = []

    class Counter(TokenCounter):
        def context(self, messages: Any) -> int:
            counted.append(messages)
            return 5

    limits = spending.Spending(MemoryStore(), SpendingLimits(total=limit), Prices())
    sent = [{"role": "user", "content": "Hi."}]
    call = Call("completion", "m", Account(purpose), sent, None)
    Charges(hold=limits.hold, counter=Counter()).begin(call)
    assert len(counted) == counts
