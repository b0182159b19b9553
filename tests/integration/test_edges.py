"""Invalid arguments and settings: each raises an `AgentMemoryError`."""

import inspect
import io
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_memory import (
    AgentMemory,
    AgentMemoryConfig,
    CompositeMemory,
    Deployment,
    ExtractiveMemory,
    FileMemory,
    FlushToLTM,
    NoteMemory,
    SkillMemory,
    SpatialMemory,
    Summarize,
    Trim,
    VectorMemory,
    WorkingMemory,
    operations,
)
from agent_memory.core.limits import MOST, how_many, place_in_log, quoted
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.usage import SpendingLimit
from agent_memory.errors import AgentMemoryError, ConfigError, InvalidInput, MessageTooLarge
from agent_memory.ltm_blocks.extractive.history.fact import ImportanceScorer, StalenessDetector
from agent_memory.ltm_blocks.llm_reranker import FactChooser
from agent_memory.ltm_blocks.skills.files import Skill
from agent_memory.models.usage import Price
from agent_memory.testing import FakeLLM
from tests.kit import every_nth, invoke

LONG = "x" * 40_000
SOMETHING = object()
ODD: list[Any] = [
    *(None, True, -1, 0, 1.5, float("nan"), 2**63, 10**30, 10**5_000),
    *("", " ", "a\x00b", "\ud800", "\x1eteam", LONG, b"bytes", SOMETHING, datetime(2026, 3, 1)),
    *(["\ud800"], ["a\x00"], [], [1], [LONG], {}, {1: 2}, {"role": LONG}, (1, 2), frozenset({1})),
]
"""Values that a bug, a web form or a model may pass."""

LONGEST = 1_000
"""The most characters of an error, which quotes a part of the value and says what to do."""

GOOD: dict[str, Any] = {
    **{"session_id": "s", "user_id": "ana", "agent_id": "bot", "namespace": ("a",), "puts": ()},
    **{"message": {"role": "user", "content": "Tea, please."}, "answer": "Here it is."},
    **{"name": "memory_read", "block": "vector", "kind": "notes", "path": "/memories/a.md"},
    **{"position": (1.0, 2.0), "low": (0.0, 0.0), "high": (2.0, 2.0), "observations": []},
    **{"insert_line": 0, "skill": Skill("brew-tea", "How to brew tea."), "value": 1, "k": 3},
}
"""Valid values by parameter name; all other parameters take a string."""

NOT_WALKED = {"close", "run", "count", "bearing"}
"""Methods that would end the walk, or that only blocks call."""

Outcome = tuple[str, str]


def calls_of(one: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods of an object, with their names."""
    for name, _ in inspect.getmembers(type(one), inspect.isfunction):
        if not name.startswith("_") and name not in NOT_WALKED:
            yield f"{type(one).__name__}.{name}", getattr(one, name)


def faces(memory: AgentMemory) -> list[object]:
    session, user, share = memory.session("s", "ana"), memory.user("ana"), memory.share("team")
    share.grant("bot", "write")
    kept = [user.notes(), user.files(), user.skills(), user.spatial(), session.working()]
    kept.append(user.values())
    return [memory, session, user, share, share.agent("bot"), memory.session("t").owner(), *kept]


def odd(call: Callable[..., Any], memory: AgentMemory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arguments for a call: each odd value in each parameter, with valid others."""
    named = inspect.signature(call).parameters
    needed = {
        name: GOOD.get(name, "tea")
        for name, one in named.items()
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    if "turn" in needed:
        needed["turn"] = memory.before_turn("s", "Tea?", user_id="ana")
    if "to" in needed:
        needed["to"] = io.StringIO()
    for name, one in named.items():
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            for value in ODD:
                if name == "to" and isinstance(value, str):
                    continue  # a path: the outcome depends on the operating system
                yield f"{name}={quoted(value)}", {**needed, name: value}


def outcome(call: Callable[..., Any], arguments: dict[str, Any]) -> Outcome:
    """Return the error of a call, if any."""
    parameters = inspect.signature(call).parameters
    bare = [one.name for one in parameters.values() if one.kind is one.POSITIONAL_ONLY]
    try:
        call(*[arguments.pop(name) for name in bare], **arguments)
    except AgentMemoryError as error:
        return type(error).__name__, str(error)
    except Exception as error:  # noqa: BLE001 - returned as the outcome
        return "bare", f"{type(error).__name__}: {error}"[:200]
    return "fine", ""


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which calls may create files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def walked(store: str, folder: Path) -> dict[str, Outcome]:
    """Return the outcome of every odd value in every parameter of every call."""
    blocks = [VectorMemory(), NoteMemory(), WorkingMemory(), FileMemory(), SpatialMemory()]
    skills = SkillMemory(folder=folder / store.partition(":")[0])
    found: dict[str, Outcome] = {}
    with AgentMemory(store=store, blocks=[*blocks, skills]) as memory:
        memory.update("s", {"role": "user", "content": "I like tea."}, user_id="ana")
        for face in [*faces(memory), CompositeMemory({"home": memory})]:
            for name, call in calls_of(face):
                for told, arguments in odd(call, memory):
                    found[f"{name}({told})"] = outcome(call, arguments)
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_invalid_values_raise_the_same_errors_on_every_store(quiet: Path) -> None:
    """Wrong: a value raises an error of Python or of 40 KB, or other errors on another store."""
    one, other = walked("memory://", quiet), walked("sqlite:///m.db", quiet)
    bare = {name: told for name, told in {**one, **other}.items() if told[0] == "bare"}
    assert bare == {}
    assert {name: told for name, told in one.items() if len(told[1]) > LONGEST} == {}
    assert {name: (told, other[name]) for name, told in one.items() if told != other[name]} == {}
    assert len(one) > 2_000


@pytest.mark.parametrize("store", ["memory://", "sqlite:///m.db"])
def test_invalid_limits_and_positions_are_refused(quiet: Path, store: str) -> None:
    """Wrong: a negative limit is accepted, or a very large one fails in the driver."""
    said = [{"role": "user", "content": f"Tea number {number}."} for number in range(1, 4)]
    with AgentMemory(store=store) as memory:
        memory.update("s", said, user_id="ana")
        for wrong in (-1, 1.5, True, "2", {}, 10**5_000 * -1):
            for call in (
                lambda wrong=wrong: memory.history("s", limit=wrong),
                lambda wrong=wrong: memory.history("s", after=wrong),
                lambda wrong=wrong: memory.history("s", last=wrong),
                lambda wrong=wrong: memory.search("tea", limit=wrong),
                lambda wrong=wrong: memory.sessions(limit=wrong),
                lambda wrong=wrong: memory.session("s").pop(wrong),
                lambda wrong=wrong: memory.user("ana").sessions(limit=wrong),
                lambda wrong=wrong: memory.share("team").sessions(limit=wrong),
            ):
                with pytest.raises(InvalidInput, match=r"is .* Give (a whole|the) number"):
                    call()
        for after in (2**63, 10**30):
            with pytest.raises(InvalidInput, match=r"after is [19]"):
                memory.history("s", after=after)
        for after in (5, "\ud800", "a\x00", b"s", {}):
            with pytest.raises(InvalidInput, match="after"):
                memory.sessions(after=after)  # type: ignore[arg-type]
        for many in (2**63, 10**30, 10**5_000):
            assert len(memory.history("s", limit=many)) == 3
            assert len(memory.history("s", last=many)) == 3
            assert len(memory.search("tea", user_id="ana", limit=many)) == 3
            assert len(memory.sessions(limit=many, after="")) == 1
        assert len(memory.session("s").pop(10**30)) == 3


def test_an_argument_of_a_wrong_type_is_refused(quiet: Path) -> None:
    """Wrong: an argument of a wrong type raises a bare `AttributeError` or `TypeError`."""
    with AgentMemory(store="memory://") as memory:
        memory.update("s", {"role": "user", "content": "Tea."})
        for source in ([1], [b"{}"], b"{}", 5, None, [LONG]):
            with pytest.raises(InvalidInput):
                operations.import_session(memory, source)  # type: ignore[arg-type]
        for turn in (None, "turn", {"session_id": "s"}):
            for face in (memory, memory.session("s"), CompositeMemory({"home": memory})):
                with pytest.raises(InvalidInput, match="before_turn"):
                    face.after_turn(turn, "Yes.")  # type: ignore[arg-type]
        for odd in (None, 5, [], object()):
            with pytest.raises(InvalidInput, match="not a receipt"):
                operations.verify(memory, odd)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="not a Damaged error"):
                operations.repair(memory, odd)  # type: ignore[arg-type]
        for path in (str(quiet), "a\x00", "\ud800", "none/s.jsonl", LONG):
            with pytest.raises(InvalidInput, match="Nothing can be written to"):
                memory.session("s").export(path)
        for block in (5, {}, []):
            with pytest.raises(ConfigError, match="absorbs the log"):
                operations.dead_letters(memory, block)  # type: ignore[arg-type]
    for path in (None, 5, b"c.toml", "a\x00.toml"):
        with pytest.raises(ConfigError):
            AgentMemoryConfig.from_file(path)  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            Deployment.from_file(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="model is 5"):
        TokenCounter(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="opened from a int"):
        AgentMemory(5)  # type: ignore[arg-type]


def test_errors_quote_only_a_part_of_a_long_value() -> None:
    """Wrong: an error quotes 40 KB, fails for a value whose repr fails, or cannot be encoded."""

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    for value in (LONG, LONG.encode(), [LONG], {"a": LONG}, 10**5_000, Broken(), "\ud800" * 99):
        assert len(quoted(value)) < 110
        quoted(value).encode()
    assert quoted("tea") == "'tea'"
    assert how_many("limit", 10**5_000) == MOST
    assert place_in_log("after", MOST) == MOST


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
def test_config_check_names_the_range_of_a_number(tmp_path: Path, name: str, value: str) -> None:
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
