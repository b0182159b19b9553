"""The periods in which facts hold, and how claims are linked to older facts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.core.timestamps import BEGINNING
from agent_memory.ltm_blocks.extractive.history.claims import (
    Claim,
    Link,
    LinkKind,
    links_for,
)
from agent_memory.ltm_blocks.extractive.history.fact import (
    ALIKE,
    Fact,
    candidates,
    gist,
    key_of,
    most_alike,
)
from agent_memory.ltm_blocks.extractive.history.findings import Draft
from agent_memory.ltm_blocks.extractive.history.history import facts_of
from agent_memory.ltm_blocks.extractive.history.periods import END
from agent_memory.ltm_blocks.extractive.settling import Answer, Existing, Group, settle
from tests.kit import at_length
from tests.unit import claiming
from tests.unit.claiming import WEIGHTS

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = [START + timedelta(days=n) for n in range(10)]
NAMES = "abcdef"
MOMENTS = [day + shift for day in DAYS for shift in (timedelta(), timedelta(hours=12))]


def claim(
    name: str, said: int = 0, begin: int | None = None, end: int | None = None, **fields: Any
) -> Claim:
    """Return a claim made on a day of January 2024. It holds from that day by default."""
    links: Sequence[tuple[LinkKind, str]] = fields.pop("links", ())
    since = None if begin == -1 else DAYS[said if begin is None else begin]
    until = None if end is None else DAYS[end]
    own = {"seq": said, "category": "home", "valid_from": since, "valid_to": until, **fields}
    return claiming.claim(name, name, said, links=tuple(Link(*link) for link in links), **own)


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


def test_all_roles_are_equal_if_there_are_no_weights() -> None:
    """Wrong: without weights a tool's claim cannot supersede the user's, or with them it can."""
    claims = [claim("a", 1), claim("b", 2, role="tool", links=[("update", "a")])]
    assert [fact.text for fact in facts_of(claims) if fact.holds(DAYS[3])] == ["b"]
    assert held(claims, 3) == ["a"]


@pytest.mark.parametrize("kind", ["contradict", "update", "end"])
@pytest.mark.parametrize("length", [200, 1500])
def test_a_long_chain_of_claims_is_resolved_quickly(kind: LinkKind, length: int) -> None:
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


def test_two_claims_that_deny_each_other_leave_one() -> None:
    """Wrong: two claims that deny each other are both gone, or a claim supersedes itself."""
    pair = [claim("a", links=[("contradict", "b")]), claim("b", links=[("contradict", "a")])]
    assert len(held(pair, 1)) == 1
    assert held(pair, 1) == held(pair[::-1], 1)
    kinds: list[LinkKind] = ["update", "contradict", "end"]
    assert held([claim("a", links=[(kind, "a") for kind in kinds])], 1) == ["a"]


def test_a_fact_replaced_on_its_first_day_ends_on_that_day() -> None:
    """Wrong: a history shows no end of the fact, as if it were still true."""
    told = [claim("oslo", 1), claim("bergen", 1, seq=2, links=[("update", "oslo")])]
    oslo, bergen = facts_of(told)
    assert (oslo.why, oslo.valid_to, bergen.valid_to) == ("updated", DAYS[2], None)
    assert oslo.time == "2024-01-02"
    assert held(told, 1) == ["bergen"]
    told = [claim("oslo", 1, 0, 1), claim("bergen", 1, 0, seq=2, links=[("update", "oslo")])]
    assert facts_of(told)[0].valid_to == DAYS[1]


def test_agreeing_with_a_claim_does_not_confirm_its_denials() -> None:
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


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def stated(name: str, day: int, *links: tuple[LinkKind, str], fact: str | None = None) -> Claim:
    said = NOON + timedelta(days=day)
    times = {"valid_from": said, "recorded_at": said}
    return claim(name, fact=fact or name, seq=day, links=links, **times)


def date(day: int) -> datetime:
    return NOON.replace(hour=0) + timedelta(days=day)


A = stated("a", 1)


def test_a_claim_links_to_the_newest_facts() -> None:
    """Wrong: the claims of a long history get more and more links."""
    claims: list[Claim] = []
    for day in range(100):
        links = links_for([("update", str(day - 1))], claims) if day else ()
        claims.append(stated(str(day), day, *((link.kind, link.fact) for link in links)))
    assert [link.fact for link in claims[-1].links[:3]] == ["98", "97", "96"]
    assert len(claims[-1].links) == 64


@pytest.mark.parametrize("answer", ["same", "contradict"])
def test_an_answer_to_the_assistant_does_not_adopt_its_other_links(answer: str) -> None:
    """Wrong: "yes, Paris" or "no, Paris", to an assistant's "never Rome", denies Rome."""
    weights = {"assistant": 1, "user": 2}
    other = replace(stated("other", 2, ("contradict", "a")), role="assistant")
    facts = facts_of([A, other], weights=weights)
    known = Existing(facts, {one.id for one in facts}, [A, other], np.zeros((2, 0)))
    draft = Draft(stated("new", 3), corrects=False)

    def ask(groups: Sequence[Group]) -> dict[int, Answer]:
        (group,) = groups
        place = next(number for number, text in group.older.items() if "other" in text)
        told = {"number": group.number, "answer": answer, "which": [place]}
        return {group.number: Answer.model_validate(told)}

    (new,), _ = settle([draft], np.zeros((1, 0)), known, weights, ask)
    assert Link("update", "a") in new.links
    assert new.fact == "other" if answer == "same" else Link("contradict", "other") in new.links


@pytest.mark.parametrize("told", [None, 9])
def test_a_fact_repeated_with_more_detail_keeps_its_date(told: int | None) -> None:
    """Wrong: a fact repeated with more detail loses its date, or a more precise date is dropped."""
    old = replace(stated("old", 1), valid_from=A.recorded_at, kind="state")
    facts = facts_of([old])
    known = Existing(facts, {"old"}, [old], np.zeros((1, 0)))
    began = None if told is None else A.recorded_at + timedelta(days=told)
    new = replace(stated("new", 3), valid_from=began, kind="state")
    draft = Draft(new, corrects=False, relation="refine", related=("old",))
    (kept,), _ = settle([draft], np.zeros((1, 0)), known, {}, lambda groups: {})
    assert kept.links == (Link("refine", "old"),)
    assert kept.valid_from == (began or A.recorded_at)
    (current,) = [fact for fact in facts_of([old, kept]) if fact.is_current(new.recorded_at)]
    assert current.id == "new"


@pytest.mark.parametrize("until", [4, 14])
def test_after_a_planned_move_the_former_home_does_not_return(until: int) -> None:
    """Wrong: the day after a planned move, or after its new date, the user lives in the former
    home. After a planned stay, the user does not."""
    home = replace(stated("home", 1), kind="state")
    claims = [home]
    for name, old, day in (("plan", "home", 3), ("later plan", "plan", 9)):
        facts = facts_of(claims)
        known = Existing(facts, {fact.id for fact in facts}, claims, np.zeros((len(facts), 0)))
        period = {"valid_from": date(day), "valid_to": date(day + until - 3)}
        new = replace(stated(name, 2), seq=day, kind="plan", **period)
        draft = Draft(new, corrects=False, relation="update", related=(old,))
        (planned,), _ = settle([draft], np.zeros((1, 0)), known, {}, lambda groups: {})
        claims.append(planned)
    homes = {fact.id: fact for fact in facts_of(claims)}
    assert homes["home"].holds(date(8))
    assert not homes["home"].holds(date(9))
    assert homes["home"].holds(date(30)) == (until == 14)
    assert homes["later plan"].is_current(date(30))


def asking(relation: Any, seen: list[Group]) -> Callable[[Sequence[Group]], dict[int, Answer]]:
    """Return a model that relates each new fact to all of its older facts."""

    def ask(groups: Sequence[Group]) -> dict[int, Answer]:
        seen.extend(groups)
        answers = [(one.number, [*one.older]) for one in groups if relation != "add"]
        return {at: Answer(number=at, answer=relation, which=which) for at, which in answers}

    return ask


@pytest.mark.parametrize("known", [True, False])
def test_a_plan_moved_twice_in_one_batch_stands_once(known: bool) -> None:
    """Wrong: both days of an appointment are current, because a batch can name only older facts."""
    old = replace(stated("old", 1), kind="plan", valid_from=date(3), valid_to=date(4))
    claims, facts = [old][: int(known)], facts_of([old][: int(known)])
    drafts = []
    for name, day in (("later", 5), ("latest", 9)):
        period = {"valid_from": date(day), "valid_to": date(day + 1)}
        new = replace(stated(name, 2), seq=day, kind="plan", category="health", **period)
        draft = Draft(new, False, "update", ("old",)) if known else Draft(new, False)
        drafts.append(draft)
    seen: list[Group] = []
    existing = Existing(facts, {fact.id for fact in facts}, claims, np.zeros((len(facts), 0)))
    settled, _ = settle(drafts, np.zeros((2, 0)), existing, {}, asking("update", seen))
    (group,) = seen
    assert ["later" in line for line in group.older.values()] == [True]
    stated_facts = facts_of([*claims, *settled])
    assert [fact.id for fact in stated_facts if fact.is_current(date(2))] == ["latest"]


def test_two_parts_of_one_fact_may_change_in_one_batch() -> None:
    """Wrong: of a new price and a new discount, only the one that was said last is current."""
    offer = replace(stated("offer", 1), kind="state")
    drafts = [
        Draft(replace(stated(name, 2), seq=seq, kind="state"), False, "update", ("offer",))
        for seq, name in enumerate(("price", "discount"), 3)
    ]
    existing = Existing(facts_of([offer]), {"offer"}, [offer], np.zeros((1, 0)))
    settled, _ = settle(drafts, np.zeros((2, 0)), existing, {}, asking("add", []))
    current = [fact.id for fact in facts_of([offer, *settled]) if fact.is_current(date(4))]
    assert current == ["price", "discount"]


def test_a_model_compares_new_facts_with_current_facts_first() -> None:
    """Wrong: superseded facts hide the current home, which a move leaves true."""
    past = [replace(stated(f"was at {n}", n), text=f"Stayed in town {n}.") for n in range(1, 5)]
    ties: list[tuple[LinkKind, str]] = [("update", each.id) for each in past]
    home = replace(stated("home", 5, *ties), text="Rents a flat.")
    refined = replace(stated("refined", 6), text="Stayed in town 9.")
    richer = replace(stated("richer", 7, ("refine", "refined")), category="event", text="Was away.")
    claims = [*past, home, refined, richer]
    facts = facts_of(claims)
    current = {fact.id for fact in facts if fact.is_current(date(8))}
    known = Existing(facts, current, claims, np.zeros((len(facts), 0)))
    seen: list[Group] = []
    new = replace(stated("new", 8), text="Stayed in town 7.")
    settle([Draft(new, corrects=False)], np.zeros((1, 0)), known, {}, asking("add", seen))
    lines = [*seen[0].older.values()]
    assert lines[0].endswith("Rents a flat.")
    assert not any("town 9" in line for line in lines)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Lives in Rome.", "lives  in ROME"),
        ("Has a cat, named Tom!", 'Has a cat named "Tom"'),
        ("Owns a bike (red).", "Owns a bike red"),
        ("Don't call.", "Don\u2019t call"),
        ("\uff32ome", "rome"),
        ("Caf\u00e9", "Cafe\u0301"),
        ("\u00bfD\u00f3nde vive?", "d\u00f3nde vive"),
        ("\u4f4f\u5728\u4e1c\u4eac\u3002", "\u4f4f\u5728\u4e1c\u4eac"),
    ],
)
def test_case_blanks_and_punctuation_do_not_change_a_key(one: str, other: str) -> None:
    """Wrong: the same fact with other case, blanks or punctuation is stored twice."""
    assert key_of(one) == key_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Programs in C++.", "Programs in C#."),
        ("Programs in C.", "Programs in C++."),
        ("Weighs 5 kilos.", "Weighs -5 kilos."),
        ("Paid 1,500.", "Paid 1.500."),
        ("Owns 50.", "Owns 50%."),
        ("Owes $50.", "Owes \u20ac50."),
        ("Likes \U0001f34e", "Likes \U0001f34c"),
        ("Can eat nuts.", "Can't eat nuts."),
    ],
)
def test_marks_within_a_word_change_a_key(one: str, other: str) -> None:
    """Wrong: two different facts get one key, and are merged without a check."""
    assert key_of(one) != key_of(other)
    assert key_of(" ... \u2014 !? ") == ""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Works as an engineer at Acme.", "Works at Acme as an engineer.", True),
        ("The user plays the piano.", "Plays piano", True),
        ("Flew from Rome to Paris.", "Flew to Paris from Rome.", True),
        ("Is very tall.", "tall", True),
        ("Flew from Rome to Paris.", "Flew from Paris to Rome.", False),
        ("Likes tea and hates coffee with milk.", "Likes tea with milk and hates coffee.", False),
        ("Smokes.", "Smoked.", False),
        ("Is ill.", "Was ill.", False),
        ("Eats no meat.", "Eats meat.", False),
        ("Anna likes Ben.", "Ben likes Anna.", False),
    ],
)
def test_the_gist_ignores_word_order_and_stop_words(one: str, other: str, same: bool) -> None:
    """Wrong: a fact in another order counts as new, or another actor, time or negation as known."""
    assert (gist(one) == gist(other)) is same


def near(
    new: str,
    others: Sequence[str],
    cosine: Sequence[float] | None = None,
    kinds: Sequence[tuple[str, str]] | None = None,
    kind: tuple[str, str] = ("user", "new"),
) -> list[int]:
    """Return the candidates for a new text. Kinds differ unless they are given."""
    kinds_of_others = kinds or [("user", f"kind {n}") for n in range(len(others))]
    row = np.array(cosine if cosine is not None else [0.0] * len(others))
    return [at for at, _ in candidates(new, kind, others, kinds_of_others, row)]


def test_the_nearest_candidates_are_returned_first() -> None:
    """Wrong: a change in other words is not among the candidates."""
    others = ["Lives in Paris.", "Has a dog.", "Plays chess."]
    assert near("Moved to Paris.", others) == [0]
    assert near("Owns a puppy.", others, [0.1, 0.6, 0.1]) == [1]
    assert near("Nothing alike.", others, [0.0, ALIKE, ALIKE - 0.01]) == [1]
    kinds = [("user", "home"), ("user", "pets"), ("tom", "hobby")]
    assert near("Nothing alike.", others, kinds=kinds, kind=("tom", "hobby")) == [2]
    assert near("Nothing alike.", others) == []
    others = [f"Fact number {n}" for n in range(50)]
    found = near("Wholly else", others, [n / 50 for n in range(50)])
    assert found == list(range(49, 17, -1))
    facts = ["Ana has a cat.", "Ana lives in Porto.", "Ana has a dog.", "Ana plays chess."]
    assert most_alike(facts, ["anything"], 4) == [0, 1, 2, 3]
    assert most_alike(facts, ["We left Porto", "with the cat"], 2) == [0, 1]
    assert most_alike(facts, ["Hello"], 2) == [2, 3]
    assert most_alike([], ["Hello"], 2) == []
    assert near("No dog any more.", ["Has a big brown dog that barks at the neighbours."]) == [0]
