"""`cost`: estimate the cost of a chat log under each strategy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    ModelOption,
    guarded,
    load_config,
    out,
    progress_bar,
    say,
)
from agent_memory.cli.importing import read_lines
from agent_memory.integrations.imports import From

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_memory.integrations.costing import Bill, Chat


@guarded
def cost(
    file: Annotated[Path, typer.Argument(exists=True, help="A file, a zip, or a folder.")],
    source: Annotated[
        From | None,
        typer.Option("--from", help="The source of the chats. Default: a log in JSON lines."),
    ] = None,
    model: ModelOption = None,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=64, help="The token budget of a context.")
    ] = 4_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: ConfigOption = None,
) -> None:
    """Estimate a chat log's calls, tokens, cost and recalled tokens under each strategy.

    No model is called, and nothing is stored. Each answer in FILE counts as one call, with the
    prompt that `get` would return. The memory's own calls for summaries and facts are estimates,
    marked "~". The cost needs a --model whose price litellm knows, or the setting `prices`.
    """
    from agent_memory.integrations.costing import STRATEGIES, costs

    settings = load_config(None, config, model=model)
    model = settings.model
    chat = _read(file, source)
    with progress_bar() as progress:
        task = progress.add_task("pricing", total=len(chat) * len(STRATEGIES))
        bills = list(
            costs(
                chat,
                model=model,
                max_tokens=max_tokens,
                prices=settings.prices,
                progress=lambda count: progress.advance(task, count),
            )
        )
    if not as_json:
        _print_table(chat, bills, model, max_tokens)
        return
    summary = {
        "messages": len(chat),
        "sessions": len({session for session, _ in chat}),
        "model": model,
        "max_tokens": max_tokens,
        "strategies": [{**asdict(bill), "is_estimated": bill.is_estimated} for bill in bills],
    }
    typer.echo(json.dumps(summary, ensure_ascii=False, indent=2))


def _read(file: Path, source: From | None) -> Chat:
    if source is not None:
        from agent_memory.integrations.costing import read_chat

        return read_chat(file, source)

    messages = [message for _, message in read_lines(file)]
    return [(str(message.metadata.get("session_id", "one")), message) for message in messages]


def _print_table(chat: Chat, bills: Sequence[Bill], model: str | None, max_tokens: int) -> None:
    from rich.table import Table

    setup = f"{model or 'no model named'}, contexts of {max_tokens:,} tokens"
    answers = f"{bills[0].calls:,} answers of {bills[0].completion_tokens:,} tokens in all"
    table = Table(title=f"{len(chat):,} messages, {answers}: {setup}")
    table.add_column("strategy", no_wrap=True)
    for name in ("sent", "of it recalled", "calls of memory", "their tokens", "US $"):
        table.add_column(name, justify="right")
    for bill in bills:
        own = "~" if bill.memory_calls else ""
        recalled = "?" if bill.recalled_tokens is None else f"{bill.recalled_tokens:,}"
        money = "?" if bill.cost is None else f"{own}{bill.cost:,.4f}"
        memory = (f"{own}{bill.memory_calls:,}", f"{own}{bill.memory_tokens:,}")
        table.add_row(bill.strategy, f"{bill.prompt_tokens:,}", recalled, *memory, money)
    out().print(table)
    say('"~" marks estimates. "?" marks unknown values. Discounts for cached prompts are left out.')
