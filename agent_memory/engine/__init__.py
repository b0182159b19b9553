"""The engine behind `AgentMemory`. `memory.py` has its methods. Each other file has one task."""
