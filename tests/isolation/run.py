"""A whole run of random calls: two memories over one store, with blocks of each kind."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from pydantic import BaseModel

from agent_memory import (
    AgentMemory,
    FlushToLTM,
    SkillMemory,
    SpatialMemory,
    StaticMemory,
    VectorMemory,
    WorkingMemory,
)
from agent_memory.ltm_blocks import Block, ExtractiveMemory, FileMemory, NoteMemory
from agent_memory.stores import open_store
from agent_memory.testing import FakeLLM
from tests.isolation.crowd import Crowd, Plan, Report
from tests.isolation.echo import Echo

_STEP = 100


class Likes(BaseModel):
    """A profile."""

    likes: list[str] = []


def blocks(folder: Path) -> list[Block]:
    return [
        StaticMemory(facts=["The office is closed on Sundays."]),
        VectorMemory(),
        ExtractiveMemory(roles=("user", "assistant", "tool")),
        ExtractiveMemory(name="likes", profile=Likes),
        NoteMemory(),
        WorkingMemory(),
        SpatialMemory(),
        FileMemory(),
        SkillMemory(folder=folder),
    ]


def run_crowd(plan: Plan, advance: Callable[[int], object], more: Sequence[Block] = ()) -> Report:
    """Do a run, with `more` blocks. `advance` gets the number of new operations."""
    report, began = Report(), monotonic()
    crowd = Crowd(plan, report)
    numbers = count()

    def work(memories: Sequence[AgentMemory]) -> None:
        for number in numbers:
            if number >= plan.calls:
                return
            crowd.operate(number, memories)
            if number % _STEP == _STEP - 1:
                advance(_STEP)

    with ExitStack() as stack:
        stack.enter_context(_listening(crowd))
        skills = Path(stack.enter_context(TemporaryDirectory()))
        model = stack.enter_context(FakeLLM(Echo(crowd.sent)))
        shared = open_store(plan.url, plan.namespace) if plan.url.startswith("memory:") else None
        modes = ("inline", "inline") if plan.threads == 1 else ("inline", "background")
        memories = [
            stack.enter_context(
                AgentMemory(
                    store=shared or plan.url,
                    namespace=plan.namespace,
                    max_tokens=400,
                    model="openai/gpt-4o-mini",
                    api_base=model.api_base,
                    api_key="none",
                    embedding="local",
                    overflow=FlushToLTM(blocks=[*blocks(skills), *more], max_stm_ratio=0.5),
                    overflow_mode=mode,
                    absorb_attempts=2,
                    recall_timeout=60,
                )
            )
            for mode in modes
        ]
        crowd.begin(memories[0])
        with ThreadPoolExecutor(plan.threads) as pool:
            for done in [pool.submit(work, memories) for _ in range(plan.threads)]:
                done.result()
        for memory in memories[1:]:
            memory.close()
        crowd.end(memories[0], _files(plan.url))
    report.seconds = monotonic() - began
    return report


def _files(url: str) -> list[Path]:
    """Return the files of a database on disk."""
    path = Path(url.removeprefix("sqlite:///"))
    return [*path.parent.glob(f"{path.name}*")] if url.startswith("sqlite:") else []


@contextmanager
def _listening(crowd: Crowd) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("agent_memory", "py.warnings")]
    logging.captureWarnings(True)
    for one in loggers:
        one.addHandler(crowd)
    try:
        yield
    finally:
        for one in loggers:
            one.removeHandler(crowd)
        logging.captureWarnings(False)
