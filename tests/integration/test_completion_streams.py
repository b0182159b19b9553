"""Streams of a completion: chunks arrive immediately, and the turn is stored after the last one."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.aio import THREADS, AsyncCompletionStream
from agent_memory.engine.loop.rounds import CompletionStream
from agent_memory.errors import InvalidMessage, MemoryClosed, ModelUnavailable
from agent_memory.models.llm import Reading
from agent_memory.testing import FakeLLM
from tests.histories import call, result
from tests.integration.turning import FACT, WEATHER, add, fake, logged, remembering, results
from tests.kit import model_at

__all__ = ["fake"]

EVENTS = 7
"""The events of "It is six.": the role, three words, the finish reason, the usage, and the end."""
FINISHED = 5


@pytest.fixture
def memory(fake: FakeLLM, url: str) -> Iterator[AgentMemory]:
    with remembering(fake, url) as memory:
        memory.update("s", {"role": "user", "content": FACT}, user_id="ada")
        yield memory


def two_rounds(memory: AgentMemory, fake: FakeLLM) -> CompletionStream:
    fake.call(("add", {"a": 5}), content="Let me see.")
    fake.reply("It is six.")
    stream = memory.completion("s", "Five and one?", tools=[add], stream=True)
    assert isinstance(stream, CompletionStream)
    return stream


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def stored(memory: AgentMemory) -> list[str]:
    return [text for _, text in logged(memory)][1:]


@pytest.mark.parametrize("asked", [False, True])
def test_usage_is_streamed_only_on_request(memory: AgentMemory, fake: FakeLLM, asked: bool) -> None:
    """Wrong: a stream without `include_usage` contains a chunk without choices."""
    fake.reply("It is six.")
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if asked else {}
    chunks = list(memory.completion("s", "Five and one?", stream=True, **options))
    told = [chunk for chunk in chunks if getattr(chunk, "usage", None) is not None]
    assert bool(told) or not asked
    assert asked or all(chunk.choices for chunk in chunks)
    assert memory.stats().usage.completion_tokens > 0


def test_a_stream_is_stored_at_its_end(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: the turn is stored before the last chunk was read, or after `StopIteration`."""
    stream = two_rounds(memory, fake)
    chunks: list[Any] = []
    while True:
        assert stored(memory) == []
        try:
            chunks.append(next(stream))
        except StopIteration:
            break
    assert stored(memory) == ["Five and one?", "add", "6", "It is six."]
    assert text_of(chunks) == "Let me see.It is six."
    assert {type(chunk).__name__ for chunk in chunks} == {"ModelResponseStream"}
    assert stream.response.choices[0].message.content == "It is six."
    assert stream.response.usage.completion_tokens == 3
    asked = {**call(["call_1"], "add", '{"a": 5}'), "content": "Let me see."}
    assert memory.history("s")[2].message.to_openai() == asked
    assert list(stream) == []
    stream.close()
    assert len(stored(memory)) == 4


def test_arguments_of_parallel_calls_are_not_mixed(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: the arguments of parallel calls are mixed."""
    fake.call(("add", {"a": 1, "b": 2}), ("add", {"a": 30, "b": 40}), ("add", {}))
    list(memory.completion("s", "Go", tools=[add], stream=True))
    assert results(fake)[:2] == ["3", "70"]
    assert "a: Missing" in results(fake)[2]


def test_closing_a_stream_closes_its_connection(
    memory: AgentMemory, fake: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a closed stream keeps the provider's connection open while litellm references it."""
    begun: list[openai.Stream[Any]] = []
    initialize = openai.Stream.__init__

    def noted(stream: openai.Stream[Any], *args: Any, **options: Any) -> None:
        initialize(stream, *args, **options)
        begun.append(stream)

    monkeypatch.setattr(openai.Stream, "__init__", noted)
    fake.reply("one two three four", events=3, then="hold")
    stream = memory.completion("s", "Count", stream=True)
    next(stream)
    assert [one.response.is_closed for one in begun] == [False]
    stream.close()
    assert [one.response.is_closed for one in begun] == [True]


def test_an_unread_stream_does_not_call_the_model(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a stream that nobody reads calls the model."""
    stream = memory.completion("s", "Count", stream=True)
    stream.close()
    assert list(stream) == []
    assert fake.requests == []
    with pytest.raises(InvalidMessage):
        memory.completion("s", [], stream=True)


def fail(stream: CompletionStream) -> None:
    raise ZeroDivisionError


def interrupt(stream: CompletionStream) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "way", [CompletionStream.close, lambda stream: None, fail, interrupt],
    ids=["close", "leave", "fail", "interrupt"],
)  # fmt: skip
def test_a_consumer_that_stops_at_any_chunk_leaves_no_trace(
    memory: AgentMemory, fake: FakeLLM, way: Callable[[CompletionStream], None]
) -> None:
    """Wrong: a stream that is left early stores a part of its turn, or disturbs the next turn."""
    before = memory.history("s")
    total = len(list(two_rounds(memory, fake)))
    memory.pop("s", 4)
    assert total > 12
    for read in range(total + 1):
        stream = two_rounds(memory, fake)
        try:
            for _ in range(read):
                next(stream)
            way(stream)
        except (ZeroDivisionError, KeyboardInterrupt):
            pass
        del stream
        fake.clear()
        assert memory.history("s") == before
    memory.completion("s", "Kept")
    assert stored(memory) == ["Kept", "Done."]


def test_an_abandoned_stream_sets_no_context_variable(
    memory: AgentMemory, fake: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a stream's finalizer sets a context variable, which can crash Python 3.11."""
    begun: list[Any] = []
    initialize = Reading.__init__

    def noted(reading: Reading, stream: Any) -> None:
        initialize(reading, stream)
        begun.append(stream)

    monkeypatch.setattr(Reading, "__init__", noted)
    next(two_rounds(memory, fake))
    (stream,) = begun
    seen = copy_context()
    seen.run(stream.__del__)
    assert dict(seen) == dict(copy_context())


@pytest.mark.parametrize("round_", [1, 2])
@pytest.mark.parametrize("then", ["cut", "end"])
def test_a_connection_that_breaks_at_any_event_leaves_no_trace(
    memory: AgentMemory, fake: FakeLLM, then: Any, round_: int
) -> None:
    """Wrong: half an answer is stored as a whole one."""
    before, failures = memory.history("s"), 0
    for events in range(1, EVENTS):
        if round_ == 2:
            fake.call(("add", {"a": 5}))
        fake.reply("It is six.", events=events, then=then)
        stream = memory.completion("s", "Five and one?", tools=[add], stream=True)
        if then == "end" and events >= FINISHED:
            list(stream)
            assert len(memory.pop("s", 2 * round_)) == 2 * round_
        else:
            with pytest.raises(ModelUnavailable, match="middle of its answer") as caught:
                list(stream)
            failures += 1
            assert "canary" not in str(caught.value)
        assert memory.history("s") == before
        assert list(stream) == []
    assert memory.stats().usage.failures == failures
    assert len(fake.requests) == (EVENTS - 1) * round_


def test_an_incomplete_tool_call_is_not_run(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a tool runs with a part of its arguments."""
    ran: list[str] = []

    def note(text: str = "nothing") -> str:
        ran.append(text)
        return text

    for events in range(1, 5):
        fake.reply(call(["c"], "note"), events=events, then="end")
        with pytest.raises(ModelUnavailable):
            list(memory.completion("s", "Go", tools=[note], stream=True))
    assert ran == []
    assert stored(memory) == []


def reading(stream: CompletionStream, until: int) -> tuple[threading.Thread, list[Any]]:
    """Start a thread that reads a stream, and return once it has read `until` chunks."""
    chunks: list[Any] = []
    there = threading.Event()

    def read() -> None:
        for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == until:
                there.set()

    thread = threading.Thread(target=read)
    thread.start()
    there.wait()
    return thread, chunks


@pytest.mark.parametrize("events", [3, FINISHED, EVENTS - 1])
def test_closing_does_not_wait_for_a_model(memory: AgentMemory, fake: FakeLLM, events: int) -> None:
    """Wrong: closing a stream in another thread waits or fails, or its turn is stored later."""
    fake.reply("It is six.", events=events, then="hold")
    stream = memory.completion("s", "Five and one?", stream=True)
    thread, chunks = reading(stream, min(events, FINISHED - 1))
    stream.close()  # the rest of the answer is held until here
    fake.clear()
    thread.join()
    assert stored(memory) == []
    assert text_of(chunks).startswith("It is ")
    assert list(stream) == []


def test_a_tool_may_stop_its_own_stream(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a tool that closes its own stream waits for ever."""
    streams: list[CompletionStream] = []

    def stop() -> str:
        streams[0].close()
        return "stopped"

    fake.call(("stop", {}))
    streams.append(memory.completion("s", "Go", tools=[stop], stream=True))
    list(streams[0])
    assert stored(memory) == []


def test_a_stream_of_a_closed_memory_raises_an_error(fake: FakeLLM) -> None:
    """Wrong: a stream of a closed memory loses its turn without an error."""
    memory = AgentMemory("memory://", **model_at(fake))
    stream = memory.completion("s", "Hello", stream=True)
    next(stream)
    memory.close()
    with pytest.raises(MemoryClosed):
        list(stream)


def test_a_stream_continues_after_a_callers_tool_runs(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: the caller of a stream cannot continue the turn after running its own tool."""
    tools = [WEATHER, add]
    fake.call(("add", {"a": 5}))
    fake.call(("get_weather", {"city": "Oslo"}))
    stream = memory.completion("s", "Weather?", tools=tools, stream=True)
    list(stream)
    assert stored(memory) == []
    [asked] = stream.response.choices[0].message.tool_calls
    given = [{"role": "user", "content": "Weather?"}, stream.response, result(asked.id, "rain")]
    assert text_of(list(memory.completion("s", given, tools=tools, stream=True))) == "Done."
    assert stored(memory) == ["Weather?", "add", "6", "get_weather", "rain", "Done."]


async def read(stream: AsyncCompletionStream, chunks: list[Any]) -> None:
    async for chunk in stream:
        chunks.append(chunk)  # noqa: PERF401 - the test reads the list meanwhile


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_stream_does_not_block_the_event_loop(fake: FakeLLM, backend: str) -> None:
    """Wrong: a stream blocks the event loop while the model answers, or its turn is not stored."""

    async def run() -> None:
        with remembering(fake) as memory:
            together = AsyncAgentMemory(memory)
            fake.call(("add", {"a": 5}))
            fake.reply("It is six.", events=3, then="hold")
            stream = await together.completion("s", "Five and one?", tools=[add], stream=True)
            chunks: list[Any] = []
            async with anyio.create_task_group() as group:
                group.start_soon(read, stream, chunks)
                while "is " not in text_of(chunks):
                    await anyio.sleep(0.001)
                assert memory.history("s") == []
                fake.clear()
            assert text_of(chunks) == "It is six."
            assert [text for _, text in logged(memory)] == [
                "Five and one?", "add", "6", "It is six.",
            ]  # fmt: skip
            assert stream.response.choices[0].message.content == "It is six."
            await stream.aclose()

    anyio.run(run, backend=backend)


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_other_users_do_not_wait_for_slow_models(fake: FakeLLM, stream: bool) -> None:
    """Wrong: while many users wait for a slow model, the calls of all other users wait too."""

    async def turn(memory: AsyncAgentMemory, n: int) -> None:
        answer = await memory.completion(f"s{n}", "Hello", stream=stream)
        if stream:
            await read(answer, [])

    async def run() -> None:
        with remembering(fake) as memory:
            together = AsyncAgentMemory(memory)
            async with anyio.create_task_group() as group:
                for n in range(THREADS + 1):
                    group.start_soon(turn, together, n)
                try:
                    with anyio.fail_after(10):
                        while len(fake.requests) < THREADS:
                            await anyio.sleep(0.001)
                    with anyio.move_on_after(10) as waiting:
                        await together.update("t", {"role": "user", "content": "Hello"})
                finally:
                    answers.set()
            assert not waiting.cancelled_caught

    answers = threading.Event()
    fake.default = lambda _: "Hi." if answers.wait(30) else ""
    anyio.run(run)


def test_a_cancelled_task_ends_and_stores_nothing(fake: FakeLLM, tmp_path: Path) -> None:
    """Wrong: a cancelled task waits for the model, or its turn is stored later."""

    async def run() -> None:
        with remembering(fake, f"sqlite:///{tmp_path}/m.db") as memory:
            together = AsyncAgentMemory(memory)
            fake.reply("It is six.", events=EVENTS - 1, then="hold")
            stream = await together.completion("s", "Five and one?", stream=True)
            chunks: list[Any] = []
            task = asyncio.create_task(read(stream, chunks))
            while len(chunks) < FINISHED:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            fake.clear()
            await together.close()  # waits for the reading thread
            assert [chunk async for chunk in stream] == []

    asyncio.run(run())
    with remembering(fake, f"sqlite:///{tmp_path}/m.db") as memory:
        assert memory.history("s") == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_closed_stream_does_not_retry_a_failing_model(fake: FakeLLM, backend: str) -> None:
    """Wrong: a reader that leaves waits for a model that hangs, or the stream calls it again."""

    async def run() -> None:
        with remembering(fake, model_timeout=2) as memory:
            together = AsyncAgentMemory(memory)
            fake.outage("hang")
            stream = await together.completion("s", "Five and one?", stream=True)
            async with anyio.create_task_group() as group:
                group.start_soon(read, stream, [])
                while not fake.requests:
                    await anyio.sleep(0.001)
                group.cancel_scope.cancel()
            assert together._calls == 1  # the reader has left before the model failed
            await together.close()  # waits for the reading thread
            assert len(fake.requests) == 1

    anyio.run(run, backend=backend)


class _Stream:
    """A stream like litellm's that counts how often its connection was closed."""

    def __init__(self) -> None:
        self.completion_stream = self
        self.closed = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return "chunk"

    def close(self) -> None:
        self.closed += 1


class _Late:
    """A lock whose stream is closed by another thread just before its release."""

    def __init__(self, lock: Any, reading: Reading) -> None:
        self._lock, self._reading = lock, reading
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._reading.close()
        self._lock.release()


def test_a_stopped_reader_leaves_no_connection() -> None:
    """Wrong: a stream that is stopped during a read is closed by neither thread."""
    stream = _Stream()
    reading = Reading(stream)
    reading._lock = _Late(reading._lock, reading)  # type: ignore[assignment]
    assert next(reading) == "chunk"
    assert stream.closed == 1
    stream = _Stream()
    reading = Reading(stream)
    assert next(reading) == "chunk"
    reading.close()
    assert list(reading) == []
    assert stream.closed >= 1
