"""A deployment is unchanged after a move through every kind of database."""

from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from agent_memory import operations
from agent_memory.engine import leases
from agent_memory.stores import open_store
from tests.integration.migrating import everything, fill


@pytest.fixture
def urls(
    tmp_path: Path, postgres_url: str, redis_url: str, mysql_url: str, mongodb_url: str
) -> list[str]:
    first, last = (f"sqlite:///{tmp_path / name}.db" for name in ("first", "last"))
    return [first, postgres_url, redis_url, mysql_url, mongodb_url, last]


def test_once_round(urls: list[str]) -> None:
    """Wrong: a database returns other data than was stored in it, or loses some."""
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
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.02)
