"""The command line: `agent-memory`."""
