"""The features of turns, and the index in memory, compared with a full scan, and cached indexes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.core.records import Record
from agent_memory.core.transcript import Part
from agent_memory.errors import StoreUnavailable
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.features import (
    ASSISTANT,
    PLACE,
    SPEAKER,
    USER,
    Features,
    Terms,
    Turn,
    Written,
    term_of,
    weighted,
)
from agent_memory.retrieval.index import Segment, SegmentIndex
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import informativeness
from agent_memory.retrieval.vectors import TOKEN, Tokens
from agent_memory.stores.damage import noted
from agent_memory.stores.kernel import indexes
from agent_memory.stores.kernel.catalogs import Catalog, changed
from agent_memory.stores.kernel.contract import Document
from agent_memory.stores.kernel.indexes import Indexes, records_of
from agent_memory.testing.contract import for_words, record
from agent_memory.testing.vectors import encoded

DIMENSION = 4
texts = st.lists(st.dictionaries(st.integers(0, 9), st.integers(1, 8), max_size=5), max_size=8)
questions = st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=3), max_size=4)


def terms(text: dict[int, int]) -> Terms:
    return Terms(np.array(list(text), np.uint32), np.array(list(text.values()), np.float32))


def features(some: Sequence[dict[int, int]], seed: int) -> Features:
    rows = np.random.default_rng(seed).normal(size=(len(some), DIMENSION)).astype(np.float32)
    return replace(Features.of_words([terms(text) for text in some]), meaning=rows)


def asking(words: Sequence[set[int]]) -> Query:
    vector = np.random.default_rng(99).normal(size=DIMENSION).astype(np.float32)
    return Query(vector, tuple(tuple(sorted(word)) for word in words))


@settings(deadline=None)
@given(st.lists(texts, max_size=5), questions)
def test_words_and_cosines_are_those_of_the_formula(
    batches: list[list[dict[int, int]]], words: list[set[int]]
) -> None:
    """Wrong: a record that is added later gets a wrong score, or changes another's."""
    index, every = SegmentIndex(DIMENSION), dict[str, dict[int, int]]()
    rows: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        names, made = [f"{number}-{n}" for n in range(len(batch))], features(batch, number)
        index = index.extended(names, made)
        every |= dict(zip(names, batch, strict=True))
        rows |= dict(zip(names, made.meaning, strict=True))
    query = asking(words)
    found = index.search(query, 99)
    assert set(found.names) == set(every)
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
    best = {
        name: [max((text.get(number, 0) for number in word), default=0) for word in query.words]
        for name, text in every.items()
    }
    holding = np.array([sum(row[at] > 0 for row in best.values()) for at in range(len(words))])
    worth = informativeness(len(every), holding) if words else np.zeros(0)
    for name, cosine, bm25 in zip(found.names, found.cosines, found.bm25, strict=True):
        assert cosine == pytest.approx(float(rows[name] @ query.meaning), abs=1e-4)
        assert bm25 == pytest.approx(float(np.dot(best[name], worth)), rel=1e-3, abs=1e-5)


def test_an_extended_index_does_not_change_the_original() -> None:
    """Wrong: a running search sees records that are added meanwhile."""
    text = {1: 1}
    first = SegmentIndex(DIMENSION).extended(["a"], features([text], 1))
    second = first.extended(["b", "c"], features([text, text], 2))
    other = first.extended(["d"], features([text], 3))
    question = Query(words=((1,),))
    assert [sorted(i.search(question, 9).names) for i in (first, second, other)] == [
        ["a"],
        ["a", "b", "c"],
        ["a", "d"],
    ]
    assert [len(first), len(second), len(other)] == [1, 3, 2]
    assert second.nbytes > first.nbytes > 0
    assert SegmentIndex(0).search(asking([{1}]), 9).names == []
    index = SegmentIndex(DIMENSION).extended(["a"], features([{1: 1}], 1))
    assert index.search(Query(), 9).names == []
    assert index.search(Query(words=((1,),)), 0).names == []


@given(texts, texts, questions, st.integers(0, 20), st.integers(0, 3))
def test_what_is_pending_ranks_as_if_it_were_stored(
    stored: list[dict[int, int]],
    waiting: list[dict[int, int]],
    words: list[set[int]],
    limit: int,
    twice: int,
) -> None:
    """Wrong: a pending record scores otherwise than after it is absorbed, or is found twice."""
    names = [f"s{n}" for n in range(len(stored))]
    more = [f"w{n}" for n in range(len(waiting))]
    query = asking(words)
    index = SegmentIndex(DIMENSION).extended(names, features(stored, 1))
    others = SegmentIndex(DIMENSION).extended(more, features(waiting, 2))
    found = index.search(query.with_pending(others, {}), limit)
    expected = index.extended(more, features(waiting, 2)).search(query, limit)
    assert found.names == expected.names
    assert np.allclose(found.scores, expected.scores, rtol=1e-4)
    again = others.extended(names[:twice], features(stored[:twice], 1))
    every = index.search(query.with_pending(again, {}), 99).names
    assert len(every) == len(set(every))


DAY = datetime(2023, 5, 8, tzinfo=UTC)


def turn(text: str, speaker: str = "Ann", seq: int = 1, part: Part = Part(0, 1, 0)) -> Turn:  # noqa: B008
    return Turn(speaker, text, DAY, True, part, "s", seq)


def test_words_speakers_and_days_are_features() -> None:
    """Wrong: a repeated word has double weight, or speaker and day are missing."""
    a, b = term_of("a"), term_of("b")
    found = weighted([Written((a, b), (), 2), Written((a,), (), 1)], 6.0)
    damping = 0.9 * (0.25 + 0.75 * 3 / 6)
    assert found.ids.tolist() == [a, b]
    assert found.weights == pytest.approx([1.9 * 2 / (2 + damping), 1.9 / (1 + damping)], rel=1e-3)
    assert len(weighted([], 6.0).ids) == 0
    assert term_of("lake") == 2725253387
    query = Query.of("The lakes, and a LAKE!", NoEmbedder().encode_query(""))
    assert query.words == ((term_of("lake"),),)
    features = Features.of_turns([turn("Lasagne?"), turn("word " * 40, "Ben", 2)], encoded)
    ids = {int(number) for number in features.words[0].ids}
    named = {f"{SPEAKER}ann", USER, "lasagn", "may", "2023"}
    assert {term_of(word) for word in named} <= ids
    assert features.places["seq"].tolist() == [1, 2]
    assert features.places["words"].tolist() == [1, 40]
    assert features.places["asks"].tolist() == [100, 0]
    assert len(features.tokens.of_record(1)) == 41


def test_a_question_is_mapped_to_speakers_and_word_pieces() -> None:
    """Wrong: a name or "my" in a question is not mapped to a speaker."""

    def meant(question: str) -> set[int]:
        return set(Query.of(question, NoEmbedder().encode_query("")).speakers)

    assert term_of(f"{SPEAKER}ann") in meant("What did Ann say?")
    own = ("What is my size?", "Do you remember where I live?", "Where do I live? You know it.")
    for question in (*own, "What did I tell you?", "Which size do I have? You had it."):
        assert term_of(USER) in meant(question)
    assert term_of(USER) not in meant("What did you tell me?")
    for question in ("What was the title you came up with?", "what did u recommend for my back"):
        assert term_of(ASSISTANT) in meant(question)
    for other in ("What is the size?", "Can you tell me a joke?", "What did I tell you?"):
        assert term_of(ASSISTANT) not in meant(other)
    for request in ("Can you tell me a joke?", "Can you fix my code?"):
        assert term_of(USER) not in meant(request)
    question = "Where is the old harbour-master of Oslo?"
    query = Query.of(question, encoded([question])[0])
    said = [term_of(stem) for stem in ("old", "harbour", "master", "oslo")]
    assert [word[0] for word in query.words] == said
    assert query.owners.tolist() == [0, 1, 3]  # one piece for the hyphenated word


@given(st.lists(st.integers(0, 4), max_size=9), st.data())
def test_pieces_stay_with_their_records(sizes: list[int], data: st.DataObject) -> None:
    """Wrong: choosing or joining records mixes up their word pieces."""
    rows = [np.full((size, TOKEN), at + 1, np.int8) for at, size in enumerate(sizes)]
    tokens = Tokens.of(rows)
    places = st.lists(st.integers(0, len(sizes) - 1), max_size=6) if sizes else st.just([])
    chosen = data.draw(places)
    some = Tokens.joined([tokens.at(chosen), tokens])
    for at, place in enumerate([*chosen, *range(len(sizes))]):
        assert np.array_equal(some.of_record(at), rows[place])
    best = some.best(np.full((1, TOKEN), 1, np.int8))
    wanted = [sizes[place] > 0 for place in [*chosen, *range(len(sizes))]]
    assert (best[:, 0] > 0).tolist() == wanted


def test_neighbours_and_roles() -> None:
    """Wrong: neighbours come from another session, or a role's name becomes part of the text."""
    places = np.zeros(9, PLACE)
    places["session"] = [1, 1, 1, 1, 2, 2, 0, 0, 1]
    places["seq"] = [4, 1, 2, 3, 1, 2, 0, 0, 9]
    features = replace(Features.of_vectors(np.ones((9, 2))), places=places)
    index = SegmentIndex(2).extended([*"abcdefghi"], features)
    assert index.with_neighbours(np.array([1])).tolist() == [1, 2, 3]
    assert index.with_neighbours(np.array([0])).tolist() == [2, 3, 0, 8]
    assert index.with_neighbours(np.array([6, 5])).tolist() == [6, 4, 5]
    assert index.with_neighbours(np.array([], np.intp)).tolist() == []
    said = [str(turn("The lake", speaker)) for speaker in ("user", "assistant", "Ann")]
    assert said == ["The lake", "The lake", "Ann: The lake"]
    features = Features.of_turns([turn("The lake")], NoEmbedder().encode)
    assert (len(features), features.dimension) == (1, 0)
    query = Query.of("lake", NoEmbedder().encode_query("lake"))
    assert query.words[0][0] in features.words[0].ids


def stored(count: int, at: int = 0) -> tuple[list[Record], Features]:
    rows = np.random.default_rng(at).normal(size=(count, 8)).astype(np.float32)
    return [record(f"{at + n}") for n in range(count)], Features.of_vectors(rows)


class Fixed:
    """A fixed number of records under one version."""

    def __init__(self, version: int, count: int) -> None:
        self.version = version
        self.ids = [f"{n}" for n in range(count)]
        segment = Segment.of(self.ids, stored(count)[1])
        self.change = changed(Catalog(), {}, [segment], lambda names: {})
        self.asked = 0

    def catalog(self) -> Document:
        return Document("", "", version=self.version, body=self.change.catalog.text)

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        self.asked += len(names)
        return {name: self.change.written[name] for name in names}

    def names(self) -> Sequence[int]:
        return list(self.change.written)

    def numbers(self) -> Mapping[str, int]:
        return {name: at for at, name in enumerate(self.ids, 1)}


def records(ids: Sequence[str]) -> dict[str, Record]:
    return {name: record(name, text=f"fox {name}") for name in ids}


def followed(kept: Indexes, owner: str, version: int, count: int) -> tuple[SegmentIndex, int]:
    """Return an index, and the number of segment reads for it."""
    source = Fixed(version, count)
    return kept.follow(("v", owner), source, records), source.asked


def test_an_index_is_reused_until_its_version_changes() -> None:
    """Wrong: an index is read again without a change, or is used after one."""
    kept = Indexes()
    index, asked = followed(kept, "ann", 7, 3)
    assert (len(index), asked) == (3, 1)
    assert followed(kept, "ann", 7, 3) == (index, 0)
    assert followed(kept, "bob", 7, 3)[1] == 1
    assert followed(kept, "ann", 8, 4)[1] == 1


def test_cached_records_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: each search reads its records again, or cached records grow without limit."""
    kept = Indexes()
    index, _ = followed(kept, "ann", 7, 5)
    stored_now = {name: record(name) for name in "0123"}  # "4" was deleted
    asked: list[list[str]] = []

    def read(ids: Sequence[str]) -> dict[str, Record]:
        asked.append(list(ids))
        return {name: stored_now[name] for name in ids if name in stored_now}

    assert set(records_of(index, ["0", "1"], read)) == {"0", "1"}
    assert set(records_of(index, ["0", "1", "2", "4"], read)) == {"0", "1", "2"}
    assert asked == [["0", "1"], ["2", "4"]]
    monkeypatch.setattr(indexes, "_MOST_RECORDS", 3)
    assert set(records_of(index, ["0", "3"], read)) == {"0", "3"}
    assert set(index.records) == {"3"}


def test_an_index_that_is_too_large_logs_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: an index that is too large causes no warning, or one at each search."""
    monkeypatch.setattr(indexes, "MOST_BYTES", 1_000)
    kept = Indexes()
    with caplog.at_level(logging.WARNING):
        for version in range(3):
            followed(kept, "user:ann", version, 50)
    (told,) = caplog.messages
    assert "50 records" in told
    assert "Qdrant" in told
    assert "ann" not in told


class Shifting:
    """A source that changes a given number of times, each time it is read."""

    def __init__(self, changes: int) -> None:
        self.left = changes
        self.state = Catalog()
        self.bodies: dict[int, bytes] = {}
        self.version = 0
        self.asked = 0
        for number in range(3):
            self.change(f"{number}")

    def change(self, name: str, gone: str | None = None) -> None:
        _, features = stored(1, len(name))
        numbers = {int(gone) + 1: gone} if gone else {}
        change = changed(self.state, numbers, [Segment.of([name], features)], self.segments)
        self.bodies = {n: b for n, b in self.bodies.items() if n not in change.dropped}
        self.bodies |= change.written
        self.state, self.version = change.catalog, self.version + 1

    def catalog(self) -> Document:
        found = Document("", "", version=self.version, body=self.state.text)
        if self.left:
            self.left -= 1
            self.change(f"new{self.left}", f"{2 - self.left}" if self.left < 3 else None)
        return found

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        self.asked += len(names)
        return {name: self.bodies[name] for name in names if name in self.bodies}

    def names(self) -> Sequence[int]:
        return list(self.bodies)

    def numbers(self) -> Mapping[str, int]:
        return {"0": 1, "1": 2, "2": 3}


def held(index: SegmentIndex) -> set[str]:
    return {index.name(place) for place in range(len(index))}


def test_a_source_that_changes_while_it_is_read_is_read_again() -> None:
    """Wrong: a search sees half of a concurrent change."""
    kept, source = Indexes(), Shifting(3)
    with noted() as damaged:
        found = [kept.follow(("v", "ann"), source, records) for _ in range(4)]
    assert damaged == []
    assert held(found[0]) in ({"1", "2", "new2"}, {"2", "new2", "new1"})
    assert held(found[2]) == {"new0", "new1", "new2"}
    assert found[3] is found[2]
    asked = source.asked
    source.change("more")
    assert held(kept.follow(("v", "ann"), source, records)) >= {"more", "new1"}
    assert source.asked == asked + 1


def test_a_search_gives_up_on_a_source_that_always_changes() -> None:
    """Wrong: a search waits forever for a missing segment, or for a source that always changes."""
    kept, source = Indexes(), Shifting(0)
    del source.bodies[source.state.names[1]]
    with noted() as damaged:
        index = kept.follow(("v", "ann"), source, records)
    assert held(index) == {"0", "1", "2"}
    assert index.search(for_words("fox 1"), 9).names == ["1"]
    assert [error.damage and error.damage.kind for error in damaged] == ["vector"]
    source = Shifting(0)

    def segments(names: Sequence[int]) -> Mapping[int, bytes]:
        source.version += 1
        return {}

    source.segments = segments  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="Try again"):
        Indexes().follow(("v", "ann"), source, records)
