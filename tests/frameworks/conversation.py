"""A conversation of 30 turns with tools, in two sessions with a restart, as data.

Every framework holds the same conversation. `SERVED` is what the model is scripted to do in each
turn: calls of tools, one round after the other, and then an answer.
"""

from dataclasses import dataclass

MONDAY, TUESDAY = "monday", "tuesday"
USER = "ana"

BUDGET = 1_500
"""The memory's `max_tokens`. The whole conversation has four times as many."""

INSTRUCTIONS = "You help with the renovation of a house. Look things up before you answer."


def look_up(topic: str) -> str:
    """Look up a topic in the building records.

    Args:
        topic: The topic.
    """
    kinds = ("survey", "invoice", "permit", "delivery", "inspection")
    lines = (
        f"{kind.title()} {number} on {topic}: checked, {len(topic) * number + 11} units, "
        f"no objections were raised by the office."
        for number, kind in enumerate(kinds, 1)
    )
    return "\n".join(lines)


def add(first: int, second: int) -> str:
    """Add two amounts of money.

    Args:
        first: The first amount.
        second: The second amount.
    """
    return f"The sum is {first + second} euros."


TOOLS = (look_up, add)


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation."""

    session: str
    question: str
    rounds: tuple[tuple[tuple[str, dict[str, object]], ...], ...] = ()
    answer: str = "Noted."
    needs: str | None = None


def _looks(*topics: str) -> tuple[tuple[str, dict[str, object]], ...]:
    return tuple(("look_up", {"topic": topic}) for topic in topics)


_TOPICS = (
    "roof tiles", "copper pipes", "oak floor", "window frames", "chimney", "garden wall",
    "heating pump", "attic insulation", "cellar drainage", "front door",
)  # fmt: skip

_TOLD = (
    Turn(MONDAY, "Hello! My daughter Ines is allergic to hazelnuts.", answer="I will remember it."),
    Turn(MONDAY, "Our architect is called Beatriz Fontoura.", answer="Thank you."),
    Turn(MONDAY, "The kitchen walls shall be painted in sage green.", answer="A good choice."),
)
_WORK = tuple(
    Turn(
        MONDAY if number < 17 else TUESDAY,
        f"Question {number}: what do the records say about the {_TOPICS[number % 10]}?",
        (
            (_looks(_TOPICS[number % 10]),),
            (_looks(_TOPICS[number % 10], _TOPICS[(number + 3) % 10]),),
            (_looks(_TOPICS[number % 10]), (("add", {"first": number, "second": 30}),)),
        )[number % 3],
        f"Answer {number}: the records on the {_TOPICS[number % 10]} are in order.",
    )
    for number in range(24)
)
_ASKED = (
    Turn(TUESDAY, "What is my daughter Ines allergic to?", needs="hazelnuts", answer="Hazelnuts."),
    Turn(TUESDAY, "What is our architect called?", needs="Fontoura", answer="Beatriz Fontoura."),
    Turn(TUESDAY, "Which colour shall the kitchen walls be painted?", needs="sage", answer="Sage."),
)

TURNS = (*_TOLD, *_WORK[:17], _ASKED[0], *_WORK[17:21], _ASKED[1], *_WORK[21:], _ASKED[2])
RESTART = 15
"""The number of turns before the process ends. The next one continues the session."""
