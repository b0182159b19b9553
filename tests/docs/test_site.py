"""The reference is up to date, the site has no dead link, and a release is checked as in CI."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml

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
def test_a_dead_link_fails_the_build(build: list[str | Path], tmp_path: Path, link: str) -> None:
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


CHECKS = ("twine check --strict", "check-wheel-contents")


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    path = ROOT / ".github" / "workflows" / "release.yml"
    return yaml.safe_load(path.read_text("utf-8"))


def test_only_the_publish_job_may_request_a_token(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in workflow["jobs"]["build"]
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "secrets." not in str(workflow)


@pytest.mark.parametrize("check", CHECKS)
def test_a_release_is_checked_as_in_ci(workflow: dict[str, Any], check: str) -> None:
    """Wrong: a release skips a check of CI. (`.ci/run` quotes the program's path.)"""
    name, _, options = check.partition(" ")
    assert f'/{name}" {options}'.strip() in (ROOT / ".ci" / "run").read_text("utf-8")
    build = workflow["jobs"]["build"]
    assert check in "\n".join(step.get("run", "") for step in build["steps"])
    assert workflow["jobs"]["publish"]["needs"] == "build"


def test_the_published_files_are_the_checked_files(workflow: dict[str, Any]) -> None:
    """Wrong: the published files are built again, or include the bill of materials."""
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    uploaded = {
        step["with"]["name"]: step["with"]["path"]
        for step in build["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact")
    }
    assert uploaded == {"dist": "dist", "sbom": "sbom"}
    downloads, publishes = publish["steps"]
    assert downloads["with"] == {"name": "dist", "path": "dist"}
    assert publishes == {"uses": "pypa/gh-action-pypi-publish@release/v1"}
