"""The works, and the requests of each work."""

from dataclasses import dataclass
from typing import Any

from benchmarks.speed.contenders import FLOOR, IN_MEMORY, OURS, Contender

BUDGET = 4096
THREADS, TASKS = "8 threads", "8 tasks"
PLAIN, TRIMMED = "no budget", "4k budget"
_FILES = (OURS, FLOOR, "openai-agents", "langchain", "llamaindex-file")
INLINE, BACKGROUND = "Trim, inline", "Summarize, background"


@dataclass(frozen=True)
class Variant:
    """A column of a work. `only` limits the contenders. `size` is the length of the history."""

    label: str
    request: dict[str, Any]
    size: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """One work, in variants that are measured in turn within each round."""

    name: str
    title: str
    variants: tuple[Variant, ...]

    def asked(self, variant: Variant, contender: Contender) -> bool:
        """Whether a contender takes part."""
        return not variant.only or contender.key in variant.only


@dataclass(frozen=True)
class Scale:
    """Amounts of work. A round may take `seconds` for a peer, `patience` for others."""

    sizes: tuple[int, ...]
    gets: tuple[int, ...]
    appends: int
    run: int
    sessions: int
    messages: int
    background: int
    delay: float
    seconds: float
    patience: float


FULL = Scale(
    sizes=(100, 1_000, 10_000, 100_000), gets=(50, 20, 5, 2), appends=200, run=10_000,
    sessions=1_000, messages=50, background=2_000, delay=2.0, seconds=1.5, patience=60.0,
)  # fmt: skip
SMALL = Scale(
    sizes=(20, 100), gets=(5, 5), appends=10, run=120, sessions=16, messages=5, background=50,
    delay=0.2, seconds=1.0, patience=10.0,
)  # fmt: skip


def works(scale: Scale, rounds: int) -> tuple[Work, ...]:
    """All works, at a scale."""
    return (_append(scale, rounds), _get(scale), _overflow(scale), _sessions(scale), _quiet(scale))


def time_box(request: dict[str, Any], contender: Contender, scale: Scale) -> dict[str, Any]:
    """Return the request with the seconds that it may take."""
    if "seconds" not in request:
        return request
    if contender.kind != "peer":
        return {**request, "seconds": scale.patience}
    # opening many sessions takes some peers a while
    return {**request, "seconds": scale.seconds * (2 if request["work"] == "crowd" else 1)}


def _append(scale: Scale, rounds: int) -> Work:
    fields = {"work": "append", "count": scale.appends, "rounds": rounds, "seconds": 0}
    sizes = scale.sizes
    variants = [Variant(f"{size:,} held", {**fields, "size": size}, size) for size in sizes]
    return Work("append", "Append one message of 60 tokens", tuple(variants))


def _get(scale: Scale) -> Work:
    fields = {"work": "get", "seconds": 0}
    variants = [
        Variant(f"{size:,}, all in budget", {**fields, "size": size, "count": count}, size)
        for size, count in zip(scale.sizes, scale.gets, strict=True)
    ]
    size = scale.sizes[1]
    again = {"size": size, "count": scale.gets[1], "seconds": 0}
    variants.append(Variant(f"{size:,}, each after an append", {**again, "work": "turn"}))
    variants.append(
        Variant(f"{size:,}, first after opening", {**again, "work": "open"}, only=_FILES)
    )
    rendered = {**again, "work": "render"}
    variants.append(Variant(f"{size:,}, as chat dicts", rendered, only=(OURS, IN_MEMORY)))
    longest = min(10_000, scale.sizes[-1])
    budget = {**fields, "size": longest, "count": scale.appends, "budget": BUDGET}
    variants.append(Variant(f"4k budget, after {longest:,}", budget))
    return Work("get", "Get the context", tuple(variants))


def _overflow(scale: Scale) -> Work:
    fields = {"work": "run", "count": scale.run, "seconds": 0}
    return Work(
        "overflow",
        f"{scale.run:,} appends to a new session",
        (Variant(PLAIN, fields), Variant(TRIMMED, {**fields, "budget": BUDGET})),
    )


def _sessions(scale: Scale) -> Work:
    counts = {"sessions": scale.sessions, "messages": scale.messages}
    fields = {"work": "crowd", **counts, "workers": 8, "seconds": 0}
    return Work(
        "sessions",
        f"{scale.sessions:,} sessions of {scale.messages} messages, all at once",
        (
            Variant(THREADS, {**fields, "how": "threads"}),
            Variant(TASKS, {**fields, "how": "tasks"}),
        ),
    )


def _quiet(scale: Scale) -> Work:
    fields = {"work": "background", "count": scale.background, "delay": scale.delay}
    return Work(
        "background",
        f"Update at a 4k budget while the model takes {scale.delay:g} s a call",
        (
            Variant(INLINE, {**fields, "mode": "inline"}, only=(OURS,)),
            Variant(BACKGROUND, {**fields, "mode": "background"}, only=(OURS,)),
        ),
    )
