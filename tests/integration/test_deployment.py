"""`Deployment`: several stores from one file."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_memory import AgentMemory, AgentMemoryConfig, Deployment, Summarize, Trim, errors
from agent_memory.errors import InvalidBudget, InvalidSetting
from agent_memory.ltm_blocks import StaticMemory, VectorMemory

TOML = """
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


def written(folder: Path, text: str = TOML, name: str = "d.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_formats_say_the_same(tmp_path: Path) -> None:
    """Wrong: a default misses a store, is merged with its setting, or depends on the format."""
    import tomllib

    table = tomllib.loads(TOML)
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
    texts = {"d.toml": TOML, "d.yaml": yaml.safe_dump(table), "d.json": json.dumps(table)}
    for name, text in texts.items():
        stores = Deployment.from_file(written(tmp_path, text, name)).stores
        assert dict(stores) == {"support": support, "team-scratch": scratch}
        assert stores["support"].model_fields_set == support.model_fields_set


def test_a_file_without_stores_is_a_deployment_of_one(tmp_path: Path) -> None:
    """Wrong: a plain configuration file cannot be opened as a deployment."""
    path = written(tmp_path, 'store = "memory://"\nmax_tokens = 700\n')
    stores = Deployment.from_file(path).stores
    assert dict(stores) == {"default": AgentMemoryConfig.from_file(path)}


def test_one_that_fails_closes_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_environment_overrides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_bad_table_of_stores(tmp_path: Path, text: str, told: str) -> None:
    """Wrong: an invalid table of stores raises another error than `ConfigError`, or is ignored."""
    with pytest.raises(errors.ConfigError, match=told):
        Deployment.from_file(written(tmp_path, text))


def test_a_mistake_names_its_store_and_what_to_do(tmp_path: Path) -> None:
    """Wrong: the error of a setting does not name its store."""
    for wrong, error in (("max_tokens = 3", InvalidBudget), ("max_tokns = 3", InvalidSetting)):
        with pytest.raises(error) as failure:
            Deployment.from_file(written(tmp_path, f"[stores.a]\n[stores.b]\n{wrong}"))
        assert failure.value.__notes__ == ["This is about the store 'b' of the deployment."]
    with pytest.raises(errors.ConfigError, match=r"d\.toml describes a deployment .* FILE#NAME"):
        AgentMemoryConfig.from_file(written(tmp_path))


def test_what_is_written_in_code() -> None:
    """Wrong: a deployment cannot be created in code."""
    with Deployment({"a": AgentMemoryConfig(store="memory://")}).open() as memories:
        assert memories["a"].update("s", USER).end == 1
