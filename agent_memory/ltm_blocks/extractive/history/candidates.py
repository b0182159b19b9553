"""What a model says it found, before anything is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from agent_memory.ltm_blocks.extractive.history.claims import Kind, Relation


@dataclass(frozen=True, slots=True)
class Candidate:
    """One finding, of whatever form.

    Attributes:
        text: A sentence that stands alone.
        subject: Of whom or what it tells.
        category: One word.
        number: The message that it is said to come from.
        quote: What that message is said to say.
        since: First day, as the model gave it.
        until: Last day, as the model gave it.
        confidence: 0 to 1.
        field: The field of a profile.
        value: Its value, as JSON.
        alone: Whether the field holds one value at a time.
        corrects: It says that the field's value was never so.
        fits: Whether the profile takes the value.
        kind: "event", "state" or "plan"; empty where that was not asked.
        when: The words that tell its time; None where they were not asked for.
        relation: What it has to do with facts that the model was shown; empty for nothing.
        known: The ids of such facts.
    """

    text: str
    subject: str
    category: str
    number: int
    quote: str
    since: str | None
    until: str | None
    confidence: float
    field: str | None = None
    value: Any = None
    alone: bool = False
    corrects: bool = False
    fits: bool = True
    kind: Kind = ""
    when: str | None = None
    relation: Relation | Literal[""] = ""
    known: tuple[str, ...] = ()
