"""A stand-in for a Qdrant server: REST on 127.0.0.1, over the local mode of Qdrant's own client.

It tests our requests and how we read answers (JSON, timeouts, errors) over real HTTP. It does not
test how a Qdrant server behaves. Where our store relies on a status of the server, the
stand-in follows the server's source.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import sleep
from typing import Any, Literal, Self

import pytest
from pydantic import BaseModel
from qdrant_client import QdrantClient, models

from tests.servers.http import Handler, HTTPServer

Way = Literal["", "down", "slow", "refuse"]

_MOST_BYTES = 32 * 2**20
_WRITES = ("PUT", "DELETE")


@dataclass
class Request:
    """A client's request."""

    method: str
    path: str
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Refused(Exception):
    """A status other than 200."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status


@dataclass
class StandIn:
    """Answer like a Qdrant server, as far as our store needs it."""

    key: str | None = None
    way: Way = ""
    late: float = 0.5
    requests: list[Request] = field(default_factory=list)
    indexes: dict[str, dict[str, Any]] = field(default_factory=dict)
    before: Callable[[Request], None] = lambda request: None

    def __post_init__(self) -> None:
        self._client = QdrantClient(":memory:")
        self._turn = threading.Lock()
        self._start(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._client.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def collections(self) -> list[str]:
        return sorted(one.name for one in self._client.get_collections().collections)

    def points(self, collection: str) -> list[Any]:
        return list(self._client.scroll(collection, limit=10_000, with_vectors=True)[0])

    def stop(self) -> None:
        """Stop listening, and keep the data. Idempotent."""
        self._server.stop()

    def restart(self) -> None:
        self._start(self.port)

    def _start(self, port: int) -> None:
        self._server = HTTPServer(_API, self, port)
        self.port: int = self._server.server_port

    def answer(self, request: Request, key: str | None) -> Any:
        """Return a request's result, or raise `Refused` with a status other than 200."""
        self.requests.append(request)
        if self.key is not None and key != self.key:
            raise Refused(401, "Invalid API key or JWT")
        if self.way == "refuse" and str(request).startswith(_WRITES):
            raise Refused(403, "Forbidden: Global manage access is required")
        self.before(request)
        with self._turn:
            return self._done(request)

    def _done(self, request: Request) -> Any:
        client, body = self._client, request.body
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["collections"]:
                return client.get_collections()
            case "PUT", ["collections", name]:
                return self._create(name, models.CreateCollection.model_validate(body))
            case "DELETE", ["collections", name]:
                self.indexes.pop(name, None)
                return name in self.collections and client.delete_collection(name)
            case method, ["collections", name, *rest]:
                if not client.collection_exists(name):
                    raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
                return self._points(f"{method} {'/'.join(rest)}", name, body)
        raise Refused(404, "")

    def _points(self, asked: str, name: str, body: Any) -> Any:
        client = self._client
        match asked:
            case "GET ":
                return client.get_collection(name)
            case "PUT index":
                wanted = models.CreateFieldIndex.model_validate(body)
                self.indexes.setdefault(name, {})[wanted.field_name] = body["field_schema"]
                return {"status": "completed", "operation_id": 0}
            case "PUT points":
                return client.upsert(name, models.PointsList.model_validate(body).points)
            case "POST points/delete":
                matched = models.FilterSelector.model_validate(body).filter
                return client.delete(name, points_selector=matched)
            case "POST points/scroll":
                wished = models.ScrollRequest.model_validate(body)
                points, after = client.scroll(
                    name,
                    wished.filter,
                    limit=wished.limit or 10,
                    offset=wished.offset,
                    with_vectors=bool(wished.with_vector),
                )
                return {"points": [one.model_dump() for one in points], "next_page_offset": after}
            case "POST points/count":
                counted = models.CountRequest.model_validate(body)
                exact = bool(counted.exact)
                return client.count(name, count_filter=counted.filter, exact=exact).model_dump()
            case "POST points/query/batch":
                asked = models.QueryRequestBatch.model_validate(body).searches
                return [one.model_dump() for one in client.query_batch_points(name, asked)]
        raise Refused(404, "")

    def _create(self, name: str, wanted: models.CreateCollection) -> bool:
        if name in self.collections:
            raise Refused(409, f"Wrong input: Collection `{name}` already exists!")
        return self._client.create_collection(
            name,
            vectors_config=wanted.vectors,
            sparse_vectors_config=wanted.sparse_vectors,
            metadata=wanted.metadata,
        )


class _API(Handler):
    def respond(self) -> None:
        standing = self.server.owner
        sent = self.body()
        if standing.way == "down":
            return
        if standing.way == "slow":
            sleep(standing.late)
        path = re.sub(r"\?.*", "", self.path)
        request = Request(self.command, path, json.loads(sent) if sent else None)
        try:
            if len(sent) > _MOST_BYTES:
                raise Refused(413, "Payload too large")
            result = standing.answer(request, self.headers.get("api-key"))
        except Refused as error:
            self.send(error.status, {"status": {"error": str(error)}, "time": 0.0})
        except ValueError as error:  # an error of the local mode: a server answers 400
            self.send(400, {"status": {"error": f"Wrong input: {error}"}, "time": 0.0})
        else:
            if isinstance(result, BaseModel):
                result = result.model_dump(mode="json")
            self.send(200, {"result": result, "status": "ok", "time": 0.0})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    with StandIn() as server:
        yield server


_SERVERS = ["stand-in", *filter(None, [os.environ.get("AGENT_MEMORY_TEST_QDRANT")])]


@pytest.fixture(scope="module", params=_SERVERS)
def qdrant(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a stand-in, and of the server that the environment names."""
    if request.param != "stand-in":
        yield request.param
        return
    with pytest.MonkeyPatch.context() as patch, StandIn() as server:
        patch.delenv("QDRANT_API_KEY", raising=False)
        yield server.url
