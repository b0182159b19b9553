"""How a new claim is tied to older facts, so that what it supersedes can be told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link, LinkKind

_MOST_LINKS = 64  # of a value that changed more often the oldest are long superseded


def links_for(
    targets: Sequence[tuple[LinkKind, str]], claims: Iterable[Claim], *, denies: bool = False
) -> tuple[Link, ...]:
    """The links of a claim that says something of older facts.

    It is tied to what these are tied to as well, so that forgetting one of them leaves the others
    in their order. What contradicts or refines a fact stands in its place, and says of others what
    that said; what only denies it stands in no place, and denies only what that contradicted as
    well.

    Args:
        targets: What it says of which facts.
        claims: The older claims.
        denies: It only says that the facts are not so.
    """
    tied = _ties(claims)
    links: dict[str, LinkKind] = {fact: kind for kind, fact in targets}
    for kind, fact in targets:
        for other, inherited in tied.get(fact, {}).items():
            if denies and kind == "contradict" and inherited != "contradict":
                continue
            if other not in links:
                links[other] = _passed_on(kind, inherited)
    return tuple(Link(kind, fact) for fact, kind in list(links.items())[:_MOST_LINKS])


def links_again(fact: str, claims: Iterable[Claim]) -> tuple[Link, ...]:
    """The links of a claim that says an older fact again, should that be forgotten."""
    links = list(_ties(claims).get(fact, {}).items())[:_MOST_LINKS]
    return tuple(Link(kind, other) for other, kind in links)


def _passed_on(kind: LinkKind, inherited: LinkKind) -> LinkKind:
    """What a claim says of a fact, given what it says of another and what that says of it."""
    if kind in ("contradict", "refine"):
        return inherited
    return "end" if (kind, inherited) == ("end", "contradict") else "update"


def _ties(claims: Iterable[Claim]) -> Mapping[str, Mapping[str, LinkKind]]:
    """For each fact, those that it is a value of the same thing with, the newest first."""
    tied: dict[str, dict[str, LinkKind]] = {}
    for claim in sorted(claims, key=lambda c: (c.recorded_at, c.seq), reverse=True):
        for link in claim.links:
            own = tied.setdefault(claim.fact, {})
            if own.get(link.fact, "update") == "update":  # it may be what the other says
                own[link.fact] = link.kind
            tied.setdefault(link.fact, {}).setdefault(claim.fact, "update")
    return tied
