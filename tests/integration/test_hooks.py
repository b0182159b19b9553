"""Hooks of coding agents, run as an agent runs them, and their installation."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.cli import hook as command
from agent_memory.integrations import hooks
from tests.kit import SECONDS, home_of_its_own, invoke, run, user

ROOT = Path(__file__).parents[2]
Lines = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home_of_its_own(monkeypatch, tmp_path)
    monkeypatch.setattr(hooks, "_SECONDS", SECONDS)  # a busy machine
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def event(session: str = "s", **fields: Any) -> str:
    return json.dumps({"session_id": session, "cwd": "/src/kestrel", **fields})


def hook(
    name: str, given: str | bytes, *options: str, agent: str = "claude-code", strict: bool = True
) -> str:
    """Run a hook in this process, and return its output."""
    said = ["--agent", agent, "--user", "ana", "--store", "sqlite:///m.db", *options]
    done = invoke(["hook", name, *said, *(["--strict"] if strict else [])], given)
    assert done.exit_code == 0, done.output
    return done.stdout


def context(told: str) -> str:
    if not told:
        return ""
    fields = json.loads(told)
    return fields.get("additional_context") or fields["hookSpecificOutput"]["additionalContext"]


def claude(*texts: str, first: int = 0) -> Lines:
    found: Lines = []
    for n, text in enumerate(texts, first):
        kind = "assistant" if n % 2 else "user"
        message = {"role": kind, "content": [{"type": "text", "text": text}]}
        found.append({"type": kind, "uuid": f"u{n}", "message": message})
    return found


def write(path: Path, lines: Lines, mode: str = "w", tail: str = "") -> str:
    with path.open(mode, encoding="utf-8") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return str(path)


def log(session: str = "claude-code:s") -> list[str]:
    with AgentMemory("m.db") as memory:
        return [entry.message.text() for entry in memory.history(session, user_id="ana")]


ASKED = "The staging database of Kestrel listens on port 6543, remember that."
ANSWERED = "Noted: Kestrel staging is on 6543."
WHICH = "On which port does the Kestrel staging database listen?"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = write(tmp_path / "t.jsonl", claude(ASKED, ANSWERED))
    hook("Stop", event(transcript_path=path))
    return path


def test_a_hook_recalls_an_earlier_session(file: str) -> None:
    """Wrong: a hook does not recall an earlier session, or recalls the agent's own one."""
    for name in ("UserPromptSubmit", "SessionStart"):
        text = context(hook(name, event("other", prompt=WHICH)))
        assert ASKED in text
        assert text.startswith("Quotes from earlier conversations")
    assert hook("UserPromptSubmit", event("s", prompt=WHICH)) == ""
    assert hook("UserPromptSubmit", event("other", prompt="ok thanks, go ahead")) == ""
    assert hook("UserPromptSubmit", event("other", prompt="Bake a lemon cake")) == ""
    assert hook("SessionStart", event("other", cwd="/elsewhere")) == ""


def test_a_hook_recalls_messages_by_meaning(file: str) -> None:
    """Wrong: a hook recalls a message only if it shares words with the prompt."""
    given = event("other", prompt="how can i connect to our pre-production postgres?")
    assert ASKED in context(hook("UserPromptSubmit", given))


def test_hooks_apply_settings(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a hook ignores a configuration file or a namespace of the environment."""
    (tmp_path / "c.toml").write_text("max_tokens = 9000\nblocks = []\n")
    given = event("other", prompt=WHICH)
    assert ASKED in context(hook("UserPromptSubmit", given, "--config", "c.toml"))
    monkeypatch.setenv("AGENT_MEMORY_NAMESPACE", "another")
    assert hook("UserPromptSubmit", given) == ""


def test_a_repeated_hook_reads_and_stores_only_new_messages(file: str, tmp_path: Path) -> None:
    """Wrong: a hook stores messages twice, or reads the transcript from its beginning each time."""
    given = event(transcript_path=file)
    hook("Stop", given)
    assert log() == [ASKED, ANSWERED]
    write(Path(file), claude("Next?", first=2), "a", '{"type":"assistant","uuid":"u3","mess')
    hook("PreCompact", given)
    assert log() == [ASKED, ANSWERED, "Next?"]
    whole = Path(file).read_bytes()
    rest = b'age":{"role":"assistant","content":"Done."}}\n'
    # replace what was read already: the hook must not read it again
    Path(file).write_bytes(b"#" * (whole.rindex(b"\n")) + whole[whole.rindex(b"\n") :] + rest)
    hook("SessionEnd", given)
    assert log() == [ASKED, ANSWERED, "Next?", "Done."]


def test_a_hook_does_not_restore_deleted_messages(file: str) -> None:
    """Wrong: the next hook of a deleted session stores the deleted messages again."""
    with AgentMemory("m.db") as memory:
        memory.delete("claude-code:s", user_id="ana")
    write(Path(file), claude("And now?", first=2), "a")
    hook("Stop", event(transcript_path=file))
    assert log() == ["And now?"]


def test_a_message_that_cannot_be_stored_does_not_block_later_ones(file: str) -> None:
    """Wrong: a changed message under a known id keeps later messages from being stored."""
    changed = claude("Something else.", ANSWERED, "Third.", "Fourth.")
    write(Path(file), changed)
    with AgentMemory("m.db") as memory:
        memory.values("ana").clear(("hooks",))
    hook("Stop", event(transcript_path=file))
    assert log() == [ASKED, ANSWERED, "Third.", "Fourth."]


def test_a_transcript_is_stored_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a hook that runs out of time stores nothing, and starts again each time."""
    path = write(tmp_path / "t.jsonl", claude(*map(str, range(10))))
    monkeypatch.setattr(hooks, "_BATCH", 4)
    monkeypatch.setattr(hooks, "_SECONDS", -1.0)
    hook("Stop", event(transcript_path=path))
    assert log() == ["0", "1", "2", "3"]
    hook("PreCompact", event(transcript_path=path))
    assert log() == list(map(str, range(10)))


def test_after_a_compaction_the_session_itself_is_quoted(tmp_path: Path) -> None:
    """Wrong: after a compaction the hook does not quote the session's earlier messages."""
    lines = claude(ASKED, ANSWERED, "Bake a cake.", "Baked.", "Which port has Kestrel staging?")
    path = write(tmp_path / "t.jsonl", lines)
    hook("PreCompact", event(transcript_path=path))
    text = context(hook("SessionStart", event(transcript_path=path, source="compact")))
    assert ASKED in text
    assert "Which port" not in text


def test_a_hook_neither_reads_nor_changes_another_users_session(file: str, tmp_path: Path) -> None:
    """Wrong: a hook writes into another user's session, or recalls from it."""
    given = event(transcript_path=write(tmp_path / "e.jsonl", claude("mine", "yours")))
    options = ["hook", "Stop", "--user", "eve", "--store", "sqlite:///m.db", "--strict"]
    done = invoke(options, given)
    assert done.exit_code == 1
    assert log() == [ASKED, ANSWERED]
    prompt = event("other", prompt=WHICH)
    done = invoke(["hook", "UserPromptSubmit", *options[2:]], prompt)
    assert (done.exit_code, done.stdout) == (0, "")


FAILURES: dict[str, Callable[[Path], str | bytes]] = {
    "no JSON": lambda _: b"\xff\x00junk",
    "nothing": lambda _: b"",
    "no session": lambda _: json.dumps({"prompt": "x"}),
    "no transcript": lambda _: event(),
    "a transcript that is gone": lambda path: event(transcript_path=str(path / "gone.jsonl")),
    "a folder": lambda path: event(transcript_path=str(path)),
    "a session that cannot be kept": lambda path: event("x" * 300, transcript_path=str(path)),
    "a NUL": lambda path: event("x\x00", transcript_path=write(path / "t.jsonl", claude("a"))),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_hook_does_not_stop_the_agent(failure: str, tmp_path: Path) -> None:
    """Wrong: a hook that fails exits with an error, which stops the agent."""
    given = FAILURES[failure](tmp_path)
    options = ["hook", "Stop", "--user", "ana", "--store", "sqlite:///m.db"]
    done = invoke(options, given)
    assert (done.exit_code, done.stdout) == (0, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("agent-memory hook Stop: ")
    assert invoke([*options, "--strict"], given).exit_code == 1


def test_a_locked_or_damaged_database_does_not_stop_the_agent(file: str) -> None:
    """Wrong: a hook waits for a writer, or a damaged database stops the agent."""
    given = event("other", prompt=WHICH)
    assert ASKED in context(hook("UserPromptSubmit", given))
    held = sqlite3.connect("m.db", isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    assert ASKED in context(hook("UserPromptSubmit", given))
    held.execute("UPDATE agent_memory_meta SET value = 99")
    held.execute("COMMIT")
    held.close()
    assert hook("UserPromptSubmit", given, strict=False) == ""
    Path("m.db").write_bytes(b"junk" * 1000)
    for tail in ("-wal", "-shm"):
        Path(f"m.db{tail}").unlink(missing_ok=True)
    assert hook("UserPromptSubmit", given, strict=False) == ""


def test_a_prompt_reads_all_messages(tmp_path: Path) -> None:
    """Wrong: a hook misses messages of a long session, of other programs, or stored since."""
    texts = [f"{n} says kestrel{n % 7} is well" for n in range(500)]
    path = write(tmp_path / "t.jsonl", claude(*texts))
    hook("Stop", event(transcript_path=path))
    with AgentMemory("m.db") as memory:
        said_since = user("The kestrel nests in tower nine.")
        memory.update("claude-code:s", said_since, user_id="ana")
        memory.update("chat", user("Kestrel hunts voles at dawn."), user_id="ana")
    for prompt, answer in (
        ("Where does the kestrel nest, in which tower?", "tower nine"),
        ("Which voles does a kestrel hunt?", "at dawn"),
        ("What says 300 of kestrel6?", texts[300]),
    ):
        assert answer in context(hook("UserPromptSubmit", event("other", prompt=prompt)))


MAIN = "from agent_memory.cli.entry import main; main()"


def process(*arguments: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a hook in a process, as an agent does."""
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "LOGNAME")}
    command, env = [sys.executable, "-c", MAIN, "hook", *arguments], {**kept, **env}
    env.setdefault("PYTHONPATH", str(ROOT))
    return subprocess.run(command, input=given, capture_output=True, text=True, env=env)


def of_codex(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return {"timestamp": "2026-11-20T10:00:00.000Z", "type": "response_item", "payload": payload}


def of_cursor(role: str, text: str) -> dict[str, Any]:
    said = text if role == "assistant" else f"<user_query>\n{text}\n</user_query>"
    return {"role": role, "message": {"content": [{"type": "text", "text": said}]}}


WRITTEN: dict[str, Lines] = {
    "claude-code": claude(ASKED, ANSWERED),
    "codex": [of_codex("user", ASKED), of_codex("assistant", ANSWERED)],
    "cursor": [of_cursor("user", ASKED), of_cursor("assistant", ANSWERED)],
}


@pytest.mark.parametrize("agent", WRITTEN)
def test_hooks_work_in_separate_processes(agent: str, tmp_path: Path) -> None:
    """Wrong: a hook fails in a new process without a home folder."""
    path = write(tmp_path / "t.jsonl", WRITTEN[agent])
    store = ["--agent", agent, "--user", "ana", "--store", f"sqlite:///{tmp_path}/m.db"]
    done = process("Stop", *store, "--strict", given=event(transcript_path=path))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    given = event("other", prompt=WHICH)
    done = process("UserPromptSubmit", *store, given=given)
    assert done.returncode == 0
    assert done.stderr == ""
    assert ASKED in context(done.stdout)


def test_a_turn_of_gemini_is_stored_from_its_event(tmp_path: Path) -> None:
    """Wrong: Gemini's answer is lost, or a repeated event is stored twice."""
    store = ["--agent", "gemini-cli", "--user", "ana", "--store", f"sqlite:///{tmp_path}/m.db"]
    turn = {"prompt": ASKED, "prompt_response": ANSWERED, "timestamp": "2026-11-20T10:00:00.000Z"}
    for _ in range(2):
        done = process("Stop", *store, "--strict", given=event(**turn))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with AgentMemory(f"sqlite:///{tmp_path}/m.db", blocks=[]) as memory:
        (session,) = memory.sessions(user_id="ana")
        said = [entry.message.content for entry in memory.history(session.session_id)]
    assert said == [ASKED, ANSWERED]
    given = event("other", prompt=WHICH)
    done = process("UserPromptSubmit", *store, given=given)
    assert json.loads(done.stdout)["hookSpecificOutput"]["hookEventName"] == "BeforeAgent"
    assert ASKED in context(done.stdout)


def test_wrong_options_do_not_stop_the_agent(tmp_path: Path) -> None:
    """Wrong: a wrong option exits with 2, which agents take for a refused prompt."""
    for wrong in (["UserPromptSubmit"], ["Stop"], ["Stop", "--none"], ["Never"]):
        done = process(*wrong, given="{}")
        assert (done.returncode, done.stdout) == (0, "")
        assert process(*wrong, "--strict", given="{}").returncode == 1
    assert process("install", "--none").returncode == 2
    done = process("UserPromptSubmit", "--agent", "x", "--user", "ana", "--store", "nonsense")
    assert (done.returncode, done.stdout) == (0, "")


def test_an_event_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an event of any size is read into memory."""
    monkeypatch.setattr(command, "_LONGEST", 10)
    options = ["hook", "Stop", "--user", "ana", "--store", "sqlite:///m.db"]
    done = invoke(options, event())
    assert done.exit_code == 0
    assert "10 bytes" in done.stderr


def test_install_and_uninstall_preserve_other_settings(tmp_path: Path) -> None:
    """Wrong: hooks are installed without a confirmation or twice, or other settings are lost."""
    path = tmp_path / "home/.claude/settings.json"
    path.parent.mkdir()
    before = '{\n\t"model": "opus",\n\t"hooks": {}\n}\n'
    path.write_text(before)
    path.chmod(0o640)
    done = invoke(["hook", "install"], "n\n")
    assert done.exit_code == 1
    assert "+" in done.output
    assert path.read_text() == before
    assert "written" in run("hook", "install", given="y\n")
    made = json.loads(path.read_text())
    assert path.read_text().startswith('{\n\t"model": "opus",\n')
    assert path.stat().st_mode & 0o777 == 0o640
    command = made["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert os.path.isabs(command.split()[0])
    store = f"sqlite:///{tmp_path}/home/.agent-memory/memory.db"
    assert command.endswith(f"hook Stop --agent claude-code --user ana --store {store}")
    assert "is unchanged" in run("hook", "install")
    assert not (tmp_path / "home/.codex").exists()
    run("hook", "uninstall", "--yes")
    assert json.loads(path.read_text()) == {"model": "opus"}
    run("hook", "install", "cursor", "codex", "--project", "--yes")
    told = json.loads((tmp_path / ".cursor/hooks.json").read_text())
    (stop,) = told["hooks"]["stop"]
    assert f"--user ana@{tmp_path} " in stop["command"]
    assert (tmp_path / ".codex/hooks.json").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["install", "emacs"], "emacs"),
        (["install"], "No agent was found"),
        (["install", "codex", "--store", "postgresql://u:secret@h/d"], "password"),
        (["install", "codex", "--user", ""], "empty"),
        (["install", "codex", "--config", "none.toml"], "none.toml"),
    ],
)
def test_an_unusable_hook_is_not_installed(arguments: list[str], why: str, tmp_path: Path) -> None:
    """Wrong: a hook that cannot work is installed, or a password is written into settings."""
    done = invoke(["hook", *arguments, "--yes"])
    assert done.exit_code != 0
    assert why in done.output
    assert "secret" not in done.output
    assert not (tmp_path / "home/.codex").exists()


def test_invalid_settings_files_are_not_overwritten(tmp_path: Path) -> None:
    """Wrong: settings with comments are overwritten."""
    path = tmp_path / "home/.codex/hooks.json"
    path.parent.mkdir()
    for text in ("{ // mine\n}", "[]", '{"hooks": []}'):
        path.write_text(text)
        done = invoke(["hook", "install", "--yes"])
        assert done.exit_code == 1
        assert path.read_text() == text
