"""An MCP client finds what an application has stored, adds a note, and reads a conversation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import TextResourceContents

from agent_memory import AgentMemory, VectorMemory

TALK = [
    {"role": "user", "content": "We moved our stand-up to half past nine, on Tuesdays too."},
    {"role": "assistant", "content": "Noted. Shall I change the invitation?"},
]


def store_a_talk(store: str) -> None:
    """Store a conversation of Kim, as an application does."""
    with AgentMemory(store=store, blocks=[VectorMemory()]) as memory:
        memory.update("monday/1", TALK, user_id="kim")
        memory.flush()


async def use(store: str) -> None:
    """Start the server for Kim, and call it, as a client does."""
    server = StdioServerParameters(
        command=str(Path(sys.executable).with_name("agent-memory")),
        args=["mcp", "--user", "kim", "--store", store],
        env={"AGENT_MEMORY_RECALL_TIMEOUT": "60"},  # the first search loads the embedder
    )
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        print("tools:", ", ".join(tool.name for tool in tools))

        note = await call(client, "add_memory", text="Kim is off on Fridays.")
        await call(client, "update_memory", id=note["id"], text="Kim is off on Thursdays.")
        found = await call(client, "search_memories", query="When is the stand-up?", limit=1)
        print("found:", found["memories"][0]["text"])
        for memory in (await call(client, "search_memories"))["memories"]:
            print(f"{memory['kind']}:", memory["text"])

        refused = await client.call_tool("search_memories", {"query": "?", "user_id": "sam"})
        print("refused:", refused.is_error)

        [session] = (await read(client, "memory://sessions"))["sessions"]
        log = await read(client, session["uri"])
        print(f"{session['uri']}:", [message["role"] for message in log["messages"]])


async def call(client: Client, tool: str, **arguments: str | int) -> dict[str, Any]:
    """Return the structured result of a tool."""
    return (await client.call_tool(tool, arguments)).structured_content or {}


async def read(client: Client, uri: str) -> Any:
    """Return the JSON content of a resource."""
    [content] = (await client.read_resource(uri)).contents
    return json.loads(content.text) if isinstance(content, TextResourceContents) else None


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        address = f"sqlite:///{Path(folder).as_posix()}/memory.db"
        store_a_talk(address)
        anyio.run(use, address)
