"""The store, the memory and the model that all processes of a durability run share."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, VectorMemory
from agent_memory.stores import open_store
from agent_memory.stores.base import Store
from agent_memory.strategies.base import Absorb

VECTORS, FACTS = "vector", "extractive"
ROLES = ("user", "assistant", "tool")  # so that each message gets a fact and a vector
MAX_TOKENS = 400

Mode = Literal["inline", "background"]

_LINE = re.compile(r"\[(\d+)\] \S+ \w+: (.*)")


@dataclass(frozen=True, slots=True)
class Site:
    """The store, the namespace and the model of a run."""

    url: str
    namespace: str
    api_base: str

    def store(self) -> Store:
        """Open the store."""
        return open_store(self.url, self.namespace)

    def memory(
        self, store: Store, mode: Mode = "inline", absorb: Absorb = "overflow"
    ) -> AgentMemory:
        """Open a memory with a small window, which overflows often, and both kinds of records."""
        blocks = [
            VectorMemory(name=VECTORS, roles=ROLES),
            ExtractiveMemory(name=FACTS, roles=ROLES),
        ]
        return AgentMemory(
            store=store,
            namespace=self.namespace,
            max_tokens=MAX_TOKENS,
            model="openai/gpt-4o-mini",
            api_base=self.api_base,
            api_key="none",
            embedding="local",
            overflow=FlushToLTM(blocks=blocks, max_stm_ratio=0.5, absorb=absorb),
            overflow_mode=mode,
            background_threads=2,
            idle_minutes=0.01,
        )


def finder() -> Callable[[dict[str, Any]], str]:
    """Return a model that finds one fact in each message, with another text in each call.

    If a batch is absorbed twice, both texts are stored, unless the second replaces the first.
    """
    asked = count(1)

    def answer(body: dict[str, Any]) -> str:
        time = next(asked)
        found = map(_LINE.match, body["messages"][-1]["content"].splitlines())
        facts = [
            {"text": f"{line[2]} (answer {time})", "message": int(line[1]), "quote": line[2]}
            for line in found
            if line
        ]
        return json.dumps({"facts": facts, "answers": []})  # no fact relates to another

    return answer
