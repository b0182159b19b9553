"""Okapi BM25 over texts in memory.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; the inverse
document frequency is never negative, as in Lucene.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

_K1 = 0.9
_B = 0.75  # texts are of very different lengths


class BM25:
    """Scores texts by the words of a question.

    Args:
        texts: The words of each text.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        places: defaultdict[str, list[int]] = defaultdict(list)
        times: defaultdict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            for word, count in Counter(text).items():
                places[word].append(place)
                times[word].append(count)
        self._postings = {
            word: (np.array(found, np.int32), np.array(times[word], np.float32))
            for word, found in places.items()
        }
        lengths = np.array([len(text) for text in texts], np.float32)
        mean = max(float(lengths.mean()), 1.0) if len(texts) else 1.0
        self._damping = _K1 * (1 - _B + _B * lengths / mean)

    def scores(self, words: Sequence[str]) -> np.ndarray:
        """For each text, what the words of a question are worth in it; 0 where it has none."""
        count = len(self._damping)
        scores = np.zeros(count, np.float32)
        for word in dict.fromkeys(words):
            if word in self._postings:
                places, times = self._postings[word]
                rarity = math.log(1 + (count - len(places) + 0.5) / (len(places) + 0.5))
                scores[places] += rarity * (_K1 + 1) * times / (times + self._damping[places])
        return scores
