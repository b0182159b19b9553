"""What a model may ask of a `SpatialMemory`: to observe, and what is near or in a box."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agent_memory.core.records import Scope
from agent_memory.core.tools import Arguments, Tool
from agent_memory.ltm_blocks.spatial.observation import SpatialMatch

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory

_MOST = 50
_QUERY = Field(default=None, max_length=2_000, description="What it should be about, in words.")


class Observe(Arguments):
    """What `spatial_observe` takes."""

    text: str = Field(min_length=1, description="What was observed, in a few words.")
    position: list[float] = Field(description="Where: [x, y], or [x, y, z] in three dimensions.")
    confidence: float = Field(default=1.0, ge=0, le=1, description="How sure it is, 0 to 1.")


class Near(Arguments):
    """What `spatial_near` takes."""

    position: list[float] = Field(description="From where: [x, y], or [x, y, z].")
    radius: float | None = Field(default=None, ge=0, description="Only so far; null: any distance.")
    k: int = Field(default=10, ge=1, le=_MOST, description="At most so many results.")
    query: str | None = _QUERY


class Within(Arguments):
    """What `spatial_within` takes."""

    low: list[float] = Field(description="The least coordinates of the box: [x, y], or [x, y, z].")
    high: list[float] = Field(description="The greatest coordinates of the box.")
    query: str | None = _QUERY


def tools_of(block: SpatialMemory) -> list[Tool]:
    """The tools of a block, named after it."""

    def observe(scope: Scope, asked: Observe) -> str:
        made = block.open(scope).observe(asked.text, asked.position, confidence=asked.confidence)
        return json.dumps({"id": made.id})

    def near(scope: Scope, asked: Near) -> str:
        places = block.open(scope)
        return _rendered(places.near(asked.position, asked.radius, asked.k, query=asked.query))

    def within(scope: Scope, asked: Within) -> str:
        places = block.open(scope)
        return _rendered(places.within(asked.low, asked.high, query=asked.query, limit=_MOST))

    space = f"Positions have {block.dimensions} coordinates."
    return [
        Tool(
            f"{block.name}_observe",
            f"Write down what is at a place, to be found by its position later. {space}",
            Observe,
            observe,
            ("write",),
        ),
        Tool(
            f"{block.name}_near",
            "Find what was observed near a position, best first: near, still sure, and about the "
            f"query if there is one. {space}",
            Near,
            near,
            ("read",),
        ),
        Tool(
            f"{block.name}_within",
            "Find what was observed within a box between two corners, best first: still sure, and "
            f"about the query if there is one. {space}",
            Within,
            within,
            ("read",),
        ),
    ]


def _rendered(found: Sequence[SpatialMatch]) -> str:
    """Sightings as a model is to read them: data."""
    return json.dumps([_fields(one) for one in found], ensure_ascii=False)


def _fields(match: SpatialMatch) -> dict[str, Any]:
    seen, far = match.observation, match.distance
    return {
        "id": seen.id,
        "text": seen.text,
        "position": list(seen.position),
        **({} if far is None else {"distance": float(f"{far:.6g}")}),
        "confidence": round(match.confidence, 2),
        "at": f"{seen.at:%Y-%m-%dT%H:%MZ}",
    }
