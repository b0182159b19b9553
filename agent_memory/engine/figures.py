"""What the processes of a service counted, all together: one record of the store.

Each process adds what it has counted since the last time. One that is killed takes the last seconds
of its counting along.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from random import random
from time import sleep
from typing import cast, get_args

from agent_memory.core.processes import begin_anew_in_child, known_lock
from agent_memory.core.records import Record
from agent_memory.core.reserved import FIGURES
from agent_memory.core.threads import repeated
from agent_memory.core.usage import Purpose, Usage
from agent_memory.engine.stats import Counted, PromptStats, RecallStats
from agent_memory.errors import StoreError
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

logger = logging.getLogger(__name__)

_PLACE = FIGURES.name
_NAME = record_id(_PLACE, "all")
_ADD_SECONDS = 15.0
_TRIES = 100
_PAUSE_SECONDS = 0.002


class Figures:
    """Adds up what processes counted.

    Args:
        store: Where it is kept.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._added: Mapping[str, float] = {}
        self._let_go()
        begin_anew_in_child(self, Figures._let_go)

    def _let_go(self) -> None:
        self._lock = known_lock()  # no fork waits for it: it is held while the store is asked

    def add(self, counted: Counted) -> bool:
        """Add what this process counted and has not added yet; whether that is done.

        Where the store does not take it, it is added the next time.

        Args:
            counted: All that it counted since it began.
        """
        with self._lock:
            now = _flat(counted)
            more = {name: value - self._added.get(name, 0) for name, value in now.items()}
            more = {name: value for name, value in more.items() if value}
            try:
                done = not more or self._changed(more)
            except StoreError as error:
                logger.warning("figures are not added up, and will be: %s", type(error).__name__)
                return False
            if done:
                self._added = now
            return done

    @contextmanager
    def kept_up(self, counted: Callable[[], Counted]) -> Iterator[None]:
        """Add what this process counts every few seconds while the body runs, and at its end.

        Args:
            counted: Tells all that it counted since it began.
        """

        def add() -> bool:
            self.add(counted())
            return True

        try:
            with repeated("figures", _ADD_SECONDS, add):
                yield
        finally:
            add()

    def read(self) -> Counted:
        """What all processes added."""
        return _counted(_kept(self._store.record(_PLACE, _NAME)))

    def _changed(self, more: Mapping[str, float]) -> bool:
        for tried in range(_TRIES):
            before = self._store.record(_PLACE, _NAME)
            figures = Counter(_kept(before))
            figures.update(cast("Mapping[str, int]", more))
            last = None if before is None else before.last
            told = {"figures": dict(figures)}
            now = datetime.now(UTC)
            record = Record(_NAME, _PLACE, "", 0, (last or 0) + 1, "", (), now, told)
            if self._store.swap_record(_PLACE, record, last):
                return True
            sleep(_PAUSE_SECONDS * random() * min(tried + 1, 10))
        return False


def _kept(record: Record | None) -> Mapping[str, float]:
    found: Mapping[str, float] = {} if record is None else record.metadata["figures"]
    return found


def _flat(counted: Counted) -> dict[str, float]:
    told = {f"usage {purpose}": asdict(one) for purpose, one in counted.usage.items()}
    told |= {"prompts": asdict(counted.prompts), "recalls": asdict(counted.recalls)}
    return {
        f"{group} {name}": value or 0
        for group, values in told.items()
        for name, value in values.items()
    }


def _counted(flat: Mapping[str, float]) -> Counted:
    def group(name: str) -> dict[str, float]:
        begin = f"{name} "
        return {
            one.removeprefix(begin): value for one, value in flat.items() if one.startswith(begin)
        }

    usage: dict[Purpose, Usage] = {}
    for purpose in cast("tuple[Purpose, ...]", get_args(Purpose)):
        if told := group(f"usage {purpose}"):
            usage[purpose] = Usage(**cast("dict[str, int]", told))
    return Counted(
        usage,
        PromptStats(**cast("dict[str, int]", group("prompts"))),
        RecallStats(**cast("dict[str, int]", group("recalls"))),
    )
