"""`SpatialMemory`: what was observed, and where; surer when it was seen lately."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from agent_memory.core.forms import Form, Plain, Share
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Record, Scope, Span
from agent_memory.errors import ConfigError, InvalidInput, MissingExtra
from agent_memory.ltm_blocks.base import ManualBlock, Resources
from agent_memory.ltm_blocks.spatial.handle import SpatialHandle
from agent_memory.ltm_blocks.spatial.keeping import Indexes, Keeper, erase
from agent_memory.ltm_blocks.spatial.observation import MOST, Observation, SpatialMatch, rendered

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.core.tools import Tool
    from agent_memory.ltm_blocks.spatial.index import PlaceIndex
    from agent_memory.ltm_blocks.spatial.scoring import Found
    from agent_memory.models.embedders.best_effort import BestEffort

__all__ = ["Observation", "SpatialHandle", "SpatialMatch", "SpatialMemory"]


class _StoredForm(Form):
    """The metadata of an observation's record."""

    position: Annotated[
        list[Annotated[float, Field(ge=-MOST, le=MOST)]], Field(min_length=2, max_length=3)
    ]
    confidence: Share
    metadata: Plain = Field(default_factory=dict)


class SpatialMemory(ManualBlock):
    """Observations at places, written by tool or by `User.spatial`; per user.

    Positions are plain numbers in a unit of your own: distances are Euclidean, so degrees of
    latitude and longitude are not for it. An observation goes with its user, and with the session
    in which it was made. Needs the extra `spatial`.

    Attributes:
        dimensions: 2 for x and y, 3 for x, y and z.
        half_life: After this time half of an observation's confidence is left; None for all of it,
            for ever.
        min_confidence: What is less sure than this by now is not found any more. It stays.
        max_observations: So many a user can have.
        max_chars: So many characters each can have, and its metadata as JSON too.
    """

    kind: Literal["spatial"] = "spatial"
    dimensions: Literal[2, 3] = 2
    half_life: Annotated[timedelta, Field(gt=timedelta())] | None = timedelta(days=30)
    min_confidence: float = Field(default=0.05, ge=0, le=1)
    max_observations: int = Field(default=100_000, gt=0)
    max_chars: int = Field(default=4_000, gt=0)

    _embedder: BestEffort = PrivateAttr()
    _indexes: Indexes = PrivateAttr()

    def bind(self, resources: Resources) -> Self:
        """As `Block.bind`.

        Raises:
            MissingExtra: The extra `spatial` is not installed.
        """
        from agent_memory.models.embedders.best_effort import BestEffort

        if find_spec("rtree") is None:
            raise MissingExtra("SpatialMemory", "spatial")
        bound = super().bind(resources)
        bound._embedder = BestEffort(lambda: resources.embedders(None))
        bound._indexes = Indexes(bound._index_of)
        return bound

    def open(self, scope: Scope) -> SpatialHandle:
        """What a user has observed, or a session without one."""
        keeper = Keeper(self.resources, self.name, scope, self._indexes)
        return SpatialHandle(keeper, self, scope.session_id or "")

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """What was observed that bears on the message, best first; without one the newest.

        A message whose metadata has a "position" is one from there: what is near counts too.
        """
        if not scope.is_somebodys:
            return []
        now = datetime.now(UTC)
        found = self.open(scope).bearing(message, limit, now)
        return [
            Recall(
                self.name,
                one.observation.id,
                rendered(one, now),
                one.score,
                created_at=one.observation.at,
                metadata={"position": list(one.observation.position)},
            )
            for one in found
        ]

    def all_kept(self, scope: Scope) -> list[Recall]:
        return [
            Recall(
                self.name,
                one.id,
                f"{one.text} ({', '.join(f'{at:g}' for at in one.position)})",
                created_at=one.at,
            )
            for one in self.open(scope).all()
        ]

    def forget(self, scope: Scope, what: str | Span, why: str) -> Sequence[str]:
        """Forget an observation by its id; observations come from no messages."""
        return [what] if isinstance(what, str) and self.open(scope).delete(what) else []

    def delete(self, scope: Scope) -> None:
        erase(self.resources, self.name, scope)
        self._indexes.drop(scope.owner)

    @property
    def versioned(self) -> bool:
        return True

    def validate_import(self, record: Record) -> Record:
        dimensions = len(_StoredForm.model_validate(record.metadata).position)
        if dimensions != self.dimensions:
            raise InvalidInput(
                f"block {self.name!r} has {self.dimensions} dimensions, and this {dimensions}"
            )
        return record

    def tools(self) -> Sequence[Tool]:
        from agent_memory.ltm_blocks.spatial.tools import tools_of

        return tools_of(self)

    def relevance(self, question: str, found: Found) -> np.ndarray:
        """Return for each observation the probability that it has to do with a question."""
        from agent_memory.retrieval.texts import TextIndex

        texts = [one.text for one in found.observations]
        index = TextIndex(texts, self._embedder.encode(texts))
        return index.relevance(self._embedder.query(question))

    def _index_of(self, observations: Sequence[Observation]) -> PlaceIndex:
        from agent_memory.ltm_blocks.spatial.index import Fading, PlaceIndex

        for one in observations:
            if len(one.position) != self.dimensions:
                raise ConfigError(
                    f"The block {self.name!r} keeps observations in {len(one.position)} "
                    f"dimensions, and is set to {self.dimensions}. Set `dimensions` back, or give "
                    "the block another `name`."
                )
        half_life = None if self.half_life is None else self.half_life.total_seconds()
        return PlaceIndex(self.dimensions, Fading(half_life, self.min_confidence), observations)
