"""Values that JSON does not preserve, encoded so that they are."""

import json
from math import isnan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.formats.exact import read, written

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.binary(),
    st.text(st.characters(exclude_categories=[])), st.just("\u0001exact"),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda some: st.one_of(
        st.lists(some, max_size=4),
        st.lists(some, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.binary()), some, max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_is_read_again(value: Any) -> None:
    """Wrong: a value comes back changed, or cannot be written as JSON."""
    assert read(json.loads(json.dumps(written(value), allow_nan=False))) == value


def test_odd_values() -> None:
    """Wrong: infinity, NaN or a huge number makes a write fail."""
    for value in (
        float("inf"),
        float("-inf"),
        2**20_000,
        {1: {2: b""}},
        ["\u0001exact", "int", "z"],
    ):
        assert read(written(value)) == value
    assert repr(read(written(-0.0))) == "-0.0"
    assert isnan(read(written(float("nan"))))
    assert read(written(object))
