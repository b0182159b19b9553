"""What a model does with our tools: `python -m benchmarks.tools_asked --model NAME`.

Tasks are played over `completion` and over MCP: each in a memory of its own, of which the model
sees the tools, and what a context shows. `--record FOLDER` keeps the model's answers, and
`--recorded FOLDER` takes them from there, without a model. benchmarks/MODELS.md tells what was
found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import tools_tasks
from benchmarks.choosing import chosen
from benchmarks.recorded_answers import Answers
from benchmarks.tools_played import Call, Played, play, watched
from benchmarks.tools_tasks import Over

_WAYS: dict[str, tuple[Over, ...]] = {
    "completion": ("completion",), "mcp": ("mcp",), "both": ("completion", "mcp"),
}  # fmt: skip


def run(
    model: Annotated[str | None, typer.Option(help="A litellm model.")] = None,
    data: Annotated[
        Path, typer.Option("--data", exists=True, help="A file of tasks.")
    ] = tools_tasks.TASKS,
    over: Annotated[str, typer.Option(help="completion, mcp or both.")] = "both",
    task: Annotated[list[str], typer.Option(help="Only this task, by its name; repeatable.")] = [],  # noqa: B006 - typer reads it, nobody writes it
    recorded: Annotated[
        Path | None, typer.Option(exists=True, help="Take a model's answers from this folder.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Keep the answers in this folder; those that it has are not asked for."),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Tasks at a time.")] = 2,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one answer.")] = 120,
    api_base: Annotated[str | None, typer.Option(help="Address of the model's API.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Its key, where it is not in the environment.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file for all that was called.")] = None,
) -> None:
    """Play, and print a table."""
    if (model is None) == (recorded is None) or (record is not None and recorded is not None):
        raise typer.BadParameter("Give --model (and --record, to keep answers), or --recorded.")
    if over not in _WAYS:
        raise typer.BadParameter("Say completion, mcp or both.", param_hint="--over")
    tasks = chosen(tools_tasks.read, data, task, "task", "--task")
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
    try:
        answers = Answers(recorded or record, model)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings = {
        "model": answers.model, "api_base": api_base, "api_key": api_key, "model_timeout": timeout,
    }  # fmt: skip
    with watched(answers), ThreadPoolExecutor(at_once) as threads:
        running = [
            threads.submit(play, one, way, settings)
            for way in _WAYS[over]
            for one in tasks
            if way in one.tools
        ]
        played = [one.result() for one in running]
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    _show(console, answers.model, played)
    if out is not None:
        whole = {"model": answers.model, "played": [_told(one) for one in played]}
        out.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if answers.amiss:
        console.print(
            f"[bold]{len(answers.amiss)} requests have no recorded answer:[/] "
            f"{'; '.join(sorted(set(answers.amiss)))}. Record anew, with --model and --record."
        )
        raise typer.Exit(1)


def _told(played: Played) -> dict[str, Any]:
    return {
        "task": played.task.name,
        "over": played.over,
        "passed": not played.amiss,
        "why not": played.amiss,
        "calls": [
            {"tool": one.name, "arguments": one.arguments, "in vain": one.in_vain,
             "result": one.result}
            for one in played.calls
        ],
        "answers": played.answers,
        "requests": played.requests,
        "prompt tokens": played.prompt_tokens,
        "completion tokens": played.completion_tokens,
    }  # fmt: skip


def _show(console: Console, model: str, played: Sequence[Played]) -> None:
    table = Table(title=escape(model), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("task", "over", "tools called", "calls", "enough", "in vain", "tokens", "passed"):
        right = name in ("calls", "enough", "in vain", "tokens")
        table.add_column(name, justify="right" if right else "left")
    for one in played:
        tokens = one.prompt_tokens + one.completion_tokens
        table.add_row(
            escape(one.task.name), one.over, escape(_line(one.calls)), str(len(one.calls)),
            str(one.task.calls), str(sum(call.in_vain for call in one.calls)), f"{tokens:,}",
            escape("; ".join(one.amiss)) or "yes",
        )  # fmt: skip
    console.print(table)
    for way in ("completion", "mcp"):
        those = [one for one in played if one.over == way]
        if those:
            calls = [call for one in those for call in one.calls]
            enough = sum(one.task.calls for one in those)
            tokens = sum(one.prompt_tokens + one.completion_tokens for one in those)
            console.print(
                f"{way}: {sum(not one.amiss for one in those)} of {len(those)} passed, "
                f"{len(calls)} calls (enough: {enough}), {sum(one.in_vain for one in calls)} in "
                f"vain, {sum(one.requests for one in those)} requests, {tokens:,} tokens."
            )


def _line(calls: Sequence[Call]) -> str:
    return ", ".join(f"{one.name}!" if one.in_vain else one.name for one in calls)


if __name__ == "__main__":
    typer.run(run)
