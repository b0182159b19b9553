"""Cost against the length of the history, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.results import Results

_TITLES = {"append": "One append", "get": "One get, all in budget"}
_INK, _MUTED, _GRID = "#1f2328", "#6e7781", "#d8dee4"
# Ours strong, floors grey, peers in hues that colour-blind readers can tell apart.
_LOOKS = {
    "ours-sqlite": ("#c2185b", "o", 2.6),
    "ours-memory": ("#f06292", "o", 1.8),
    "list": ("#b0b7bf", "s", 1.2),
    "sqlite": ("#6e7781", "s", 1.2),
    "redis": ("#939aa2", "s", 1.2),
    "openai-agents": ("#0072b2", "^", 1.4),
    "langchain": ("#009e73", "v", 1.4),
    "llamaindex-file": ("#d55e00", "D", 1.4),
    "llamaindex-memory": ("#e69f00", "D", 1.4),
    "mem0": ("#7b5ea7", "P", 1.4),
}


def draw(results: Results, folder: Path) -> list[Path]:
    """Write the plots that the results have figures for; none where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return []
    return [path for work in _TITLES if results.of(work) for path in _draw(results, work, folder)]


def _draw(results: Results, work: str, folder: Path) -> Iterator[Path]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = work  # the same file for the same figures
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.add_subplot()
    for key, (colour, mark, width) in _LOOKS.items():
        points = _points(results, work, key)
        if points:
            axes.plot(
                [size for size, _ in points],
                [cost for _, cost in points],
                color=colour,
                marker=mark,
                linewidth=width,
                markersize=5,
                label=str(results.contenders[key]["name"]),
                zorder=3 if key.startswith("ours") else 2,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")
    axes.yaxis.set_major_formatter(lambda cost, _: _duration(cost))
    axes.set_xlabel("messages that the session holds", color=_INK)
    axes.set_ylabel("median", color=_INK)
    axes.set_title(f"{_TITLES[work]}, messages of 60 tokens", loc="left", color=_INK)
    axes.grid(visible=True, which="major", color=_GRID, linewidth=0.7)
    axes.tick_params(colors=_MUTED, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, labelcolor=_INK, fontsize=9)
    for suffix in ("png", "svg"):
        path = folder / f"{work}.{suffix}"
        figure.savefig(path, dpi=160, metadata={"Date": None} if suffix == "svg" else None)
        yield path


def _duration(microseconds: float) -> str:
    for scale, unit in ((1e6, "s"), (1e3, "ms"), (1, "µs")):
        if microseconds >= scale:
            return f"{microseconds / scale:g} {unit}"
    return f"{microseconds * 1e3:g} ns"


def _points(results: Results, work: str, key: str) -> list[tuple[int, float]]:
    found = []
    for cell in results.of(work):
        cost = cell.middle("p50")
        if cell.contender == key and cell.size is not None and cost is not None:
            found.append((cell.size, cost))
    return found
