"""Configuration from code, files and the environment, of one store and of several."""

import json
import pickle
import traceback
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_memory import AgentMemory, AgentMemoryConfig, Deployment, Summarize, Trim, errors
from agent_memory.errors import InvalidBudget, InvalidSetting
from agent_memory.ltm_blocks import ExtractiveMemory, FileMemory, StaticMemory, VectorMemory
from agent_memory.strategies import Chain, ClearTools, FlushToLTM

TOML = """
store = "memory://"
max_tokens = 4000
[overflow]
kind = "chain"
[[overflow.members]]
kind = "flush_to_ltm"
max_stm_ratio = 0.8
[[overflow.members.blocks]]
kind = "static"
facts = ["One.", "Two."]
[[overflow.members.blocks]]
kind = "vector"
[[overflow.members]]
kind = "summarize"
max_summary_tokens = 100
"""


def test_files_configure_like_code(tmp_path: Path) -> None:
    """Wrong: a file, with or without a byte order mark, gives another configuration than code."""
    import tomllib

    import yaml

    blocks = [StaticMemory(facts=["One.", "Two."]), VectorMemory()]
    flush = FlushToLTM(blocks=blocks, max_stm_ratio=0.8)
    chain = Chain([flush, Summarize(max_summary_tokens=100)])
    expected = AgentMemoryConfig(store="memory://", max_tokens=4000, overflow=chain)
    table = tomllib.loads(TOML)
    marked = f"\ufeff{TOML}"
    texts = {"m.toml": marked, "m.yaml": yaml.safe_dump(table), "m.json": json.dumps(table)}
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert AgentMemoryConfig.from_file(path) == expected
    assert AgentMemoryConfig(**expected.model_dump()) == expected


def test_every_field_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a field cannot be set by an environment variable."""
    given = {
        "durability": "power", "store": "sqlite:///m.db", "encryption": "KEYS",
        "namespace": "n", "max_tokens": "777", "max_messages": "50", "max_recall_tokens": "99",
        "min_relevance": "0.5",
        "max_message_bytes": "5000",
        "model": "openai/x", "api_base": "http://127.0.0.1:1", "api_key": "sk-canary",
        "model_timeout": "3", "tokenizer": "approximate",
        "embedding": "local", "embedding_threads": "2", "overflow": '{"kind": "trim"}',
        "blocks": '[{"kind": "static", "facts": ["x"]}]', "overflow_mode": "background",
        "quiet_seconds": "20", "spending_limits": '{"total": {"calls": 9}}',
        "prices": '{"a/b": {"input": 1, "output": 2}}',
        "background_threads": "2", "idle_minutes": "1.5", "absorb_attempts": "3",
        "absorb_timeout": "60", "system_store": "memory://",
        "memory_role": "user", "retention": "forever", "recall_timeout": "0.5",
        "keep_keys": "P7D", "keep_contexts": "false", "redact": '{"phones": false}',
        "shares": '{"team": {"critic": "read"}}', "timezone": "Europe/Lisbon",
    }  # fmt: skip
    assert set(given) == set(AgentMemoryConfig.model_fields)
    for name, value in given.items():
        monkeypatch.setenv(f"AGENT_MEMORY_{name.upper()}", value)
    config = AgentMemoryConfig()
    assert config.model_fields_set == set(given)
    assert config.blocks == (StaticMemory(facts=["x"]),)
    assert "canary" not in repr(config)


def test_mappings_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: one nested variable discards the other settings of its field."""
    path = tmp_path / "m.json"
    path.write_text('{"overflow": {"kind": "trim", "keep_messages": 3, "by": "importance"}}')
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW", '{"keep_tokens": 1, "keep_messages": 5}')
    monkeypatch.setenv("agent_memory_overflow__keep_tokens", "70")  # overrides the mapping above
    read = AgentMemoryConfig.from_file
    assert read(path).overflow == Trim(keep_messages=5, keep_tokens=70, by="importance")
    given: Any = {"keep_messages": 9}
    merged = read(path, overflow=given).overflow
    assert merged == Trim(keep_messages=9, keep_tokens=70, by="importance")
    assert given == {"keep_messages": 9}
    assert read(path, overflow=Summarize()).overflow == Summarize()
    assert read(path, overflow=None).overflow is None
    monkeypatch.setenv("AGENT_MEMORY_BLOCKS", '[{"kind": "static", "facts": ["environment"]}]')
    path.write_text('{"blocks": [{"kind": "static", "name": "file"}], "overflow": null}')
    assert read(path, overflow=None).blocks == (StaticMemory(facts=["environment"]),)
    assert AgentMemoryConfig.model_validate({"overflow": None}).blocks == (
        StaticMemory(facts=["environment"]),
    )


def test_an_invalid_environment_variable_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an invalid variable is ignored, or a variable that is no setting is an error."""
    monkeypatch.setenv("AGENT_MEMORY_NO_SUCH_FIELD", "1")
    assert AgentMemoryConfig() == AgentMemoryConfig.model_validate({})
    monkeypatch.setenv("AGENT_MEMORY_BLOCKS", "[{")
    with pytest.raises(InvalidSetting, match="AGENT_MEMORY_BLOCKS"):
        AgentMemoryConfig()
    monkeypatch.delenv("AGENT_MEMORY_BLOCKS")
    monkeypatch.setenv("AGENT_MEMORY_MODEL", "")  # empty is not unset
    with pytest.raises(InvalidSetting, match="model"):
        AgentMemoryConfig()
    monkeypatch.setenv("AGENT_MEMORY_MODEL", "null")
    assert AgentMemoryConfig().model is None
    monkeypatch.setenv("AGENT_MEMORY_OVERFLOW__KEEP", "1")
    with pytest.raises(InvalidSetting, match="overflow"):
        AgentMemoryConfig()


def test_a_file_affects_only_its_own_configuration(tmp_path: Path) -> None:
    """Wrong: a file that failed to load still affects the next configuration."""
    path = tmp_path / "m.json"
    path.write_text('{"max_tokens": 4000, "bogus": 1}')
    with pytest.raises(InvalidSetting, match="bogus"):
        AgentMemoryConfig.from_file(path)
    assert AgentMemoryConfig().max_tokens == 100_000


def test_a_configuration_is_a_frozen_value() -> None:
    """Wrong: settings of a running memory can be changed, or cannot be pickled."""
    config = AgentMemoryConfig(max_tokens=999, overflow=Trim(keep_messages=3))
    with pytest.raises(InvalidSetting, match="cannot be changed"):
        config.max_tokens = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.model_copy() == config != AgentMemoryConfig()


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, set()),
        ({"model": "a/b"}, {"a/b"}),
        ({"model": "a/b", "overflow": Trim()}, set()),
        ({"overflow": Summarize()}, set()),
        ({"overflow": Summarize(model="c/d")}, {"c/d"}),
        ({"model": "a/b", "overflow": Trim(), "blocks": [ExtractiveMemory()]}, {"a/b"}),
        ({"blocks": [ExtractiveMemory(model="e/f"), VectorMemory()]}, {"e/f"}),
        ({"model": "a/b", "overflow": Chain(
            [FlushToLTM(blocks=[ExtractiveMemory()]), Summarize(model="c/d")])}, {"a/b", "c/d"}),
    ],
)  # fmt: skip
def test_a_configuration_lists_the_models_in_use(fields: dict[str, Any], asked: set[str]) -> None:
    """Wrong: the configuration lists a model that is not used, or misses one that is."""
    assert AgentMemoryConfig(**fields).language_models == asked


def test_the_default_strategy_summarizes_only_with_a_model() -> None:
    """Wrong: a configured model does not write summaries, or the default strategy needs a model."""
    assert AgentMemoryConfig().strategy == Chain([ClearTools(), Trim()])
    asking = AgentMemoryConfig(model="openai/gpt-4o-mini")
    assert asking.strategy == Chain([ClearTools(), Summarize()])


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (errors.InvalidBudget, {"max_tokens": -1}),
        (errors.InvalidBudget, {"max_tokens": 0}),
        (errors.UnknownStore, {"store": "oracle://x"}),
        (errors.UnknownStore, {"store": "memory.db"}),
        (errors.UnknownKind, {"overflow": {"kind": "magic"}}),
        (errors.UnknownKind, {"overflow": {"kind": "misspelt"}}),
        (errors.InvalidShares, {"overflow": {"kind": "flush_to_ltm", "max_stm_ratio": 1.2}}),
        (errors.InvalidShares, {"overflow": {"kind": "flush_to_ltm", "max_stm_ratio": 0}}),
        (errors.InvalidShares, {"overflow": {"kind": "summarize", "max_summary_tokens": 90_000}}),
        (errors.ConfigError, {"blocks": [StaticMemory(), StaticMemory()]}),
        (errors.DimensionMismatch, {"store": "memory://", "blocks": [VectorMemory(dimension=3)]}),
        (errors.StoreUnavailable, {"store": "sqlite:////no/such/folder/m.db"}),
    ],
)
def test_invalid_arguments_and_settings_are_refused(
    error: type[Exception], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a memory opens with settings that fail later."""
    points = metadata.EntryPoints([metadata.EntryPoint("misspelt", "no_package:X", "")])
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    with pytest.raises(error) as caught:
        AgentMemory(**fields)
    assert isinstance(caught.value, errors.AgentMemoryError)
    assert len(str(caught.value)) > 40


@pytest.mark.parametrize("name", ["retention", "keep_keys"])
def test_a_duration_needs_a_unit(name: str) -> None:
    """Wrong: `retention=90` is read as 90 seconds, and removes messages that are hours old."""
    with pytest.raises(InvalidSetting, match="with a unit, such as"):
        AgentMemoryConfig(**{name: 90})
    with pytest.raises(InvalidSetting, match="with a unit, such as"):
        FileMemory(ttl=90)


def test_json_schema_names_every_kind() -> None:
    """Wrong: the JSON schema lacks a kind of strategy or block."""
    text = json.dumps(AgentMemoryConfig.model_json_schema())
    for kind in ("trim", "summarize", "flush_to_ltm", "chain", "static", "extractive", "vector"):
        assert f'"{kind}"' in text


ADDRESSES = {
    "store": "postgresql://me:canary@127.0.0.1/db",
    "system_store": "redis://:canary@127.0.0.1:1/0",
    "api_base": "https://me:canary@gate.example/v1?key=canary",
    "blocks": [{"kind": "vector", "store": "mysql://me:canary@127.0.0.1/db"}],
    "api_key": "sk-canary",
}


def test_a_dump_hides_secrets_and_can_be_loaded() -> None:
    """Wrong: printed or dumped settings show a password, or cannot be loaded again."""
    config = AgentMemoryConfig(**ADDRESSES)
    dumped = config.model_dump()
    assert "canary" not in f"{dumped} {config.model_dump_json()} {config!r} {config}"
    again = AgentMemoryConfig(**dumped)
    assert again == config
    assert (again.store, again.api_base) == (ADDRESSES["store"], ADDRESSES["api_base"])
    assert again.blocks[0].store == ADDRESSES["blocks"][0]["store"]  # type: ignore[index]
    told = json.loads(config.model_dump_json())
    assert told["store"] == "postgresql://me:***@127.0.0.1/db"
    assert AgentMemoryConfig(store="memory://").model_dump()["store"] == "memory://"


def test_a_secret_in_the_wrong_place_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the error of a setting quotes a key that was entered there by mistake."""
    wrong: list[dict[str, Any]] = [
        {"max_tokens": "sk-canary"},
        {"api_key": ["sk-canary"]},
        {"sk-canary": 1, "overflow_mode": "sk-canary"},
        {"overflow": {"kind": "trim", "low_water": "sk-canary"}},
        {"blocks": [{"kind": "vector", "dimension": "sk-canary"}]},
        {"blocks": [{"kind": "vector", "weights": {"words": "sk-canary"}}]},
        {"blocks": [{"kind": "extractive", "importance": {"sk": "sk-canary"}}]},
        {"blocks": "sk-canary"},
        {"retention": "sk-canary", "shares": "sk-canary", "memory_role": "sk-canary"},
    ]
    for fields in wrong:
        with pytest.raises(InvalidSetting) as caught:
            AgentMemoryConfig(store="memory://", **fields)
        told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert "sk-canary" not in told.replace("`sk-canary`", "")  # a field name is quoted
    monkeypatch.setenv("AGENT_MEMORY_MAX_TOKENS", "sk-canary")
    with pytest.raises(InvalidSetting) as caught:
        AgentMemoryConfig(store="memory://")
    assert "canary" not in str(caught.value)
    monkeypatch.delenv("AGENT_MEMORY_MAX_TOKENS")
    with pytest.raises(errors.ConfigError) as refused:
        AgentMemory(store="memory://", encryption="sk-canary")
    assert "canary" not in str(refused.value)


STORES = """
model = "openai/gpt-4o-mini"
retention = "P90D"
max_tokens = 6000
overflow = { kind = "summarize", max_summary_tokens = 300 }
blocks = [{ kind = "vector" }]

[stores.support]
store = "memory://"
max_tokens = 8000
[stores.support.shares.team-chat]
planner = "write"
critic = "read"

[stores.team-scratch]
store = "memory://"
max_messages = 50
overflow = { kind = "trim" }
blocks = [{ kind = "static", facts = ["One."] }]
"""

USER = {"role": "user", "content": "Hello."}


def written(folder: Path, text: str = STORES, name: str = "d.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_all_formats_give_the_same_deployment(tmp_path: Path) -> None:
    """Wrong: a default misses a store, is merged with its setting, or depends on the format."""
    import tomllib

    table = tomllib.loads(STORES)
    common = {"model": "openai/gpt-4o-mini", "retention": timedelta(days=90)}
    support = AgentMemoryConfig(
        store="memory://",
        max_tokens=8000,
        overflow=Summarize(max_summary_tokens=300),
        blocks=[VectorMemory()],
        shares={"team-chat": {"planner": "write", "critic": "read"}},
        **common,
    )
    scratch = AgentMemoryConfig(
        store="memory://",
        max_tokens=6000,
        max_messages=50,
        overflow=Trim(),
        blocks=[StaticMemory(facts=["One."])],
        **common,
    )
    texts = {"d.toml": STORES, "d.yaml": yaml.safe_dump(table), "d.json": json.dumps(table)}
    for name, text in texts.items():
        stores = Deployment.from_file(written(tmp_path, text, name)).stores
        assert dict(stores) == {"support": support, "team-scratch": scratch}
        assert stores["support"].model_fields_set == support.model_fields_set


def test_a_file_without_stores_is_a_deployment_with_one_store(tmp_path: Path) -> None:
    """Wrong: a plain configuration file cannot be opened as a deployment."""
    path = written(tmp_path, 'store = "memory://"\nmax_tokens = 700\n')
    stores = Deployment.from_file(path).stores
    assert dict(stores) == {"default": AgentMemoryConfig.from_file(path)}


def test_a_failed_open_closes_other_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a store that cannot be opened leaves others open, or is not named."""
    opened: list[AgentMemory] = []
    init = AgentMemory.__init__

    def remembered(self: AgentMemory, *args: Any, **fields: Any) -> None:
        init(self, *args, **fields)
        opened.append(self)

    monkeypatch.setattr(AgentMemory, "__init__", remembered)
    (tmp_path / "no").write_text("a file")
    urls = ("memory://", f"sqlite:///{(tmp_path / 'no/folder/m.db').as_posix()}", "memory://")
    text = "".join(f'[stores.s{n}]\nstore = "{url}"\n' for n, url in enumerate(urls))
    with pytest.raises(errors.StoreUnavailable) as failure:
        Deployment.from_file(written(tmp_path, text)).open()
    assert failure.value.__notes__ == ["This is about the store 's1' of the deployment."]
    assert len(opened) == 1
    with pytest.raises(errors.MemoryClosed):
        opened[0].update("s", USER)


def test_the_environment_overrides_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an environment variable does not override the file, reaches another store, or one for
    all stores overrides one for a single store."""
    monkeypatch.setenv("AGENT_MEMORY_MAX_TOKENS", "5000")
    monkeypatch.setenv("AGENT_MEMORY_RECALL_TIMEOUT", "7")
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__MAX_TOKENS", "4000")
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__API_KEY", "sk-support")
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__OVERFLOW__MAX_SUMMARY_TOKENS", "77")
    monkeypatch.setenv("AGENT_MEMORY_STORES__TEAM_SCRATCH__OVERFLOW__BY", "importance")
    monkeypatch.setenv("agent_memory_stores__team_scratch__shares", '{"room": {"ana": "read"}}')
    path = written(tmp_path)
    support, scratch = Deployment.from_file(path).stores.values()
    assert (support.max_tokens, scratch.max_tokens) == (4000, 5000)
    assert (support.recall_timeout, scratch.recall_timeout) == (7, 7)
    assert support.api_key is not None
    assert scratch.api_key is None
    assert support.overflow == Summarize(max_summary_tokens=77)
    assert scratch.overflow == Trim(by="importance")
    assert scratch.shares == {"room": {"ana": "read"}}
    given = Deployment.from_file(path, max_tokens=900, overflow=Trim()).stores
    assert {one.max_tokens for one in given.values()} == {900}
    assert given["support"].overflow == Trim()
    partly = Deployment.from_file(path, overflow={"keep_messages": 4}).stores
    assert partly["support"].overflow == Summarize(max_summary_tokens=77, keep_messages=4)
    for misspelt in ("SUPORT__STORE", "SUPPORT__STOR"):
        with monkeypatch.context() as wrong:
            wrong.setenv(f"AGENT_MEMORY_STORES__{misspelt}", "x")
            with pytest.raises(InvalidSetting, match="Did you mean"):
                Deployment.from_file(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stores = 3", "must be a table"),
        ("[stores]", "must be a table"),
        ("[stores]\nsupport = 3", r"stores\.support"),
        ('[stores."a b"]', "letters and digits"),
        ("[stores.a__b]", "letters and digits"),
        ("[stores.-a]", "letters and digits"),
        ("stores = ", "not valid TOML"),
    ],
)
def test_a_bad_table_of_stores_raises_a_config_error(tmp_path: Path, text: str, told: str) -> None:
    """Wrong: an invalid table of stores raises another error than `ConfigError`, or is ignored."""
    with pytest.raises(errors.ConfigError, match=told):
        Deployment.from_file(written(tmp_path, text))


def test_an_error_of_a_setting_names_its_store(tmp_path: Path) -> None:
    """Wrong: the error of a setting does not name its store."""
    for wrong, error in (("max_tokens = 3", InvalidBudget), ("max_tokns = 3", InvalidSetting)):
        with pytest.raises(error) as failure:
            Deployment.from_file(written(tmp_path, f"[stores.a]\n[stores.b]\n{wrong}"))
        assert failure.value.__notes__ == ["This is about the store 'b' of the deployment."]
    with pytest.raises(errors.ConfigError, match=r"d\.toml describes a deployment .* FILE#NAME"):
        AgentMemoryConfig.from_file(written(tmp_path))


def test_a_deployment_can_be_created_in_code() -> None:
    """Wrong: a deployment cannot be created in code."""
    with Deployment({"a": AgentMemoryConfig(store="memory://")}).open() as memories:
        assert memories["a"].update("s", USER).end == 1
