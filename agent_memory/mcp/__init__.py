"""An MCP server over a memory: tools and resources, for one user per request."""

from __future__ import annotations

import importlib.util

from agent_memory.errors import MissingExtra

if importlib.util.find_spec("mcp") is None:
    raise MissingExtra("The MCP server", "mcp")
