"""How claims are linked to older facts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from agent_memory.ltm_blocks.extractive.history.claims import (
    Claim,
    Link,
    LinkKind,
    links_again,
    links_for,
)
from agent_memory.ltm_blocks.extractive.history.findings import Draft
from agent_memory.ltm_blocks.extractive.history.history import facts_of
from agent_memory.ltm_blocks.extractive.history.likeness import (
    ALIKE,
    candidates,
    gist,
    key_of,
    most_alike,
)
from agent_memory.ltm_blocks.extractive.settling import Answer, Existing, Group, settle

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def claim(name: str, day: int, *links: tuple[LinkKind, str], fact: str | None = None) -> Claim:
    said = NOON + timedelta(days=day)
    return Claim(
        name, fact or name, name, "user", "home", 1.0, "user", said, None, said, "s", day, name,
        (0, 1), "m", "p", tuple(Link(*link) for link in links),
    )  # fmt: skip


def date(day: int) -> datetime:
    return NOON.replace(hour=0) + timedelta(days=day)


A, B = claim("a", 1), claim("b", 2, ("update", "a"))


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ([("update", "b")], {"b": "update", "a": "update"}),
        ([("update", "a")], {"a": "update", "b": "update"}),
        ([("contradict", "b")], {"b": "contradict", "a": "update"}),
        ([("contradict", "a")], {"a": "contradict", "b": "update"}),
        ([("end", "b")], {"b": "end", "a": "update"}),
        ([("update", "a"), ("contradict", "b")], {"a": "update", "b": "contradict"}),
        ([("update", "forgotten")], {"forgotten": "update"}),
        ([], {}),
    ],
)
def test_a_claim_is_tied_to_all_that_its_target_is_tied_to(
    targets: list[tuple[LinkKind, str]], expected: dict[str, LinkKind]
) -> None:
    """Wrong: after the middle fact of a chain is forgotten, two homes hold at once."""
    assert {link.fact: link.kind for link in links_for(targets, [A, B])} == expected


def test_corrections_of_corrections_and_ends() -> None:
    """Wrong: forgetting the first correction restores the wrong fact."""
    right = claim("c", 3, ("contradict", "b"), ("update", "a"))
    links = links_for([("contradict", "c")], [A, B, right])
    assert {link.fact: link.kind for link in links} == {
        "c": "contradict",
        "b": "contradict",
        "a": "update",
    }
    right = claim("c", 3, ("contradict", "b"), ("update", "a"))
    links = links_for([("end", "c")], [A, B, right])
    assert {link.fact: link.kind for link in links} == {"c": "end", "b": "end", "a": "update"}
    end = claim("end", 3, ("end", "b"), ("update", "a"))
    again = claim("b2", 4, ("update", "end"), ("update", "a"), fact="b")
    links = links_for([("contradict", "end")], [A, B, end, again])
    kinds = {link.fact: link.kind for link in links}
    assert kinds == {"end": "contradict", "b": "end", "a": "update"}


def test_denials_and_repetitions_are_linked() -> None:
    """Wrong: "I never lived there" is stored as a home."""
    assert links_for([("contradict", "b")], [A, B], denies=True) == (Link("contradict", "b"),)
    right = claim("c", 3, ("contradict", "b"), ("update", "a"))
    assert links_for([("contradict", "c")], [A, B, right], denies=True) == (
        Link("contradict", "c"),
        Link("contradict", "b"),
    )
    right = claim("c", 3, ("contradict", "b"), ("update", "a"))
    assert set(links_again("c", [A, B, right])) == {Link("contradict", "b"), Link("update", "a")}
    assert links_again("new", [A, B]) == ()
    claims: list[Claim] = []
    for day in range(100):
        links = links_for([("update", str(day - 1))], claims) if day else ()
        claims.append(claim(str(day), day, *((link.kind, link.fact) for link in links)))
    assert [link.fact for link in claims[-1].links[:3]] == ["98", "97", "96"]
    assert len(claims[-1].links) == 64


@pytest.mark.parametrize("answer", ["same", "contradict"])
def test_who_answers_a_lesser_role_does_not_say_what_that_said_of_others(answer: str) -> None:
    """Wrong: "yes, Paris" or "no, Paris", to an assistant's "never Rome", denies Rome."""
    weights = {"assistant": 1, "user": 2}
    other = replace(claim("other", 2, ("contradict", "a")), role="assistant")
    facts = facts_of([A, other], weights=weights)
    known = Existing(facts, {one.id for one in facts}, [A, other], np.zeros((2, 0)))
    draft = Draft(claim("new", 3), corrects=False)

    def ask(groups: Sequence[Group]) -> dict[int, Answer]:
        (group,) = groups
        place = next(number for number, text in group.older.items() if "other" in text)
        told = {"number": group.number, "answer": answer, "which": [place]}
        return {group.number: Answer.model_validate(told)}

    (new,), _ = settle([draft], np.zeros((1, 0)), known, weights, ask)
    assert Link("update", "a") in new.links
    assert new.fact == "other" if answer == "same" else Link("contradict", "other") in new.links


@pytest.mark.parametrize("told", [None, 9])
def test_what_is_told_again_with_more_keeps_its_time(told: int | None) -> None:
    """Wrong: a fact repeated with more detail loses its date, or a more precise date is dropped."""
    old = replace(claim("old", 1), valid_from=A.recorded_at, kind="state")
    facts = facts_of([old])
    known = Existing(facts, {"old"}, [old], np.zeros((1, 0)))
    began = None if told is None else A.recorded_at + timedelta(days=told)
    new = replace(claim("new", 3), valid_from=began, kind="state")
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
    home = replace(claim("home", 1), kind="state")
    claims = [home]
    for name, old, day in (("plan", "home", 3), ("later plan", "plan", 9)):
        facts = facts_of(claims)
        known = Existing(facts, {fact.id for fact in facts}, claims, np.zeros((len(facts), 0)))
        period = {"valid_from": date(day), "valid_to": date(day + until - 3)}
        new = replace(claim(name, 2), seq=day, kind="plan", **period)
        draft = Draft(new, corrects=False, relation="update", related=(old,))
        (planned,), _ = settle([draft], np.zeros((1, 0)), known, {}, lambda groups: {})
        claims.append(planned)
    homes = {fact.id: fact for fact in facts_of(claims)}
    assert homes["home"].holds(date(8))
    assert not homes["home"].holds(date(9))
    assert homes["home"].holds(date(30)) == (until == 14)
    assert homes["later plan"].is_current(date(30))


def test_a_model_compares_new_facts_with_current_facts_first() -> None:
    """Wrong: superseded facts hide the current home, which a move leaves true."""
    past = [replace(claim(f"was at {n}", n), text=f"Stayed in town {n}.") for n in range(1, 5)]
    ties: list[tuple[LinkKind, str]] = [("update", each.id) for each in past]
    home = replace(claim("home", 5, *ties), text="Rents a flat.")
    refined = replace(claim("refined", 6), text="Stayed in town 9.")
    richer = replace(claim("richer", 7, ("refine", "refined")), category="event", text="Was away.")
    claims = [*past, home, refined, richer]
    facts = facts_of(claims)
    current = {fact.id for fact in facts if fact.is_current(date(8))}
    known = Existing(facts, current, claims, np.zeros((len(facts), 0)))
    lines: list[str] = []

    def ask(groups: Sequence[Group]) -> dict[int, Answer]:
        lines.extend(groups[0].older.values())
        return {}

    new = replace(claim("new", 8), text="Stayed in town 7.")
    settle([Draft(new, corrects=False)], np.zeros((1, 0)), known, {}, ask)
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
def test_case_blanks_and_marks_do_not_count(one: str, other: str) -> None:
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
def test_marks_that_are_part_of_a_word_count(one: str, other: str) -> None:
    """Wrong: two different facts get one key, and are merged without a check."""
    assert key_of(one) != key_of(other)
    assert key_of(" ... \u2014 !? ") == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Works as an engineer at Acme.", "Works at Acme as an engineer."),
        ("The user plays the piano.", "Plays piano"),
        ("Flew from Rome to Paris.", "Flew to Paris from Rome."),
        ("Is very tall.", "tall"),
    ],
)
def test_the_gist_is_free_of_order_and_small_words(one: str, other: str) -> None:
    """Wrong: the same fact with another word order or other small words counts as new."""
    assert gist(one) == gist(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Flew from Rome to Paris.", "Flew from Paris to Rome."),
        ("Likes tea and hates coffee with milk.", "Likes tea with milk and hates coffee."),
        ("Smokes.", "Smoked."),
        ("Is ill.", "Was ill."),
        ("Eats no meat.", "Eats meat."),
        ("Anna likes Ben.", "Ben likes Anna."),
    ],
)
def test_the_gist_keeps_what_matters(one: str, other: str) -> None:
    """Wrong: facts that differ in actor, time or negation are taken for one."""
    assert gist(one) != gist(other)


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


def test_the_nearest_candidates_come_first() -> None:
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
