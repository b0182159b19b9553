"""Token counters compared: `python -m benchmarks.tokenising`.

Each counts in a process of its own, from files that are on this machine: how long until the first
count is there, imports included, and how long one takes from then on. What is not installed beside
agent-memory can be lent by PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

Count = Callable[[str], int]

ROOT = Path(__file__).parent.parent
TEXTS = 32
PROSE = """
When the council met again in the spring, nobody could say who had asked for the survey, or why its
results were kept in a drawer for so long. Three members wanted to publish it at once; the others
thought that the town had enough to talk about, went home early, and hoped for warmer weather.
"""
CODE = '''
def totals(rows: Iterable[Row], *, by: str = "day") -> dict[str, float]:
    """Sum what was sold."""
    sums: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row.state != State.CANCELLED and row.amount_cents > 0:
            sums[getattr(row, by)] += row.amount_cents / 100
    return dict(sorted(sums.items(), key=lambda item: -item[1])[:10])
'''
CJK = """
今天天气很好 我们去公园散步 看到了很多花 明日も雨が降りますか
一緒に行きましょう 😀👍🎉 내일도 비가 올까요
"""


def variants(parts: Sequence[str], glue: str, length: int) -> list[str]:
    """Texts of about that length from the same parts, no two alike."""
    random = Random(length)
    found = []
    for number in range(TEXTS):
        text = str(number)
        while len(text) < length:
            text += glue + random.choice(parts)
        found.append(text)
    return found


KINDS = {
    "prose, 240": variants(PROSE.split(), " ", 240),
    "prose, 1,000": variants(PROSE.split(), " ", 1_000),
    "code, 400": variants(CODE.strip().splitlines(), "\n", 400),
    "CJK and emoji, 100": variants(CJK.split(), " ", 100),
}


def ours(encoding: str) -> Count:
    """agent-memory, as it begins."""
    from agent_memory.core.tokens.encodings import encoding as get

    return get(encoding).count


def ours_first(encoding: str) -> Count:
    """agent-memory's counter of the first texts."""
    from agent_memory.core.tokens.merges import MergeCounter
    from agent_memory.core.tokens.vocabularies import VOCABULARIES

    return MergeCounter(VOCABULARIES[encoding], VOCABULARIES[encoding].ranks)


def estimate(encoding: str) -> Count:
    """agent-memory's estimate, whatever the encoding."""
    from agent_memory.core.tokens.estimates import Estimate

    return Estimate.count


def with_tiktoken(encoding: str) -> Count:
    """tiktoken, as one would use it."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(files())
    import tiktoken

    encode = tiktoken.get_encoding(encoding).encode_ordinary
    return lambda text: len(encode(text))


def with_rs_bpe(encoding: str) -> Count:
    """rs-bpe."""
    return getattr(import_module("rs_bpe.bpe").openai, encoding)().count  # type: ignore[no-any-return]


def with_tokie(encoding: str) -> Count:
    """tokie."""
    return import_module("tokie").Tokenizer.from_json(str(files() / CLAUDE_FILE)).count_tokens  # type: ignore[no-any-return]


def with_gigatoken(encoding: str) -> Count:
    """gigatoken."""
    from agent_memory.core.tokens.vocabularies import VOCABULARIES, OpenAI

    load = import_module("gigatoken").Tokenizer.from_tiktoken
    vocabulary = VOCABULARIES[encoding]
    assert isinstance(vocabulary, OpenAI)
    names = {"o200k_base": "o200k", "cl100k_base": "gpt4"}
    encode = load(files() / vocabulary.file, names[encoding]).encode
    return lambda text: len(encode(text))


def with_tokenizers(encoding: str) -> Count:
    """tokenizers, of Hugging Face."""
    from tokenizers import Tokenizer

    encode = Tokenizer.from_file(str(files() / CLAUDE_FILE)).encode
    return lambda text: len(encode(text, add_special_tokens=False).ids)


def with_litellm(encoding: str) -> Count:
    """litellm's token_counter, with a model that has the encoding."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    model = MODELS[encoding]
    return lambda text: litellm.token_counter(model=model, text=text)


CLAUDE_FILE = "anthropic_tokenizer.json"
OPENAI = ("o200k_base", "cl100k_base", "p50k_base")
CLAUDE = ("claude",)
MODELS = {
    "o200k_base": "gpt-4o",
    "cl100k_base": "gpt-4",
    "p50k_base": "text-davinci-003",
    "claude": "claude-sonnet-4-5",
}
# What it is called, its module, how it is loaded, and which encodings it has.
COUNTERS: dict[str, tuple[str, Callable[[str], Count], tuple[str, ...]]] = {
    "agent-memory": ("agent_memory", ours, OPENAI + CLAUDE),
    "agent-memory, first texts": ("agent_memory", ours_first, OPENAI + CLAUDE),
    "agent-memory, approximate": ("agent_memory", estimate, OPENAI + CLAUDE),
    "tiktoken": ("tiktoken", with_tiktoken, OPENAI),
    "tokenizers": ("tokenizers", with_tokenizers, CLAUDE),
    "rs-bpe": ("rs_bpe", with_rs_bpe, OPENAI[:2]),
    "tokie": ("tokie", with_tokie, CLAUDE),
    "gigatoken": ("gigatoken", with_gigatoken, OPENAI[:2]),
    "litellm.token_counter": ("litellm", with_litellm, OPENAI + CLAUDE),
}


def files() -> Path:
    """litellm's folder of vocabularies."""
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


def measure(name: str, encoding: str, turns: int) -> dict[str, Any]:
    """One counter's figures, in this process.

    Returns:
        Milliseconds to the first count ("ready"), the microseconds of one from then on by kind of
        text ("micros"; agent-memory's tokenizer is built by then), and what it counted ("counts").
    """
    began = perf_counter()
    count = COUNTERS[name][1](encoding)
    count(KINDS["prose, 240"][0])
    ready = (perf_counter() - began) * 1e3
    if name == "agent-memory":
        from agent_memory.core.tokens.encodings import encoding as get

        count = get(encoding).build()
    from agent_memory.core.tokens.merges import MergeCounter

    micros = {}
    for kind, texts in KINDS.items():
        rounds = []
        for _ in range(turns):
            if isinstance(count, MergeCounter):
                count.work = 0  # else it would hand over
            began = perf_counter()
            for text in texts:
                count(text)
            rounds.append((perf_counter() - began) * 1e6 / TEXTS)
        micros[kind] = median(rounds)
    counts = {kind: [count(text) for text in texts] for kind, texts in KINDS.items()}
    return {"ready": ready, "micros": micros, "counts": counts}


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Processes for each counter.")] = 5,
    turns: Annotated[int, typer.Option(min=1, help="Times each text is counted in one.")] = 50,
    only: Annotated[str | None, typer.Option(help="One encoding.")] = None,
    child: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compare token counters."""
    if child is not None and only is not None:
        print(json.dumps(measure(child, only, turns)))
        return
    console = Console(highlight=False)
    pairs = [(e, name) for e in MODELS for name in COUNTERS if e in COUNTERS[name][2]]
    pairs = [(e, name) for e, name in pairs if only in (None, e)]
    here = [(e, name) for e, name in pairs if find_spec(COUNTERS[name][0]) is not None]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {pair: [] for pair in here}
    jobs = [pair for _ in range(rounds) for pair in here]
    for encoding, name in track(jobs, console=Console(stderr=True), description="Counting"):
        runs[encoding, name].append(_in_a_process(name, encoding, turns))
    for encoding, group in groupby(runs, key=lambda pair: pair[0]):
        console.print(_table(encoding, {name: runs[encoding, name] for _, name in group}))
    absent = sorted({name for _, name in pairs} - {name for _, name in here})
    if absent:
        console.print(f"Not installed here: {', '.join(absent)}.")


def _in_a_process(name: str, encoding: str, turns: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.tokenising", "--child", name, "--only", encoding]
    run = subprocess.run(
        [*command, "--turns", str(turns)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _table(encoding: str, runs: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table("counter", title=f"{encoding}: medians", title_justify="left")
    table.add_column("first count, ms", justify="right")
    for kind in KINDS:
        table.add_column(f"{kind}, µs", justify="right")
    table.add_column("counts", justify="right")
    exact = sum(map(sum, runs["agent-memory"][0]["counts"].values()))
    for name, figures in runs.items():
        micros = [median(one["micros"][kind] for one in figures) for kind in KINDS]
        same = figures[0]["counts"] == runs["agent-memory"][0]["counts"]
        off = sum(map(sum, figures[0]["counts"].values())) / exact - 1
        ready = f"{median(one['ready'] for one in figures):,.0f}"
        table.add_row(
            name, ready, *(f"{one:,.1f}" for one in micros), "same" if same else f"{off:+.0%}"
        )
    return table


if __name__ == "__main__":
    typer.run(main)
