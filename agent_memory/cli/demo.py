"""`agent-memory demo`: a conversation overflows a small budget, and what is left of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent_memory.cli import conversation
from agent_memory.cli.common import ConfigOption, ModelOption, err, guarded, quiet
from agent_memory.cli.config_files import read_config

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.strategies.base import Strategy

BUDGET = 400
REPLAY_BUDGET = 2000
_PATIENCE = 30.0


class Kind(StrEnum):
    """The strategies that the demo shows."""

    TRIM = "trim"
    SUMMARIZE = "summarize"
    FLUSH = "flush_to_ltm"


@guarded
def demo(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Replay this chat log (JSON lines with role and content) instead.",
        ),
    ] = None,
    strategy: Annotated[
        Kind | None,
        typer.Option("--strategy", help="Only this one; all three by default."),
    ] = None,
    model: ModelOption = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            help=f"The token budget: {BUDGET} by default, {REPLAY_BUDGET} with --file.",
        ),
    ] = None,
    ask: Annotated[
        str | None,
        typer.Option("--ask", metavar="TEXT", help="The question asked at the end."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Watch a conversation overflow a budget, and what memory keeps of it.

    Plays a talk about an HR policy under each strategy; needs no key. With --model, that model
    writes the summary and extracts the facts. All is kept in a temporary store, deleted afterwards.
    """
    if file is not None:
        from agent_memory.cli.replay import replay_file

        chosen = strategy or Kind.FLUSH
        with quiet(), opened(chosen, max_tokens or REPLAY_BUDGET, model, config, ()) as memory:
            replay_file(memory, file, ask)
        return

    from agent_memory.cli.demo_play import play
    from agent_memory.cli.demo_view import introduce, report

    budget = max_tokens or BUDGET
    question = ask or conversation.QUESTION
    introduce(budget, model)
    for kind in [strategy] if strategy else list(Kind):
        with quiet(), opened(kind, budget, model, config, conversation.FACTS) as memory:
            with err().status(f"playing under {kind}"):
                overflows = play(memory)
            report(memory, overflows, question)


@contextmanager
def opened(
    kind: Kind,
    max_tokens: int,
    model: str | None,
    config: Path | None,
    facts: tuple[str, ...],
) -> Iterator[AgentMemory]:
    """A memory with one strategy, in a temporary store that is deleted afterwards."""
    from agent_memory.engine.memory import AgentMemory

    with tempfile.TemporaryDirectory(prefix="agent-memory-") as folder:
        fields: dict[str, Any] = {
            "store": f"sqlite:///{Path(folder).as_posix()}/demo.db",
            "namespace": "demo",
            "max_tokens": max_tokens,
            "model": model,
            "embedding": None,
            "overflow": strategy_of(kind, max_tokens, model, facts),
            "blocks": (),
            "recall_timeout": _PATIENCE,
        }
        with AgentMemory(read_config(config, fields)) as memory:
            yield memory


def strategy_of(kind: Kind, max_tokens: int, model: str | None, facts: tuple[str, ...]) -> Strategy:
    """The strategy to show."""
    from agent_memory.ltm_blocks import ExtractiveMemory, StaticMemory, VectorMemory
    from agent_memory.strategies import FlushToLTM, Summarize, Trim

    match kind:
        case Kind.TRIM:
            return Trim()
        case Kind.SUMMARIZE:
            return Summarize(max_summary_tokens=max(1, max_tokens // 4))
        case Kind.FLUSH:
            blocks = [
                *([StaticMemory(facts=facts)] if facts else []),
                *([ExtractiveMemory()] if facts or model else []),
                VectorMemory(),
            ]
            return FlushToLTM(blocks=tuple(blocks), max_stm_ratio=0.5)
