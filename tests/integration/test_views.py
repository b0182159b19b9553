"""Contexts of random histories; `AGENT_MEMORY_VIEWS=100000` plays more of them."""

from __future__ import annotations

import os

import pytest

from tests.integration.random_histories import play

COUNT = int(os.environ.get("AGENT_MEMORY_VIEWS", "150"))


@pytest.mark.parametrize("part", range(5))
def test_random_histories(part: int) -> None:
    """Wrong: a context above its budget, half of a pair, without the newest message or the question
    of its turn, that begins with no user message, or that lost something without a word; or a
    compaction with nothing new."""
    share = COUNT // 5
    assert [wrong for seed in range(part * share, (part + 1) * share) for wrong in play(seed)] == []


@pytest.mark.parametrize("seed", [12889])
def test_histories_that_were_shown_wrongly(seed: int) -> None:
    """Wrong: what a long run found comes back. Here: a log that begins with calls, of which one was
    left out, so that the context began with the assistant."""
    assert play(seed) == []
