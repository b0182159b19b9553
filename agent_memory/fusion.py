"""Merging what several blocks recall, and choosing what a token budget can hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from agent_memory.records import Recall, Source


def merge(found: Mapping[str, Sequence[Recall]], shown: Collection[Source] = ()) -> list[Recall]:
    """All blocks' recalls in one list, best first.

    A recall ranks by its score over the best score of its block; ties go to the block named first.
    Left out are recalls whose every source the window still shows, and texts said twice.

    Args:
        found: For each block, its recalls, best first.
        shown: Sources that the window shows.
    """
    ranked: list[tuple[float, Recall]] = []
    for recalls in found.values():
        scores = [recall.score if math.isfinite(recall.score) else 0.0 for recall in recalls]
        best = max(scores, default=0.0)
        shares = (score / best if best > 0 else 0.0 for score in scores)
        ranked += zip(shares, recalls, strict=True)
    ranked.sort(key=lambda pair: -pair[0])
    merged: dict[str, Recall] = {}
    for _, recall in ranked:
        if not recall.sources or any(source not in shown for source in recall.sources):
            merged.setdefault(" ".join(recall.text.casefold().split()), recall)
    return list(merged.values())


def select(
    recalls: Sequence[Recall], room: int, limits: Mapping[str, int | None] | None = None
) -> list[Recall]:
    """The recalls that fit into `room` tokens, best first.

    Each block is sure of an equal share for its best; what is left goes to the best of all.

    Args:
        recalls: Merged recalls with their `tokens`.
        room: Tokens they may take together.
        limits: For each block, the tokens it may take at most.
    """
    limits = limits or {}
    blocks = {recall.block for recall in recalls}
    share = room // max(1, len(blocks))
    spent = dict.fromkeys(blocks, 0)
    chosen: set[int] = set()
    for bound in (share, room):
        for place, recall in enumerate(recalls):
            own = limits.get(recall.block)
            limit = bound if own is None else min(bound, own)
            fits = spent[recall.block] + recall.tokens <= limit
            if place not in chosen and fits and sum(spent.values()) + recall.tokens <= room:
                chosen.add(place)
                spent[recall.block] += recall.tokens
    return [recall for place, recall in enumerate(recalls) if place in chosen]
