"""The benchmarks of speed, growth and long runs work. Their results are not tested."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks.speed import growth

ROOT = Path(__file__).parents[2]
OURS = {"ours-sqlite", "ours-memory"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one small run, without other libraries installed."""
    found = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, "-m", "benchmarks", "speed", "--small", "--rounds", "1"]
    command += ["--no-peers", "--out", str(found)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Append one message" in done.stdout
    assert "not installed" in done.stdout
    return found


@pytest.fixture(scope="module")
def cells(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["cells"]


def test_nothing_is_lost(cells: list[dict[str, Any]]) -> None:
    """Wrong: the benchmark loses an acknowledged message, or reads it twice or out of order."""
    crowds = [cell for cell in cells if cell["work"] == "sessions" and cell["contender"] in OURS]
    assert {cell["variant"] for cell in crowds} == {"8 threads", "8 tasks"}
    for cell in crowds:
        for sample in cell["samples"]:
            wrong = [sample[name] for name in ("lost", "doubled", "disordered", "errors", "unread")]
            assert wrong == [0, 0, 0, 0, 0], cell
            assert sample["messages"] == 80
    quiet = [cell for cell in cells if cell["work"] == "background"]
    assert [sample["lost"] for cell in quiet for sample in cell["samples"]] == [0, 0]


def test_growth(tmp_path: Path) -> None:
    """Wrong: the command fails, or numbers are missing in its result."""
    out = tmp_path / "out.json"
    options = ["--messages", "31", "--users", "3", "--questions", "4", "--processes", "1"]
    command = Typer()
    command.command()(growth.main)
    told = CliRunner().invoke(command, [*options, "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert "first search in a fresh process" in " ".join(told.output.split())
    result = json.loads(out.read_text())
    (stage,) = result["stages"]
    assert (stage["each"], stage["messages"]) == (10, 30)
    for name in ("search", "again", "one_more", "newest", "cold"):
        assert 0 < stage[name][0] <= stage[name][1]
    assert stage["rate"] > 0
    assert stage["disk"] > 0


def test_a_soak() -> None:
    """Wrong: the command ends with an error, or makes no calls."""
    few = ["--minutes", "0.1", "--every", "1", "--users", "2", "--workers", "1"]
    command = [sys.executable, "-m", "benchmarks", "durability", "soak", *few]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    assert "deletions" in done.stdout
    assert "errors: " in done.stdout
