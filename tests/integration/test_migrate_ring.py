"""A deployment that was moved through every kind of database is as it was."""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from agent_memory import operations
from agent_memory.engine import leases
from agent_memory.errors import StoreUnavailable
from agent_memory.stores import MemoryStore, open_store
from agent_memory.testing import watched
from agent_memory.testing.contract import draft
from tests.integration.migrating import cut, everything, fill, fill_plainly, moved


@pytest.fixture
def urls(
    tmp_path: Path, postgres_url: str, redis_url: str, mysql_url: str, mongodb_url: str
) -> list[str]:
    """Once round."""
    first, last = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "last"))
    return [first, postgres_url, redis_url, mysql_url, mongodb_url, last]


def test_once_round(urls: list[str]) -> None:
    """Wrong: some database gives back another text, number, order, vector or id than it was given,
    or a long log, or what lies beside the sessions, does not arrive there."""
    namespace = f"ring {uuid4().hex}"
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_store(url, namespace))) for url in urls]
        fill(stores[0])
        before = everything(stores[0])
        steps: dict[str, object] = {}
        for here, there in pairwise(urls):
            *_, last = operations.migrate(here, there, namespace=namespace)
            steps[there] = last.verified
        assert len(set(steps.values())) == 1
        for store in stores[1:]:
            assert everything(store) == before


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was cut short keeps nobody waiting."""
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.02)


@pytest.mark.parametrize("kind", ["postgres", "redis", "mysql", "mongodb"])
def test_cut_short_there(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Wrong: some database can't go on with what an interrupted run has left in it."""
    url = request.getfixturevalue(f"{kind}_url")
    fatal = [("put_records", 2), ("put_vectors", 1), ("rewrite", 2), ("rewrite", 2), ("read", 1)]
    with closing(open_store(url, f"cut {uuid4().hex}")) as target:
        source = MemoryStore()
        fill_plainly(source, 250)
        for call, times in fatal:
            left = [times]

            def watch(step: str, call: str = call, left: list[int] = left) -> None:
                if step == f"after {call}":
                    left[0] -= 1
                    if not left[0]:
                        raise StoreUnavailable("cut short")

            assert not cut(source, watched(target, watch))
        source.delete("a")
        source.append("a", [draft("begun anew")], "of b")
        source.append("long", [draft("more")], "of a")
        source.delete_vectors("index", session_id="b")
        source.delete_records("facts", owner="user:3")
        moved(source, target)
        assert everything(target) == everything(source)
