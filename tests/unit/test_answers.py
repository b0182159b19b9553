"""The choice and the order of hits that answer a question."""

from datetime import UTC, datetime

from agent_memory.core.records import Hit, Record
from agent_memory.retrieval.answers import answers
from agent_memory.retrieval.score import PARTS


def test_a_hit_that_is_unlike_the_question_by_itself() -> None:
    """Wrong: a statement that only its neighbours make relevant ends the recall in an error."""
    record = Record(
        "r", "ana", "s", 1, 1, "I sail on Sundays.", (1,), datetime(2024, 1, 1, tzinfo=UTC),
        {"role": "user"},
    )  # fmt: skip
    parts = tuple(-0.4 if name == "meaning" else 0.0 for name in PARTS)
    hit = Hit(record, 0.5, relevance=0.9, parts=parts)
    found = answers(
        "When do I sail?", [hit], 0.2, lambda stated: [], corrects=True, in_context=True
    )
    assert found == [hit]
