"""Claims and facts for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link, LinkKind
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.extractive.history.history import facts_of

DAY = datetime(2024, 1, 1, tzinfo=UTC)
WEIGHTS = {"tool": 0, "assistant": 1, "user": 2}


def day(number: int) -> datetime:
    return DAY + timedelta(days=number)


def claim(name: str, text: str = "", said: int = 0, fact: str = "", **fields: Any) -> Claim:
    """Return a claim made on a day. It holds from that day."""
    told: dict[str, Any] = {
        "id": name, "fact": fact or name, "text": text or f"Fact {name}.", "subject": "user",
        "category": "other", "confidence": 1.0, "role": "user", "valid_from": day(said),
        "valid_to": None, "recorded_at": day(said), "session_id": "s", "seq": said + 1,
        "quote": name, "span": (0, 1), "model": "m", "prompt": "p",
    }  # fmt: skip
    return Claim(**{**told, **fields})


def linked(kind: LinkKind, fact: str) -> tuple[Link, ...]:
    return (Link(kind, fact),)


def facts(*claims: Claim) -> list[Fact]:
    return facts_of(claims, block="extractive", weights=WEIGHTS)
