"""The engine behind `AgentMemory`. `memory.py` has the calls, each other file one job."""
