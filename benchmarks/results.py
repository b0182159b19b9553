"""What was measured: cells, their medians and ratios, and the file they are kept in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Sample = dict[str, Any]


@dataclass
class Cell:
    """One contender at one variant of a work.

    Attributes:
        samples: One for each round: median, mean and 99th percentile in microseconds, how many
            operations, and what else the contender told.
        skipped: Why there is none.
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

    def most(self, name: str) -> int | None:
        """The most of all rounds."""
        values = [sample[name] for sample in self.samples if sample.get(name) is not None]
        return max(values) if values else None


@dataclass
class Results:
    """All that a run found, as kept in results.json.

    Attributes:
        machine: What it ran on.
        rounds: How many rounds.
        small: Whether it was the small run, which only shows that the benchmark works.
        titles: The works and their titles, in order.
        contenders: Name, kind, version, durability and note of each.
        cells: The figures.
        start: Figures about starting, by name.
    """

    machine: dict[str, Any]
    rounds: int
    small: bool
    titles: dict[str, str] = field(default_factory=dict)
    contenders: dict[str, dict[str, Any]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)

    def cell(self, work: str, variant: str, contender: str) -> Cell | None:
        """A cell, if it was measured."""
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
    """A round's figures from a contender's answer."""
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
    """The median of the ratios of each round: what drifts in a run is in both."""
    if cell is None or other is None:
        return None
    pairs = zip(cell.samples, other.samples, strict=False)
    ratios = [a[name] / b[name] for a, b in pairs if a.get(name) and b.get(name)]
    return median(ratios) if ratios else None
