"""`agent-memory demo`: a conversation overflows a small budget."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    BudgetOption,
    ConfigOption,
    ModelOption,
    guarded,
    quiet,
    read_config,
    say,
)
from agent_memory.cli.lines import read_lines

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory

Kind = StrEnum("Kind", ["trim", "summarize", "flush_to_ltm"])
"""The strategies that the demo shows."""

_BUDGET = 400
_REPLAY_BUDGET = 2000
_PATIENCE = 30.0


@guarded
def demo(
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Play a chat log."),
    ] = None,
    strategy: Annotated[
        Kind | None, typer.Option(help="The strategy; all three by default.")
    ] = None,
    model: ModelOption = None,
    max_tokens: BudgetOption = None,
    ask: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The question at the end.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Show how a conversation overflows its budget, and what the memory still knows afterwards.

    Plays a conversation about an HR policy in 400 tokens, under each strategy. No key is
    needed. With --file, plays JSON lines with role and content, in 2000 tokens. With --model, that
    model writes the summary and extracts the facts. The store is temporary and deleted afterwards.
    """
    from agent_memory.cli import demo_play as playing
    from agent_memory.cli.demo_play import play, show_demo, show_replay

    with quiet():
        if file is not None:
            kind, read = strategy or Kind.flush_to_ltm, read_lines(file)
            with _opened(kind, max_tokens or _REPLAY_BUDGET, model, config, ()) as memory:
                played = play(memory, read, file.name)
                questions = [message.text() for _, message in read if message.role == "user"]
                show_replay(memory, played, ask or next(reversed(questions), "What was said?"))
            return
        messages, budget = playing.messages(), max_tokens or _BUDGET
        say(f"\nSarah asks HR about remote work: {len(messages)} messages, {budget} tokens.")
        say(f"A model (--model NAME): {model or 'none'}.")
        for kind in [strategy] if strategy else Kind:
            with _opened(kind, budget, model, config, playing.FACTS) as memory:
                played = play(memory, list(enumerate(messages, 1)), f"under {kind}")
                show_demo(memory, played, ask or playing.QUESTION)


@contextmanager
def _opened(
    kind: Kind, max_tokens: int, model: str | None, config: Path | None, facts: tuple[str, ...]
) -> Iterator[AgentMemory]:
    """Open a memory with one strategy, in a temporary store that is deleted afterwards."""
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.ltm_blocks import ExtractiveMemory, StaticMemory, VectorMemory
    from agent_memory.strategies import FlushToLTM, Summarize, Trim

    fixed = [StaticMemory(facts=facts)] if facts else []
    learned = [ExtractiveMemory()] if facts or model else []
    strategies = {
        Kind.trim: Trim(),
        Kind.summarize: Summarize(max_summary_tokens=max(1, max_tokens // 4)),
        Kind.flush_to_ltm: FlushToLTM(blocks=(*fixed, *learned, VectorMemory()), max_stm_ratio=0.5),
    }
    with tempfile.TemporaryDirectory(prefix="agent-memory-") as folder:
        store = f"sqlite:///{Path(folder).as_posix()}/demo.db"
        fields = {"store": store, "namespace": "demo", "max_tokens": max_tokens, "model": model}
        fields |= {"embedding": None, "blocks": (), "recall_timeout": _PATIENCE}
        with AgentMemory(read_config(config, {**fields, "overflow": strategies[kind]})) as memory:
            yield memory
