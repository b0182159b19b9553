"""The release workflow: it checks what CI checks, and publishes without a stored secret."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHECKS = ("twine check --strict", "check-wheel-contents")


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    path = ROOT / ".github" / "workflows" / "release.yml"
    return yaml.safe_load(path.read_text("utf-8"))


def test_only_the_job_that_publishes_may_ask_for_a_token(workflow: dict[str, Any]) -> None:
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


def test_what_is_published_is_what_was_checked(workflow: dict[str, Any]) -> None:
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
