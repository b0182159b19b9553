"""Every numeric setting with infinities, zero, negatives and 1e12: refused, or it works."""

import json
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_memory import (
    AgentMemory,
    AgentMemoryConfig,
    FlushToLTM,
    SpatialMemory,
    Summarize,
    Trim,
    VectorMemory,
    WorkingMemory,
)
from agent_memory.core.usage import SpendingLimit
from agent_memory.errors import AgentMemoryError, ConfigError, MessageTooLarge
from agent_memory.ltm_blocks import ExtractiveMemory, FileMemory, NoteMemory, SkillMemory
from agent_memory.ltm_blocks.extractive.history.fact import ImportanceScorer
from agent_memory.ltm_blocks.extractive.history.likeness import StalenessDetector
from agent_memory.ltm_blocks.llm_reranker import FactChooser
from agent_memory.models.usage import Price
from agent_memory.testing import FakeLLM
from tests.kit import every_nth, invoke

NUMBERS: list[Any] = [inf, -inf, nan, 0, 0.0, -1, -1.5, 1e12, 10**12, 1e300, 10**400, 5e-324, 1]
MODELS: list[type[BaseModel]] = [
    AgentMemoryConfig, ExtractiveMemory, FileMemory, FlushToLTM, NoteMemory, SkillMemory,
    SpatialMemory, Summarize, Trim, VectorMemory, WorkingMemory, SpendingLimit, Price, FactChooser,
    ImportanceScorer, StalenessDetector,
]  # fmt: skip


def numeric(model: type[BaseModel]) -> Iterator[str]:
    """Return the fields of a model that take numbers or durations."""
    for name, field in model.model_fields.items():
        if any(kind in (int, float, timedelta) for kind in kinds(field.annotation)):
            yield name


def kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    if typing.get_origin(annotation) not in (Mapping, dict, tuple, list):
        for one in typing.get_args(annotation):
            yield from kinds(one)


LIMITS = ("max_tokens", "dimension", "max_message_bytes", "max_summary_tokens", "keep_user_tokens")
FIELDS = [(model, name) for model in MODELS for name in numeric(model)]


def settings_of(model: type[BaseModel], name: str, value: Any) -> dict[str, Any]:
    """Return the settings of a memory with one number in one field. May raise `ConfigError`."""
    more: dict[type[BaseModel], dict[str, Any]] = {Price: {"input": 1}}
    made = model(**{**more.get(model, {}), name: value})
    if model is AgentMemoryConfig:
        return {name: value, "blocks": [VectorMemory(), ExtractiveMemory()]}
    if isinstance(made, SpendingLimit):
        return {"spending_limits": {"total": made}}
    if isinstance(made, Price):
        return {"prices": {"openai/fake": made}}
    if isinstance(made, FactChooser):
        made = ExtractiveMemory(choose=made)
    if isinstance(made, ImportanceScorer):
        made = ExtractiveMemory(scorer=made)
    if isinstance(made, StalenessDetector):
        made = ExtractiveMemory(staleness=made)
    if isinstance(made, Trim | Summarize | FlushToLTM):
        return {"overflow": made}
    beside = [] if isinstance(made, VectorMemory) else [VectorMemory()]
    return {"blocks": [*beside, made]}


def use(server: FakeLLM, given: dict[str, Any], mode: str) -> None:
    """Make all calls that a setting may affect."""
    model = {"model": "openai/fake", "api_base": server.api_base, "api_key": "k"}
    fields = {"max_tokens": 2_000, "overflow_mode": mode, **model, **given}
    with AgentMemory("memory://", **fields) as memory:
        for n in range(6):
            said = {"role": "user", "content": f"{n}: My boat is blue, and I row on the lake."}
            memory.update("s", said, user_id="ana", key=f"{n}")
        memory.flush()
        with suppress(AgentMemoryError):  # the maximum of notes may be 0
            memory.remember("Ana sails.", user_id="ana")
        shown = memory.get("t", "What colour is my boat?", user_id="ana")
        assert "boat" in str(shown.to_messages())
        assert len(memory.history("s")) == 6 or "retention" in given
        memory.search("boat", user_id="ana")
        (lag,) = [block.lag for name, block in memory.stats().blocks.items() if name == "vector"]
        assert lag == 0 or given.get("absorb_timeout", 1) < 1e-9  # every batch times out then


@pytest.mark.parametrize(("model", "name"), FIELDS, ids=[f"{m.__name__}.{n}" for m, n in FIELDS])
def test_a_number_is_refused_or_works(model: type[BaseModel], name: str) -> None:
    """Wrong: a number that passed the check makes a call fail."""
    with FakeLLM(json.dumps({"facts": []})) as server:
        for value in every_nth(NUMBERS, 12):
            try:
                given = settings_of(model, name, value)
            except ConfigError:
                continue
            assert value not in (inf, -inf)
            for mode in ("inline", "background") if model is AgentMemoryConfig else ("inline",):
                try:
                    use(server, given, mode)
                except (ConfigError, MessageTooLarge):  # it conflicts with other settings
                    assert name in LIMITS, value


@pytest.mark.parametrize("value", ["inf", "1e12", "nan", "0", "-1"])
@pytest.mark.parametrize("name", ["recall_timeout", "absorb_timeout", "idle_minutes"])
def test_a_file_of_settings_is_told_the_range(tmp_path: Path, name: str, value: str) -> None:
    """Wrong: `config check` accepts a number out of range, or does not name the range."""
    file = tmp_path / "memory.toml"
    file.write_text(f"{name} = {value}\n", "utf-8")
    done = invoke(["config", "check", str(file)], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert f"error: `{name}` of AgentMemory must be above 0 and at most " in done.output


@pytest.mark.parametrize("rate", ["inf", "nan", "1e300", "-1"])
def test_a_rate_of_the_service_is_refused(rate: str) -> None:
    """Wrong: an invalid rate raises a bare error."""
    done = invoke(["serve", "--host", "192.0.2.1", "--rate", rate])
    assert done.exit_code == 2
    assert "--rate" in done.output
