"""Interrupt calls, and verify: `python -m tests.integration.interrupting --count 100000`.

As with Ctrl-C or a time limit, a signal raises an exception in the main thread, at a random moment
of a call. Then the calls continue. At intervals another thread, another memory and a forked child
make calls too, and each session is compared with the acknowledged calls.
"""

import faulthandler
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from agent_memory import AgentMemory, Trim
from agent_memory.testing import FakeLLM
from tests.kit import user as text_message

_HANG_SECONDS = 120
_CHILD_SECONDS = 60
_SESSIONS = 24
_WEIGHTS = {
    "update": 44, "get": 16, "search": 9, "history": 5, "delete": 8, "pop": 4, "flush": 4,
    "completion": 6, "stream": 4,
}  # fmt: skip
_LATER = 1.3  # an interrupt comes within this multiple of a call's usual time


class Interrupted(BaseException):
    """The exception of the signal: like `KeyboardInterrupt`, no `except Exception` catches it."""


def answer_to(text: str) -> str:
    return f"Noted: {text}"


class StoredTexts:
    """The texts stored in a session, and how many of them were taken back."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, bool]] = []  # each with whether it was acknowledged
        self._turns: dict[str, str] = {}  # questions and their answers
        self._gone = 0  # the first so many are deleted
        self._perhaps = 0  # and so many may be deleted

    def note(self, call: str, text: str, whole: bool) -> None:
        """Record a call, and whether it ended before the interrupt."""
        if call == "update":
            self._texts.append((text, whole))
        elif call in ("completion", "stream"):
            self._turns[text] = answer_to(text)
            self._texts += [(text, whole), (self._turns[text], whole)]
        elif call in ("delete", "pop"):
            self._perhaps = len(self._texts)
            if call == "delete" and whole:
                self._gone = self._perhaps

    def wrong(self, texts: Sequence[str]) -> Iterator[str]:
        """Yield the errors in the log's texts."""
        order = {text: place for place, (text, _) in enumerate(self._texts)}
        places = [order.get(text, -1) for text in texts]
        if -1 in places:
            yield "something that nobody said"
        if places != sorted(set(places)):
            yield f"doubled or out of order: {places}"
        there = set(texts)
        half = [asked for asked, told in self._turns.items() if (asked in there) != (told in there)]
        if half:
            yield f"a turn that is there by half: {half}"
        if any(0 <= place < self._gone for place in places):
            yield "back after a deletion"
        kept = {place for place in range(self._perhaps, len(self._texts)) if self._texts[place][1]}
        if lost := kept - set(places):
            yield f"lost: {sorted(lost)}"


class Story:
    """Random calls of one memory, and the messages that they acknowledged."""

    def __init__(self, url: str, seed: int, **options: Any) -> None:
        self.interrupts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._url, self._options = url, {"max_tokens": 600, **options}
        self._random = random.Random(seed)
        self._memory = AgentMemory(store=url, **self._options)
        self._said = {f"s{number}": StoredTexts() for number in range(_SESSIONS)}
        self._usual = dict.fromkeys(_WEIGHTS, 0.002)
        self._words = 0
        self._calling = False
        self._memory.completion("of-nobody", "hello")  # loads litellm, which takes seconds

    def run(self, count: int, every: int, progress: Callable[[int], None]) -> None:
        """Interrupt `count` calls, and check everything after each `every` interrupts."""
        signal.signal(signal.SIGALRM, self._interrupt)
        looked = 0
        while (done := self.interrupts.total()) < count:
            faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
            self._step()
            if done // every > looked:
                looked = done // every
                self._look()
                progress(done)
        self._look()
        self._memory.flush()
        self._memory.close()
        faulthandler.cancel_dump_traceback_later()

    def _step(self) -> None:
        name = self._random.choices([*_WEIGHTS], [*_WEIGHTS.values()])[0]
        session_id = self._random.choice([*self._said])
        said, user_id = self._said[session_id], f"u{session_id[-1]}"
        memory, text = self._memory, self._text()
        calls: dict[str, Callable[[], object]] = {
            "update": lambda: memory.update(session_id, text_message(text), user_id=user_id),
            "get": lambda: memory.get(session_id, text, user_id=user_id),
            "search": lambda: memory.search(text, user_id=user_id),
            "history": lambda: memory.history(session_id),
            "delete": lambda: memory.delete(session_id),
            "pop": lambda: memory.pop(session_id),
            "flush": lambda: memory.flush(session_id),
            "completion": lambda: memory.completion(session_id, text, user_id=user_id),
            "stream": lambda: [*memory.completion(session_id, text, user_id=user_id, stream=True)],
        }
        began = perf_counter()
        whole = self._interrupted(calls[name], self._random.random() * _LATER * self._usual[name])
        if whole:
            self._usual[name] += (perf_counter() - began - self._usual[name]) / 20
        else:
            self.interrupts[name] += 1
        said.note(name, text, whole)

    def _text(self) -> str:
        self._words += 1
        rest = self._random.choices(["tea", "cake", "harbour", "train", "winter", "letter"], k=12)
        return f"word{self._words} {' '.join(rest)}"

    def _interrupted(self, call: Callable[[], object], seconds: float) -> bool:
        """Return whether a call ended before the signal."""
        try:
            try:
                self._calling = True
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
                call()
            finally:
                self._calling = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            return False
        except Exception as error:  # noqa: BLE001 - no call of the story may fail
            self.findings.append(f"{type(error).__name__}: {error}")
        return True

    def _interrupt(self, *_: object) -> None:
        if self._calling:  # a late signal belongs to no call
            self._calling = False
            raise Interrupted

    def _look(self) -> None:
        for session_id, said in self._said.items():
            entries = self._memory.history(session_id)
            seqs = [entry.seq for entry in entries]
            if seqs != list(range(1, len(seqs) + 1)):
                self.findings.append(f"{session_id}: seqs {seqs}")
            texts = [entry.message.text() for entry in entries]
            self.findings += [f"{session_id}: {wrong}" for wrong in said.wrong(texts)]
        self._elsewhere("a thread", self._memory)
        with AgentMemory(store=self._url, **self._options) as another:
            self._elsewhere("another memory", another)
        if hasattr(os, "fork"):
            self._fork()

    def _elsewhere(self, who: str, memory: AgentMemory) -> None:
        """Use a memory in another thread, with a time limit."""
        name, text, failed = "of-others", self._text(), []

        def use() -> None:
            try:
                memory.update(name, text_message(text))
                if text not in [one.message.text() for one in memory.history(name, last=1)]:
                    failed.append("what was said is not there")
                memory.get(name, text)
                memory.delete(name)
            except Exception as error:  # noqa: BLE001 - named below
                failed.append(repr(error))

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(_CHILD_SECONDS)
        if thread.is_alive():
            failed.append("it hangs")
        self.findings += [f"{who}: {wrong}" for wrong in failed]

    def _fork(self) -> None:
        text = self._text()
        child = os.fork()
        if not child:
            status = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(_CHILD_SECONDS)  # ends a child that hangs
                self._memory.update("of-children", text_message(text))
                self._memory.get("of-children", text)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status:
            self.findings.append(f"a forked child ended with {status}")
        elif text not in [one.message.text() for one in self._memory.history("of-children")]:
            self.findings.append("what a forked child said is not there")


def answer(body: dict[str, Any]) -> str:
    return answer_to(str(body["messages"][-1]["content"]))


def main(
    count: Annotated[int, typer.Option(min=1, help="Interrupts.")] = 2_000,
    every: Annotated[int, typer.Option(min=1, help="Look at everything after so many.")] = 500,
    seed: Annotated[int, typer.Option(help="Of what is called.")] = 1,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store; by default a temporary file.")
    ] = None,
) -> None:
    """Interrupt calls at random moments, and report hangs, lost messages and half-done calls."""
    with ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(TemporaryDirectory())
            store = f"sqlite:///{Path(folder) / 'memory.db'}"
        fake = stack.enter_context(FakeLLM(answer))
        model = {"model": "openai/any", "api_base": fake.api_base, "api_key": "none"}
        story = Story(store, seed, overflow=Trim(), **model)
        began = perf_counter()
        story.run(count, every, lambda done: print(f"{done:,} interrupts", flush=True))
        total = sum(story.interrupts.values())
        print(f"{total:,} interrupts in {perf_counter() - began:.0f} s, {dict(story.interrupts)}")
        print(f"{threading.active_count()} threads, {len(story.findings)} findings")
        for wrong in story.findings[:20]:
            print(wrong)
        if story.findings:
            raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
