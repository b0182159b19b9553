"""Each promise of docs/guarantees.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def test_every_promise_names_a_test() -> None:
    """Wrong: a promise in docs/guarantees.md names no test."""
    promises = PAGE.split("\n### ")[1:]
    assert len(promises) > 60
    for promise in promises:
        assert re.search(r"^Tests: `", promise, re.MULTILINE), promise[:80]
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_exists(file: str, name: str) -> None:
    """Wrong: a test that a promise names was renamed or removed."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *(async )?def {name}\(|^{name}\b", text, re.MULTILINE)


FEATURES = re.findall(
    r"`((?:\w+/)+\w+\.py)(?: -k (\w+|\"[^\"]+\"))?`",
    (ROOT / "docs" / "features.md").read_text(encoding="utf-8"),
)


def test_every_feature_names_a_test() -> None:
    """Wrong: a row in docs/features.md names no test."""
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    assert all(".py" in row or row.startswith("| need") for row in rows)
    assert len(FEATURES) > 25


@pytest.mark.parametrize(("file", "words"), FEATURES)
def test_the_features_test_exists(file: str, words: str) -> None:
    """Wrong: the command in a row runs no test."""
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    named = re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)
    for word in words.strip('"').split(" or ") if words else ["test"]:
        assert any(word in name for name in named) or word in text, word
