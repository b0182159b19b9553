"""Duplicate facts, outdated facts, and what a note of a forgotten fact covers."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from agent_memory.errors import InvalidSetting
from agent_memory.ltm_blocks.extractive import StalenessDetector
from agent_memory.ltm_blocks.extractive.history.claims import Claim, covers
from agent_memory.ltm_blocks.extractive.history.fact import Stale, last_stated
from agent_memory.ltm_blocks.registry import Tombstone
from tests.unit.claiming import DAY, claim, day, facts

OTHERS = [
    # numbers
    ("Runs {} km every morning.", "5", "10"),
    ("Was born on {} May 1990.", "3", "4"),
    ("Earns {} euros a year.", "50,000", "60,000"),
    ("The door code is {}.", "4711", "4712"),
    ("Lives at Main Street {}.", "12b", "12c"),
    ("Owns {} of the shop.", "50%", "51%"),
    ("Weighs {} kilos more.", "-5", "5"),
    ("Has {} children who all go to the primary school next to the town hall.", "three", "two"),
    ("Takes {}.", "one tablet twice a day", "two tablets once a day"),
    # names
    ("Works at {} as an engineer.", "Acme", "Globex"),
    ("{} is allergic to nuts and carries pills.", "Anna", "Maria"),
    ("{} is allergic to nuts.", "anna", "maria"),
    ("Has a dog named {}.", "Rex", "Max"),
    ("Flies to Rome in {}.", "May", "June"),
    ("{}.", "Anna likes Ben", "Ben likes Anna"),
    ("Moved from {}.", "Paris to Rome", "Rome to Paris"),
    ("\u4f4f\u5728{}", "\u4e1c\u4eac", "\u5927\u962a"),
    # colours and other decisive words
    ("Has a {} car.", "red", "blue"),
    ("Painted the kitchen {}.", "green", "yellow"),
    ("Drives a small {} car to work every day because the bus takes far too long.", "red", "blue"),
    ("His {} lives in Rome.", "sister", "brother"),
    ("Takes the pill {} breakfast.", "before", "after"),
    ("Works {} his brother.", "with", "without"),
    ("{} a smoker for many years.", "Was", "Is"),
    ("Prefers {} in the morning before going to the office.", "tea to coffee", "coffee to tea"),
    ("Likes the {} seat.", "window seat and hates the aisle", "aisle seat and hates the window"),
    # negations
    ("{} coffee.", "Likes", "Does not like"),
    ("Eats {}.", "meat", "no meat"),
    ("{} alcohol.", "Drinks", "Never drinks"),
    ("{} eat dairy.", "Can", "Can't"),
    ("Wants {} called in the morning before going to the office by train.", "to be", "not to be"),
    ("Is {} to nuts, and carries an injector at all times.", "allergic", "not allergic"),
    ("Ich mag {} Kaffee mit Milch.", "keinen", "einen"),
]

SAME = [
    ("Lives in Rome.", "lives in rome"),
    ("Has a cat named Tom.", "Has a cat, named Tom!"),
    ("Wants to learn Spanish.", "Wants to learn Spanish."),
    ("Takes 2 pills, at 8:30.", "Takes 2 pills at 8:30"),
    ("Drives an old red car to work each day of the week, in winter too.", "Drives old red car to "
     "work each day of the week, in winter too."),
    ("Works as an engineer at Acme.", "Works at Acme as an engineer."),
    ("Plays the piano every day.", "Plays piano every day."),
    ("Is allergic to peanuts.", "Allergic to peanuts."),
]  # fmt: skip


def stale_facts(
    claims: Sequence[Claim], now: int = 10, ttl: Any = None, **settings: Any
) -> list[tuple[str, str, str | None]]:
    """Return the stale facts of claims: id, reason, and the other fact's id."""
    known, detector = facts(*claims), StalenessDetector(**settings)
    aged = detector.aged(known, day(now), ttl)
    old = [one.fact for one in aged]
    stale = aged + detector.duplicates([fact for fact in known if fact not in old])
    return [(one.fact.id, one.why, one.of.id if one.of else None) for one in stale]


@pytest.mark.parametrize(("one", "other"), [(t.format(a), t.format(b)) for t, a, b in OTHERS])
def test_facts_with_different_details_are_not_duplicates(one: str, other: str) -> None:
    """Wrong: a fact is hidden because another one is worded almost alike."""
    assert stale_facts([claim("a", one), claim("b", other, 1)]) == []


@pytest.mark.parametrize(("one", "other"), SAME)
def test_facts_with_the_same_words_are_duplicates(one: str, other: str) -> None:
    """Wrong: two facts in the same words, or in another order, are both recalled."""
    assert stale_facts([claim("a", one), claim("b", other, 1)]) == [("a", "duplicate", "b")]


def test_the_duplicate_with_the_most_evidence_is_recalled() -> None:
    """Wrong: of two equal facts the one with less evidence stays, or different facts are merged."""
    often = [claim("a"), claim("a2", said=1, fact="a"), claim("b", "Fact A!", 5)]
    assert stale_facts(often) == [("b", "duplicate", "a")]
    assert stale_facts([claim("a"), claim("b", "Fact A!", 5)]) == [("a", "duplicate", "b")]
    three = [claim("a"), claim("b", "Fact A!", 5), claim("c", "fact a", 7)]
    assert stale_facts(three) == [("b", "duplicate", "c"), ("a", "duplicate", "c")]
    ill = [claim("a", "Is ill.", subject="Tom"), claim("b", "Is ill.", 1, subject="Ann")]
    assert stale_facts(ill) == []
    assert stale_facts([claim("a", subject="User"), claim("b", "fact a", 1)])
    went = [
        claim("a", "Went to Rome.", 0, valid_to=day(2)),
        claim("b", "Went to Rome.", 5, valid_to=day(7)),
    ]
    assert stale_facts(went) == []
    assert stale_facts([went[0], claim("b", "Went to Rome.", 1, valid_to=day(7))]) != []


def test_a_fact_becomes_stale_at_the_age_limit_of_its_category() -> None:
    """Wrong: a repeated fact ages from its first mention, or a category's limit is ignored."""
    year = timedelta(days=365)
    once, again = [claim("a")], [claim("a"), claim("a2", said=100, fact="a")]
    assert stale_facts(once, 365, max_age=year) == []
    assert stale_facts(once, 366, max_age=year) == [("a", "old", None)]
    assert stale_facts(again, 366, max_age=year) == []
    assert stale_facts(again, 466, max_age=year) == [("a", "old", None)]
    plan = [claim("a", valid_from=day(300), valid_to=day(400))]
    assert stale_facts(plan, 765, max_age=year) == []
    assert stale_facts(plan, 766, max_age=year) == [("a", "old", None)]
    assert last_stated(facts(*plan)[0]) == day(400)
    claims = [claim("a", category="event"), claim("b", category="home")]
    ttl = {" Event ": timedelta(days=5)}
    assert stale_facts(claims, 5, ttl) == []
    assert stale_facts(claims, 6, ttl) == [("a", "expired", None)]
    both = stale_facts(claims, 6, ttl, max_age=timedelta(days=3))
    assert both == [("a", "expired", None), ("b", "old", None)]
    longer = stale_facts(claims, 6, {"event": timedelta(days=9)}, max_age=timedelta(days=3))
    assert ("b", "old", None) in longer
    claims = [
        claim("a", "Fact.", category="event"),
        claim("a2", "Fact.", 1, "a", category="event"),
        claim("b", "fact", 5, category="home"),
    ]
    ttl = {"event": timedelta(days=3)}
    assert stale_facts(claims, 6, ttl) == [("a", "expired", None)]
    assert stale_facts([]) == []
    (fact,) = facts(claim("a"))
    assert Stale(fact, "old").of is None


@pytest.mark.parametrize("wrong", [{"max_age": timedelta()}, {"max_age": "-P1D"}, {"age": 1}])
def test_invalid_staleness_settings_are_refused(wrong: dict[str, Any]) -> None:
    """Wrong: a misspelt limit, or one that hides all facts, is accepted."""
    with pytest.raises(InvalidSetting):
        StalenessDetector(**wrong)


QUOTED = (8, 15)


def note(
    first: int, last: int, span: tuple[int, int] | None, at: str = "s", *spared: str
) -> Tombstone:
    return Tombstone(None, at, first, last, span, DAY, "", spared)


@pytest.mark.parametrize(
    ("one", "covered"),
    [
        (note(1, 1, None), True),
        (note(1, 9, None), True),
        (note(1, 1, (10, 12)), True),
        (note(1, 1, (0, 9)), True),
        (note(1, 1, (14, 99)), True),
        (note(1, 1, (0, 8)), False),
        (note(1, 1, (15, 20)), False),
        (note(2, 2, None), False),
        (note(1, 1, None, "t"), False),
        (note(1, 1, (8, 15), "s", "other"), True),
        (note(1, 1, (8, 15), "s", "f"), False),
    ],
)
def test_a_forget_note_covers_longer_and_shorter_quotes(one: Tombstone, covered: bool) -> None:
    """Wrong: a forgotten sentence comes back by a longer or a shorter quote."""
    assert covers(one, claim("f", session_id="s", seq=1, span=QUOTED)) == covered
