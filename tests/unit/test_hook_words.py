"""Counting the question's words in a message, without stemming the whole message."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.integrations.hooks.prompt import _counter
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.words import roots, words

_SOME = [
    *("deploy", "deployed", "Deployment", "redeploy", "port", "ports", "the", "of", "policies"),
    *("policy", "fly", "flies", "O'Brien", "user_id", "don't", "a-b", "x.py", "42"),
    *("caf\u00e9", "cafe"),
]


@given(st.lists(st.sampled_from(_SOME), min_size=1), st.lists(st.sampled_from(_SOME)))
def test_the_counts_are_those_of_all_words(prompt: list[str], text: list[str]) -> None:
    """Wrong: a word is not counted because only the question's words were stemmed."""
    asked = " ".join(prompt)
    root_of = roots(asked, ENGLISH)
    looked = list(dict.fromkeys(words(asked)))
    count = _counter(asked, [root_of.get(word, word) for word in looked], ENGLISH)
    counts, length = count(" ".join(text))
    expected = Counter(words(" ".join(text)))
    assert length == expected.total()
    assert {word: counts[word] for word in looked} == {word: expected[word] for word in looked}
