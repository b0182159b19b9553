"""Calls by the official MCP client, with their results as values."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Mode = Literal["legacy", "auto"]
CONFIG = """
store = "sqlite:///m.db"
max_tokens = 2000
recall_timeout = 60
blocks = [{kind = "static", facts = ["Everybody may sing."]}, {kind = "files"}]
"""


@asynccontextmanager
async def connected(url: str, token: str, mode: Mode = "auto") -> AsyncIterator[Client]:
    """Open a client of a server on HTTP."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """Return the result of a tool: structured data, or text."""
    done = await client.call_tool(name, arguments)
    assert not done.is_error, done.content
    text = done.content[0].text
    if done.structured_content is not None:
        assert json.loads(text) == done.structured_content
    return text if done.structured_content is None else done.structured_content


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    """Return the error text of a tool call, which must fail."""
    done = await client.call_tool(name, arguments)
    assert done.is_error, done.content
    assert done.structured_content is None
    return str(done.content[0].text)


async def resource(client: Client, uri: str) -> Any:
    [found] = (await client.read_resource(uri)).contents
    assert (found.uri, found.mime_type) == (uri, "application/json")
    return json.loads(found.text)
