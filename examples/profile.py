"""Keep a typed profile up to date, read a former state, and forget facts.

Without a key the model's answers are scripted, by a server on this machine that speaks OpenAI's
API. Set AGENT_MEMORY_MODEL to any litellm model (and the provider's key), and that model answers.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from agent_memory import AgentMemory, ExtractiveMemory, Redactor
from agent_memory.testing import FakeLLM

MODEL = os.environ.get("AGENT_MEMORY_MODEL")


class Profile(BaseModel):
    """Facts about a user. The default of a field means "not known yet"."""

    name: str | None = None
    city: str | None = Field(default=None, description="the city the user lives in")
    employer: str | None = None
    children: int | None = None
    hobbies: list[str] = Field(default=[], description="what the user likes to do")


def finding(field: str, value: Any, quote: str, **more: Any) -> dict[str, Any]:
    """Return one finding in the form of a model's answer."""
    return {"field": field, "value": value, "message": 1, "quote": quote, **more}


TALK: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "2025-01-10T09:00:00+00:00",
        "I'm Ana. I live in Porto, work at Cortiça, and climb on weekends.",
        [
            finding("name", "Ana", "I'm Ana"),
            finding("city", "Porto", "I live in Porto"),
            finding("employer", "Cortiça", "work at Cortiça"),
            finding("hobbies", "climbing", "climb on weekends"),
        ],
    ),
    (
        "2025-09-02T09:00:00+00:00",
        "We moved to Lisbon in August! Our two kids love it. Write to ana@example.com.",
        [
            finding("city", "Lisbon", "moved to Lisbon in August", since="2025-08"),
            finding("children", 2, "Our two kids"),
        ],
    ),
    (
        "2025-11-20T09:00:00+00:00",
        "Sorry, we have three kids. And I gave up climbing last month; I surf now.",
        [
            finding("children", 3, "we have three kids", corrects=True),
            finding("hobbies", "climbing", "gave up climbing last month", until="2025-10"),
            finding("hobbies", "surfing", "I surf now"),
        ],
    ),
]


def main() -> None:
    """Talk on three days, then print the profile of today, of June, and after `forget`."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"model": MODEL}
        fake = None
        if MODEL is None:
            fake = stack.enter_context(FakeLLM())
            settings = {"model": "openai/scripted", "api_base": fake.api_base, "api_key": "none"}
        block = ExtractiveMemory(profile=Profile, redact=Redactor(phones=False))
        memory = stack.enter_context(AgentMemory(store="memory://", blocks=[block], **settings))

        for number, (day, text, answer) in enumerate(TALK, 1):
            if fake is not None:
                fake.reply_json({"facts": answer})
            message = {"role": "user", "content": text, "created_at": day}
            memory.update(f"talk-{number}", message, user_id="ana")
            memory.flush()
            print(f"{day[:10]}  {text}")

        print("\nToday:       ", memory.user("ana").profile())
        june = datetime(2025, 6, 1, tzinfo=UTC)
        print("In June 2025:", memory.user("ana").profile(as_of=june))
        print(
            "Known then:  ", memory.user("ana").profile(known_at=datetime(2025, 10, 1, tzinfo=UTC))
        )

        print("\nWhat became of it:")
        for change in memory.user("ana").audit():
            print(f"  {change.at:%Y-%m-%d}  {change.what:12}  {change.text}  <- {change.why}")

        gone = memory.session("talk-2").owner().forget(source="talk-2", why="a visitor was typing")
        print("\nForgotten:", ", ".join(fact.text for fact in gone))
        print("Left:     ", memory.user("ana").profile())
        if fake is not None:
            print("\nThe address was sent to nobody:", "example.com" not in str(fake.requests))


if __name__ == "__main__":
    main()
