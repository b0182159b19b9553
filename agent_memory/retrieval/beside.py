"""What is not stored yet, ranked in one list with what is.

How rare a word is is counted over both, so that what was said a moment ago scores as it will once
it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.retrieval.index import Candidates, SegmentIndex


@dataclass(frozen=True, slots=True)
class Beside:
    """Records beside those of a store.

    Attributes:
        index: Their features.
        records: All of them, by id.
        words: The numbers of the question's words, each once.
        stored: For each of these, under which numbers the store has it: others where words are
            encrypted.
    """

    index: SegmentIndex
    records: dict[str, Record]
    words: tuple[int, ...]
    stored: tuple[tuple[int, ...], ...]


def search_both(
    index: SegmentIndex, meaning: np.ndarray, words: Sequence[int], beside: Beside, depth: int
) -> Candidates:
    """As `SegmentIndex.search`, over an index and what is beside it.

    Of a record that is in both the stored one counts.

    Args:
        index: What is stored.
        meaning: The question's vector.
        words: The numbers of its words, as they are stored.
        beside: What is not stored.
        depth: So many records of each view.
    """
    place = {number: at for at, number in enumerate(words)}
    link = np.zeros((len(words), len(beside.words)))
    for at, numbers in enumerate(beside.stored):
        for number in numbers:
            if number in place:
                link[place[number], at] = 1.0
    stored, others = index.holding(words), beside.index.holding(beside.words)
    both = list(zip(stored, others, strict=True))
    count = len(index) + len(beside.index)
    own = index.scores(meaning, words, count, [h + link @ o for h, o in both])
    more = beside.index.scores(meaning, beside.words, count, [o + h @ link for h, o in both])
    ids = [beside.index.name(place) for place in range(len(beside.index))]
    twice = index.held(ids)
    fresh = [place for place, name in enumerate(ids) if name not in twice]

    def name(place: int) -> str:
        return index.name(place) if place < len(index) else ids[fresh[place - len(index)]]

    return index.best(name, np.concatenate([own, more[fresh]]), depth)


def estimated(beside: Beside, meaning: np.ndarray, count: int, depth: int) -> Candidates:
    """What is beside a store that ranks elsewhere, and tells only how many records it has.

    Args:
        beside: What is not stored.
        meaning: The question's vector.
        count: How many records the owner has in the store.
        depth: So many records of each view.
    """
    held = beside.index.holding(beside.words)
    scores = beside.index.scores(meaning, beside.words, count + len(beside.index), held)
    return beside.index.best(beside.index.name, scores, depth)
