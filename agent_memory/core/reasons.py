"""The reason of a recall, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent_memory.core.records import Recall

_NEAR, _NEARER = 0.16, 0.32
_SOME, _MOST, _ALL = 0.02, 0.1, 0.19
_WORDS = 0.6
_LESS = -0.1
# of the terms of `retrieval.score` as they stand in `Recall.views`, each with its weight


def reason(recall: Recall) -> str:
    """Return what speaks for and against a recall: "98 % likely: close in meaning, said by who is
    meant". A recall without a relevance gives its score."""
    views = recall.views
    if recall.relevance is None:
        return f"score {recall.score:.2f}"
    said = [*_meaning(views), *_words(views)]
    if views.get("meant", 0) > 0:
        said.append("said by who is meant")
    if views.get("long", 0) < _LESS:
        said.append("though it is long")
    if views.get("asks", 0) < _LESS:
        said.append("though it asks itself")
    likely = f"{min(99, round(100 * recall.relevance))} % likely"
    return f"{likely}: {', '.join(said)}" if said else likely


def _meaning(views: Mapping[str, float]) -> list[str]:
    if "unread" in views:
        return ["by its words alone, as long as it has no vector"]
    near = views.get("meaning", 0)
    if near >= _NEARER:
        return ["close in meaning"]
    return ["somewhat close in meaning"] if near >= _NEAR else []


def _words(views: Mapping[str, float]) -> list[str]:
    covered = views.get("coverage_around", 0)
    for least, share in ((_ALL, "all"), (_MOST, "most"), (_SOME, "some")):
        if covered >= least:
            return [f"it or its neighbours have {share} of the question's words"]
    return ["has words like the question's"] if views.get("words", 0) >= _WORDS else []
