"""Hermes' agent with our provider, installed as docs/frameworks.md says.

The model speaks OpenAI's Chat Completions API. Hermes stores and restores the transcript itself.
"""

import json
import os
from pathlib import Path
from typing import Any

from hermes_constants import get_hermes_home
from hermes_state import SessionDB
from run_agent import AIAgent
from tools.registry import registry

from agent_memory import AgentMemory
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import BUDGET, INSTRUCTIONS, TOOLS, USER, add, look_up

PLUGIN = f"""
from agent_memory.integrations.hermes import AgentMemoryProvider

def register(ctx):
    ctx.register_memory_provider(AgentMemoryProvider(user_id={USER!r}))
"""
KINDS: dict[str, dict[str, str]] = {
    look_up.__name__: {"topic": "string"},
    add.__name__: {"first": "integer", "second": "integer"},
}


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    os.environ |= {"AGENT_MEMORY_STORE": str(memory.config.store)}
    os.environ |= {"AGENT_MEMORY_MAX_TOKENS": str(BUDGET)}
    home = get_hermes_home()
    plugin = home / "plugins" / "agent_memory" / "__init__.py"
    plugin.parent.mkdir(parents=True, exist_ok=True)
    plugin.write_text(PLUGIN, encoding="utf-8")
    settings = "memory: {provider: agent_memory}\nmodel: {context_length: 64000}\n"
    Path(home, "config.yaml").write_text(settings, encoding="utf-8")
    for tool in TOOLS:
        _register(tool)
    answers = []
    for session, question in turns:
        database = SessionDB()
        agent = AIAgent(
            base_url=f"{server}/v1",
            api_key="none",
            model="scripted",
            enabled_toolsets=["house"],
            session_id=session,
            session_db=database,
            skip_context_files=True,
            quiet_mode=True,
        )
        known = database.get_messages_as_conversation(session)
        done = agent.run_conversation(question, INSTRUCTIONS, known)
        answers.append(done["final_response"])
        agent._memory_manager.flush_pending()
        agent._memory_manager.shutdown_all()
        database.close()
    return answers


def _register(tool: Any) -> None:
    kinds = KINDS[tool.__name__]
    parameters = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
        "required": [*kinds],
    }
    schema = {"name": tool.__name__, "description": tool.__doc__, "parameters": parameters}
    registry.register(
        name=tool.__name__,
        toolset="house",
        schema=schema,
        handler=lambda given, **_: json.dumps({"result": tool(**given)}),
    )
