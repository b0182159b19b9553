"""Plays a task: a model with a memory's tools, over `completion` or over MCP on stdio."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio import to_thread
from mcp import Client, StdioServerParameters, types
from pydantic import SecretStr

from agent_memory import (
    AgentMemory,
    ExtractiveMemory,
    FileMemory,
    NoteMemory,
    SkillMemory,
    Trim,
    VectorMemory,
    WorkingMemory,
)
from agent_memory.errors import ModelError, ModelOutputInvalid
from agent_memory.models.llm import LLM
from agent_memory.models.loading import load_litellm
from agent_memory.testing import FakeLLM
from benchmarks.recorded_answers import Answers, NotRecorded
from benchmarks.tools_tasks import Holds, Known, Over, Task, told

_USER, _SESSION = "ana", "now"
_ROUNDS = 8
_LINE = re.compile(r"^\[(\d+)\] [^:\n]*: (.*)$", re.MULTILINE)
_IN_VAIN = re.compile(
    r"There is no|No (?:note|fact|skill|replacement)|Error|The memory cannot|The path .* not exist"
    r"|Nothing (?:has|is kept|in memory)|[^\n]*(?:bad arguments|are not JSON|, too\.$|"
    r"Nothing was replaced)"
)
_SERVER = "from agent_memory.cli.app import app; app()"
Settings = dict[str, Any]


@dataclass
class Call:
    """A call of a tool, with what the model read of its result."""

    name: str
    arguments: str
    result: str = ""

    @property
    def in_vain(self) -> bool:
        """Whether the result tells that it was not done, or found nothing."""
        return _IN_VAIN.match(self.result) is not None


@dataclass
class Played:
    """What became of a task."""

    task: Task
    over: Over
    calls: list[Call] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    amiss: list[str] = field(default_factory=list)
    _open: dict[str, Call] = field(default_factory=dict)
    change: Callable[[], object] = lambda: None

    def asked(self, really: Callable[..., Any], request: dict[str, Any]) -> Any:
        """Pass a request on; what the model is shown and says is kept."""
        for message in request["messages"]:
            call = self._open.pop(str(message.get("tool_call_id")), None)
            if call is not None:
                call.result = str(message["content"])
        self.requests += 1
        if self.task.meanwhile and self.requests == self.task.meanwhile.before:
            self.change()
        response = really(**request)
        self.prompt_tokens += response.usage.prompt_tokens
        self.completion_tokens += response.usage.completion_tokens
        said = response.choices[0].message
        for one in said.tool_calls or ():
            call = Call(one.function.name, one.function.arguments)
            self.calls.append(call)
            self._open[str(one.id)] = call
        if not said.tool_calls:
            self.answers.append(said.content or "")
        return response


_playing: ContextVar[Played] = ContextVar("playing")


@contextmanager
def watched(answers: Answers) -> Iterator[None]:
    """Meanwhile what is asked in a task is answered from there, and belongs to that task."""
    litellm = load_litellm()
    really = litellm.completion
    with answers.given():
        given = litellm.completion

        def completion(**request: Any) -> Any:
            played = _playing.get(None)  # None: a memory is being filled
            return really(**request) if played is None else played.asked(given, request)

        litellm.completion = completion
        yield


def play(task: Task, over: Over, settings: Settings) -> Played:
    """Play a task in a memory of its own, and judge it.

    Args:
        task: The task.
        over: How the model is asked.
        settings: The model, its address, its key and its timeout.
    """
    played = Played(task, over)
    with TemporaryDirectory() as folder:
        place = {"store": f"sqlite:///{Path(folder, 'm.db').as_posix()}"}
        _fill(task, Path(folder), place)
        with _opened(task, Path(folder), {**place, **settings}) as memory:
            played.change = lambda: _meanwhile(memory, task)
            playing = _playing.set(played)
            try:
                if over == "completion":
                    _over_completion(memory, task)
                else:
                    anyio.run(_over_mcp, task, Path(folder), place, settings)
            except (ModelError, NotRecorded) as error:
                played.amiss.append(f"{type(error).__name__}: {error}")
                return played
            finally:
                _playing.reset(playing)
            holds = _holds(memory)
    names, answer = [one.name for one in played.calls], (played.answers or [""])[-1]
    played.amiss += task.amiss(over, names, answer, holds)
    return played


def _blocks(folder: Path) -> list[Any]:
    skills = SkillMemory(folder=folder / "skills")
    kinds = (NoteMemory(), ExtractiveMemory(), VectorMemory(), WorkingMemory(persist=True))
    return [*kinds, skills, FileMemory()]


def _opened(task: Task, folder: Path, settings: Settings) -> AgentMemory:
    """The memory; of its own accord it asks no model."""
    fixed: Settings = {"max_tokens": task.max_tokens, "overflow": Trim(), "recall_timeout": 60.0}
    none = {"total": {"calls": 0}}
    return AgentMemory(blocks=_blocks(folder), spending_limits=none, **fixed, **settings)


def _fill(task: Task, folder: Path, place: Settings) -> None:
    """Have the memory hold what it is to hold before; its facts are found by a scripted model."""
    before = task.before
    with (
        FakeLLM(lambda body: _found(body, before.facts)) as fake,
        AgentMemory(
            **place, model="openai/any", api_base=fake.api_base, api_key="k", overflow=Trim(),
            blocks=_blocks(folder),
        ) as memory,
    ):  # fmt: skip
        for session in before.sessions:
            said = [
                {"role": role, "content": told(text), "created_at": session.at}
                for role, text in session.messages
            ]
            memory.update(session.name, said, user_id=_USER)
        memory.flush()
        user = memory.user(_USER)
        for note in before.notes:
            user.notes().add(told(note))
        for one in before.skills:
            user.skills().write(one.name, one.description, steps=one.steps)
        for path, text in before.files.items():
            user.files().create(path, told(text))


def _found(body: dict[str, Any], facts: tuple[Known, ...]) -> str:
    lines = _LINE.findall(unescape(body["messages"][1]["content"]))
    found = [
        {"message": int(number), "quote": one.quote, "text": one.text}
        for number, text in lines
        for one in facts
        if one.quote in text
    ]
    return json.dumps({"facts": found, "answers": []})


def _meanwhile(memory: AgentMemory, task: Task) -> None:
    assert task.meanwhile is not None
    user = memory.user(_USER)
    for path, text in task.meanwhile.files.items():
        user.files().write(path, text)
    for note in user.notes().all():
        if task.meanwhile.forgets and task.meanwhile.forgets in note.text:
            user.notes().delete(note.id)


def _holds(memory: AgentMemory) -> Holds:
    user = memory.user(_USER)
    pad = memory.session(_SESSION, _USER).working().all()
    return {
        "notes": [one.text for one in user.notes().all()],
        "facts": [one.text for one in user.facts()],
        "files": [f"{path}\n{user.files().read(path)}" for path in user.files().paths()],
        "skills": [
            "\n".join((one.name, one.description, *one.steps)) for one in user.skills().all()
        ],
        "scratchpad": [f"{key}: {json.dumps(value)}" for key, value in pad.items()],
    }


def _over_completion(memory: AgentMemory, task: Task) -> None:
    for text in task.says:
        tools = memory.tools(_SESSION, user_id=_USER)
        memory.completion(_SESSION, told(text), user_id=_USER, tools=tools, max_rounds=_ROUNDS)


async def _over_mcp(task: Task, folder: Path, place: Settings, settings: Settings) -> None:
    """A client's chat: its own loop over a model, with the tools that a server lists."""
    config = folder / "config.json"
    config.write_text(_configuration(task, folder, place), encoding="utf-8")
    key, timeout = SecretStr(settings["api_key"] or ""), settings["model_timeout"]
    llm = LLM(
        settings["model"], api_base=settings["api_base"], api_key=key if key else None,
        timeout=timeout,
    )  # fmt: skip
    args = ["-c", _SERVER, "mcp", "--user", _USER, "--config", str(config)]
    async with Client(
        StdioServerParameters(command=sys.executable, args=args, env={**os.environ})
    ) as client:
        offered = [_schema(one) for one in (await client.list_tools()).tools]
        chat: list[dict[str, Any]] = [{"role": "system", "content": client.instructions}]
        for text in task.says:
            chat.append({"role": "user", "content": told(text)})
            await _turn(client, llm, chat, offered)


def _configuration(task: Task, folder: Path, place: Settings) -> str:
    with _opened(task, folder, {**place, "model": "openai/any"}) as memory:
        return memory.config.model_dump_json(exclude_defaults=True)


async def _turn(
    client: Client, llm: LLM, chat: list[dict[str, Any]], offered: list[dict[str, Any]]
) -> None:
    for left in range(_ROUNDS, -1, -1):
        more = {} if left else {"tool_choice": "none"}
        ask = partial(llm.respond, chat, tools=offered, **more)
        said = (await to_thread.run_sync(ask)).choices[0].message
        calls = [one.model_dump() for one in said.tool_calls or ()]
        message = {"role": "assistant", "content": said.content}
        chat.append({**message, "tool_calls": calls} if calls else message)
        if not calls:
            return
        for one in calls:
            text = await _called(client, one["function"])
            chat.append({"role": "tool", "tool_call_id": one["id"], "content": text})
    raise ModelOutputInvalid("It asks for more tools after the last round.")


async def _called(client: Client, function: dict[str, Any]) -> str:
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError as error:
        return f"The arguments are not JSON: {error}."
    done = await client.call_tool(function["name"], arguments)
    return "\n".join(one.text for one in done.content if isinstance(one, types.TextContent))


def _schema(tool: types.Tool) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description or ""}
    return {"type": "function", "function": {**described, "parameters": tool.input_schema}}
