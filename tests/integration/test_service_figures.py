"""Metrics that the service reports."""

import json
import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from agent_memory import AgentMemory, AsyncAgentMemory, VectorMemory
from agent_memory.core.usage import Usage
from agent_memory.engine.stats import Counted, PromptStats, RecallStats, SharedMetrics
from agent_memory.errors import StoreUnavailable
from agent_memory.server.application import Application
from agent_memory.server.credentials import Credentials
from agent_memory.server.keys import KeyRing
from agent_memory.server.monitoring import LONG_SECONDS, Metrics, Watch
from agent_memory.stores import MemoryStore
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import together
from tests.integration.serving import Service, serving
from tests.kit import note_waits

SAID = {"role": "user", "content": "The canary lives in Lisbon."}
QUESTION = "Where does the canary live?"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as one:
        yield one


def metrics_of(service: Service) -> dict[str, float]:
    service.app.figures._until = 0.0
    body = service.ask("GET", "/metrics", service.key("*", rights="admin")).body.decode()
    lines = (line.rpartition(" ") for line in body.splitlines() if not line.startswith("#"))
    return {name.removeprefix("agent_memory_"): float(value) for name, _, value in lines}


def test_metrics_count_empty_recalls(service: Service) -> None:
    """Wrong: the metrics hide recalls that found nothing, or count small talk as a question."""
    service.memory.update("s-1", SAID, user_id="ana")
    service.memory.flush("s-1")
    service.memory.get("s-2", QUESTION, user_id="ana")
    service.memory.get("s-2", "thanks!", user_id="ana")
    service.memory.get("s-3", QUESTION, user_id="carl")
    service.memory.search(QUESTION, user_id="carl")
    service.memory.search(QUESTION, user_id="ana")
    told = metrics_of(service)
    assert (told["recalls_total"], told["recalls_empty_total"]) == (4, 2)


def test_metrics_report_prompt_tokens_that_a_cache_can_reuse(service: Service) -> None:
    """Wrong: the metrics do not show that a prompt cache never hits."""
    for text in ("One.", "Two.", "Three."):
        service.memory.update("s-1", {"role": "user", "content": text}, user_id="ana")
        service.memory.get("s-1")
    told = metrics_of(service)
    assert 0 < told["prompt_cacheable_tokens_total"] < told["prompt_tokens_total"]


def test_metrics_report_model_calls_by_purpose(service: Service) -> None:
    """Wrong: the metrics mix the costs of extraction and completion."""
    service.memory.update("s-1", SAID, user_id="ana")
    service.memory.flush("s-1")
    service.memory.completion("s-1", "turn: hello", user_id="ana")
    told = metrics_of(service)
    for purpose in ("extraction", "completion"):
        assert told[f'model_calls_total{{kind="language",purpose="{purpose}"}}'] == 1
        assert told[f'model_tokens_total{{kind="prompt",purpose="{purpose}"}}'] > 0
        assert f'model_cost_dollars_total{{purpose="{purpose}"}}' in told


def test_counts_of_concurrent_processes_are_added() -> None:
    """Wrong: counts are lost when several processes add them at the same time."""
    store = MemoryStore()
    counted = [0] * 4

    def count(own: int) -> None:
        figures = SharedMetrics(store)
        for number in range(1, 26):
            usage = {"extraction": Usage(calls=number, cost=0.5 * number)}
            while not figures.add(Counted(usage, PromptStats(), RecallStats(number, 0))):
                pass
            counted[own] = number

    together([partial(count, own) for own in range(4)])
    assert counted == [25] * 4
    found = SharedMetrics(store).read()
    assert found.usage == {"extraction": Usage(calls=100, cost=50.0)}
    assert found.recalls == RecallStats(100, 0)


def test_counts_survive_a_store_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an outage loses counts, or they are added twice."""
    store, once = MemoryStore(), Counted({}, PromptStats(), RecallStats(3, 1))
    figures = SharedMetrics(store)
    with monkeypatch.context() as outage:
        outage.setattr(store, "swap_record", Mock(side_effect=StoreUnavailable("down")))
        assert not figures.add(once)
    assert figures.add(once)
    assert figures.add(once)
    assert figures.read().recalls == RecallStats(3, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, watch: Watch) -> list[str]:
        """Let `LONG_SECONDS` pass between two looks. Return the stalled blocks."""
        watch.look()
        self.now += LONG_SECONDS
        watch.look()
        return [f"{one.block}: {one.why}" for one in watch.stalled]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]


def test_an_alarm_reports_pending_work_without_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: messages stay pending without a worker, and neither log nor metrics show it."""
    with AgentMemory(store="memory://", blocks=[VectorMemory()]) as memory:
        memory.update("s-1", SAID, user_id="ana")
        memory.components.store.schedule_all()  # as after ten minutes of silence
        watch = Watch(memory.components, clock=(clock := Clock()))
        watch.look()
        assert watch.stalled == []  # the state may be new
        assert clock.pass_by(watch) == ["vector: no worker runs"]
        assert errors(caplog) == ["A block absorbs nothing although messages are pending"]
        metrics = Metrics()
        app = Application(AsyncAgentMemory(memory), Credentials(KeyRing(MemoryStore())), metrics)
        app.figures.watch = watch
        told = metrics.text(True, app.figures._read()).decode()
        assert 'not_absorbing_seconds{block="vector",why="no worker runs"} 900.0' in told
        memory.flush("s-1")
        assert clock.pass_by(watch) == []


def test_no_alarm_is_raised_while_a_worker_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: an alarm is raised while a worker runs, or none after it has stopped."""
    with AgentMemory(store="memory://", blocks=[VectorMemory()]) as memory:
        memory.update("s-1", SAID, user_id="ana")
        memory.components.store.schedule_all()  # as after ten minutes of silence
        memory.components.heartbeats.beat()  # as each worker does every minute
        seen = memory.components.heartbeats.read()[0]
        watch = Watch(memory.components, clock=(clock := Clock()))
        clock.now = seen - 60
        watch.look()
        clock.now = seen + LONG_SECONDS - 1
        watch.look()
        assert watch.stalled == []
        assert errors(caplog) == []
        clock.now += 1
        watch.look()
        assert [one.why for one in watch.stalled] == ["no worker runs"]


def test_an_alarm_reports_a_failing_block(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: workers run and every call fails for hours, and no metric shows it."""
    note_waits(monkeypatch)
    with FakeLLM() as fake:
        fake.outage("error")
        blocks = [VectorMemory(embedding="openai/embed")]
        asked: dict[str, Any] = {"api_base": fake.api_base, "api_key": "k"}
        with AgentMemory(store="memory://", blocks=blocks, **asked) as memory:
            memory.update("s-1", SAID, user_id="ana")
            memory.flush("s-1")
            watch = Watch(memory.components, clock=(clock := Clock()))
            clock.now += LONG_SECONDS
            assert "vector: every batch fails" in clock.pass_by(watch)
            fake.clear()
            memory.flush("s-1")
            memory.components.heartbeats.beat()
            watch.look()
            assert watch.stalled == []


FOLDER = Path(__file__).parents[2] / "examples" / "service"
NAME = re.compile(r"\bagent_memory_\w+")
SUFFIXES = {
    "counter": [""],  # its family name already ends in _total
    "gauge": [""],
    "histogram": ["_bucket", "_count", "_sum"],
}


def dashboard() -> list[str]:
    board: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def alerts() -> list[str]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))
    return [rule["expr"] for group in found["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    with serving(tmp_path_factory.mktemp("service")) as service:
        body = service.ask("GET", "/metrics", service.key("*", rights="admin")).body.decode()
    types = re.findall(r"^# TYPE (\w+) (counter|gauge|histogram)$", body, re.MULTILINE)
    return {name + suffix for name, kind in types for suffix in SUFFIXES[kind]}


@pytest.mark.parametrize("expression", [*dashboard(), *alerts()])
def test_alert_expressions_use_exported_metrics(expression: str, exported: set[str]) -> None:
    asked = set(NAME.findall(expression))
    assert asked
    assert asked <= exported


def test_the_documented_alarm_is_among_the_alerts() -> None:
    assert any("agent_memory_not_absorbing_seconds" in one for one in alerts())
