"""What is only a mood or a courtesy, and what sounds like one and is not."""

from __future__ import annotations

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.ltm_blocks.extractive.history.findings import Candidate, is_chatter
from agent_memory.ltm_blocks.extractive.history.sources import sources
from tests.unit.claiming import DAY

_SAID = [Message(role="user", name=name, content="Thanks!") for name in ("Caroline", "Melanie")]
SHOWN = sources([Entry("s", n, one, 1, n, "t", DAY) for n, one in enumerate(_SAID, 1)], ["user"])


def finding(text: str, **fields: object) -> Candidate:
    return Candidate(text, "user", "other", 1, "Thanks!", None, None, 1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Caroline appreciates Melanie's support.",
        "Melanie is glad to hear Caroline's news.",
        "Caroline thinks Melanie is amazing.",
        "The user is excited about the journey.",
        "Caroline agrees that relaxing is key.",
        "Caroline feels thankful for the kind words of her friend.",
    ],
)
def test_a_mood_or_a_courtesy_is_no_fact(text: str) -> None:
    """Wrong: half of what is remembered says nothing."""
    assert is_chatter(finding(text), SHOWN)


@pytest.mark.parametrize(
    "text",
    [
        "Caroline is excited about her trip to Rome.",
        "Melanie enjoys pottery.",
        "Caroline feels safe at the LGBTQ centre.",
        "Caroline is proud of her son.",
        "Melanie hopes to adopt a child.",
        "Caroline thinks of 3 things.",
        "Caroline has a good friend.",
        "Caroline moved.",
        "Caroline freut sich auf den Umzug.",
    ],
)
def test_what_tells_something_is_kept(text: str) -> None:
    """Wrong: what somebody wants, likes or is proud of is lost with the courtesies."""
    assert not is_chatter(finding(text), SHOWN)


def test_what_changes_a_known_fact_or_is_a_plan_is_kept() -> None:
    """Wrong: "is not happy any more" is no news."""
    assert not is_chatter(finding("Caroline is happy.", relation="end", known=("x",)), SHOWN)
    assert not is_chatter(finding("Caroline looks forward to seeing friends.", kind="plan"), SHOWN)
