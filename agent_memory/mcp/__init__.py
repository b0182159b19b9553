"""A memory as an MCP server: one user's at a time, as tools and resources."""

from __future__ import annotations

import importlib.util

from agent_memory.errors import MissingExtra

if importlib.util.find_spec("mcp") is None:
    raise MissingExtra("The MCP server", "mcp")
