"""A model's finding must be supported by the messages, and gets the role of its speaker."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.ltm_blocks.extractive.history.findings import Grounded, grounded
from agent_memory.ltm_blocks.extractive.history.sources import SourceMessage, sources
from tests.histories import texts
from tests.unit.claiming import claim

DAY = datetime(2024, 1, 5, tzinfo=UTC)
WEIGHTS = {"user": 2, "assistant": 1, "tool": 0}
EACH = ("user", "assistant", "tool")


def shown(*messages: tuple[str, str], roles: tuple[str, ...] = ("user",)) -> list[SourceMessage]:
    given = [Message(role=role, content=text, created_at=DAY) for role, text in messages]
    entries = [Entry("s", seq, one, 1, seq, "test", DAY) for seq, one in enumerate(given, 1)]
    return sources(entries, roles)


def ground(number: int, quote: str, *messages: tuple[str, str], text: str = "") -> Grounded | str:
    return grounded(number, quote, text or quote, shown(*messages), weights=WEIGHTS)


def role(text: str, quote: str, *messages: tuple[str, str]) -> str:
    """Return the role of a finding that quotes the first message."""
    found = grounded(1, quote, text, shown(*messages), weights=WEIGHTS)
    assert isinstance(found, Grounded), found
    return found.role


HOME = ("user", "I live\n in  Oslo &\tlove <it> there")


@pytest.mark.parametrize(
    ("quote", "span"),
    [
        ("I live in Oslo", (0, 14)),
        ("  I live\nin\u00a0 Oslo ", (0, 14)),
        ("Oslo & love <it>", (10, 26)),
        ("Oslo &amp; love &lt;it&gt;", (10, 26)),
        ("I live in Oslo & love <it> there", (0, 32)),
        ("e", (5, 6)),
        ("i live in oslo", (0, 14)),
        ("\u201cI live in Oslo.\u201d", (0, 14)),
        ("Oslo and love".replace(" and", " \u2014"), (10, 21)),
    ],
)
def test_a_quote_may_differ_in_white_space_and_escapes(quote: str, span: tuple[int, int]) -> None:
    """Wrong: a true finding is refused for a line break, or located at other words."""
    found = ground(1, quote, HOME)
    assert isinstance(found, Grounded)
    assert found.span == span
    assert found.quote == found.source.text[slice(*span)]
    assert found.source.entry.seq == 1


@pytest.mark.parametrize("quote", ["", " ", "\n", "I lived in Oslo", "IliveinOslo", "&amp;amp;"])
def test_a_quote_that_is_not_in_the_message_is_refused(quote: str) -> None:
    """Wrong: an empty or an approximate quote is accepted."""
    assert ground(1, quote, HOME, text="Lives in Oslo.") == "quote"


TALK = [("user", "I live in Oslo."), ("assistant", "Nice."), ("user", "My cat is Mia.")]


@pytest.mark.parametrize(
    ("number", "quote", "why"),
    [
        (1, "My cat is Mia.", "quote"),
        (2, "I live in Oslo.", "quote"),
        (1, "Nice.", "quote"),
        (0, "I live in Oslo.", "message"),
        (-1, "My cat is Mia.", "message"),
        (3, "My cat is Mia.", "message"),
        (10**30, "My cat is Mia.", "message"),
        (1, "2024-01-05", "quote"),
        (1, "[1]", "quote"),
        (1, "user", "quote"),
        (1, "user: I live", "quote"),
    ],
)
def test_a_quote_counts_only_in_the_named_message(number: int, quote: str, why: str) -> None:
    """Wrong: a quote from a neighbouring message is accepted."""
    assert ground(number, quote, *TALK) == why


@given(texts(), texts(), st.integers(-3, 5))
def test_a_quote_that_stands_is_what_the_message_says(text: str, quote: str, number: int) -> None:
    """Wrong: an accepted quote is not in the message."""
    lines = shown(("user", text), ("user", "second"))
    found = grounded(number, quote, "", lines, weights=WEIGHTS)
    if isinstance(found, Grounded):
        assert found.source.number == number
        assert found.quote in " ".join(found.source.text.split())
        assert found.quote.strip()


INVENTED = [
    "Call them at +47 22 33 44 55.",
    "Call them at 2233-4455.",
    "Their IBAN is NO93 8601 1117 947 and NO9386011117947.",
    "Writes from eve@evil.example.",
    "Reads https://evil.example/login every day.",
    "Owes $12,500.00 to the bank.",
    "Has policy POL-99-1234.",
    "Pays with 4111 1111 1111 1111.",
    "Banks at NO93 8601 1117 947.",
    "Has the number 2024-123456.",
]


@pytest.mark.parametrize("text", INVENTED)
def test_a_code_that_is_in_no_message_is_refused(text: str) -> None:
    """Wrong: a number, an address or an amount that the model invented is stored."""
    assert ground(1, "my bank", ("user", "That is with my bank."), text=text) == "invented"
    spelt = ("user", f"That is with my bank: {text}")
    assert isinstance(ground(1, "my bank", spelt, text=text), Grounded)


@pytest.mark.parametrize(
    ("spoken", "text"),
    [
        ("I moved in May", "Moved in on 2024-05-01."),
        ("I moved in May", "Moved in 2024-05."),
        ("I was born on 12 March 1990", "Was born on 12/03/1990, 12.03.1990 or 12 03 90."),
        ("It was at 10 on May 1", "Was there at 2024-05-01T10:00:00Z, May 1 2024."),
        ("I was there from 2019 to 2023", "Was there in 2019-2023."),
        ("I turned forty", "Is 40 years old."),
        ("we have two kids", "Has 2 children, 3 pets and 12 plants."),
        ("it is 5,000 a month", "Earns 5000 a month."),
        ("ring me at (555) 010-9988", "Has the number 555 010 9988."),
        ("ring me at 5550109988", "Has the number 555-010-9988."),
        ("my mail is Ann@Example.org", "Writes from ann@example.org."),
        ("my number is pol 99 1234", "Has the number POL-99-1234."),
    ],
)
def test_a_number_or_date_in_another_notation_is_accepted(spoken: str, text: str) -> None:
    """Wrong: a derived date, or a number in another notation, is refused as invented."""
    assert role(text, spoken, ("user", spoken)) == "user"


def test_a_code_from_an_assistant_or_a_tool_has_its_role() -> None:
    """Wrong: a code that the user only confirmed counts as the user's statement."""
    booked = "Has the booking QX-77-1234."
    offered = ("assistant", "Your booking is QX-77-1234, is it?")
    assert role(booked, "yes", ("user", "yes"), offered) == "assistant"
    own = ("user", "mine is qx 77 1234")
    assert role(booked, "mine", own, offered) == "user"
    assert role(booked, "yes", ("user", "yes"), own, offered) == "assistant"
    found = grounded(
        1, "yes", booked, shown(("user", "yes"), ("tool", "QX-77-1234"), roles=EACH),
        weights=WEIGHTS,
    )  # fmt: skip
    assert isinstance(found, Grounded)
    assert found.role == "tool"


@pytest.mark.parametrize("who", ["user", "assistant"])
def test_a_code_from_an_existing_fact_has_the_role_of_the_fact(who: str) -> None:
    """Wrong: a finding that refines a known fact is refused, because it repeats the fact's code."""
    known = [claim("a", "Buys a house for 690000 euros.", role=who)]
    lines = shown(("user", "We move in on Friday."))
    text = "Moves into the house that costs 690000 euros."
    found = grounded(1, "We move in", text, lines, WEIGHTS, known)
    assert isinstance(found, Grounded)
    assert found.role == who
    other = text.replace("690000", "680000")
    assert grounded(1, "We move in", other, lines, WEIGHTS, known) == "invented"


@pytest.mark.parametrize(
    ("text", "quote", "other", "wanted"),
    [
        ("Lives in Rome.", "I live there", "You live in Rome, then?", "assistant"),
        ("Lives in Rome.", "I live in rome", "Rome is nice.", "user"),
        ("Lives in Rome.", "I live in ROME!", "Rome is nice.", "user"),
        ("Lives in Rome.", "I got it from email, and live", "Rome?", "assistant"),
        ("Lives in Oslo.", "I live so slow", "Oslo?", "assistant"),
        ("Lives in New York.", "I live in newyork", "New York is big.", "user"),
        ("Lives in New York.", "I live in new-york", "New York is big.", "user"),
        ("Lives in Prague.", "I live in Praha", "Nice.", "user"),
        ("Lives in Prague.", "I live in Praha", "Prague!", "assistant"),
        ("Knows Mia's brother.", "I know mia's brother", "Mia?", "user"),
        ("The user hates dogs.", "yes, thanks", "The user hates dogs.", "assistant"),
        ("The user hates dogs.", "user", "The user hates dogs.", "assistant"),
        ("Ist Vegetarier.", "ja", "Sie sind also Vegetarier?", "assistant"),
        ("素食主义者。", "好的", "您是素食主义者吗", "assistant"),
        ("Hates dogs.", "dogs are awful", "Do you hate dogs?", "user"),
        ("Is a physician.", "ich bin Arzt", "Schön.", "user"),
        ("Is divorced.", "my wife and I split", "I see.", "user"),
    ],
)
def test_a_statement_of_the_assistant_has_the_role_of_the_assistant(
    text: str, quote: str, other: str, wanted: str
) -> None:
    """Wrong: what only the assistant said is of the user, or the user's other form is not."""
    assert role(text, quote, ("user", quote), ("assistant", other)) == wanted
    assert role(text, quote, ("assistant", other), ("user", quote)) == wanted


@pytest.mark.parametrize(
    ("text", "quote", "other", "before"),
    [
        ("It was Gareth Pike.", "it was his brother Gareth", "Gareth Pike.", "Ask Gavin Pike."),
        ("Comes on Monday 9 March.", "he comes on the 9th", "Monday 9 March at noon.", "Hello."),
        ("Buys milk and bread.", "no eggs, the rest stays", "Milk, bread.", "Buy milk, bread, egg"),
        ("Has sold it; Mia is glad.", "I have sold it", "Well done, Mia.", "I'm Mia."),
    ],
)
def test_words_that_the_user_said_stay_the_users_if_the_assistant_repeats_them(
    text: str, quote: str, other: str, before: str
) -> None:
    """Wrong: an assistant that repeats a correction owns it, and the fact that was wrong stays."""
    assert role(text, quote, ("user", quote), ("assistant", other), ("user", before)) == "user"
    lines = shown(("user", quote), ("assistant", other))
    known = [claim("a", before), claim("b", "Has the number QX-77-1234.")]
    found = grounded(1, quote, text, lines, WEIGHTS, known)
    assert isinstance(found, Grounded)
    assert found.role == "user"
    lines = shown(("user", "I still have it"), ("assistant", "QX-77-1234, fine."))
    found = grounded(1, "still have it", "Still has QX-77-1234.", lines, WEIGHTS, known)
    assert isinstance(found, Grounded)
    assert found.role == "user"


def test_a_finding_keeps_its_role_if_there_are_no_weights() -> None:
    """Wrong: a role is lowered although any role may overrule another."""
    lines = shown(("assistant", "You live in Rome, QX-77-1234?"), ("user", "yes"))
    for text in ("Lives in Rome.", "Lives at QX-77-1234.", "Lives somewhere."):
        found = grounded(1, "yes", text, lines)
        assert isinstance(found, Grounded)
        assert found.role == "user"
