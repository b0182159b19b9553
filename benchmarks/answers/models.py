"""A model's answer to chat messages, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_memory.models.loading import load_litellm

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Said:
    """An answer, and what it cost in US dollars; None where no price is known."""

    text: str
    cost: float | None = None


def ask(model: str, settings: Mapping[str, Any], messages: Messages) -> Said:
    """The answer of a model by its litellm name, such as "openai/gpt-4o-mini"."""
    litellm = load_litellm()
    response = litellm.completion(model=model, messages=list(messages), **settings)
    try:
        cost = litellm.completion_cost(response)
    except Exception as error:  # litellm has no class of its own for a model without a price
        if "isn't mapped" not in str(error):
            raise
        cost = None
    return Said(response.choices[0].message.content or "", cost)
