"""Run frameworks' own tests with our classes: `python -m benchmarks suites FOLDER`.

The folder has a checkout of each framework's repository, ideally of the release that pip installs.
The command installs packages into virtualenvs in this folder, and downloads nothing else.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from xml.etree import ElementTree

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.suites.suite import FOLDER, NAME, Suite, suite_of

SUITES = (
    "agent_framework", "anthropic", "crewai", "google_adk", "langgraph", "llama_index",
    "openai_agents", "strands",
)  # fmt: skip
_PROJECT = Path(__file__).parents[2]
_TOOLS = ("pytest", "pytest-asyncio", "pytest-mock", "pytest-timeout")


def main(
    folder: Annotated[Path, typer.Argument(help="Where the checkouts are.", exists=True)],
    only: Annotated[list[str], typer.Option(help="Only these; repeatable.")] = [],  # noqa: B006
) -> None:
    """Print how many tests of each framework pass, and which are left out for which reason."""
    console = Console()
    table = Table("framework", "passed", "applicable", "excluded", "failed")
    wrong: list[str] = []
    for name in only or SUITES:
        suite = suite_of(name)
        if not (folder / suite.checkout).is_dir():
            table.add_row(name, "-", "-", "-", f"no checkout in {folder / suite.checkout}")
            continue
        console.print(f"{name}: {suite.package}")
        counts, failed, tried = _run(suite, folder.resolve())
        table.add_row(
            f"{name} {tried}", str(counts["passed"]), str(counts["passed"] + len(failed)),
            str(counts["excluded"]), str(len(failed)),
        )  # fmt: skip
        console.print("  left out: what fails with the framework's own class too")
        for pattern, why in suite.excluded.items():
            console.print(f"  left out: {pattern}: {why}", markup=False)
        wrong += failed
    console.print(table)
    for test in wrong:
        console.print(f"failed: {test}", markup=False)
    raise typer.Exit(bool(wrong))


def _run(suite: Suite, folder: Path) -> tuple[Counter[str], list[str], str]:
    python = _environment(suite, folder / ".venvs" / suite.name)
    theirs, failed_theirs = _tried(suite, folder, python, own=True)
    counts, failed = _tried(suite, folder, python, own=False)
    # a test that fails with the framework's own class is of another release
    counts["excluded"] += len(failed & failed_theirs)
    if not theirs["passed"]:
        failed.add(f"{suite.name}: no test of the checkout passes with the framework's own class")
    told = f"from importlib.metadata import version; print(version({_name(suite)!r}))"
    version = subprocess.run([str(python), "-c", told], capture_output=True, text=True, check=True)
    return counts, sorted(failed - failed_theirs), version.stdout.strip()


def _tried(suite: Suite, folder: Path, python: Path, *, own: bool) -> tuple[Counter[str], set[str]]:
    """Run the tests with the framework's own class or ours. Return counts and failed tests."""
    with TemporaryDirectory() as place:
        # only the tests: a package beside them would replace the installed package
        shutil.copytree(folder / suite.checkout / suite.root / "tests", Path(place, "tests"))
        report = Path(place, "report.xml")
        environment = {
            **os.environ, **suite.environment,
            NAME: suite.name, FOLDER: place, "PYTHONPATH": f"{place}:{_PROJECT}",
        }  # fmt: skip
        ours = () if own else ("-p", f"benchmarks.suites.{suite.name}")
        command = [
            str(python), "-m", "pytest", "-q", "-o", "asyncio_mode=auto", f"--rootdir={place}",
            "-p", "no:cacheprovider", "-p", "benchmarks.suites.suite", *ours,
            f"--junit-xml={report}", *(one for one in suite.tests if Path(place, one).exists()),
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        if not report.exists():
            raise typer.BadParameter(f"{suite.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        counts, failed = _read(report)
        counts["excluded"] = _deselected(done.stdout)
        return counts, failed


def _environment(suite: Suite, place: Path) -> Path:
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    install = [str(python), "-m", "pip", "install", "-q"]
    needed = ["-e", f"{_PROJECT}[local]", *_TOOLS, *suite.needs]
    subprocess.run([*install, *needed], check=True)
    # last and separately, because litellm may require an older `openai`
    subprocess.run([*install, suite.package], check=True)
    return python


def _read(report: Path) -> tuple[Counter[str], set[str]]:
    counts: Counter[str] = Counter()
    failed = set()
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.add(f"{case.get('classname')}::{case.get('name')}")
        else:
            counts["skipped" if "skipped" in kinds else "passed"] += 1
    return counts, failed


def _deselected(told: str) -> int:
    words = told.replace(",", " ").split()
    return int(words[words.index("deselected") - 1]) if "deselected" in words else 0


def _name(suite: Suite) -> str:
    return suite.package.split("[")[0].split("=")[0].split(">")[0]
