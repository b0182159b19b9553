"""The engine behind `AgentMemory`. `memory.py` has its methods, and each other file one task."""
