"""Windows of agents with tool calls: how full they are, which answers they show, what prefix stays.

    git clone https://github.com/microsoft/STATE-Bench
    python -m benchmarks.agent_windows STATE-Bench/datasets/train_task_trajectories

Thirty trajectories of a domain are one session without blocks. A context is made before each call
of the model. Figures are means over the contexts after the log has passed the budget; answers are
those of the last 40 that a context shows verbatim, once there are 40.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from agent_memory import AgentMemory, Chain, ClearTools, Strategy, Trim

BUDGETS = (4_000, 8_000)
STRATEGIES: dict[str, Strategy] = {"default": Chain([ClearTools(), Trim()]), "trim": Trim()}
TRAJECTORIES, ANSWERS, RESULTS = 30, 40, 3


def messages(domain: Path) -> Iterator[dict[str, Any]]:
    """Yield the messages of a domain as OpenAI chat dicts: one call a step, its result after it."""
    number = 0
    for place, file in enumerate(sorted(domain.glob("*.json"))[:TRAJECTORIES]):
        for message in json.loads(file.read_text())["conversation"]:
            if message["role"] == "user" or (message["role"] == "system" and not place):
                yield {"role": message["role"], "content": message["content"]}
            for call in message.get("tool_calls") or ():
                number += 1
                function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
                calls = [{"id": f"c{number}", "type": "function", "function": function}]
                yield {"role": "assistant", "content": None, "tool_calls": calls}
                result = call["result"]
                text = result if isinstance(result, str) else json.dumps(result)
                yield {"role": "tool", "tool_call_id": f"c{number}", "content": text}
            if message["role"] == "assistant" and message.get("content"):
                yield {"role": "assistant", "content": message["content"]}


def measure(domain: Path, budget: int, strategy: Strategy) -> dict[str, float]:
    """Return the means over the contexts of a session."""
    found: dict[str, list[float]] = {"used": [], "prefix": [], "answers": [], "results": []}
    answers: list[str] = []
    results: list[str] = []
    before = 0
    with AgentMemory("memory://", max_tokens=budget, overflow=strategy, blocks=[]) as memory:
        for message in messages(domain):
            memory.update("s", message)
            if message["role"] == "assistant" and message["content"]:
                answers.append(message["content"])
            if message["role"] == "tool":
                results.append(message["content"])
            if message["role"] not in ("user", "tool"):
                continue
            context = memory.get("s")
            if before and context.head is not None and context.head.total > budget:
                shown = {one["content"] for one in context.to_messages()}
                found["used"].append(context.tokens / budget)
                found["prefix"].append((context.kept_tokens or 0) / before)
                found["results"].append(sum(one in shown for one in results[-RESULTS:]))
                if len(answers) >= ANSWERS:
                    found["answers"].append(sum(one in shown for one in answers[-ANSWERS:]))
            before = context.tokens
    return {name: mean(values) for name, values in found.items() if values}


def main() -> None:
    """Measure each domain in a folder."""
    for budget in BUDGETS:
        for domain in sorted(one for one in Path(sys.argv[1]).iterdir() if one.is_dir()):
            for name, strategy in STRATEGIES.items():
                figures = measure(domain, budget, strategy)
                told = "  ".join(f"{key} {value:.2f}" for key, value in figures.items())
                print(f"{budget:,}  {domain.name:20} {name:8} {told}")


if __name__ == "__main__":
    main()
