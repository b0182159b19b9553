"""The user's day: times keep their offset, and recalls show the local day."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent_memory import AgentMemory, ConfigError, Message, NoteMemory, VectorMemory
from agent_memory.core.records import Scope

SINGAPORE = "2026-04-16T00:30:00+08:00"


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{folder}/m.db"])
def test_a_message_keeps_its_offset_and_shows_its_local_day(store: str, tmp_path: Path) -> None:
    """Wrong: a message from half past midnight in Singapore is shown with the day before."""
    said = {"role": "user", "content": "I planted sage in pot four.", "created_at": SINGAPORE}
    url = store.format(folder=tmp_path)
    with AgentMemory(store=url, blocks=[VectorMemory()], recall_timeout=30) as memory:
        memory.update("s", said, user_id="ana")
        memory.flush("s")
        (entry,) = memory.history("s")
        assert entry.message.to_dict()["created_at"] == SINGAPORE
        assert entry.message.created_at.utcoffset() == timedelta(hours=8)
        assert entry.created_at == datetime.fromisoformat(SINGAPORE)
        assert f"{entry.local_time:%Y-%m-%d}" == "2026-04-16"
        context = memory.get("t", "What did I plant in pot four?", user_id="ana")
        assert "[2026-04-16]" in str(context.to_messages())
        (found,) = memory.search("What did I plant in pot four?", user_id="ana")
        assert str(found).startswith("[2026-04-16]")


def test_the_time_zone_setting_is_applied_and_validated() -> None:
    """Wrong: the time zone is ignored, or a misspelt one is accepted."""
    bare = {"role": "user", "content": "a", "created_at": "2026-07-01T23:30:00"}
    own = {"role": "user", "content": "b", "created_at": SINGAPORE}
    with AgentMemory(store="memory://", blocks=[], timezone="America/Lima") as memory:
        memory.update("s", [bare, own, "now"])
        first, second, third = (entry.message.created_at for entry in memory.history("s"))
        assert first == datetime(2026, 7, 1, 23, 30, tzinfo=ZoneInfo("America/Lima"))
        assert second.isoformat() == SINGAPORE
        assert third.utcoffset() == timedelta(hours=-5)
        assert abs(third - datetime.now(UTC)) < timedelta(minutes=1)
    with pytest.raises(ConfigError, match="timezone is 'Mars/Olympus'"):
        AgentMemory(store="memory://", timezone="Mars/Olympus")
    said = {"role": "user", "content": "a", "timestamp": "2024-05-06T00:53:20+02:00"}
    with AgentMemory(store="memory://", blocks=[]) as memory:
        memory.update("s", said)
        assert f"{memory.history('s')[0].local_time:%Y-%m-%d}" == "2024-05-06"


class _Zones:
    def __call__(self, user_id: str | None) -> str | None:
        return {"ana": "America/Lima", "ben": "Asia/Tokyo"}.get(user_id or "")


def zone_of_user(user_id: str | None) -> str | None:
    return _Zones()(user_id)


@pytest.mark.parametrize(
    "zones",
    [{"ana": "America/Lima", "ben": "Asia/Tokyo", "*": "Europe/Lisbon"},
     {"ana": "America/Lima", "ben": "Asia/Tokyo"}, _Zones(), f"{__name__}.zone_of_user"],
)  # fmt: skip
def test_each_user_may_have_a_zone(zones: Any) -> None:
    """Wrong: users of one service in two countries share one time zone."""
    said = {"role": "user", "content": "a", "created_at": "2026-07-01T23:30:00"}
    other = zones.get("*", "UTC") if isinstance(zones, dict) else "UTC"
    with AgentMemory(store="memory://", blocks=[], timezone=zones) as memory:
        for user, zone in (("ana", "America/Lima"), ("ben", "Asia/Tokyo"), ("eve", other)):
            memory.update(user, said, user_id=user)
            memory.update(user, said)  # the session belongs to the user
            for entry in memory.history(user):
                at = entry.message.created_at
                assert at == datetime(2026, 7, 1, 23, 30, tzinfo=ZoneInfo(zone)), user


def test_date_filters_use_the_users_local_days() -> None:
    """Wrong: `memory_read` compares days in UTC, but shows the user's days."""
    blocks = [VectorMemory(), NoteMemory()]
    with AgentMemory(store="memory://", blocks=blocks, timezone="America/Los_Angeles") as memory:
        for day, text in ("03", "I cooked a stew."), ("04", "I sold my boat."):
            bare = {"role": "user", "content": text, "created_at": f"2026-03-{day}T20:00:00"}
            memory.update("s", bare, user_id="ana")
        own = {"role": "user", "content": "I planted a boat tree.", "created_at": SINGAPORE}
        memory.update("s", own, user_id="ana")
        memory.flush()
        evening = datetime(2026, 3, 5, 4, tzinfo=UTC)
        memory.remember("Ana's boat was green.", user_id="ana", at=evening)
        memory.remember("Ana owns a stew pot.", user_id="ana", at=date(2026, 3, 3))

        def read(day: str, query: str = "") -> list[tuple[str, str]]:
            asked = {"query": query, **({"since": day, "until": day} if day else {})}
            answer = memory.call_tool("q", "memory_read", asked, user_id="ana")
            rows = json.loads(answer) if answer.startswith("[") else []
            return sorted((row["date"], row["text"]) for row in rows)

        boat, note = "user: I sold my boat.", "Ana's boat was green."
        assert read("2026-03-04") == [("2026-03-04", boat)]
        assert read("2026-03-04", "boat") == [("2026-03-04", note), ("2026-03-04", boat)]
        assert read("2026-03-05") == read("2026-03-05", "boat") == []
        assert read("2026-04-16") == [("2026-04-16", "user: I planted a boat tree.")]
        assert read("") == [("2026-03-03", "Ana owns a stew pot."), ("2026-03-04", note)]
        context = memory.get("q", "Which colour was the boat?", user_id="ana")
        assert f"[2026-03-04] {note}" in str(context.to_messages())


def test_today_is_computed_in_the_users_time_zone() -> None:
    """Wrong: "yesterday" ignores the user's time zone."""
    zones = {"ana": "Pacific/Kiritimati", "ben": "Pacific/Pago_Pago"}
    with AgentMemory(store="memory://", blocks=[], timezone=zones) as memory:
        resources = memory.components.resources
        at = Message(role="user", content="x", created_at=datetime(2026, 7, 1, 11, tzinfo=UTC))
        days = [resources.today(Scope(one), at).day for one in ("ana", "ben", "eve", None)]
        assert days == [2, 1, 1, 1]
    with pytest.raises(ConfigError, match="timezone is 'Mars/Olympus'"):
        AgentMemory(store="memory://", timezone={"ana": "Mars/Olympus"})
