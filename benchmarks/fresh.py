"""What it costs that the next chat knows what was just said.

python -m benchmarks.fresh run URL... [--before TREE]

With the worktree of another commit both take turns, in processes of their own; where its schema is
another one it needs a database of its own (--theirs). What is written lies in a namespace of its
own, and is deleted again. Milliseconds, medians of the rounds; with --cpu those that this process
computes, on a machine that does other things too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Annotated
from uuid import uuid4

import typer

from agent_memory import AgentMemory, VectorMemory

ASKED = "Which hotel did I like in Coimbra?"
_SAID = "In Coimbra I liked the hotel by the old bridge."
_TEXT = "On trip {} of chat {} we took the train to harbour {}, and had soup and a long walk there."
_TIMES = 200

_clocks = [perf_counter]

app = typer.Typer(add_completion=False)


@app.command()
def run(
    urls: Annotated[list[str], typer.Argument(metavar="URL...")],
    before: Annotated[Path | None, typer.Option(help="Another worktree.")] = None,
    theirs: Annotated[str | None, typer.Option(help="Its database, for one URL.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    cpu: bool = False,
) -> None:
    """Measure each store, and print what was measured."""
    own = Path(__file__).resolve().parents[1]
    trees = {"now": own, **({"before": before.resolve()} if before else {})}
    for url in urls:
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for _ in range(rounds):
            for name, tree in trees.items():
                place = theirs if name == "before" and theirs else url
                call = [sys.executable, "-P", __file__, "measure", place]
                done = subprocess.run(
                    [*call, *(["--cpu"] if cpu else [])],
                    env={**os.environ, "PYTHONPATH": str(tree)},
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                figures[name].append(json.loads(done.stdout))
        typer.echo(f"{url.partition('://')[0]}, load {os.getloadavg()[0]:.1f}")
        for what in figures["now"][0]:
            shown = (
                f"{name} {median(one[what] for one in some):8.3f}" for name, some in figures.items()
            )
            typer.echo(f"  {what:42} {'   '.join(shown)}")


@app.command()
def measure(url: str, cpu: bool = False) -> None:
    """Measure a store once, with the library that is imported, and print JSON."""
    _clocks.append(process_time if cpu else perf_counter)
    figures: dict[str, float] = {}
    given = {"store": url, "namespace": f"fresh-{uuid4().hex[:8]}", "overflow_mode": "inline"}
    with AgentMemory(**given, blocks=[VectorMemory()]) as memory:
        try:
            _updates(memory, figures)
            _gets(memory, figures)
            _elsewhere(given, figures)
            _many(memory, figures)
        finally:
            memory.delete_user("u")
            memory.delete_user("w")
            memory.delete_user("x")
    typer.echo(json.dumps(figures))


@app.command()
def ask(given: str) -> None:
    """Ask once, as another process does, and print milliseconds and whether it was found."""
    with AgentMemory(**json.loads(given), blocks=[VectorMemory()]) as memory:
        begun = _clocks[-1]()
        found = _knows(memory, "w")
        typer.echo(json.dumps([1e3 * (_clocks[-1]() - begun), found]))


def _updates(memory: AgentMemory, figures: dict[str, float]) -> None:
    taken = []
    for number in range(5 * _TIMES):
        begun = _clocks[-1]()
        memory.update("u", _user(_TEXT.format(number, "u", number)), user_id="x")
        taken.append(_clocks[-1]() - begun)
    figures["update, p50"] = 1e3 * median(taken)


def _gets(memory: AgentMemory, figures: dict[str, float]) -> None:
    for chat in range(10):
        some = [_user(_TEXT.format(n, chat, n)) for n in range(20)]
        memory.update(f"old{chat}", some, user_id="w")
    memory.flush(user_id="w")
    memory.update("now", _user("Good morning!"), user_id="w")
    figures["get, nothing else pending, p50"] = _p50(memory, "w")
    for chat in range(5):
        some = [_user(_TEXT.format(n, chat, n)) for n in range(10)]
        memory.update(f"new{chat}", some, user_id="w")
    memory.update("new0", _user(_SAID), user_id="w")
    figures["get, 51 pending, the first"] = _p50(memory, "w", 1)
    figures["get, 51 pending, p50"] = _p50(memory, "w")
    taken = []
    for number in range(20):
        memory.update("new1", _user(f"Then we saw number {number}, and went on."), user_id="w")
        begun = _clocks[-1]()
        memory.get("now", ASKED, user_id="w")
        taken.append(_clocks[-1]() - begun)
    figures["get, one more said before each, p50"] = 1e3 * median(taken)
    figures["found"] = float(_knows(memory, "w"))


def _elsewhere(given: dict[str, str], figures: dict[str, float]) -> None:
    call = [sys.executable, "-P", __file__, "ask", json.dumps(given)]
    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
    figures["get in another process, with its start"], found = json.loads(done.stdout)
    figures["found in another process"] = float(found)


def _many(memory: AgentMemory, figures: dict[str, float]) -> None:
    for chat in range(100):
        some = [_user(_TEXT.format(n, chat, n)) for n in range(100)]
        memory.update(f"many{chat}", [*some, _user(_SAID)] if chat == 7 else some, user_id="x")
    begun = _clocks[-1]()
    found = _knows(memory, "x")
    figures["get, 10,000 pending, the first"] = 1e3 * (_clocks[-1]() - begun)
    figures["found among 10,000"] = float(found)
    figures["get, 10,000 pending, p50"] = _p50(memory, "x", 20)


def _p50(memory: AgentMemory, user_id: str, times: int = _TIMES) -> float:
    taken = []
    for _ in range(times):
        begun = _clocks[-1]()
        memory.get("now" if user_id == "w" else "none", ASKED, user_id=user_id)
        taken.append(_clocks[-1]() - begun)
    return 1e3 * median(taken)


def _knows(memory: AgentMemory, user_id: str) -> bool:
    context = memory.get("another", ASKED, user_id=user_id)
    return any(_SAID in recall.text for recall in context.recalls)


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


if __name__ == "__main__":
    app()
