"""The engine behind `AgentMemory`: one file a job, `memory.py` the one that is called."""
