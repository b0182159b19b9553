"""What a search costs whoever comes anew, or after others wrote: `python -m benchmarks.following`.

At the store alone, with records of one user as `VectorMemory` keeps them (texts of
`benchmarks.scale`, the extra `local`): what a fresh process takes for its first search, its
connection included, the embedder not; and what one takes that has searched before, when nothing
changed, and after another process wrote or deleted. Each in processes of their own, which take
turns. `--store` names an empty database; without it a SQLite file is made.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from agent_memory.core.records import Record
from agent_memory.retrieval.features import Features, Query, Turn
from agent_memory.stores import open_store
from benchmarks.contenders import clean_environment
from benchmarks.running import machine
from benchmarks.scale import message_text, question_about
from benchmarks.serving import resident

BLOCK, OWNER = "v", "user:u"
SESSION = 100
_BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
_ROUNDS = 15


def batch(session: str, numbers: range) -> tuple[list[Record], Features]:
    """The records of a session of messages."""
    from agent_memory.models.embedders.local import WordLlamaEmbedder

    turns = [Turn("user", message_text(n), _BEGUN + timedelta(minutes=n), True) for n in numbers]
    records = [
        Record(
            f"{n:032x}", OWNER, session, at, at, str(turn), (at,), turn.said_at, {"role": "user"}
        )
        for at, (n, turn) in enumerate(zip(numbers, turns, strict=True), 1)
    ]
    return records, Features.of_turns(turns, 0, WordLlamaEmbedder().embed)


def query(number: int) -> Query:
    """A question about a message."""
    from agent_memory.models.embedders.local import WordLlamaEmbedder

    question = question_about(number)
    return Query.of(question, WordLlamaEmbedder().embed([question])[0])


class Peer:
    """Another process at the same store, that does as it is told."""

    def __init__(self, url: str) -> None:
        code = "from benchmarks.following import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )

    def do(self, what: str, *given: Any) -> Any:
        """What it answers to a call of one of `serve`'s."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, *given]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """In a process of its own: carry out what comes line by line."""
    query(0)  # the embedder is loaded, and all else that is imported
    with closing(open_store("memory://")) as other:
        other.open_vectors(BLOCK, 256, "wordllama")
        other.put_vectors(BLOCK, *batch("s", range(9)))
        other.search_vectors(BLOCK, OWNER, query(0), 50)
    begun = perf_counter()
    store = open_store(sys.argv[1])
    opened = (perf_counter() - begun) * 1e3
    for line in sys.stdin:
        what, *given = json.loads(line)
        answer: Any = None
        if what == "put":
            store.open_vectors(BLOCK, 256, "wordllama")
            session, first, count, each = given
            records, features = batch(session, range(first, first + count))
            begun = perf_counter()
            for at in range(0, count, each):
                place = slice(at, at + each)
                words, around = features.words[place], features.words_around[place]
                rows = features.meaning[place], features.meaning_around[place]
                store.put_vectors(BLOCK, records[place], Features(*rows, words, around))
            answer = (perf_counter() - begun) * 1e3
        elif what == "delete":
            begun = perf_counter()
            store.delete_vectors(BLOCK, session_id=given[0])
            answer = (perf_counter() - begun) * 1e3
        elif what == "search":
            asked, before = query(given[0]), resident() or 0.0
            begun = perf_counter()
            store.search_vectors(BLOCK, OWNER, asked, 50)
            answer = [(perf_counter() - begun) * 1e3, opened, (resident() or 0.0) - before]
        print(json.dumps(answer), flush=True)
    store.close()


def _rounds(follower: Peer, writer: Peer, records: int) -> Iterator[tuple[str, float]]:
    """Milliseconds of searches, by what was done before each."""
    for number in range(_ROUNDS):
        follower.do("search", number)  # what it finds is read then, and known
        yield "nothing", follower.do("search", number)[0]
        new = records + 1_000 * number
        yield "writing 1", writer.do("put", f"one{number}", new, 1, 1)
        yield "1 written", follower.do("search", number)[0]
        writer.do("put", f"more{number}", new + 1, 100, 100)
        yield "100 written", follower.do("search", number)[0]
        session = number * (records // SESSION // _ROUNDS)
        yield "deleting 100", writer.do("delete", f"s{session}")
        yield "100 deleted", follower.do("search", number)[0]


def run(
    records: Annotated[int, typer.Option(min=2_000)] = 10_000,
    store: Annotated[str | None, typer.Option(help="The URL of an empty database.")] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file for the figures.")] = None,
) -> None:
    """Measure and print."""
    with TemporaryDirectory() as folder:
        url = store or f"sqlite:///{Path(folder, 'm.db').as_posix()}"
        writer, took = Peer(url), 0.0
        for first in range(0, records, SESSION):
            took += writer.do("put", f"s{first // SESSION}", first, SESSION, SESSION)
        told: dict[str, Any] = {"machine": machine(), "records": records}
        told["written a second"] = records / took * 1e3
        told["disk, MiB"] = sum(one.stat().st_size for one in Path(folder).iterdir()) / 2**20
        firsts, sizes = [], []
        for number in range(5):
            fresh = Peer(url)
            taken, opened, size = fresh.do("search", number)
            firsts.append(taken + opened)
            sizes.append(size)
            fresh.close()
        told["first search, ms"] = median(firsts)
        told["memory it adds, MiB"] = median(sizes)
        follower = Peer(url)
        samples: dict[str, list[float]] = {}
        for what, ms in _rounds(follower, writer, records):
            samples.setdefault(what, []).append(ms)
        told["ms"] = {what: median(ms) for what, ms in samples.items()}
        follower.close()
        writer.close()
    typer.echo(json.dumps(told, indent=2))
    if out is not None:
        out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(run)
