"""Search of short texts by words and meaning, and the order of hits that answer a question."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.records import Hit, Record
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.answers import answers
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import PARTS
from agent_memory.retrieval.statements import leans
from agent_memory.retrieval.texts import TextIndex
from agent_memory.retrieval.vectors import encoding_of

TEXTS = ["Likes green tea", "Has a dog named Rex", "Works at Acme in Oslo", "Is from Norway"]
ROWS = [encoding_of(row) for row in np.eye(5, dtype=np.float32)[:4]]  # each has its own direction


def by_words(texts: Sequence[str]) -> TextIndex:
    return TextIndex(texts, NoEmbedder().encode(texts))


def asking(question: str, *meaning: float) -> Query:
    return Query.of(question, encoding_of(np.array(meaning, np.float32)))


def test_words_or_meaning_make_a_text_relevant() -> None:
    """Wrong: a text is not found by words alone, or by meaning alone."""
    index = TextIndex(TEXTS, ROWS)
    words = index.relevance(asking("green tea", 0.3, 0, 0, 0, 0.95))
    meaning = index.relevance(asking("xyzzy", 0, 1, 0, 0, 0))
    assert words.argmax() == 0
    assert meaning.argmax() == 1
    for found in (words, meaning):
        assert sorted(found)[-1] > 0.2 > sorted(found)[-2]
    relevance = by_words(["Oslo is cold", "Oslo is dear", "Oslo has trams"]).relevance(
        asking("trams in Oslo")
    )
    assert relevance[0] == relevance[1] < relevance[2]


def test_without_vectors_or_texts() -> None:
    """Wrong: without vectors nothing is found by words, or an empty index raises."""
    for index in (by_words(TEXTS), TextIndex(TEXTS, ROWS)):
        for meaning in ((), (1, 0, 0)):
            found = index.relevance(asking("a dog named Rex", *meaning))
            assert found.argmax() == 1
            assert found[1] > 0.5
            assert not index.relevance(asking("tomorrow", *meaning)).any()
    assert by_words([]).relevance(asking("tea", 1, 0)).shape == (0,)
    index = by_words(["", "  ", "tea"])
    assert index.relevance(asking("tea")).nonzero()[0].tolist() == [2]
    assert not index.relevance(asking("")).any()


words = st.sampled_from(["tea", "dog", "Oslo", "Acme", "green", "named"])
phrases = st.lists(words, max_size=4).map(" ".join)


@given(st.lists(phrases, max_size=8), phrases)
def test_relevance_is_a_probability(texts: Sequence[str], question: str) -> None:
    """Wrong: relevance lies outside 0 to 1, or a text without the question's words has some."""
    relevance = by_words(texts).relevance(asking(question))
    assert relevance.shape == (len(texts),)
    assert ((relevance >= 0) & (relevance <= 1)).all()
    asked = set(question.split())
    assert set(relevance.nonzero()[0].tolist()) == {
        place for place, text in enumerate(texts) if asked & set(text.split())
    }


def hit_of(text: str, score: float, **fields: Any) -> Hit:
    day = datetime(2024, 1, 1, tzinfo=UTC)
    record = Record(text, "ana", "s", 1, 1, text, (1,), day, {"role": "user"})
    return Hit(record, score, relevance=0.9, **fields)


def test_a_hit_that_is_unlike_the_question_by_itself() -> None:
    """Wrong: a statement that only its neighbours make relevant ends the recall in an error."""
    parts = tuple(-0.4 if name == "meaning" else 0.0 for name in PARTS)
    hit = hit_of("I sail on Sundays.", 0.5, parts=parts)
    options = {"corrects": True, "in_context": True}
    assert answers("When do I sail?", [hit], 0.2, lambda stated: [], **options) == [hit]


def test_a_search_for_a_code_finds_the_question_with_it_first() -> None:
    """Wrong: questions that name other codes come first, since only this one repeats the query."""
    texts = ["Question 7: where is parcel P-7?", "Question 8: where is parcel P-8?"]
    hits = [hit_of(text, 1 - at / 10, words=1.0 - at) for at, text in enumerate(texts)]
    found = answers("P-7", hits, 0.2, lambda stated: [], corrects=True, in_context=False)
    assert found[0] == hits[0]


def test_a_short_message_corrects_the_statement_before_it() -> None:
    """Wrong: a correction without a subject is missed, or a new subject counts as one."""
    statement, question = "My dentist is in room 12.", "Where is my dentist?"
    for text in ("No, room 14.", "14, sorry!", "It moved to room 14."):
        assert leans(text, statement, (), question)
    for text in ("I have a budget of 900 euros.", "My room is number 7.", "Thanks!"):
        assert not leans(text, statement, (), question)
