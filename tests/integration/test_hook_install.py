"""Installation of hooks into agents' settings."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.kit import home_of_its_own, invoke


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home_of_its_own(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def run(*arguments: str, given: str = "") -> str:
    done = invoke(["hook", *arguments], given)
    assert done.exit_code == 0, done.output
    return done.output


def test_install_and_uninstall(tmp_path: Path) -> None:
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
    assert "written" in run("install", given="y\n")
    made = json.loads(path.read_text())
    assert path.read_text().startswith('{\n\t"model": "opus",\n')
    assert path.stat().st_mode & 0o777 == 0o640
    command = made["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert os.path.isabs(command.split()[0])
    store = f"sqlite:///{tmp_path}/home/.agent-memory/memory.db"
    assert command.endswith(f"hook Stop --agent claude-code --user ana --store {store}")
    assert "is unchanged" in run("install")
    assert not (tmp_path / "home/.codex").exists()
    run("uninstall", "--yes")
    assert json.loads(path.read_text()) == {"model": "opus"}
    run("install", "cursor", "codex", "--project", "--yes")
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
def test_what_cannot_be_installed(arguments: list[str], why: str, tmp_path: Path) -> None:
    """Wrong: a hook that cannot work is installed, or a password is written into settings."""
    done = invoke(["hook", *arguments, "--yes"])
    assert done.exit_code != 0
    assert why in done.output
    assert "secret" not in done.output
    assert not (tmp_path / "home/.codex").exists()


def test_settings_that_are_no_json_are_left_alone(tmp_path: Path) -> None:
    """Wrong: settings with comments are overwritten."""
    path = tmp_path / "home/.codex/hooks.json"
    path.parent.mkdir()
    for text in ("{ // mine\n}", "[]", '{"hooks": []}'):
        path.write_text(text)
        done = invoke(["hook", "install", "--yes"])
        assert done.exit_code == 1
        assert path.read_text() == text
