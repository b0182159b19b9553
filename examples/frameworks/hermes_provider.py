"""Hermes Agent's memory manager with this library as a provider. It needs no key.

pip install "agent-memory-log[local,hermes]"
"""

from agent.memory_manager import MemoryManager

from agent_memory import AgentMemory
from agent_memory.integrations.hermes import AgentMemoryProvider

talk = [
    {"role": "user", "content": "My cat is called Mia."},
    {"role": "assistant", "content": "Noted."},
]

with AgentMemory(store="memory://") as memory:
    manager = MemoryManager()
    manager.add_provider(AgentMemoryProvider(memory, user_id="ana"))
    manager.initialize_all(session_id="monday", platform="cli")
    manager.sync_all("My cat is called Mia.", "Noted.", session_id="monday", messages=talk)
    manager.flush_pending()
    print(manager.on_pre_compress(talk))
    manager.on_session_switch("tuesday", parent_session_id="monday", reset=True)
    print(manager.prefetch_all("What is my cat called?", session_id="tuesday"))
    manager.shutdown_all()
