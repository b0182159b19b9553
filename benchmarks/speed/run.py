"""Runs every contender in each round, so that drift of the machine favours none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.contenders import CONTENDERS, Contender, Gone, Process
from benchmarks.speed.workloads import Scale, Work, time_box

Sample = dict[str, Any]


@dataclass
class Cell:
    """A contender at one variant of a work: a sample for each round, or why it was skipped.

    A sample has the median, mean and 99th percentile in microseconds, the number of operations, and
    the rest of the answer.
    """

    work: str
    variant: str
    contender: str
    size: int | None = None
    samples: list[Sample] = field(default_factory=list)
    skipped: str | None = None

    def middle(self, name: str) -> float | None:
        """The median over the rounds."""
        values = [sample[name] for sample in self.samples if sample.get(name) is not None]
        return median(values) if values else None

    def total(self, name: str) -> int:
        """The sum over the rounds."""
        return sum(sample.get(name) or 0 for sample in self.samples)


@dataclass
class Results:
    """All results of a run, as stored in results.json.

    `small` marks a run that only shows that the benchmark works.
    """

    machine: dict[str, Any]
    rounds: int
    small: bool
    titles: dict[str, str] = field(default_factory=dict)
    contenders: dict[str, dict[str, Any]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)

    def cell(self, work: str, variant: str, contender: str) -> Cell | None:
        """Return a cell, or None if it was not measured."""
        for cell in self.cells:
            if (cell.work, cell.variant, cell.contender) == (work, variant, contender):
                return cell
        return None

    def of(self, work: str) -> list[Cell]:
        """The cells of a work."""
        return [cell for cell in self.cells if cell.work == work]

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Results:
    """Read the file back."""
    found = json.loads(path.read_text(encoding="utf-8"))
    cells = [Cell(**cell) for cell in found.pop("cells")]
    return Results(**found, cells=cells)


def sample(answer: dict[str, Any]) -> Sample:
    """Return the sample in a contender's answer."""
    rest = {key: value for key, value in answer.items() if key != "ns"}
    if "ns" in answer:
        taken = sorted(answer["ns"])
        rest |= {
            "p50": median(taken) / 1e3,
            "mean": sum(taken) / len(taken) / 1e3,
            "p99": taken[min(len(taken) - 1, len(taken) * 99 // 100)] / 1e3,
            "ops": len(taken),
        }
    if "seconds" in rest:
        rest["rate"] = rest["messages"] / rest["seconds"]
    return rest


def ratio(cell: Cell | None, other: Cell | None, name: str = "p50") -> float | None:
    """Return the median of the rounds' ratios, in which a machine's drift cancels."""
    if cell is None or other is None:
        return None
    pairs = zip(cell.samples, other.samples, strict=False)
    ratios = [a[name] / b[name] for a, b in pairs if a.get(name) and b.get(name)]
    return median(ratios) if ratios else None


Advance = Callable[[str], None]
NOT_INSTALLED = "not installed"


class Run:
    """A run of some works at a scale. `present` has the contenders that are installed."""

    def __init__(
        self, works: Sequence[Work], scale: Scale, rounds: int, peers_dir: Path, folder: Path
    ) -> None:
        self._works = works
        self._scale = scale
        self._rounds = rounds
        self.peers_dir = peers_dir
        self.folder = folder
        self._processes: dict[str, Process] = {}
        self._reasons: dict[str, str] = {}
        self.present = [one for one in CONTENDERS if one.python(peers_dir).exists()]

    def into(self, results: Results, advance: Advance) -> None:
        """Do all works, and add their cells to the results."""
        try:
            self._start(results)
            for work in self._works:
                results.titles[work.name] = work.title
                self._do(work, results, advance)
        finally:
            for process in self._processes.values():
                process.close()

    def _start(self, results: Results) -> None:
        for contender in CONTENDERS:
            about: dict[str, Any] = {"name": contender.name, "kind": contender.kind}
            results.contenders[contender.key] = about
            if contender not in self.present:
                about["missing"] = NOT_INSTALLED
                continue
            process = Process(contender, self.peers_dir, self.folder)
            self._processes[contender.key] = process
            try:
                process.meet()
                about |= process.about
            except Gone as reason:
                about["missing"] = self._reasons[contender.key] = str(reason)

    def _do(self, work: Work, results: Results, advance: Advance) -> None:
        cells = {
            (variant.label, contender.key): Cell(
                work.name, variant.label, contender.key, variant.size
            )
            for variant in work.variants
            for contender in self.present
            if work.asked(variant, contender)
        }
        results.cells += cells.values()
        for _ in range(self._rounds):
            for variant in work.variants:
                for contender in self.present:
                    cell = cells.get((variant.label, contender.key))
                    if cell is None:
                        continue
                    advance(f"{work.name}, {variant.label}: {contender.name}")
                    if cell.skipped is None:
                        self._ask(cell, contender, variant.request)

    def _ask(self, cell: Cell, contender: Contender, request: dict[str, Any]) -> None:
        if contender.key in self._reasons:
            cell.skipped = self._reasons[contender.key]
            return
        process = self._processes[contender.key]
        try:
            answer = process.ask(time_box(request, contender, self._scale))
        except Gone as reason:
            cell.skipped = self._reasons[contender.key] = str(reason)
            return
        cell.skipped = answer.get("skipped") or answer.get("error")
        if cell.skipped is None:
            cell.samples.append(sample(answer))
