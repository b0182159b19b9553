"""A run: every contender in every round, so that a machine that drifts favours none."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS, OURS, WITH_RECALL, Contender, Gone, Process
from benchmarks.results import Cell, Results, sample
from benchmarks.workloads import BUDGET, Scale, Work, time_box

Advance = Callable[[str], None]
NOT_INSTALLED = "not installed"


class Run:
    """A run of some works.

    Args:
        works: What to do.
        scale: How much of it.
        rounds: How often.
        peers_dir: Where peers are installed.
        folder: Where contenders keep their files.

    Attributes:
        present: The contenders that can be started.
    """

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
        self._contenders = [one for one in CONTENDERS if scale.recall or one.key != WITH_RECALL]
        self.present = [one for one in self._contenders if one.python(peers_dir).exists()]

    @property
    def steps(self) -> int:
        """How many requests there are to make."""
        return self._rounds * sum(
            work.asked(variant, contender)
            for work in self._works
            for variant in work.variants
            for contender in self.present
        )

    def into(self, results: Results, advance: Advance) -> None:
        """Do all works, and put what they give into the results."""
        try:
            self._start(results)
            for work in self._works:
                results.titles[work.name] = work.title
                self._do(work, results, advance)
        finally:
            for process in self._processes.values():
                process.close()

    def _start(self, results: Results) -> None:
        for contender in self._contenders:
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
        if work.name == "overflow":
            count = min(self._scale.run, 1_000)
            self._count(results, {"work": "counts", "count": count, "budget": BUDGET})

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

    def _count(self, results: Results, request: dict[str, Any]) -> None:
        """Our token counts per append, outside what is timed."""
        cell = Cell("counts", "4k budget", OURS)
        ours = next(contender for contender in self.present if contender.key == OURS)
        self._ask(cell, ours, request)
        results.cells.append(cell)


def machine() -> dict[str, Any]:
    """What this runs on."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
