"""The command line, run as a user runs it, with a scripted model server."""

import json
import re
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, FlushToLTM, Strategy, Summarize, Trim
from agent_memory.cli import demo
from agent_memory.cli.entry import app
from agent_memory.ltm_blocks import ExtractiveMemory, StaticMemory, VectorMemory
from agent_memory.testing import FakeLLM
from tests.kit import assistant, clean_environment, invoke, user

ROOT = Path(__file__).parents[2]
COMMANDS = {
    *("demo", "sessions", "show", "search", "explain", "why", "stats", "export", "import"),
    *("facts", "profile", "audit", "forget", "mcp", "snapshot", "backup", "restore"),
    *("flush", "worker", "retry", "replay", "delete", "migrate", "shares", "doctor", "config"),
    *("verify", "hook", "serve", "keys", "cost", "surplus", "prune"),
}


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a new folder with a wide terminal, without settings from outside."""
    clean_environment(monkeypatch, tmp_path, "OPENAI_API_KEY")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert not list(temporary.iterdir()), "a temporary store was left behind"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLLM]:
    """A model server that every command finds through the environment."""
    with FakeLLM("Good to know.") as server:
        monkeypatch.setenv("AGENT_MEMORY_API_BASE", server.api_base)
        monkeypatch.setenv("AGENT_MEMORY_API_KEY", "sk-secret")
        yield server


def run(*arguments: str, ok: bool = True, typed: str | None = None) -> str:
    result = invoke(list(arguments), input=typed)
    if ok:
        assert result.exit_code == 0, result.output
    return result.stdout


def fails(*arguments: str, code: int = 1) -> str:
    """Return the stderr of a command, which must fail in one line, without a traceback."""
    result = invoke(list(arguments))
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), "not a failure that was foreseen"
    told = result.stderr.strip()
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1
    return told


FACTS_TOO = '[{"kind": "extractive"}, {"kind": "vector"}]'


def store(**fields: Any) -> AgentMemory:
    blocks = [ExtractiveMemory(), VectorMemory()]
    return AgentMemory(store="sqlite:///agent_memory.db", **{"blocks": blocks, **fields})


def write_log(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def talk(count: int) -> list[dict[str, str]]:
    pets, roles = ("hamster", "parrot", "tortoise", "greyhound"), ("user", "assistant")
    said = [f"Number {i}: tell me about the {pets[i // 2 % 4]} it eats." for i in range(count)]
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]


def test_every_command_has_help_and_is_documented() -> None:
    """Wrong: a command has no help, or is missing in the reference."""
    told = run("--help")
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    listed = [command.name or command.callback.__name__ for command in app.registered_commands]  # type: ignore[union-attr]
    listed += [str(group.name) for group in app.registered_groups]
    assert set(listed) == COMMANDS
    for name in COMMANDS:
        assert re.search(rf"^\W*{name}\s+[A-Z]\w+", told, re.MULTILINE), f"{name} has no help"
        assert "Usage" in run(name, "--help")
        assert f"## agent-memory {name}" in page, f"docs/reference does not name {name}"


def test_help_imports_no_heavy_package() -> None:
    """Wrong: a command's module imports a heavy package, so that each command starts slowly."""
    heavy = {"pydantic", "litellm", "sqlalchemy", "numpy", "tiktoken", "qdrant_client"}
    code = f"import sys, agent_memory.cli.entry; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == b"[]"


def test_the_version_is_that_of_the_package() -> None:
    """Wrong: `--version` prints another version than the package's."""
    from agent_memory import __version__

    assert run("--version").strip() == f"agent-memory {__version__}"


BUDGET = 400
STRATEGIES: dict[str, Strategy] = {
    "trim": Trim(),
    "summarize": Summarize(max_summary_tokens=BUDGET // 4),
    "flush_to_ltm": FlushToLTM(
        blocks=(StaticMemory(facts=demo.FACTS), ExtractiveMemory(), VectorMemory())
    ),
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_demo_prints_the_values_that_the_engine_returns(kind: str) -> None:
    """Wrong: the demo prints other numbers or texts than the engine returns."""
    told = run("demo", "--strategy", kind, "--max-tokens", str(BUDGET))
    overflows = 0
    fields: dict[str, Any] = {"overflow": STRATEGIES[kind], "blocks": [], "recall_timeout": 30}
    with AgentMemory(store="memory://", max_tokens=BUDGET, **fields) as memory:
        before = None
        for _, message in demo.read_lines(demo.CONVERSATION):
            head = memory.update("s", message, user_id="sarah")
            if before and head.start > before.start:
                overflows += 1
                size = head.total - before.start_total
                left = f"#{max(2, before.start + 1)} to #{head.start}"
                row = f"#{head.end} +{left} +{size} → {head.window_tokens} "
                assert re.search(row, told), f"no row for the overflow at #{head.end}"
            before = head
        context = memory.get("s", demo.QUESTION, user_id="sarah")
        assert overflows
        assert f" {context.tokens} / {BUDGET}" in told
        assert context.tokens <= BUDGET
        for recall in context.recalls:
            assert recall.text.split(": ")[-1][:60] in told
        if context.head and context.head.summary:
            assert all(line in told for line in context.head.summary.text.splitlines())
    assert f"Overflows: {overflows}" in told


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"role": "user"', "not valid JSON"),
        (b"[1, 2]", "not an object"),
        (b'{"content": "no role"}', "has no `role`"),
        (b'{"role": "narrator", "content": "x"}', "Unknown role"),
        (b'{"role": "user", "content": "x", "timestamp": "soon"}', "`timestamp`"),
        (b'{"role": "user", "content": "x", "create_time": [5]}', "`create_time`"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("command", ["demo", "import"])
def test_an_error_names_the_bad_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, bad: bytes, reason: str
) -> None:
    """Wrong: an error about a line has a wrong number, or the lines before it are stored."""
    monkeypatch.setenv("AGENT_MEMORY_MAX_TOKENS", "2000")
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"role": "user", "content": "hi"}\n\n' + bad + b"\n")
    arguments = ["demo", "--file", str(path)] if command == "demo" else ["import", str(path), "s"]
    told = fails(*arguments)
    assert "log.jsonl, line 3: " in told
    assert reason in told
    assert not Path("agent_memory.db").exists()


def test_import_preserves_times_and_metadata(tmp_path: Path) -> None:
    """Wrong: an import loses times, shows ids to a model, or stores a longer log's lines twice."""
    line = {
        "id": 7, "session_id": "old", "timestamp": "2020-05-06T07:08:09", "role": "user",
        "name": "Ann", "content": "hello", "metadata": {"tag": 1},
    }  # fmt: skip
    path = write_log(tmp_path / "log.jsonl", line)
    assert "1 messages imported as #1 to #1 of s" in run("import", str(path), "s", "--user", "ann")
    again = run("import", str(path), "s", "--user", "ann")
    assert "1 of 1 messages were imported before. Nothing is new." in again
    write_log(tmp_path / "log.jsonl", line, user("and more"))
    assert "1 messages imported as #2 to #2" in run("import", str(path), "s", "--user", "ann")
    with store() as memory:
        entry, _ = memory.history("s")
        assert memory.sessions(user_id="ann")
    assert entry.created_at.isoformat() == "2020-05-06T07:08:09+00:00"
    assert entry.message.metadata == {"id": 7, "session_id": "old", "tag": 1}
    assert entry.message.to_openai() == {"role": "user", "name": "Ann", "content": "hello"}
    assert entry.message.to_dict()["timestamp"] == line["timestamp"]


def test_export_and_import_give_the_same_log(tmp_path: Path) -> None:
    """Wrong: unknown fields, tool calls, raw items or times are lost in an export and import."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given = [
        {"role": "system", "content": "Be brief."},
        user([{"type": "text", "text": "héllo \ud83d"}], created_at=5),
        assistant(None, tool_calls=[call], refusal=None),
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        user("At ten.", created_at="2026-03-01T10:00:00+05:30"),
        {"raw": {"type": "reasoning", "id": "r1"}, "format": "openai.responses"},
    ]
    with store() as memory:
        memory.update("s", given)
    run("export", "s", "-o", "out.jsonl")
    assert Path("out.jsonl").read_text(encoding="utf-8") == run("export", "s")
    run("import", "out.jsonl", "copy")
    with store() as memory:
        old, new = memory.history("s"), memory.history("copy")
    assert [e.local_time.isoformat() for e in new] == [e.local_time.isoformat() for e in old]
    for a, b in zip(old, new, strict=True):
        fields = b.message.to_dict()
        fields["created_at"] = a.message.to_dict().get("created_at", fields["created_at"])
        assert fields == {**a.message.to_dict(), "created_at": fields["created_at"]}


def test_sessions_prints_counts_and_pending_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `sessions` shows wrong counts, hides pending messages, or breaks ids in a pipe."""
    monkeypatch.delenv("COLUMNS")
    uuid = "94b8c2f8-3d64-4f0e-9a77-7e8ad9a4cf43"
    with store() as memory:
        memory.update("a", talk(4), user_id="ann")
        head = memory.update("b", talk(6))
        memory.update(uuid, talk(2), user_id=uuid)
    told = run("sessions")
    assert told.count(uuid) == 2
    assert re.search(r"^a +ann +4 ", told, re.MULTILINE)
    assert re.search(rf"^b +\u2013 +6 +{head.window_tokens} +6 *$", told, re.MULTILINE)
    assert "vector has 4 pending" in run("show", "a")
    run("flush", "a")
    assert re.search(r"^a +ann +4 +\d+ *$", run("sessions"), re.MULTILINE)
    assert "vector has" not in run("show", "a")
    assert "ann" not in run("sessions", "--after", "a")
    assert not re.search(r"^b ", run("sessions", "--user", "ann"), re.MULTILINE)


def test_show_prints_the_window_or_with_the_all_option_the_log() -> None:
    """Wrong: `show` prints messages that left the window, or `--all` omits some."""
    with store(max_tokens=300, overflow=Summarize(max_summary_tokens=60), blocks=[]) as memory:
        memory.update("s", {"role": "system", "content": "Be brief, please."})
        for message in talk(30):
            head = memory.update("s", message)
    assert head.summary
    assert head.start
    told, whole = run("show", "s"), run("show", "s", "--all")
    assert "system: Be brief, please." in told
    assert f"summary up to #{head.summary.upto}, by local" in told
    numbers = [int(n) for n in re.findall(r"^#(\d+) ", told, re.MULTILINE)]
    assert numbers == list(range(head.start + 1, 32))
    assert [int(n) for n in re.findall(r"^#(\d+) ", whole, re.MULTILINE)] == list(range(1, 32))


def test_search_prints_only_recalls_of_the_user() -> None:
    """Wrong: `search` prints another user's memory, or misses the user's own."""
    with store() as memory:
        memory.update("s", user("My hamster is called Bella."), user_id="ann")
        memory.flush()
        (recall,) = memory.search("hamster", user_id="ann")
    told = run("search", "hamster", "--user", "ann")
    assert re.search(rf"{recall.score:.2f} +vector .*called Bella\. +s #1", told)
    assert "Bella" in run("search", "hamster", "--session", "s")
    assert "Nothing found" in run("search", "hamster", "--user", "bob")
    assert "Only shared records" in run("search", "hamster")


def test_search_prints_why_a_block_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `search` prints "Nothing found" without a warning that a block failed."""
    monkeypatch.setenv("K", f"k:{b64encode(bytes(32)).decode()}")
    with store(encryption="K") as memory:
        memory.update("s", user("My hamster is called Bella."), user_id="ann")
    done = invoke(["search", "hamster", "--user", "ann"])
    assert "Nothing found" in done.stdout
    assert "The block 'vector' failed: Undecryptable: The session 's' is encrypted" in done.stderr


def test_terminal_steering_characters_are_not_printed() -> None:
    """Wrong: an escape sequence in a stored message reaches the terminal."""
    with store() as memory:
        memory.update("s", user("a\x1b[2Jb [red]c[/red]"))
    assert "a\ufffd[2Jb [red]c[/red]" in run("show", "s")


def test_flush_and_replay_absorb_messages_and_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `flush` does not absorb or report pending messages, or fails without a model."""
    with store() as memory:
        memory.update("s", talk(4))
    monkeypatch.setenv("AGENT_MEMORY_BLOCKS", FACTS_TOO)
    assert re.search(r"^vector +4 +0 +\u2013", run("stats"), re.MULTILINE)
    told = run("flush")
    assert re.search(r"^s +vector +#1 to #4 *$", told, re.MULTILINE)
    assert "ModelRequired" in told
    assert re.search(r"^vector +0 +0 +\u2013", run("stats"), re.MULTILINE)
    assert re.search(r"messages +4\b", run("stats"))
    assert "vector: 1 of 1 sessions rebuilt." in run("replay", "vector")
    assert "extractive, vector" in fails("replay", "nonsense")
    assert "no session" in fails("flush", "nobody")


def test_replay_reports_a_block_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a replay whose block fails exits with 0."""
    with store(max_tokens=200) as memory:
        memory.update("s", talk(20))
    monkeypatch.setenv("AGENT_MEMORY_BLOCKS", FACTS_TOO)
    result = invoke(["replay", "extractive"])
    assert result.exit_code == 1
    assert "0 of 1 sessions rebuilt" in result.stdout
    assert "ModelRequired" in result.stdout


def test_delete_requires_confirmation() -> None:
    """Wrong: `delete` erases a session without a confirmation, or leaves its records."""
    with store() as memory:
        memory.update("s", talk(2))
        memory.flush()
    assert invoke(["delete", "s"], input="n\n").exit_code == 1
    assert "#2" in run("show", "s")
    assert "s is deleted" in run("delete", "s", typed="y\n")
    assert "no session 's'" in fails("show", "s")
    assert "no session 's'" in fails("delete", "s", "--yes")
    with store() as memory:
        assert memory.search("hamster", session_id="s") == []


@pytest.mark.parametrize(
    "arguments",
    ["sessions", "show s", "search x", "stats", "export s", "flush", "delete s", "replay vector"],
)
def test_commands_that_only_read_create_no_database(arguments: str) -> None:
    """Wrong: a command with a mistyped path creates an empty database there."""
    assert "There is no memory at agent_memory.db" in fails(*arguments.split())
    assert not Path("agent_memory.db").exists()


def test_the_store_option_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a command writes to another database than the option or the environment names."""
    monkeypatch.setenv("AGENT_MEMORY_STORE", "sqlite:///environment.db")
    write_log(Path("log.jsonl"), *talk(1))
    run("import", "log.jsonl", "s")
    run("import", "log.jsonl", "s", "--store", "sqlite:///option.db")
    Path("c.toml").write_text('store = "sqlite:///file.db"', encoding="utf-8")
    run("sessions", "--config", "c.toml")
    monkeypatch.delenv("AGENT_MEMORY_STORE")
    run("import", "log.jsonl", "s", "--config", "c.toml")
    found = sorted(path.name for path in Path().glob("*.db"))
    assert found == ["environment.db", "file.db", "option.db"]


def test_config_show_and_schema_print_fields_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the schema lacks a field, or `config show` prints a secret."""
    from agent_memory import AgentMemoryConfig

    schema = json.loads(run("config", "schema"))
    assert set(schema["properties"]) == {*AgentMemoryConfig.model_fields, "stores"}
    monkeypatch.setenv("AGENT_MEMORY_API_KEY", "sk-secret")
    monkeypatch.setenv("AGENT_MEMORY_MAX_TOKENS", "1234")
    told = run("config", "show")
    assert "sk-secret" not in told
    shown = json.loads(told)
    assert shown["max_tokens"] == 1234
    assert shown["overflow"]["kind"] == "chain"
    assert [block["kind"] for block in shown["blocks"]] == ["vector"]


def test_config_show_hides_a_key_in_place_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `config show` prints an encryption key that stands where its variable is named."""
    monkeypatch.setenv("AGENT_MEMORY_ENCRYPTION", "a1:hidden+key=")
    assert "hidden" not in run("config", "show")


def marks(told: str) -> dict[str, str]:
    return {line.split()[1]: line.split()[0] for line in told.splitlines() if line.strip()}


def test_doctor_reports_no_unconfigured_part_as_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `doctor` creates a database, or reports an unconfigured part as a failure. Or a model
    that litellm does not know passes."""
    told = run("doctor")
    assert marks(told) == {
        "store": "\u2013", "vectors": "✓", "embedder": "✓", "model": "\u2013",
        "absorbing": "\u2013", "shares": "\u2013", "mcp": "✓", "records": "✓",
    }  # fmt: skip
    assert "384 numbers" in told
    assert not list(Path().glob("*.db"))
    monkeypatch.setenv("AGENT_MEMORY_MODEL", "gpt-99")
    assert marks(run("doctor", ok=False))["model"] == "✗"


def test_doctor_checks_the_system_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `doctor` does not check the system store, creates it, or its password is shown."""
    monkeypatch.setenv("AGENT_MEMORY_SYSTEM_STORE", "sqlite:///system.db")
    assert marks(run("doctor"))["system"] == "\u2013"
    assert not Path("system.db").exists()
    monkeypatch.setenv("AGENT_MEMORY_SYSTEM_STORE", "redis://:hidden@127.0.0.1:1/0")
    told = run("doctor", ok=False)
    assert marks(told)["system"] == "✗"
    assert "hidden" not in told + run("config", "show")


def test_doctor_calls_no_model_by_default(fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `doctor` calls the model without `--call`, or names no variable for a missing key."""
    with store() as memory:
        memory.update("s", talk(3))
    told = run("doctor", "--model", "openai/gpt-4o-mini")
    assert marks(told)["model"] == "✓"
    assert "1 sessions, 3 messages" in told
    assert fake.requests == []
    told = run("doctor", "--model", "openai/gpt-4o-mini", "--call")
    assert "openai/gpt-4o-mini answers." in told
    assert len(fake.requests) == 1
    fake.fail(401)
    result = invoke(["doctor", "--model", "openai/gpt-4o-mini", "--call"])
    assert result.exit_code == 1
    assert marks(result.stdout)["model"] == "✗"
    assert "sk-secret" not in result.output
    for name in ("KEY", "BASE"):
        monkeypatch.delenv(f"AGENT_MEMORY_API_{name}")
    result = invoke(["doctor", "--model", "openai/gpt-4o-mini"])
    assert result.exit_code == 1
    assert "OPENAI_API_KEY" in result.stdout


def test_doctor_finds_vectors_of_another_dimension(fake: FakeLLM) -> None:
    """Wrong: `doctor --call` does not find stored vectors of another dimension."""
    with store() as memory:
        memory.update("s", talk(1))
    Path("c.toml").write_text('embedding = "openai/fake-embedding"', encoding="utf-8")
    result = invoke(["doctor", "--config", "c.toml", "--call"])
    assert result.exit_code == 1
    assert marks(result.stdout)["vectors"] == "✗"
    assert "384" in result.stdout
    assert marks(run("doctor", "--config", "c.toml", ok=False))["vectors"] == "\u2013"


def test_doctor_checks_the_data_of_blocks() -> None:
    """Wrong: `doctor` does not find a broken skill, or creates a store or a folder."""
    folder = '{ kind = "skills", folder = "skills" }'
    blocks = f'blocks = ["working", "notes", "files", "spatial", {folder}]'
    Path("kept.toml").write_text(blocks, encoding="utf-8")
    kept = {"working", "notes", "files", "spatial", "skills"}
    found = marks(run("doctor", "--config", "kept.toml"))
    assert {name: found[name] for name in kept} == dict.fromkeys(kept, "✓")
    assert not list(Path().glob("*.db"))
    assert not Path("skills").exists()
    Path("skills").mkdir()
    whole = "---\nname: whole\ndescription: Do it.\n---\n1. Begin.\n"
    for name, text in (("whole", whole), ("deploy", whole.replace("Do it.", "[not"))):
        Path("skills", f"{name}.md").write_text(text, encoding="utf-8")
    told = run("doctor", "--config", "kept.toml", ok=False)
    assert marks(told)["skills"] == "✗"
    assert re.search(r"deploy\.md.*line [34]", told)
    assert "whole" not in told
