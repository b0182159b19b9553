"""The periods in which facts hold, derived from arbitrary claims."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.core.timestamps import BEGINNING
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link, LinkKind
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.extractive.history.history import facts_of
from agent_memory.ltm_blocks.extractive.history.periods import END
from tests.kit import at_length

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = [START + timedelta(days=n) for n in range(10)]
WEIGHTS = {"tool": 0, "assistant": 1, "user": 2}
NAMES = "abcdef"
MOMENTS = [day + shift for day in DAYS for shift in (timedelta(), timedelta(hours=12))]


def claim(
    name: str, said: int = 0, begin: int | None = None, end: int | None = None, **fields: Any
) -> Claim:
    """Return a claim made on a day of January 2024. It holds from that day by default."""
    given_fields: dict[str, Any] = {"fact": name, "role": "user", "seq": said, **fields}
    links: Sequence[tuple[LinkKind, str]] = given_fields.pop("links", ())
    return Claim(
        id=name, text=name, subject="user", category="home", confidence=1.0,
        valid_from=DAYS[said if begin is None else begin] if begin != -1 else None,
        valid_to=None if end is None else DAYS[end], recorded_at=DAYS[said], session_id="s",
        quote=name, span=(0, 1), model="m", prompt="p",
        links=tuple(Link(*link) for link in links), **given_fields,
    )  # fmt: skip


def held(claims: Sequence[Claim], day: int) -> list[str]:
    return [fact.text for fact in facts_of(claims, weights=WEIGHTS) if fact.holds(DAYS[day])]


@st.composite
def claim_sets(draw: st.DrawFn) -> list[Claim]:
    """Generate claims with links to any facts, also missing ones, themselves, and cycles."""
    day = st.integers(0, 9)
    link = st.tuples(st.sampled_from(["update", "contradict", "end"]), st.sampled_from(NAMES + "z"))
    found = []
    for name in draw(st.permutations(NAMES))[: draw(st.integers(1, 6))]:
        field = draw(st.sampled_from([None, None, "home"]))
        found.append(
            claim(
                name,
                draw(day),
                draw(st.none() | st.integers(-1, 9)),
                draw(st.none() | day),
                fact=draw(st.sampled_from([name, name, name, *NAMES])),
                role=draw(st.sampled_from(["user", "user", "assistant", "tool"])),
                seq=draw(st.integers(1, 3)),
                links=draw(st.lists(link, max_size=4)),
                field=field,
                alone=field is not None,
            )
        )
    return found


def tied(one: Fact, other: Fact, claims: Sequence[Claim]) -> bool:
    """Return whether one of two facts links to the other, or both fill one field."""
    pairs = {(claim.fact, claim.role, link.fact) for claim in claims for link in claim.links}
    if one.field is not None and one.field == other.field:
        return True
    return (one.id, one.role, other.id) in pairs or (other.id, other.role, one.id) in pairs


@settings(max_examples=at_length(250))
@given(claim_sets())
def test_of_two_tied_facts_one_holds_at_a_time(claims: list[Claim]) -> None:
    """Wrong: some claims crash, give overlapping or unsupported periods, or two homes at once."""
    facts = facts_of(claims, weights=WEIGHTS)
    assert {fact.id for fact in facts} == {one.fact for one in claims}
    for fact in facts:
        assert all(begin < end for begin, end in fact.periods)
        ordered = pairwise(fact.periods)
        assert all(one[1] <= other[0] for one, other in ordered)
        if fact.periods:
            assert (fact.valid_from or BEGINNING) <= fact.periods[0][0]
            assert fact.periods[-1][1] == (fact.valid_to or END)
        assert bool(fact.why) == (fact.superseded_at is not None) == bool(fact.superseded_by)
        for moment in MOMENTS:
            assert not fact.holds(moment) or fact.is_current(moment)
            assert (
                fact.superseded_at is not None
                or not fact.periods
                or fact.is_current(moment)
                or any(other.holds(moment) for other in facts)
                # a fact that was ended early still displaces others for the period that was stated
                or any(
                    other.fact != fact.id
                    and (other.begins or BEGINNING) <= moment
                    and moment < (other.ends or END)
                    for other in claims
                )
            )
        for other in facts:
            if other is not fact and tied(fact, other, claims):
                assert not any(fact.holds(at) and other.holds(at) for at in MOMENTS)


@settings(max_examples=at_length(150))
@given(claim_sets(), st.randoms(use_true_random=False), st.sampled_from(DAYS))
def test_order_does_not_matter(claims: list[Claim], chance: Any, known_at: datetime) -> None:
    """Wrong: the order of records, or a later claim, changes what was known."""
    facts = facts_of(claims, weights=WEIGHTS)
    mixed = list(claims)
    chance.shuffle(mixed)
    assert facts_of(mixed, weights=WEIGHTS) == facts
    before = [one for one in claims if one.recorded_at <= known_at]
    known = facts_of(claims, weights=WEIGHTS, known_at=known_at)
    assert known == facts_of(before, weights=WEIGHTS)


@settings(max_examples=at_length(250))
@given(claim_sets())
def test_lesser_roles_change_nothing_of_weightier_ones(claims: list[Claim]) -> None:
    """Wrong: a tool's or an assistant's claim changes the period of the user's."""
    for least, role in ((1, "assistant"), (2, "user")):
        heavy = [one for one in claims if WEIGHTS[one.role] >= least]
        without_others = {fact.id: fact for fact in facts_of(heavy, weights=WEIGHTS)}
        for fact in facts_of(claims, weights=WEIGHTS):
            if WEIGHTS[fact.role] >= least:
                alone = without_others[fact.id]
                assert (fact.text, fact.periods, fact.why) == (alone.text, alone.periods, alone.why)
                assert (fact.valid_from, fact.valid_to) == (alone.valid_from, alone.valid_to)
                assert fact.superseded_at == alone.superseded_at, role


def test_without_weights_all_roles_are_equal() -> None:
    """Wrong: without weights a tool's claim cannot supersede the user's, or with them it can."""
    claims = [claim("a", 1), claim("b", 2, role="tool", links=[("update", "a")])]
    assert [fact.text for fact in facts_of(claims) if fact.holds(DAYS[3])] == ["b"]
    assert held(claims, 3) == ["a"]


@pytest.mark.parametrize("kind", ["contradict", "update", "end"])
@pytest.mark.parametrize("length", [200, 1500])
def test_long_chains(kind: LinkKind, length: int) -> None:
    """Wrong: a long history takes exponential time, or overflows the stack."""
    chain = [
        replace(
            claim(str(place), begin=0, links=[(kind, str(place - 1))]),
            seq=place,
            valid_from=None if kind == "end" and place else START,
            valid_to=START + timedelta(days=length - place) if kind == "end" else None,
            recorded_at=START + timedelta(days=length, minutes=place),
        )
        for place in range(length)
    ]
    facts = facts_of(chain)
    holding = [int(fact.id) for fact in facts if fact.holds(START)]
    every_second = list(range(length - 1, -1, -2))[::-1]
    assert holding == (every_second if kind == "contradict" else [length - 1])


def test_a_claim_against_itself_or_another_leaves_one() -> None:
    """Wrong: two claims that deny each other are both gone, or a claim supersedes itself."""
    pair = [claim("a", links=[("contradict", "b")]), claim("b", links=[("contradict", "a")])]
    assert len(held(pair, 1)) == 1
    assert held(pair, 1) == held(pair[::-1], 1)
    kinds: list[LinkKind] = ["update", "contradict", "end"]
    assert held([claim("a", links=[(kind, "a") for kind in kinds])], 1) == ["a"]


def test_ends_reach_what_began_before_them() -> None:
    """Wrong: "I left in March" holds from the beginning of time."""
    home, left = claim("a", 1), claim("b", 5, -1, 4, links=[("end", "a")])
    facts = {fact.id: fact for fact in facts_of([home, left])}
    assert facts["b"].periods == ((DAYS[1], DAYS[4]),)
    assert facts["b"].valid_from == DAYS[1]
    assert (facts["a"].why, facts["a"].superseded_at, facts["a"].periods) == (
        "ended", DAYS[5], (),
    )  # fmt: skip
    assert facts_of([left])[0].periods == ((BEGINNING, DAYS[4]),)
    now, before = claim("now", 4), claim("before", 6, -1, 4, links=[("end", "now")])
    assert held([now, before], 7) == ["now"]
    assert held([now, before], 3) == ["before"]
    claims = [
        claim("job", 1),
        claim("left", 5, -1, 4, links=[("end", "job")]),
        claim("right", 6, 2, links=[("contradict", "job"), ("update", "left")]),
    ]
    assert [held(claims, day) for day in (1, 2, 3, 4, 7)] == [[], ["right"], ["right"], [], []]


def test_what_was_before_holds_again_after_a_stay_only() -> None:
    """Wrong: leaving Rome makes Paris, the home before, current again, or a stay ends it."""
    claims = [
        claim("paris", 0),
        claim("rome", 2, links=[("update", "paris")]),
        claim("left", 5, -1, 4, links=[("end", "rome"), ("update", "paris")]),
    ]
    assert [held(claims, day) for day in (1, 3, 5)] == [["paris"], ["left"], []]
    claims = [claim("paris", 0), claim("oslo", 2, 2, 4, links=[("update", "paris")])]
    assert [held(claims, day) for day in (1, 3, 5)] == [["paris"], ["oslo"], ["paris"]]
    (paris, oslo) = facts_of(claims)
    assert (paris.superseded_at, paris.valid_to, oslo.superseded_at) == (None, None, None)
    assert [paris.is_current(DAYS[day]) for day in (1, 3, 5)] == [True, False, True]
    assert oslo.is_current(DAYS[5])


def test_a_fact_that_was_replaced_on_its_first_day_ends_with_that_day() -> None:
    """Wrong: a history shows no end of the fact, as if it were still true."""
    told = [claim("oslo", 1), claim("bergen", 1, seq=2, links=[("update", "oslo")])]
    oslo, bergen = facts_of(told)
    assert (oslo.why, oslo.valid_to, bergen.valid_to) == ("updated", DAYS[2], None)
    assert oslo.time == "2024-01-02"
    assert held(told, 1) == ["bergen"]
    told = [claim("oslo", 1, 0, 1), claim("bergen", 1, 0, seq=2, links=[("update", "oslo")])]
    assert facts_of(told)[0].valid_to == DAYS[1]


def test_agreeing_says_no_more_than_was_said() -> None:
    """Wrong: "yes, Paris" to an assistant's "never Rome" denies Rome."""
    claims = [
        claim("rome", 1, 1),
        claim("paris", 2, 3, role="assistant", links=[("contradict", "rome")]),
        claim("yes", 4, 3, fact="paris", links=[("update", "rome")]),
    ]
    assert [held(claims, day) for day in (2, 5)] == [["rome"], ["yes"]]
    claims = [claim("late", 5), claim("early", 2, 0, fact="late")]
    (fact,) = facts_of(claims)
    assert (fact.text, fact.valid_from) == ("early", DAYS[0])
    assert [one.quote for one in fact.evidence] == ["early", "late"]
