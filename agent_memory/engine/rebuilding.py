"""Rebuilding a block that can't be opened as it is stored, after its embedding model changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from agent_memory.config import AgentMemoryConfig
from agent_memory.engine.admission import check_block
from agent_memory.engine.assembly import Parts, assemble
from agent_memory.engine.notes import Notes
from agent_memory.engine.replaying import REPLAYS
from agent_memory.engine.services import Services
from agent_memory.engine.stats import Progress
from agent_memory.errors import DimensionMismatch

_TRIES = 5
"""A process with the old settings may write between the dropping and the opening."""


def rebuild(config: AgentMemoryConfig, block: str) -> Iterator[Progress]:
    """Rebuild a block from the log under its new settings, such as another embedding model.

    As `AgentMemory.replay`, but where the stored vectors are of another model they are dropped
    first. An interrupted rebuild goes on where it stopped. Until it is done the block recalls only
    from the sessions done so far; processes that still run with the old settings recall nothing
    from it, and warn.

    Args:
        config: The new settings.
        block: Name of the block.

    Yields:
        Progress after each session.

    Raises:
        ConfigError: No absorbing block has that name.
    """
    known = [one.name for one in config.all_blocks if one.absorbs]
    check_block(block, known)
    with closing(_opened(config, block)) as parts:
        yield from parts.replay.run(block)


def _opened(config: AgentMemoryConfig, name: str) -> Parts:
    """The parts with this block alone: others may have to be rebuilt too, each in its turn."""
    for _ in range(_TRIES):
        try:
            return assemble(config, name)
        except DimensionMismatch:
            _drop_vectors(config, name)
    return assemble(config, name)


def _drop_vectors(config: AgentMemoryConfig, name: str) -> None:
    services = Services(config)
    resources = services.resources
    with closing(services):
        for block in config.all_blocks:
            if block.name == name:
                # noted first: whoever replays after a crash must not leave sessions out
                Notes(resources.store).write(REPLAYS, name, after=None, done=0)
                block.clear(resources)
