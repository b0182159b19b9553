"""The prompts of the reader and the judge, and models whose answers are stored."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent_memory.models.loading import load_litellm
from benchmarks.recall.formats import Question

Messages = Sequence[Mapping[str, str]]

_READ = (
    "You answer a question about earlier conversations from notes. Answer in one short sentence, "
    "from the notes alone. A note has the day on which it was said: work out relative times from "
    "it. If the notes do not tell, answer: I do not know."
)
_JUDGE = (
    "You judge an answer to a question, given the right answer. Say yes if it tells what the "
    "right answer tells, in any words or with more detail; a date may be written in any way, or "
    "as a relative time that means the same day. Say no if it is wrong, misses a part that was "
    "asked for, or does not know. Answer with one word: yes or no."
)


class NotStored(Exception):
    """A request has no stored answer, and no model may be asked."""


@dataclass(frozen=True)
class Answer:
    """An answer, and its cost in US dollars; None if the price is unknown."""

    text: str
    cost: float | None = None


class Model:
    """A model with stored answers. Safe to use from many threads.

    The answers are in `answers.jsonl` in `folder`, one JSON line each. `settings` go to litellm. If
    `asks` is False, the model is never called.
    """

    def __init__(self, name: str, folder: Path, settings: Mapping[str, Any], asks: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name, self._settings, self._asks = name, settings, asks
        self._file = folder / "answers.jsonl"
        self._lock = threading.Lock()
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        stored = [json.loads(line) for line in lines]
        self._stored = {one.pop("request"): Answer(**one) for one in stored}

    def answer(self, messages: Messages) -> Answer:
        """Return the stored answer, or ask for one and store it. May raise `NotStored`."""
        whole = json.dumps([self._name, list(messages)], sort_keys=True)
        request = sha256(whole.encode()).hexdigest()[:16]
        stored = self._stored.get(request)
        if stored is not None:
            return stored
        if not self._asks:
            raise NotStored(f"{self._file} has no answer of {self._name} to one of the requests.")
        answer = self._ask(messages)
        line = json.dumps({"request": request, **asdict(answer)}, ensure_ascii=False)
        with self._lock, self._file.open("a", encoding="utf-8") as out:
            out.write(line + "\n")
            self._stored[request] = answer
        return answer

    def _ask(self, messages: Messages) -> Answer:
        litellm = load_litellm()
        response = litellm.completion(model=self._name, messages=list(messages), **self._settings)
        try:
            cost = litellm.completion_cost(response)
        except Exception as error:  # litellm has no class of its own for a model without a price
            if "isn't mapped" not in str(error):
                raise
            cost = None
        return Answer(response.choices[0].message.content or "", cost)


def reading(question: Question, at: datetime, notes: str) -> list[dict[str, str]]:
    """Return the request to the reader."""
    text = f"<notes>\n{notes}\n</notes>\n\nToday is {at:%A, %d %B %Y}.\n\n{question.text}"
    return [{"role": "system", "content": _READ}, {"role": "user", "content": text}]


def judging(question: Question, answer: str) -> list[dict[str, str]]:
    """Return the request to the judge. It does not show which system made the context."""
    text = f"Question: {question.text}\nRight answer: {question.answer}\nAnswer: {answer}"
    return [{"role": "system", "content": _JUDGE}, {"role": "user", "content": text}]


def verdict(text: str) -> bool:
    """Return the judge's verdict. Raise ValueError if it is neither yes nor no."""
    word = text.strip().strip(".*").lower()
    if word not in ("yes", "no"):
        raise ValueError(f"The judge answered neither yes nor no: {text[:80]!r}.")
    return word == "yes"
