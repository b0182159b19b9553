"""`agent-memory why`: show the prompts that models were sent, and what they would be sent now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory.cli.common import (
    ConfigOption,
    StoreOption,
    err,
    guarded,
    head_of,
    load_config,
    open_memory,
    out,
    plain,
)
from agent_memory.cli.inspect import SessionArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_memory.core.prompt_log import SentContext
    from agent_memory.core.records import Recall
    from agent_memory.engine.memory import AgentMemory

_NOTHING_KEPT = (
    "No prompts of this session were logged. To log prompts from now on, set keep_contexts = true "
    "in the settings of the process that answers."
)


@guarded
def why(
    session: SessionArgument,
    turn: Annotated[
        int | None,
        typer.Option("--turn", min=1, help="The turn that begins with this message."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the prompts, as JSON.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List the prompts of a session, or show one in full beside what would be sent now."""
    with open_memory(load_config(store, config)) as memory:
        head_of(memory, session)
        after = 0 if turn is None else turn - 1
        found = memory.contexts(session, after=after, limit=None if turn is None else 1)
        found = [one for one in found if turn in (None, one.turn)]
        if not found:
            missing = _NOTHING_KEPT if turn is None else f"No prompt of turn {turn} was logged."
            err().print(plain(missing), markup=False, soft_wrap=True)
            raise typer.Exit(1)
        if as_json:
            sent = [{"turn": one.turn, "messages": one.messages} for one in found]
            typer.echo(json.dumps(sent, ensure_ascii=False, indent=2))
        elif turn is None:
            _list(found)
        else:
            for one in found:
                out().print(plain("\n".join(_told(one))), markup=False, soft_wrap=True)
            _now(memory, found[-1])


def _list(found: Sequence[SentContext]) -> None:
    from agent_memory.cli.view import cell, grid, one_line

    numbers = ("turn", "tokens", "kept", "recalled", "left out")
    columns = ("turn", "asked", *numbers[1:], "as it was")
    table = grid(*columns, right=numbers)
    for one in found:
        context = one.context
        kept = "" if context.kept_tokens is None else f"{context.kept_tokens:,}"
        counts = str(len(context.recalls)), str(len(one.left_out))
        table.add_row(
            str(one.turn),
            one_line(one.question),
            f"{context.tokens:,}",
            kept,
            *counts,
            _fidelity(one),
        )
    console = out()
    console.print(table)
    console.print(cell("To show one in full: --turn N", "dim"))


def _told(one: SentContext) -> list[str]:
    context = one.context
    kept = "" if context.kept_tokens is None else f", {context.kept_tokens:,} as the time before"
    cost = "at an unknown price" if one.cost is None else f"for {one.cost:.4f} $"
    lines = [
        f"Turn {one.turn}, {one.at:%Y-%m-%d %H:%M:%S} UTC: {context.tokens:,} of "
        f"{context.max_tokens:,} tokens{kept}; recalled {cost}.",
        f"As it was sent: {_fidelity(one)}.",
        "",
    ]
    for message in one.messages:
        content = message.get("content", message)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        lines.append(f"[{message.get('role', message.get('type', ''))}] {text}")
    scored = [(recall, f"score {recall.score:.2f}") for recall in context.recalls]
    left_out = [(each.recall, each.why) for each in one.left_out]
    lines += ["", "Recalled:", *_lines(scored), "Left out:", *_lines(left_out)]
    return [*lines, *(f"Warning: {warning}" for warning in context.warnings)]


def _now(memory: AgentMemory, one: SentContext) -> None:
    if one.question:
        now = memory.explain(one.question, session_id=one.session_id)
        told = f"\nFor the same question now\n{now}"
        out().print(plain(told), markup=False, soft_wrap=True)


def _lines(found: Sequence[tuple[Recall, str]]) -> list[str]:
    from agent_memory.cli.view import sources

    told = []
    for recall, how in found:
        text = " ".join(str(recall).split()) if recall.text else "(not there any more)"
        place = f" ({sources(recall)})" if recall.sources else ""
        told.append(f"  {recall.block}: {text}{place}: {how}")
    return told or ["  nothing"]


def _fidelity(one: SentContext) -> str:
    if one.exact:
        return "to the byte"
    return f"{one.missing} parts deleted since" if one.missing else "changed since"
