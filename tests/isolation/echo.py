"""A model that repeats its request, so that a leak into a request becomes a leak into an answer."""

import json
import re
import threading
from collections.abc import Callable
from html import unescape
from typing import Any

from tests.isolation.canaries import words_in

_LINE = re.compile(r"^\[(\d+)\] \S+ \w+: (.*)$", re.MULTILINE)
_FACT = re.compile(r"^New (\d+)\. .*\n +(\d+)\. ", re.MULTILINE)
_FACTS = 3
"""Of a batch."""

_RUBBISH = 97
"""Of so many answers that are to be in a form, one is not."""


class Echo:
    """Answer requests, and report the canaries of each to `sent`."""

    def __init__(self, sent: Callable[[set[str]], object]) -> None:
        self._sent = sent
        self._lock = threading.Lock()
        self._asked = 0

    def __call__(self, body: dict[str, Any]) -> str | dict[str, Any]:
        with self._lock:
            self._asked += 1
            asked = self._asked
        found = words_in(body)
        self._sent(found)
        told = " ".join(sorted(found))
        said = [str(message.get("content")) for message in body["messages"]]
        prompt, given = (*said, "")[:2]  # a completion that began empty has one
        if "`quote` is copied" in prompt:
            return self._findings(prompt, unescape(given), asked, told)
        if given.startswith("<facts>"):
            return _answers(unescape(given))
        if body.get("tools") and body["messages"][-1]["role"] == "user" and asked % 2:
            query = json.dumps({"query": f"what of {told or 'me'}"})
            function = {"name": "memory_read", "arguments": query}
            return {"tool_calls": [{"id": f"c{asked}", "type": "function", "function": function}]}
        return f"I was told {told or 'nothing'}."

    def _findings(self, prompt: str, given: str, asked: int, told: str) -> str:
        if asked % _RUBBISH == 0:
            return f"I would rather talk of {told}."
        facts: list[dict[str, Any]] = []
        for number, text in _LINE.findall(given)[-_FACTS:]:
            place = {"message": int(number), "quote": text}
            if prompt.startswith("Fill a profile"):
                facts.append({**place, "field": "likes", "value": text})
            else:
                facts.append({**place, "text": text})
        return json.dumps({"facts": facts})


def _answers(given: str) -> str:
    """Let each new fact replace the first one that it is compared with."""
    pairs = [(int(new), int(older)) for new, older in _FACT.findall(given)]
    answers = [{"number": new, "answer": "update", "which": [older]} for new, older in pairs]
    return json.dumps({"answers": answers})
