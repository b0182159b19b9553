"""The bounded cache."""

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.cache import Cache

KEYS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.tuples(st.just("put"), KEYS, st.integers(0, 6))
    | st.tuples(st.sampled_from(["find", "drop", "get", "computed"]), KEYS, st.integers(1, 6))
    | st.tuples(st.just("clear"), KEYS, st.just(0)),
    max_size=40,
)


@given(STEPS, st.integers(0, 12), st.integers(0, 2))
def test_the_least_recently_used_give_way(
    steps: list[tuple[str, str, int]], most: int, least: int
) -> None:
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
