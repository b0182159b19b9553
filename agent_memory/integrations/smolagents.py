"""An `AgentMemory` as the memory of smolagents' agents.

agent = CodeAgent(tools=[], model=model)
agent.memory = AgentMemorySteps(memory, "chat-1", user_id="ana")
agent.run("Where do I live?")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_memory.core.formats.registry import SMOLAGENTS
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.errors import MissingExtra

try:
    from smolagents.memory import ActionStep, MemoryStep, SystemPromptStep, TaskStep, ToolCall
    from smolagents.memory import AgentMemory as Memory
    from smolagents.monitoring import Timing, TokenUsage
    from smolagents.utils import AgentMaxStepsError
except ImportError as error:
    raise MissingExtra("smolagents' memory", "smolagents") from error

__all__ = ["AgentMemorySteps"]


class AgentMemorySteps(Memory):
    """A chat within the budget, with recalls for the chat's user. Assign it to an agent's `memory`.

    Each run begins with the session's context: the newest steps of earlier runs within the budget,
    a summary of the steps before these, and recalls for the task. The context replaces the agent's
    own steps of earlier runs, even with `reset=False`. The task and each step of a run are stored.
    """

    def __init__(self, memory: AgentMemory, session_id: str, *, user_id: str | None = None) -> None:
        self._session = memory.session(session_id, user_id)
        super().__init__("")

    @property
    def steps(self) -> list[Any]:
        """The steps that the agent sends to its model: the context, and the steps of the run."""
        return self._steps

    @steps.setter
    def steps(self, steps: Iterable[Any]) -> None:
        self._steps = _Steps(self._session, steps)


class _Steps(list[Any]):
    """A list of an agent's steps. It stores each appended step."""

    def __init__(self, session: Session, steps: Iterable[Any]) -> None:
        super().__init__(steps)
        self._session = session

    def append(self, step: Any) -> None:
        if isinstance(step, TaskStep):
            self._session.update({"raw": {"task": step.task}, "format": SMOLAGENTS})
            items = self._session.get(format=SMOLAGENTS).to_messages()
            if items and "task" in items[-1]:
                step.task = items.pop()["task"]  # the context may have put recalls into the task
            self[:] = [_step(item) for item in items]
        elif isinstance(step, ActionStep) and (raw := _raw(step)):
            self._session.update({"raw": raw, "format": SMOLAGENTS})
        super().append(step)


def _raw(step: ActionStep) -> dict[str, Any]:
    """Return the fields of a step to store; {} for a step that failed before its output."""
    calls = step.tool_calls
    if calls is None and step.model_output_message is not None:  # the step's tool failed
        planned = step.model_output_message.tool_calls or ()
        calls = [ToolCall(call.function.name, call.function.arguments, call.id) for call in planned]
    is_last = step.is_final_answer or isinstance(step.error, AgentMaxStepsError)
    problem = f"Error:\n{step.error}" if step.error is not None and not is_last else None
    answer = step.observations if step.action_output is None else str(step.action_output)
    raw = {
        "model_output": step.model_output,
        "tool_calls": [call.dict() for call in calls or ()],
        "observations": "\n".join(filter(None, (step.observations, problem))),
        "answer": answer if is_last else None,
    }
    return {key: value for key, value in raw.items() if value}


def _step(raw: dict[str, Any]) -> MemoryStep:
    if "task" in raw:
        return TaskStep(raw["task"])
    if "system_prompt" in raw:
        return SystemPromptStep(raw["system_prompt"])
    calls = [
        ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in raw.get("tool_calls", ())
    ]
    return ActionStep(
        step_number=0,
        timing=Timing(0.0, 0.0),
        token_usage=TokenUsage(0, 0),  # smolagents adds up the usage of all steps
        tool_calls=calls or None,
        model_output=raw.get("model_output") or (None if calls else raw.get("answer")),
        observations=raw.get("observations"),
    )
