"""Loading beforehand what the first calls of a process would load, each of them at its own cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from agent_memory.core.records import Scope
from agent_memory.core.threads import apart
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.ltm_blocks.base import Block
from agent_memory.models.loading import load_litellm

logger = logging.getLogger(__name__)


@apart
def warm_up(
    counter: TokenCounter, blocks: Iterable[Block], *, asks_models: bool, scope: Scope | None
) -> None:
    """Load what takes long. What cannot be loaded is logged, and met again by whoever needs it.

    Args:
        counter: Whose tokenizer is built.
        blocks: Whose embedders and indexes are loaded.
        asks_models: Whether language models or embedders of providers will be asked.
        scope: Whose records the blocks read; None for nobody's.
    """
    steps: list[tuple[str, Callable[[], object]]] = [("the tokenizer", counter.load)]
    if asks_models:
        steps.append(("litellm", load_litellm))
    for block in blocks:
        steps.append((f"the block {block.name!r}", block.load))
        if scope is not None:
            steps.append((f"the block {block.name!r}", partial(block.warm, scope)))
    for name, step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - such as no network: nothing depends on it yet
            logger.warning("%s was not loaded beforehand: %r", name, error)
