"""CrewAI's memory, stored in an `AgentMemory`. It needs no key.

pip install "agent-memory-log[local,crewai]"
"""

from crewai import Memory

from agent_memory import AgentMemory
from agent_memory.integrations.crewai import AgentMemoryStorage
from agent_memory.models.embedders import open_embedder

embedder = open_embedder("local")
told = {"scope": "/pets", "categories": ["cats"], "importance": 0.5}  # no model is asked

with AgentMemory(store="memory://", blocks=[]) as memory:
    crews = Memory(
        storage=AgentMemoryStorage(memory, user_id="ana"),
        embedder=lambda texts: embedder.embed(texts).tolist(),
        root_scope="/crew/home",
    )
    crews.remember("The cat is called Mia.", **told)
    crews.remember("Tea is at five.", **{**told, "scope": "/house"})
    (best, *_) = crews.recall("What is the cat called?", depth="shallow")
    print("Recalled:", best.record.content)
    print(f"Scopes: {crews.list_scopes()}")
    crews.close()
