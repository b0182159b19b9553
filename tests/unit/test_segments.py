"""Segments: search results, changes, and their bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.retrieval.features import Features
from agent_memory.retrieval.index import MOST_ROWS, Segment, SegmentIndex, in_segments
from agent_memory.retrieval.vectors import LEAST_LENGTH, Vectors
from agent_memory.stores.feature_bytes import bytes_of, segment_of
from agent_memory.stores.kernel.catalogs import Catalog, CatalogChange, Part, changed, opened
from agent_memory.testing.contract import for_words, units, worded

WIDE = LEAST_LENGTH
HEX = [f"{n:032x}" for n in range(1, 400)]
words = st.lists(st.sampled_from(["fox", "owl", "den", "red"]), max_size=5).map(" ".join)
texts = st.lists(words, min_size=1, max_size=12)


def features(said: Sequence[str], width: int = WIDE, seed: int = 1) -> Features:
    rows = units(len(said), width, seed, signed=True) if width else None
    return worded(said, rows)


def segment(ids: Sequence[str], said: Sequence[str], width: int = WIDE, seed: int = 1) -> Segment:
    return Segment.of(ids, features(said, width, seed), compact=True)


def found(*segments: Segment, depth: int = 99) -> dict[str, tuple[float, ...]]:
    width = segments[0].dimension if segments else 0
    query = for_words("fox red", units(1, width, 9, signed=True)[0] if width else None)
    best = SegmentIndex(width, segments).search(query, depth)
    rows = zip(best.names, best.scores.tolist(), best.parts.tolist(), strict=True)
    return {name: (score, *parts) for name, score, parts in rows}


def held(index: SegmentIndex) -> list[str]:
    return sorted(index.name(place) for place in range(len(index)))


def same(one: Segment, other: Segment) -> bool:
    return bytes_of(one) == bytes_of(other)


@settings(deadline=None)
@given(texts, st.sampled_from([0, 5, WIDE, 3 * WIDE]), st.booleans())
def test_bytes_are_what_was_written(said: list[str], width: int, own_ids: bool) -> None:
    """Wrong: a segment is read back with changes, or in another order."""
    ids = HEX[: len(said)] if own_ids else [f"é\x00\ud800 {n}" for n in range(len(said))]
    given_ = segment(ids, said, width)
    back = segment_of(bytes_of(given_))
    assert back.names.all() == ids
    assert found(back) == found(given_)
    assert same(back, given_)
    for got, wanted in zip(back.features().words, given_.features().words, strict=True):
        assert (got.ids == wanted.ids).all()
        assert (got.weights == wanted.weights).all()


@settings(deadline=None)
@given(texts, st.data())
def test_joined_parts_are_the_whole(said: list[str], data: st.DataObject) -> None:
    """Wrong: joining segments changes results or scores."""
    at = data.draw(st.integers(0, len(said)))
    some = features(said)
    parts = [
        Segment.of(HEX[since:until], some.part(since, until), compact=True)
        for since, until in ((0, at), (at, len(said)))
        if since < until
    ]
    whole = Segment.of(HEX[: len(said)], some, compact=True)
    joined = Segment.joined(parts)
    one, other = found(joined), found(*parts)
    assert one.keys() == other.keys()
    # cosines are rounded to six digits, up or down
    assert np.allclose([*one.values()], [other[name] for name in one], rtol=1e-5, atol=2e-6)
    if all(part.meaning.rows.dtype == np.int8 for part in (*parts, whole)):
        assert same(joined, whole)


@settings(deadline=None)
@given(texts, st.data())
def test_nothing_is_left_of_what_is_taken_out(said: list[str], data: st.DataObject) -> None:
    """Wrong: a removed record's id, vector or words stay, or others are removed."""
    gone = data.draw(st.sets(st.integers(0, len(said) - 1)))
    some = features(said)
    left = [place for place in range(len(said)) if place not in gone]
    whole = Segment.of(HEX[: len(said)], some, compact=True)
    rest = whole.without({HEX[place] for place in gone})
    assert rest.names.all() == [HEX[place] for place in left]
    if left and whole.meaning.rows.dtype == np.int8:
        assert same(rest, Segment.of([HEX[place] for place in left], some.at(left), compact=True))


def test_damaged_segment_bytes_are_refused() -> None:
    """Wrong: a damaged segment gives wrong results, or ends a search."""
    data = bytes_of(segment(HEX[:3], ["fox", "owl", "den fox"]))
    for end in (0, 3, 40, 90, len(data) - 16):
        assert opened(data[:end]) is None
    assert opened(None) is None
    assert opened(b"AMSG\x03" + data[5:]) is None
    refused = 0
    for at in range(4, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        read = opened(bytes(broken))
        refused += read is None
        if read is not None:
            assert len(found(read)) <= 3
    assert refused > 5


def test_rounding_a_rounded_vector_changes_nothing() -> None:
    """Wrong: rounding again changes vectors, so each move between stores loses precision."""

    def rounded(some: Features) -> Features:
        return Segment.of([str(n) for n in range(50)], some, compact=True).features()

    given_ = features([f"fox {n}" for n in range(50)], 200)
    once = rounded(given_)
    halved = replace(once, meaning=once.meaning.astype(np.float16).astype(np.float32))
    for again in (rounded(once), rounded(halved)):
        assert (again.meaning == once.meaning).all()
    assert np.abs(once.meaning - given_.meaning).max() < np.abs(given_.meaning).max() / 250
    rows = units(9, 3 * WIDE, signed=True)
    for kept in (Features.of_vectors(rows), worded(["fox"] * 8 + [""], rows)):
        assert (Segment.of(HEX[:9], kept, compact=True).features().meaning == rows).all()


@pytest.mark.parametrize("row", [[0.0] * WIDE, [1e-9] * WIDE, [1e9] * WIDE, [3e38] * WIDE])
def test_vectors_of_any_length_are_rounded_precisely(row: list[float]) -> None:
    """Wrong: a vector that is not of unit length becomes zeros or NaN."""
    matrix = np.array([row, units(1, WIDE)[0]], np.float32)
    kept = Vectors.of(matrix, True).floats()
    assert np.allclose(kept, matrix, rtol=1e-2, atol=1e-2 * float(np.abs(matrix[1]).max()))


def test_many_records_are_split_into_segments_within_limits() -> None:
    """Wrong: a segment exceeds its limits, or loses records."""
    some = features(["fox"] * 5_000, 0)
    ids = [f"{n}" for n in range(5_000)]
    assert max(part.records for part in in_segments(ids, some)) <= MOST_ROWS
    assert held(SegmentIndex(0).extended(ids, some)) == sorted(ids)
    long = features(["fox"] * 100, 8_000)
    sizes = [len(bytes_of(one)) for one in in_segments(HEX[:100], long)]
    assert len(sizes) > 1
    assert max(sizes) < 3 * 2**20
    upper = HEX[0].upper().replace("0", "A")
    for ids in (HEX[:300], [*HEX[:3], "short"], [upper, HEX[1]]):
        index = SegmentIndex(0).extended(ids, features(["fox"] * len(ids), 0))
        assert held(index) == sorted(index.search(for_words("fox"), 999).names) == sorted(ids)
        left = index.segments[0].without([*ids[::7], "other", HEX[-1], "é" * 32])
        assert left.names.all() == [one for one in ids if one not in ids[::7]]


class StoredSegments:
    """An owner's segments in a store, and their expected content."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.bodies: dict[int, bytes] = {}
        self.there: dict[int, str] = {}
        self.written = 0

    def change(self, gone: Sequence[int], said: Sequence[str]) -> CatalogChange:
        numbers = {number: self.there.pop(number) for number in gone}
        first = self.catalog.next
        new = {first + n: f"{first + n}" for n in range(len(said))}
        some = [*in_segments(list(new.values()), features(said, 0))] if said else []
        change = changed(self.catalog, numbers, some, self.read)
        self.there |= new
        for name in change.dropped:
            del self.bodies[name]
        self.bodies |= change.written
        self.written += sum(map(len, change.written.values()))
        self.catalog = Catalog.of(change.catalog.text)
        return change

    def read(self, names: Sequence[int]) -> Mapping[int, bytes]:
        return {name: self.bodies[name] for name in names if name in self.bodies}

    def check(self) -> None:
        """Assert that every record is there once, within the catalog's numbers."""
        assert self.bodies.keys() == set(self.catalog.names)
        found: list[str] = []
        last = 0
        for part in self.catalog.parts:
            one = segment_of(self.bodies[part.name])
            ids = one.names.all()
            assert last < part.first <= part.last < self.catalog.next
            assert all(part.first <= int(name) <= part.last for name in ids)
            assert (part.records, part.size) == (len(ids), len(self.bodies[part.name]))
            assert 0 < part.records <= MOST_ROWS
            found += ids
            last = part.last
        assert found == list(self.there.values())


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 60), st.sets(st.integers(0, 10**6), max_size=9))))
def test_a_catalog_lists_what_there_is(steps: list[tuple[int, set[int]]]) -> None:
    """Wrong: some order of writes leaves a record in no segment, in two, or not removed."""
    kept = StoredSegments()
    for count, picks in steps:
        numbers = list(kept.there)
        gone = sorted({numbers[pick % len(numbers)] for pick in picks}) if numbers else []
        kept.change(gone, ["fox owl"] * count)
        kept.check()


def test_single_appends_do_not_create_many_segments() -> None:
    """Wrong: single appends give a user thousands of segments."""
    kept = StoredSegments()
    once = len(bytes_of(segment(["1"], ["fox"], 0)))
    for n in range(3_000):
        kept.change([], ["fox"])
        assert len(kept.catalog.parts) <= 8 * 4 + n // (MOST_ROWS // 2), n
    kept.check()
    assert kept.written < 3 * 3_000 * once
    for first in range(1, 3_001, 50):
        kept.change([*range(first, first + 49)], [])
    kept.check()
    assert len(kept.there) == 60
    assert len(kept.catalog.parts) <= 8


def test_a_small_append_does_not_rewrite_large_segments() -> None:
    """Wrong: each append rewrites the largest segments."""
    kept = StoredSegments()
    for _ in range(25):
        kept.change([], ["fox"] * 900)
    large = {part.name for part in kept.catalog.parts if part.records > 500}
    for _ in range(60):
        change = kept.change([], ["fox"])
        assert not large & {*change.dropped}
    kept = StoredSegments()
    joining = [bool(kept.change([], ["fox"] * 4).dropped) for _ in range(320)]
    assert sum(joining) <= 320 // 8


def test_damaged_segments_and_catalogs_are_reported() -> None:
    """Wrong: one damaged segment blocks all writes and deletions."""
    kept = StoredSegments()
    for _ in range(2):
        kept.change([], ["fox"] * 600)
    first, second = kept.catalog.parts
    kept.bodies[first.name] = b"broken"
    for _ in range(20):
        kept.change([], ["fox"] * 100)
    kept.change([1, 2, 601], [])
    assert kept.catalog.parts[0] == first._replace(records=598)
    assert second.name not in kept.catalog.names
    kept.change([*range(3, 601)], [])
    kept.check()
    for text in ("", "{", "[1]", "[1, [[1, 2]]]", "[1, [[1, 2, 3, 4, null]]]"):
        with pytest.raises(ValueError, match="damaged"):
            Catalog.of(text)
    full = Catalog(7, (Part(2**61, 1, 6, 5, 90),))
    assert Catalog.of(full.text) == full
