"""The vector contract on qdrant-client's local mode; a server of the user's runs the same suite.

Set AGENT_MEMORY_TEST_QDRANT to a server's address to run it there too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from agent_memory.stores.base import VectorStore
from agent_memory.stores.qdrant import QdrantStore
from agent_memory.testing import VectorStoreContract

URLS = [":memory:", *filter(None, [os.environ.get("AGENT_MEMORY_TEST_QDRANT")])]


class TestQdrantStore(VectorStoreContract):
    breaks_ties_by_id = False

    @pytest.fixture(params=URLS)
    def store(self, request: pytest.FixtureRequest) -> Iterator[VectorStore]:
        store = QdrantStore(request.param, namespace=uuid4().hex[:8])
        yield store
        store.close()
