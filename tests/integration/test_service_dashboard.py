"""The dashboard and the alerts ask only for metrics that the service exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.serving import serving

FOLDER = Path(__file__).parents[2] / "examples" / "service"
NAME = re.compile(r"\bagent_memory_\w+")
SUFFIXES = {
    "counter": [""],  # its family has the suffix _total already
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
def test_an_expression_asks_for_what_is_exported(expression: str, exported: set[str]) -> None:
    asked = set(NAME.findall(expression))
    assert asked
    assert asked <= exported


def test_the_alarm_of_the_documents_is_among_the_alerts() -> None:
    assert any("agent_memory_not_absorbing_seconds" in one for one in alerts())
