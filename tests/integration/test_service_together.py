"""The service: appends that arrive at the same time are batched."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.serving import Answer, Service, serving


@pytest.fixture(params=["sqlite", "memory"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that batches appends, over a store with or without such transactions."""
    store = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else "memory://"
    with serving(tmp_path, store=store, overflow_mode="background") as service:
        yield service


Given = tuple[str, str, str, Mapping[str, Any]]


def append(token: str, session: str, *texts: str, **more: Any) -> Given:
    messages = [{"role": "user", "content": text} for text in texts]
    return token, session, more.pop("key", ""), {"messages": messages, **more}


def at_once(service: Service, requests: list[Given]) -> list[Answer]:
    """Return the answers to requests that all arrive before the first is answered."""

    async def ask(given: Given) -> Answer:
        token, session, key, body = given
        shown = [("Authorization", f"Bearer {token}")]
        shown += [("Idempotency-Key", key)] if key else []
        path = f"/v1/sessions/{session}/messages"
        return await service.answered("POST", path, shown, json.dumps(body).encode())

    async def main() -> list[Answer]:
        return list(await asyncio.gather(*map(ask, requests)))

    return asyncio.run(main())


def said(service: Service, session: str) -> list[Any]:
    return [entry.message.content for entry in service.memory.history(session)]


def test_each_gets_its_own_answer(service: Service) -> None:
    """Wrong: a request of a batch gets another's answer."""
    ana, ben = service.key("ana"), service.key("ben")
    service.memory.update("nobodys", {"role": "user", "content": "kept"})
    assert service.call("append_messages", ben, _first("bens")).status == 200
    assert service.call("append_messages", ana, _first("anas")).status == 200
    answers = at_once(
        service,
        [
            append(ana, "anas", "one"), append(ana, "bens", "another's"),
            append(ana, "nobodys", "nobody's"), append(ana, "anas", "late", expected_end=0),
            append(ana, "anas", "two", key="k"), append(ana, "anas", "two", key="k"),
            append(ana, "anas", "other", key="k"), append(ana, "%00", "no id"),
            append(ben, "bens", "three", "four"),
        ],
    )  # fmt: skip
    statuses = [one.status for one in answers]
    assert statuses == [200, 404, 404, 409, 200, 200, 409, 422, 200]
    assert answers[1].body == answers[2].body
    assert [answers[n].json["end"] for n in (0, 4, 5, 8)] == [2, 3, 3, 3]
    assert said(service, "anas") == ["first", "one", "two"]
    assert said(service, "bens") == ["first", "three", "four"]
    assert said(service, "nobodys") == ["kept"]


def _first(session: str) -> dict[str, Any]:
    return {"session_id": session, "messages": [{"role": "user", "content": "first"}]}


def test_a_key_that_was_revoked_is_over_for_all_that_wait(service: Service) -> None:
    """Wrong: a revoked key is still accepted in a batch, because it was valid a moment ago."""
    token, key = service.ring.create("short", ["ana"], ["write"])
    other = service.key("ana")
    assert [one.status for one in at_once(service, [append(token, "s", "a")] * 3)] == [200] * 3
    service.ring.revoke(key.prefix)
    answers = at_once(service, [append(token, "s", "b"), append(other, "s", "c")] * 3)
    assert [one.status for one in answers] == [401, 200] * 3
    assert said(service, "s") == ["a"] * 3 + ["c"] * 3


def test_many_to_one_session_keep_their_order_and_their_number(service: Service) -> None:
    """Wrong: a message of a batch is lost, stored twice, or gets another's number."""
    ana = service.key("ana")
    asked = [append(ana, "s", f"{n}") for n in range(100)]
    ends = [one.json["end"] for one in at_once(service, asked)]
    assert sorted(ends) == list(range(1, 101))
    by_end = dict(zip(ends, map(str, range(100)), strict=True))
    assert said(service, "s") == [by_end[end] for end in range(1, 101)]
