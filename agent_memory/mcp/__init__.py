"""An MCP server over a memory, with tools and resources. Each request is for one user."""

from __future__ import annotations

import importlib.util

from agent_memory.errors import MissingExtra

if importlib.util.find_spec("mcp") is None:
    raise MissingExtra("The MCP server", "mcp")
