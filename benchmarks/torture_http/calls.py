"""Everything that the service can be asked: its table, and what it offers MCP clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from agent_memory.server.calls import OPERATIONS
from benchmarks.torture_http.site import Answer, Caller

JSON = {"Content-Type": "application/json"}
MCP = {**JSON, "Accept": "application/json, text/event-stream"}
DELETING = ("delete_user",)
"""Calls that delete the user, with the keys that are for nobody else."""

_RARE = {"admin": 0.05, "export_user": 0.2, "delete_session": 0.4, **dict.fromkeys(DELETING, 0.05)}


@dataclass(frozen=True, slots=True)
class Request:
    """A request, but for who makes it.

    Attributes:
        method: Its method.
        path: Its path, with the query.
        headers: Its headers.
        body: Its body.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None

    def made(self, caller: Caller, server: int, token: str) -> Answer:
        """What a server answers to who has a credential."""
        headers = {**self.headers, "Authorization": f"Bearer {token}"}
        return caller.ask(server, self.method, self.path, headers, self.body)


@dataclass(frozen=True, slots=True)
class Call:
    """Something that can be asked.

    Attributes:
        name: What the report calls it.
        method: Its method; empty for what stands in a request of MCP.
        path: The path's template; of MCP the method of the protocol.
        needs: The right that it needs; empty where a tool is just not there for who lacks it.
        schema: What it takes.
        in_path: The fields that stand in the path.
        weight: How often it is asked, in proportion.
    """

    name: str
    method: str
    path: str
    needs: str
    schema: Mapping[str, Any]
    in_path: tuple[str, ...] = ()
    weight: float = 1.0

    @property
    def of_user(self) -> bool:
        """Whether it is done for one user; what needs no right is about the credential."""
        return self.needs != "admin" and bool(self.needs or not self.method)

    @property
    def fields(self) -> Mapping[str, Any]:
        """What it takes, by name."""
        found: Mapping[str, Any] = self.schema.get("properties", {})
        return found

    @property
    def in_share(self) -> bool:
        """Whether it is about a shared namespace."""
        return "share" in self.in_path or "share" in self.fields

    def request(self, given: Mapping[str, Any], user: str | None = None) -> Request:
        """It as a request, which may name a user."""
        if not self.method:
            return self._of_mcp(given, user)
        rest, path = dict(given), self.path
        for name in self.in_path:
            path = path.replace(f"{{{name}}}", quote(str(rest.pop(name)), safe=""))
        has_body = self.method in ("POST", "PUT")
        query = [] if has_body else [(name, one) for name, one in rest.items() if one is not None]
        query += [] if user is None else [("user_id", user)]
        path += f"?{urlencode(query, doseq=True)}" if query else ""
        body = json.dumps(rest).encode() if has_body else None
        return Request(self.method, path, JSON if has_body else {}, body)

    def _of_mcp(self, given: Mapping[str, Any], user: str | None) -> Request:
        if self.path == "resources/read":
            params: dict[str, Any] = {"uri": _uri(given)}
        else:
            params = {"name": self.name, "arguments": given}
        body = {"jsonrpc": "2.0", "id": 1, "method": self.path, "params": params}
        query = "" if user is None else f"?{urlencode({'user_id': user})}"
        return Request("POST", f"/mcp{query}", MCP, json.dumps(body).encode())


def _uri(given: Mapping[str, Any]) -> str:
    session_id = given.get("session_id")
    named = "" if session_id is None else f"/{quote(session_id, safe='')}"
    return f"memory://sessions{named}"


def of_the_table() -> list[Call]:
    """The calls of `/v1`."""
    return [
        Call(
            one.name,
            one.method,
            f"/v1{one.path}",
            one.needs or "",
            one.form.model_json_schema(),
            one.in_path,
            _RARE.get(one.name, _RARE.get(one.needs or "", 1.0)),
        )
        for one in OPERATIONS
    ]


def of_mcp(caller: Caller, token: str) -> list[Call]:
    """The tools that whoever has a credential is offered, and the resources."""
    tools = offered(caller, token)
    reading = {"properties": {"session_id": {"type": "string"}}}
    return [
        *(Call(one["name"], "", "tools/call", "", one["inputSchema"]) for one in tools),
        Call("a resource", "", "resources/read", "", reading),
    ]


def offered(caller: Caller, token: str) -> list[dict[str, Any]]:
    """The tools that whoever has a credential is offered."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    answer = Request("POST", "/mcp", MCP, body).made(caller, 0, token)
    found: list[dict[str, Any]] = answer.json["result"]["tools"]
    return found
