"""Descriptions of a configuration's effects."""

from typing import Any

import pytest

from agent_memory import AgentMemoryConfig, Strategy, Trim
from agent_memory.cli.common import without_password
from agent_memory.cli.config import describe, described
from agent_memory.core.plugins import BUILT_IN, find_kind
from tests.kit import Silent


class Own(Strategy):
    kind: str = "own"


class Foreign(Silent):
    kind: str = "foreign"


def told(**fields: Any) -> dict[str, str]:
    return dict(describe(AgentMemoryConfig(**fields)))


def test_every_kind_has_words() -> None:
    """Wrong: a user's own class makes the check fail."""
    assert described(Own(), None) == "own: a class of your own"
    assert described(Foreign(name="mine"), None) == "foreign: a class of your own (named mine)"
    made: dict[str, dict[str, Any]] = {"skills": {"folder": "x"}, "chain": {"members": [Trim()]}}
    for group, kinds in BUILT_IN.items():
        for kind in kinds:
            one: Any = find_kind(group, kind)(**made.get(kind, {}))
            assert "of your own" not in described(one, None), kind


@pytest.mark.parametrize(
    ("url", "fit"),
    [
        ("sqlite:///a@b/memory.db", "sqlite:///a@b/memory.db"),
        ("memory://", "memory://"),
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("mongodb://ana@h1:1,h2:2/m?password=hunter2", "mongodb://ana@h1:1,h2:2/m"),
        ("postgresql://ana:hun/ter2@host/m", "postgresql://ana:***@host/m"),
        ("postgresql://ana:hun@ter2@host/m", "postgresql://ana:***@host/m"),
        ("postgresql://ana:hun?ter2@host/m", "postgresql://ana:***@host/m"),
        ("redis://:hunter2@cache", "redis://:***@cache"),
    ],
)
def test_a_url_fit_to_be_printed(url: str, fit: str) -> None:
    """Wrong: a printed URL contains its password, or lacks its host."""
    assert without_password(url) == fit
