"""Claude's memory tool, which writes files to a memory. It needs no key.

pip install "agent-memory-log[anthropic]"
"""

from agent_memory import AgentMemory, FileMemory
from agent_memory.integrations.anthropic import MemoryTool

with AgentMemory(store="memory://", blocks=[FileMemory()]) as memory:
    tool = MemoryTool(memory, user_id="ana")  # client.beta.messages.tool_runner(tools=[tool], ...)
    cat = {"path": "/memories/cat.md"}
    print(tool.call({"command": "create", **cat, "file_text": "She is called Mia."}))
    print(tool.call({"command": "view", **cat}))
    print("Sent along:", tool.to_dict())
