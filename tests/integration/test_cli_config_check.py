"""`agent-memory config check`: the effect of a file, and its errors."""

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemoryConfig, Strategy, Trim
from agent_memory.cli.common import without_password
from agent_memory.cli.config import describe, described
from agent_memory.core.plugins import BUILT_IN, find_kind
from tests.kit import Silent, at_length, clean_environment, invoke

ROOT = Path(__file__).parents[2]
CANARY = "Hunter2Canary"
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
    """Work in a new folder with a wide terminal, without settings from outside."""
    clean_environment(monkeypatch, tmp_path, *(one for one in os.environ if "_API_KEY" in one))
    monkeypatch.setenv("COLUMNS", "400")


def checked(text: str, name: str = "d.toml") -> Result:
    """Return the result of a check. It must not end in a traceback."""
    Path(name).write_text(text, encoding="utf-8", errors="surrogatepass")
    result = invoke(["config", "check", name])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code > 0) == ("error: " in result.output)
    return result


def test_a_valid_file_passes_the_check() -> None:
    """Wrong: the check refuses a good file, omits one of its stores, or opens a store."""
    result = checked(GOOD)
    assert result.exit_code == 0
    told = result.output
    capacity = r"  capacity +100,000 tokens; 2,000 of them for recalls, and 50 messages"
    for line in ("support", "scratch", capacity):
        assert re.search(rf"^{line} *$", told, re.MULTILINE)
    assert "d.toml: no errors. To open the stores: `agent-memory doctor" in told
    assert [path.name for path in Path().iterdir()] == ["d.toml"]
    assert len(told.splitlines()) <= 40


def test_the_check_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the check connects to a server or a model."""

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
    assert checked(text).exit_code == 0


MISTAKES = {
    "max_tokens = 8": "at least 64 tokens",
    'max_tokens = "many"': "`max_tokens` of AgentMemory must be a whole number",
    "max_messages = 1": "`max_messages` of AgentMemory must be from 2 to",
    'retention = "soon"': "retention.*'forever' or 'window'",
    "retenton = 3": "no setting `retenton`. Did you mean `retention`",
    "zzz = 3": "no setting `zzz`. Remove it.$",
    "max_tokns = 9\nsystem_store = 3": "system_store.*text.*no setting `max_tokns`",
    'store = "memory.db"': "A store is named by a URL",
    'store = "oracle://h/m"': "No store serves oracle://",
    'blocks = [{ kind = "vector", store = "localhost" }]': "address of a Qdrant server",
    'overflow = { kind = "summarise" }': "Known kinds: chain.* summarize",
    "overflow = { keep_messages = 3 }": "`overflow` of AgentMemory must be one of trim",
    "blocks = [3]": "`blocks.0` of AgentMemory must be one of static",
    'overflow = { kind = "trim", by = "size" }': "'age' or 'importance'",
    'overflow_mode = "never"': "overflow_mode",
    'memory_role = "tool"': "memory_role",
    'overflow = { kind = "chain" }': "members` of AgentMemory is missing",
    'blocks = [{ kind = "vector", dimenson = 1 }]': "`blocks.0` has no setting `dimenson`",
    'blocks = [{ kind = "extractive", profile = "no.such" }]': "No module named 'no'",
    'max_tokens = 800\noverflow = { kind = "summarize" }': "more than half of max_tokens=800",
    'blocks = [{ kind = "notes" }, { kind = "notes" }]': "Two blocks are named",
    "[stores.a]\nmax_tokens = 8": "at least 64.*about the store 'a'",
    "[stores.a.shares.room]\nana = 'all'": "`shares.room.ana` of .* must be 'read' or 'write'.*'a'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_each_mistake_is_reported_with_its_place(text: str) -> None:
    """Wrong: a mistake is not reported, or the error names neither its place nor a fix."""
    assert re.search(MISTAKES[text], checked(text).stderr)


def test_all_mistakes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: one mistake, or one store with a mistake, hides the others. Or one is listed twice. Or
    a setting that fits the others is refused for the default of another setting."""
    text = """max_tokens = 8
    store = "oracle://h/m"
    retenton = 3
    timezone = "Atlantis"
    """
    told = checked(text).stderr
    wrong = ["at least 64", "serves oracle", "`retenton`", "'Atlantis'"]
    assert [told.count(one) for one in wrong] == [1] * 4
    good = 'overflow = { kind = "summarize", max_summary_tokens = 60000 }\nmax_tokens = 200000'
    assert "60000" not in checked(f"{good}\nretenton = 3").stderr
    told = checked(f"[stores.a]\n{text}[stores.b]\nmax_messages = 1").stderr
    assert len(re.findall("(?m)^error: .*the store 'a'", told)) == 4
    assert len(re.findall("(?m)^error: .*the store 'b'", told)) == 1
    assert all(
        one in checked('[stores]\n"a b" = {}\nc = 3').stderr for one in ("a b", "[stores.c]")
    )
    monkeypatch.setenv("AGENT_MEMORY_MAX_TOKNES", "1")
    monkeypatch.setenv("AGENT_MEMORY_RETENTON", "1")
    told = checked("").stderr
    assert "RETENTION?" in told
    assert "MAX_TOKENS?" in told


@pytest.mark.parametrize(
    "text", ['store = "memory://"', 'overflow = "trim"', 'blocks = ["vector", { kind = "notes" }]']
)
def test_a_file_without_stores_passes_the_check(text: str) -> None:
    """Wrong: a file without stores is refused, or a kind with default settings needs a table."""
    assert checked(text).exit_code == 0


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(invoke(["config", "schema"]).stdout)


def docs_file() -> str:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- file: deployment\.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def test_the_schema_accepts_only_valid_files(schema: Any) -> None:
    """Wrong: the schema refuses a good deployment file, or accepts a misspelt field in a store."""
    import tomllib

    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for text in (GOOD, docs_file(), 'store = "memory://"\nmax_messages = 3'):
        table = tomllib.loads(text)
        assert list(validator.iter_errors(table)) == []
    wrong: list[Any] = [{"max_tokns": 3}, {"stores": {}}, {"max_messages": 1}]
    for bad in (*wrong, *({"stores": {"a": one}} for one in wrong)):
        assert list(validator.iter_errors(bad)), bad


def test_the_deployment_page_shows_the_output_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: docs/deployment.md shows another output than its file gives."""
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
        ("d.yaml", f"? {{a: {CANARY}}}\n: 3"),
    ],
)
def test_an_unreadable_file_is_reported_without_a_traceback(name: str, text: str) -> None:
    """Wrong: a file that cannot be read ends in a traceback, or the error shows a password."""
    for result in (checked(text, name), invoke(["config", "check", "no.toml"])):
        assert result.exit_code == 1
        assert CANARY not in result.output
        assert "error: " in result.stderr
    assert "Cannot read the configuration no.toml" in result.stderr


NAMES = ["a", "support", "a b", "", "a__b", "default"]
TEXTS = ["local", "trim", "openai/gpt-4o-mini", "window", "P1D", "", "\ud800", "a\nb", "x" * 80]
URLS = [
    *(f"postgresql://u:{CANARY}@h/m", f"redis://:{CANARY}@h:port", f"mysql://u:{CANARY}/x@h"),
    *(f"http://u:{CANARY}@h?key={CANARY}", f"mongodb://u:{CANARY}@h1,h2/m"),
    *(f"sqlite:///m.db?key={CANARY}", "memory://"),
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
    """Any value that a file can hold, with secrets in many places."""
    numbers = st.integers(-3, 10**6) | st.floats() | st.just(10**40)
    plain = st.none() | st.booleans() | numbers | st.sampled_from([*TEXTS, *URLS, CANARY])
    return st.recursive(plain, lambda one: st.lists(one, max_size=3) | tables(one), max_leaves=12)


def tables(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Tables, mostly of known fields. Fields that may be printed hold no secret."""

    def told(table: dict[str, Any]) -> dict[str, Any]:
        printed = {name for name in SHOWN & table.keys() if CANARY in repr(table[name])}
        return {**table, **dict.fromkeys(printed, "shown")}

    kinds = st.fixed_dictionaries({}, optional={"kind": st.sampled_from(KINDS)})
    fields = st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    return st.builds(lambda a, b: told({**a, **b}), fields, kinds)


@settings(max_examples=at_length(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    table=tables(values()),
    stores=st.none() | values() | st.dictionaries(st.sampled_from(NAMES), tables(values())),
    variable=st.none()
    | st.tuples(st.sampled_from([*FIELDS, "STORES__A__BLOCKS", "NO"]), st.sampled_from(URLS)),
)
@example(table={}, stores=None, variable=("overflow", URLS[0]))
def test_nothing_gives_a_traceback_or_a_secret(
    table: dict[str, Any], stores: Any, variable: tuple[str, str] | None
) -> None:
    """Wrong: a file ends the check with a traceback, or the check prints a secret."""
    given = table if stores is None else {**table, "stores": stores}
    with pytest.MonkeyPatch.context() as patched:
        if variable is not None and variable[0] not in SHOWN:
            patched.setenv(f"AGENT_MEMORY_{variable[0]}", variable[1])
        result = checked(json.dumps(given), "d.json")
    assert CANARY not in result.output


def test_a_command_requires_the_name_of_one_of_several_stores() -> None:
    """Wrong: a command picks the first of several stores, or does not list their names."""
    Path("d.toml").write_text(GOOD)
    told = invoke(["stats", "--config", "d.toml"])
    assert told.exit_code == 1
    assert told.stderr.strip() == (
        "error: d.toml describes several stores. Name one: --config d.toml#support or "
        "--config d.toml#scratch"
    )
    told = invoke(["stats", "--config", "d.toml#suport"])
    assert told.exit_code == 1
    assert "no store 'suport'. Name one: --config d.toml#support or" in told.stderr
    assert "sessions  0" in invoke(["stats", "--config", "d.toml#scratch"]).stdout
    shown = invoke(["config", "show", "--config", "d.toml#support"]).stdout
    assert json.loads(shown)["store"] == "sqlite:///support.db"


def test_a_file_with_one_store_requires_no_store_name() -> None:
    """Wrong: a command asks for a store's name although the file has only one."""
    Path("one.toml").write_text('[stores.only]\nstore = "memory://"')
    Path("plain.toml").write_text('store = "memory://"')
    Path("odd#name.toml").write_text('store = "memory://"')
    for named in ("one.toml", "one.toml#only", "plain.toml", "plain.toml#default", "odd#name.toml"):
        told = invoke(["stats", "--config", named])
        assert told.exit_code == 0, named


def test_doctor_checks_every_store() -> None:
    """Wrong: `doctor` checks only one store, omits one, or reports a result under another store."""
    Path("d.toml").write_text(GOOD + '[stores.broken]\nstore = "sqlite:///broken.db"')
    Path("broken.db").write_text("This is no database.")
    result = invoke(["doctor", "--config", "d.toml"])
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    marks = {(row[1], row[2]): row[0] for row in rows}
    assert marks["support", "store"] == "\u2013"
    assert marks["scratch", "store"] == "✓"
    assert marks["broken", "store"] == "✗"
    assert sum(row[1] == "mcp" for row in rows) == 1
    named = invoke(["doctor", "--config", "d.toml#scratch"])
    assert named.exit_code == 0
    assert "support" not in named.stdout


class Own(Strategy):
    kind: str = "own"


class Foreign(Silent):
    kind: str = "foreign"


def told(**fields: Any) -> dict[str, str]:
    return dict(describe(AgentMemoryConfig(**fields)))


def test_every_kind_has_a_description() -> None:
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
def test_a_printed_url_contains_no_password(url: str, fit: str) -> None:
    """Wrong: a printed URL contains its password, or lacks its host."""
    assert without_password(url) == fit
