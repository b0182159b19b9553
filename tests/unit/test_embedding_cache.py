"""The cache in front of an embedder."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.cache import Cache
from agent_memory.core.lazy import lazy_property
from agent_memory.errors import ModelOutputInvalid, ModelUnavailable
from agent_memory.models.embedders.base import CachedEmbedder, Embedder
from agent_memory.models.embedders.vectors import embed_texts, unit_rows
from agent_memory.retrieval.vectors import Encoding, encoding_of


class CountingEmbedder:
    """Return the unit vector of (length, 1) for each text, and record the batches."""

    name = "counting"
    dimension = 2
    baseline = 0.0  # the dimension is known, so nothing is embedded to measure it

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.down = False

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.down:
            raise ModelUnavailable("down")
        self.batches.append(list(texts))
        return unit_rows([[len(text), 1] for text in texts])


def test_only_cache_misses_are_embedded_and_old_texts_are_evicted() -> None:
    """Wrong: a cached text is embedded again, or not the least recently used one goes."""
    inner = CountingEmbedder()
    cached = CachedEmbedder(inner)
    cached.embed(["a", "bb"])
    vectors = cached.embed(["ccc", "a", "dddd", "ccc"])
    assert inner.batches == [["a", "bb"], ["ccc", "dddd"]]
    assert np.array_equal(vectors, CountingEmbedder().embed(["ccc", "a", "dddd", "ccc"]))
    inner = CountingEmbedder()
    cached = CachedEmbedder(inner, size=2)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        cached.embed([text])
    assert inner.batches == [["a"], ["bb"], ["ccc"], ["bb"]]
    texts = ["a", "bb", "ccc", "dddd"]
    cached = CachedEmbedder(CountingEmbedder(), size=1)
    assert np.array_equal(cached.embed(texts), CountingEmbedder().embed(texts))


def test_callers_and_failures_do_not_change_the_cached_vectors() -> None:
    """Wrong: a caller who changes a returned array changes the cache."""
    cached = CachedEmbedder(CountingEmbedder())
    cached.embed(["a"])[:] = 7
    cached.embed(["a"])[:] = 7
    assert np.array_equal(cached.embed(["a"]), CountingEmbedder().embed(["a"]))
    inner = CountingEmbedder()
    cached = CachedEmbedder(inner)
    inner.down = True
    with pytest.raises(ModelUnavailable):
        cached.embed(["a"])
    inner.down = False
    assert cached.embed(["a"]).shape == (1, 2)
    inner = CountingEmbedder()
    vectors = CachedEmbedder(inner).embed([])
    assert vectors.shape == (0, 2)
    assert vectors.dtype == np.float32
    assert inner.batches == []
    cached: Embedder = CachedEmbedder(CountingEmbedder())
    assert (cached.name, cached.dimension) == ("counting", 2)


@given(st.lists(st.lists(st.text(max_size=5))), st.integers(1, 5))
def test_it_answers_as_the_inner_embedder_does(calls: list[list[str]], size: int) -> None:
    """Wrong: a mix of hits, misses and duplicates returns rows out of order."""
    inner = CountingEmbedder()
    cached = CachedEmbedder(inner, size=size)
    for texts in calls:
        expected = unit_rows([[len(text), 1] for text in texts]) if texts else np.zeros((0, 2))
        assert np.array_equal(cached.embed(texts), expected)
    assert all(batch for batch in inner.batches)


def test_empty_and_invalid_texts_never_reach_the_model() -> None:
    """Wrong: an empty or invalid text reaches the model, or a row of zeros gives NaN."""
    rows = unit_rows([[3, 4], [0, 0]])
    assert rows.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0, 0]]
    assert rows.dtype == np.float32
    seen: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        seen.append(texts)
        return [[float(len(text)), 0.0] for text in texts]

    vectors = embed_texts(["", "a", " \n", "b"], 2, embed)
    assert seen == [["a", "b"]]
    assert vectors.tolist() == [[0, 0], [1, 0], [0, 0], [1, 0]]
    assert embed_texts(["", " "], 2, embed).tolist() == [[0, 0], [0, 0]]
    assert len(seen) == 1
    seen: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        seen.append(texts)
        return [[1.0, 0.0] for _ in texts]

    embed_texts(["odd \ud83d end", "whole \U0001f600"], 2, embed)
    assert seen == [["odd ? end", "whole \U0001f600"]]
    assert CachedEmbedder(CountingEmbedder()).embed(["\ud83d"]).shape == (1, 2)


def test_concurrent_requests_for_a_text_embed_it_once() -> None:
    """Wrong: concurrent callers each embed the same text."""
    inner = CountingEmbedder()
    cached = CachedEmbedder(inner)
    asked, go, embed = threading.Event(), threading.Event(), inner.embed

    def slow(texts: Sequence[str]) -> np.ndarray:
        asked.set()
        assert go.wait(10)
        return embed(texts)

    inner.embed = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        for down, text in ((False, "up"), (True, "down")):
            inner.down = down
            asked.clear()
            go.clear()
            first = pool.submit(cached.embed, [text])
            assert asked.wait(10)
            others = [pool.submit(cached.embed, [text, f"not {text}"]) for _ in range(3)]
            while len(cached._pending) < 2:
                go.wait(0.001)
            go.set()
            errors = [one.exception() for one in (first, *others)]
            assert {type(error) for error in errors} == {ModelUnavailable if down else type(None)}
    assert sorted(text for batch in inner.batches for text in batch) == ["not up", "up"]
    assert cached._pending == {}


def test_an_encoder_that_returns_too_few_rows_raises_an_error() -> None:
    """Wrong: an encoder that returns too few rows raises a bare ValueError of `zip`."""

    class Short(CountingEmbedder):
        def encode(self, texts: Sequence[str]) -> list[Encoding]:
            return [encoding_of(row) for row in self.embed(texts)[1:]]

    cached = CachedEmbedder(Short())
    with pytest.raises(ModelOutputInvalid, match="'counting' returned 1 encodings for 2 texts"):
        cached.encode(["a", "bb"])
    assert cached._pending == {}


KEYS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, st.integers(0, 6))
    | st.tuples(st.sampled_from(["find", "drop", "get", "computed"]), KEYS, st.integers(1, 6))
    | st.tuples(st.just("clear"), KEYS, st.just(0)),
    max_size=40,
)


@given(STEPS, st.integers(0, 12), st.integers(0, 2))
def test_least_recently_used_go(steps: list[tuple[str, str, int]], most: int, least: int) -> None:
    """Wrong: the cache exceeds its limit, drops too much, or drops the entry used last."""
    cache: Cache[str, int] = Cache(most, lambda size: size, least)
    wanted: dict[str, int] = {}
    for step, key, size in steps:
        if step in ("find", "get", "drop"):
            assert getattr(cache, step)(key) == wanted.get(key)
        if step == "computed":
            assert cache.computed(key, lambda size=size: size) == wanted.get(key, size)
        if step == "clear":
            cache.clear()
            wanted.clear()
        elif step == "drop":
            wanted.pop(key, None)
        elif step == "put" or (step == "computed" and key not in wanted):
            if step == "put":
                assert cache.put(key, size) == size
            wanted.pop(key, None)
            wanted[key] = size
            while sum(wanted.values()) > most and len(wanted) > least:
                del wanted[next(iter(wanted))]
        elif step != "get" and key in wanted:
            wanted[key] = wanted.pop(key)
        assert list(cache.items()) == list(wanted.items())
        assert cache.total == sum(wanted.values())


@dataclass(frozen=True)
class _LazyItems:
    size: int

    @lazy_property
    def items(self) -> list[int]:
        """So many."""
        return [0] * self.size


def test_a_lazy_value_is_computed_once_for_each_object() -> None:
    """Wrong: each read makes a new value, or all objects share one."""
    one, other = _LazyItems(2), _LazyItems(3)
    assert one.__dict__ == {"size": 2}
    assert one.items is one.items
    assert (len(one.items), len(other.items)) == (2, 3)
    assert _LazyItems.items.__doc__ == "So many."


def test_computing_one_lazy_value_does_not_block_another() -> None:
    """Wrong: making one object's value blocks another object."""
    making, go_on = threading.Event(), threading.Event()

    class Slow:
        is_slow = False

        @lazy_property
        def value(self) -> bool:
            if self.is_slow:
                making.set()
                assert go_on.wait(30)
            return self.is_slow

    slow, quick = Slow(), Slow()
    slow.is_slow = True
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    try:
        assert making.wait(30)
        assert quick.value is False
    finally:
        go_on.set()
        thread.join()
    assert slow.value is True
