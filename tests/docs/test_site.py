"""The reference is up to date, and the pages build a site without a dead link."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_reference_is_not_stale(tmp_path: Path) -> None:
    """Wrong: a docstring or an option changed, and `make reference` was not run."""
    done = python(DOCS / "make_reference.py", tmp_path)
    assert done.returncode == 0, done.stderr
    made, kept = (
        {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}
        for folder in (tmp_path, DOCS / "reference")
    )
    assert made == kept, "run: make reference"


@pytest.fixture
def build(tmp_path: Path) -> list[str | Path]:
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    return ["-m", "sphinx", *strict, "-d", tmp_path / "cache"]


def test_the_site_is_built_without_a_warning(build: list[str | Path], tmp_path: Path) -> None:
    """Wrong: `make docs` fails, or warns of a dead link or a page without an index."""
    done = python(*build, DOCS, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    front = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    for group in ("Start", "Concepts", "Guides", "Reference", "Operations", "Contributing"):
        assert f">{group}<" in front
    start = (tmp_path / "site" / "start.html").read_text(encoding="utf-8")
    assert "AsyncAgentMemory" in start


@pytest.mark.parametrize("link", ["gone.md", "page.md#no-such-heading", "../examples/gone.py"])
def test_a_dead_link_is_seen(build: list[str | Path], tmp_path: Path, link: str) -> None:
    """Wrong: the build passes with a dead link."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8"))
    copytree(DOCS / "static", pages / "static")
    (pages / "README.md").write_text("# Index\n\n## Start\n\n- [Page](page.md): it.\n")
    (pages / "page.md").write_text(f"# Page\n\nSee [there]({link}).\n")
    done = python(*build, pages, tmp_path / "site")
    assert done.returncode != 0
    assert link.split("#")[-1].removesuffix(".md") in done.stderr
