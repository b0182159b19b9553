"""The records of a session that is imported from a snapshot: which are kept, and how.

Vectors are written as they come: nothing is recalled of a session that has not arrived. Facts are
read without asking whether their session has, so they are kept in memory until the snapshot was
read to its end; whoever recalls facts holds all of a user's in memory too.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.once import KeptKey
from agent_memory.core.records import DeadLetter, Head, Lease, Record, Scope
from agent_memory.core.reserved import VALUES
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.engine.transfer.snapshots.lines import refused
from agent_memory.engine.transfer.snapshots.reading import (
    Fact,
    Forgotten,
    Item,
    Value,
    Vector,
    Vectors,
)
from agent_memory.engine.transfer.validate_import import features_in, is_bound, is_keyed, validated
from agent_memory.errors import ConfigError, DimensionMismatch, ModelError
from agent_memory.ltm_blocks.base import Block, Resources
from agent_memory.ltm_blocks.keyed_records import KeyedRecords
from agent_memory.ltm_blocks.registry import register
from agent_memory.ltm_blocks.tombstones import FORGOTTEN
from agent_memory.ltm_blocks.trails import begun_anew
from agent_memory.ltm_blocks.versions import new_version, version_of

if TYPE_CHECKING:
    from agent_memory.stores.base import VectorStore

logger = logging.getLogger(__name__)

_PAGE = 200


class RecordImport:
    """Takes the records of one session.

    Args:
        resources: What blocks are given.
        failures: What blocks could not absorb.
        blocks: Bound blocks, by name.
        head: The session's, as the snapshot says it.
        lease: The session's.
    """

    def __init__(
        self,
        resources: Resources,
        failures: DeadLetters,
        blocks: Mapping[str, Block],
        head: Head,
        lease: Lease,
    ) -> None:
        self._resources = resources
        self._store = resources.store
        self._failures = failures
        self._blocks = blocks
        self._head = head
        self._lease = lease
        self._facts: dict[tuple[str, str], list[tuple[int, Record]]] = defaultdict(list)
        self._keys: list[KeptKey] = []
        self._letters: list[DeadLetter] = []
        self._forgotten: list[Forgotten] = []
        self._values: list[Record] = []
        self._brought: set[str] = set()
        self._anew: set[str] = set()
        self._place: tuple[Vectors, VectorStore] | None = None
        self._vectors: list[tuple[int, Vector]] = []

    def take(self, number: int, item: Item) -> None:
        """Take what a line says.

        Args:
            number: The line's.
            item: What it says.

        Raises:
            InvalidSnapshot: The block that it is for could not read it.
        """
        if isinstance(item, KeptKey):
            self._keys.append(item)
        elif isinstance(item, Fact):
            record = validated(number, item.record, self._blocks.get(item.block))
            self._facts[item.block, record.owner].append((number, record))
        elif isinstance(item, Vectors):
            self._put_vectors()
            self._place = self._placed(item)
        elif isinstance(item, Vector):
            if item.block not in self._anew:
                self._vectors.append((number, item))
            if len(self._vectors) == _PAGE:
                self._put_vectors()
        elif isinstance(item, DeadLetter):
            self._letters.append(item)
        elif isinstance(item, Forgotten):
            self._forgotten.append(item)
        elif isinstance(item, Value):
            self._values.append(item.record)

    def finish(self) -> dict[str, int]:
        """Keep what is not kept yet, now that the snapshot is known to be whole.

        Returns:
            The cursors of the blocks whose records have come along; the others begin anew.

        Raises:
            InvalidSnapshot: A record would take the place of another session's.
        """
        self._put_vectors()
        self._check_ids()
        for (block, owner), facts in self._facts.items():
            if block not in self._anew:
                self._put_facts(block, owner, [record for _, record in facts])
        cursors = self._cursors()
        for letter in self._letters:
            if letter.block in cursors:
                self._failures.keep(letter, self._lease)
        self._store.put_keys(self._head.session_id, self._keys, lease=self._lease)
        tombstones = [one.record for one in self._forgotten]
        self._store.put_records(FORGOTTEN, tombstones, lease=self._lease)
        for at in range(0, len(self._values), _PAGE):
            page = self._values[at : at + _PAGE]
            versions = map(new_version, {one.owner for one in page})
            self._store.put_records(VALUES.name, [*page, *versions], lease=self._lease)
        return cursors

    def _cursors(self) -> dict[str, int]:
        head = self._head
        come = (self._brought | {block for block, _ in self._facts}) - self._anew
        for block in head.cursors.keys() - come:
            logger.info("block %r absorbs session %r anew", block, head.session_id)
            if head.expired:
                logger.warning(
                    "block %r absorbs session %r anew, without its first %d messages: its records "
                    "can't be kept here, and these messages are not in the log any more",
                    block,
                    head.session_id,
                    head.expired,
                )
        return {block: cursor for block, cursor in head.cursors.items() if block in come}

    def _check_ids(self) -> None:
        """Refuse records that have the id of another session's: writing them would destroy it.

        Most ids say whose they are. For the others all facts are looked through.
        """
        loose = {
            (block, record.id): number
            for (block, _), facts in self._facts.items()
            for number, record in facts
            if not is_bound(block, record) and not is_keyed(block, record)
        }
        for block, there in self._store.all_records() if loose else ():
            number = loose.get((block, there.id))
            if number is not None and there.session_id != self._head.session_id:
                raise refused(number, f"block {block!r} has another record of its id already")

    def _put_facts(self, block: str, owner: str, records: Sequence[Record]) -> None:
        head = self._head
        if block not in head.cursors:  # whoever deletes the session has to know of the block
            register(self._store, block)
        own = Scope(None, head.session_id).owner == owner
        scope = Scope(head.user_id, head.session_id)
        with KeyedRecords(self._resources, block, scope, "session" if own else "user").changing():
            there = {one.id: one.session_id for one in self._store.records(block, owner)}
            # what was changed in another session since stays as it is
            kept = [one for one in records if there.get(one.id, one.session_id) == one.session_id]
            is_versioned = self._is_versioned(block, owner, records)
            version = [new_version(owner), begun_anew(owner)] if is_versioned else []
            for at in range(0, len(kept), _PAGE):
                page = kept[at : at + _PAGE]
                self._store.put_records(block, [*page, *version], lease=self._lease)

    def _is_versioned(self, name: str, owner: str, records: Sequence[Record]) -> bool:
        """Whether others may remember the owner's records, or will."""
        if version_of(self._store, name, owner) is not None:
            return True
        block = self._blocks.get(name)
        versioned = block is None or block.versioned
        return versioned and not all(is_keyed(name, record) for record in records)

    def _placed(self, item: Vectors) -> tuple[Vectors, VectorStore] | None:
        """Where a block's vectors are to be kept; None where they would not fit."""
        block, given = self._blocks.get(item.block), (item.dimension, item.model)
        kept = self._store if block is None else block.vectors
        try:
            if block is not None:
                fits = block.validate_vectors(*given)
            else:
                fits = kept.vector_blocks().get(item.block) == given
            if fits:
                kept.open_vectors(item.block, *given)
                self._brought.add(item.block)
                return item, kept
        except (ModelError, ConfigError) as error:
            logger.warning("vectors of block %r are made anew: %s", item.block, error)
        self._anew.add(item.block)
        return None

    def _put_vectors(self) -> None:
        """Write the vectors that have come."""
        if not self._vectors or self._place is None:
            return
        announced, kept = self._place
        block, session_id = announced.block, self._head.session_id
        features = features_in(self._vectors, announced.dimension)
        records = [one.record for _, one in self._vectors]
        self._vectors = []
        try:
            if all(is_bound(block, record) for record in records):
                kept.put_vectors(block, records, features, lease=self._lease)
                return
        except DimensionMismatch as error:  # it is being rebuilt for another embedding
            logger.warning("vectors of block %r are made anew: %s", block, error)
        kept.delete_vectors(block, session_id=session_id, lease=self._lease)
        self._anew.add(block)
