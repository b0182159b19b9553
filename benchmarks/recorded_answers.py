"""A model's answers, recorded and given again; and what asking for them may cost.

All requests pass by where litellm is called, so any model and any provider can be recorded, and a
request is recorded as it was sent. An answer is given again for the very same request only. Ids and
times that each run makes anew are no part of that: they stand as `<id 1>` and `<now>`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent_memory import TokenCounter
from agent_memory.models.loading import load_litellm

_FILE = "answers.jsonl"
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_NOTHING = '{"facts": [], "answers": []}'


class NotRecorded(Exception):
    """A request has no recorded answer."""


@dataclass(frozen=True)
class Answer:
    """A recorded answer.

    Attributes:
        request: Digest of all of the request.
        instructions: Digest of its system message.
        form: Digest of the form that it asks for, or of the tools that it offers.
        model: Who answered.
        text: What it said.
        prompt_tokens: As the provider counted them.
        completion_tokens: Likewise.
        calls: The tools that it called, as OpenAI's API tells them.
    """

    request: str
    instructions: str
    form: str
    model: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    calls: list[dict[str, Any]] = field(default_factory=list)


class Answers:
    """The answers of a folder. Safe to use from many threads.

    Args:
        folder: Where they are, or are to be; None records nothing.
        model: Who is asked for what is not recorded; None asks nobody.

    Attributes:
        amiss: Why requests had no answer.

    Raises:
        ValueError: The folder holds none, or those of another model.
    """

    def __init__(self, folder: Path | None, model: str | None) -> None:
        self._file = None if folder is None else folder / _FILE
        self._asks = model is not None
        self._lock = threading.Lock()
        self._kept = _read(self._file)
        self._used: set[str] = set()
        self._day = datetime.now(UTC)
        self.amiss: list[str] = []
        models = sorted({one.model for one in self._kept.values()} | ({model} if model else set()))
        if len(models) != 1:
            told = f"answers of {' and '.join(models)}" if models else f"no {_FILE}"
            raise ValueError(f"{folder} holds {told}; name a folder for one model's answers.")
        self.model = models[0]

    @property
    def unused(self) -> int:
        """How many answers nobody asked for."""
        return len(self._kept.keys() - self._used)

    @contextmanager
    def given(self) -> Iterator[None]:
        """Meanwhile each request of this process passes by here."""
        with _instead(self._answer):
            yield

    def _answer(self, really: Callable[..., Any], **request: Any) -> Any:
        names = _Names(json.dumps(request["messages"]), self._day)
        instructions, form, key = _digests(self.model, request, names)
        with self._lock:
            self._used.add(key)
            kept = self._kept.get(key)
        if kept is not None:
            return _response(self.model, _named(kept, names.back))
        if not self._asks:
            self.amiss.append(why := self._why(instructions, form, bool(request.get("tools"))))
            raise NotRecorded(why)
        response = really(**request)
        said = response.choices[0].message if response.choices else None
        calls = [one.model_dump() for one in (said and said.tool_calls) or ()]
        if said and (said.content or calls) and self._file is not None:
            asked, told = response.usage.prompt_tokens, response.usage.completion_tokens
            answer = Answer(
                key, instructions, form, self.model, said.content or "", asked, told, calls
            )
            answer = _named(answer, names.out)
            with self._lock, self._file.open("a", encoding="utf-8") as out:
                self._kept[key] = answer
                out.write(_line(answer))
        return response

    def _why(self, instructions: str, form: str, tools: bool) -> str:
        if instructions not in {one.instructions for one in self._kept.values()}:
            return "the instructions are none of those that were answered"
        if form not in {one.form for one in self._kept.values()}:
            if tools:
                return "the tools that are offered are none of those that were answered"
            return "the form of the answer is none of those that were asked for"
        return "the instructions are the same, but the messages or facts under them are others"


@dataclass(frozen=True)
class Estimate:
    """What may be asked: `cost` in US dollars, None where no price is known."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None


def estimate(model: str, messages: int, feed: Callable[[], object]) -> Estimate:
    """What feeding conversations to a memory costs, about.

    They are fed to a model that finds nothing, and what it is sent is counted. What comes on top of
    that is by experience: a second request of nearly the same size for each, and 30 tokens of
    answers for a message.

    Args:
        model: The model.
        messages: How many are fed.
        feed: Feeds them.
    """
    counter, asked = TokenCounter(model), list[int]()

    def nothing(really: Callable[..., Any], **request: Any) -> Any:
        told = [str(one.get("content")) for one in request["messages"]]
        asked.append(counter.text("\n".join([*told, json.dumps(_form(request))])))
        return _response(model, Answer("", "", "", model, _NOTHING, 0, 0))

    with _instead(nothing):
        feed()
    prompt, completion = round(1.8 * sum(asked)), 30 * messages
    try:
        cost = sum(load_litellm().cost_per_token(model, prompt, completion))
    except Exception as error:  # older litellm raises no class of its own here
        if "isn't mapped" not in str(error):
            raise
        cost = None
    return Estimate(2 * len(asked), prompt, completion, cost)


@contextmanager
def _instead(answer: Callable[..., Any]) -> Iterator[None]:
    litellm = load_litellm()
    really = litellm.completion
    litellm.completion = partial(answer, really)
    try:
        yield
    finally:
        litellm.completion = really


class _Names:
    """What stands in a request for ids and times that each run makes anew.

    Args:
        text: The request.
        day: When the run began; times of that day, and of the next, are the run's.
    """

    def __init__(self, text: str, day: datetime) -> None:
        found = dict.fromkeys(_ID.findall(text))
        self._ids = {one: f"<id {number}>" for number, one in enumerate(found, 1)}
        self._today = f"{day:%Y-%m-%d}"
        days = "|".join((self._today, f"{day + timedelta(days=1):%Y-%m-%d}"))
        self._now = re.compile(rf"(?:{days})(?:T[\d:.]+(?:Z|\+00:00)?)?")

    def out(self, text: str) -> str:
        """The text with these for them."""
        return self._now.sub("<now>", _ID.sub(lambda one: self._ids.get(one[0], one[0]), text))

    def back(self, text: str) -> str:
        """The text with them for these."""
        for one, name in self._ids.items():
            text = text.replace(name, one)
        return text.replace("<now>", self._today)


def _named(answer: Answer, put: Callable[[str], str]) -> Answer:
    """An answer with other names in what it says and calls."""
    return replace(answer, text=put(answer.text), calls=json.loads(put(json.dumps(answer.calls))))


def _digests(model: str, request: dict[str, Any], names: _Names) -> tuple[str, str, str]:
    """Of the instructions, of the form, and of all."""
    messages, form = json.loads(names.out(json.dumps(request["messages"]))), _form(request)
    instructions = [one for one in messages if one["role"] == "system"]
    return _digest(instructions), _digest(form), _digest([model, messages, form])


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _form(request: dict[str, Any]) -> Any:
    form = request.get("response_format") or request.get("tools")
    if isinstance(form, type) and issubclass(form, BaseModel):
        return form.model_json_schema()
    return form


def _response(model: str, answer: Answer) -> Any:
    asked, told, calls = answer.prompt_tokens, answer.completion_tokens, answer.calls
    usage = {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told}
    message = {"role": "assistant", "content": answer.text or None, "tool_calls": calls or None}
    end = "tool_calls" if calls else "stop"
    choice = {"index": 0, "finish_reason": end, "message": message}
    return load_litellm().ModelResponse(model=model, choices=[choice], usage=usage)


def _read(file: Path | None) -> dict[str, Answer]:
    if file is None or not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {one.request: one for one in (Answer(**json.loads(line)) for line in lines if line)}


def _line(answer: Answer) -> str:
    return json.dumps(asdict(answer), ensure_ascii=False) + "\n"
