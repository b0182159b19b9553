"""`SQLStore` during outages of its server, as tests."""

import logging
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent_memory.errors import ConfigError, StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.contract import draft, stored, together
from tests.contract.memory_outage_contract import MemoryOutageContract
from tests.servers.process import free_port
from tests.servers.sql import Served, ServerFixtures, hides, line_to, scheme_of


class OutageContract(ServerFixtures, MemoryOutageContract):
    """Outages are reported within seconds, end by themselves, and keep writes exact."""

    @pytest.fixture
    def away(self, server: Served) -> tuple[Any, str]:
        return server.private(), server.url

    def test_a_handle_survives_a_restart(self, server: Served, store: Store, other: Store) -> None:
        """Wrong: after a restart of the server a handle fails until its process restarts."""
        own = server.private()
        store.open_vectors("v", 2, "m")
        store.append("s", [draft("a")], "u")
        together([partial(other.head, "s")] * 6)
        own.restart()
        assert store.append("s", [draft("b")], "u").end == 2
        assert stored(other).end == 2
        together([partial(other.head, "s")] * 6)
        own.kill()
        own.start()
        assert stored(store).end == 2
        head = other.append("s", [draft("c"), draft("d")])
        assert store.move(replace(head, start=1)) is not None
        assert [e.message.content for e in other.read("s")] == ["a", "b", "c", "d"]

    def test_unanswered_writes_run_once(self, server: Served, store: Store, namespace: str) -> None:
        """Wrong: a write that was done is repeated, or a read that can be repeated fails."""
        with line_to(server.private()) as line:
            far = SQLStore(line.url, namespace)
            line.lose_answer = True
            assert far.append("s", [draft("a")], "u").end == 1
            line.lose_answer = True
            assert stored(far) == stored(store)
            line.lose_answer = True
            assert far.move(replace(stored(store), start=1)) is not None
            assert far.append("s", [draft("b")]).end == 2
            line.lose_answer = True
            with pytest.raises(StoreUnavailable, match="may have succeeded") as caught:
                far.append("s", [draft("secret")])
            assert hides(caught.value, "secret")
            assert [e.message.content for e in store.read("s")] == ["a", "b", "secret"]
            assert far.append("s", [draft("c")]).end == 4
            far.close()

    def test_opening_raises_an_outage(self, server: Served, store: Store, namespace: str) -> None:
        """Wrong: a connection that breaks during opening raises a foreign error."""
        for answers in range(30):
            with line_to(server.private()) as line:
                line.answers_left = answers
                try:
                    SQLStore(line.url, namespace).close()
                except StoreUnavailable:
                    continue
                if line.answers_left is not None:  # it was already open
                    return
        raise AssertionError("it is never open")

    def test_a_call_to_a_server_that_hangs_times_out(
        self, server: Served, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wrong: a server that stops answering blocks its callers forever."""
        own = server.private()
        for module in ("mysql", "postgres"):
            for name in ("CALL_SECONDS", "CONNECT_SECONDS"):
                monkeypatch.setattr(f"agent_memory.stores.sql.{module}.{name}", 1)
        with line_to(own) as line:
            far = SQLStore(line.url, namespace)
            far.append("s", [draft("a")], "u")
            line.dead = True
            with pytest.raises(StoreUnavailable, match="may have succeeded"):
                far.append("s", [draft("b")])
            with pytest.raises(StoreUnavailable, match="could not be used"):
                far.head("s")
            line.dead = False
            assert far.append("s", [draft("c")]).end >= 2
            far.close()

    def test_refusal_hides_password(self, server: Served, caplog: pytest.LogCaptureFixture) -> None:
        """Wrong: a wrong credential raises an unclear error, or one that shows the password."""
        caplog.set_level(logging.DEBUG)
        own = server.private()
        for url, says in (
            (own.url_of("nowhere"), "nowhere"),
            (own.url_of("nowhere", user="stranger"), "stranger"),
            (own.url.replace("tiger", "lion"), "owner"),
            (own.url.replace("127.0.0.1", "nowhere.invalid"), "nowhere.invalid"),
        ):
            with pytest.raises(StoreUnavailable, match="setting `store`") as caught:
                SQLStore(url)
            assert says in str(caught.value)
            assert hides(caught.value, "lion")
        assert not {"s3cr3t", "tiger", "lion"} & set(re.split(r"\W", caplog.text))

    @pytest.mark.parametrize(
        "rest",
        [*(f"{one}@127.0.0.1:{{}}/db" for one in ("s3cr3t@tiger", "12/s3cr3t", "12?s3cr3t")),
         "s3cr3t#tiger@127.0.0.1:{}/db", "s3cr3t/tiger@host:x/db?s3cr3t=1"],
    )  # fmt: skip
    def test_an_error_hides_an_unescaped_password(self, server: Served, rest: str) -> None:
        """Wrong: the error shows part of the password as the host, the port or the database."""
        told = "%-escapes" if ":x" in rest else "setting `store`"
        with pytest.raises((ConfigError, StoreUnavailable), match=told) as caught:
            SQLStore(f"{scheme_of(server.url)}://user:{rest.format(free_port())}")
        assert hides(caught.value, "user:12")
