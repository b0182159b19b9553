"""Each promise of docs/guarantees.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def test_every_promise_names_a_test() -> None:
    """Wrong: something is promised that no test holds."""
    promises = PAGE.split("## Recipes")[0]
    for promise in re.split(r"\n\n(?=\*\*|`delete`|A call)", promises)[1:]:
        assert re.search(r"^Tests: `", promise, re.MULTILINE), promise[:80]
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_exists(file: str, name: str) -> None:
    """Wrong: a test was renamed or removed, and the promise rests on nothing."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *(async )?def {name}\(|^{name}\b", text, re.MULTILINE)
