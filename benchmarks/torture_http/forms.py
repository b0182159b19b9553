"""What to give a call, whichever it is: made of the schema of what it takes, so that a call that is
new is tried by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from benchmarks.torture_acts import WORDS

IDS = ("session_id", "note_id", "fact_id", "observation_id", "path", "name", "share", "id")
"""Fields that name something of a user's; "id" is what tools call a note or a fact."""

_LEFT_OUT = 0.6
"""How often a field stays out that may."""

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_WORDS = 6


@dataclass(frozen=True, slots=True)
class Given:
    """Makes values.

    Attributes:
        chance: The choices.
        word: What stands in all that is said.
        named: Names what a field is to name.
    """

    chance: Random
    word: str
    named: Callable[[str], str]

    def form(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """All that a call takes, but for some that may be left out."""
        needed = schema.get("required", ())
        return {
            name: self._value(name, one, schema.get("$defs", {}))
            for name, one in schema.get("properties", {}).items()
            if name in needed or self.chance.random() > _LEFT_OUT
        }

    def text(self) -> str:
        """Something to say."""
        words = self.chance.choices(WORDS, k=self.chance.randint(1, _MOST_WORDS))
        words.insert(self.chance.randint(0, len(words)), self.word)
        return " ".join(words)

    def _value(self, name: str, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
        if name in IDS:
            return self.named(name)
        if name in _OWN and schema.get("type") != "boolean":
            return _OWN[name](self)
        if "$ref" in schema:
            return self._value(name, defs[schema["$ref"].rpartition("/")[2]], defs)
        if "anyOf" in schema:
            return self._value(name, self.chance.choice(schema["anyOf"]), defs)
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        return self._plain(name, schema, defs)

    def _plain(self, name: str, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
        chance, kind = self.chance, schema.get("type")
        if kind == "string" and schema.get("format") == "date-time":
            return (_NOW + timedelta(hours=chance.randint(-9_000, 9_000))).isoformat()
        if kind == "string":
            return self.text()
        if kind in ("integer", "number"):
            least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            most = min(schema.get("maximum", 20), 20)
            return chance.randint(int(least), int(most))
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "array":
            count = chance.randint(schema.get("minItems", 0), schema.get("maxItems", 2))
            item = schema.get("items", {"type": "string"})
            return [self._value("", item, defs) for _ in range(count)]
        if kind == "object" and "properties" in schema:
            return self.form({**schema, "$defs": defs})
        if kind == "object":
            return {chance.choice(WORDS): self.text()}
        return None


def said(given: Given, role: str) -> dict[str, str]:
    """A message."""
    return {"role": role, "content": given.text()}


def _messages(given: Given) -> list[dict[str, str]]:
    roles = given.chance.choice((["user"], ["user", "assistant"], ["assistant", "user", "user"]))
    return [said(given, role) for role in roles]


_OWN: Mapping[str, Callable[[Given], Any]] = {
    "messages": _messages,
    "message": lambda given: given.text(),
    "asked": lambda given: [said(given, "user")],
    "answer": lambda given: given.text(),
    "agent_id": lambda given: f"agent-{given.chance.randrange(9)}",
    "after": lambda given: str(given.chance.randrange(9)),
    "position": lambda given: [given.chance.randrange(4), given.chance.randrange(4)],
    "low": lambda given: [0, 0],
    "high": lambda given: [given.chance.randrange(4), given.chance.randrange(4)],
    "expected_end": lambda given: given.chance.randrange(4),
    "max_tokens": lambda given: given.chance.randint(40, 400),
    "old_path": lambda given: given.named("path"),
    "new_path": lambda given: given.named("path"),
    "receipt": lambda given: {"kind": "session", "id": given.text()},
}
"""Fields whose schema does not say what is usable."""
