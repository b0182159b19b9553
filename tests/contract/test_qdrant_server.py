"""The requests to a Qdrant server, against a stand-in."""

import logging
import threading
import traceback
from collections.abc import Iterator

import numpy as np
import pytest

from agent_memory import VectorMemory
from agent_memory.errors import ConfigError, DimensionMismatch, StoreUnavailable, UnknownStore
from agent_memory.retrieval.features import Features, Terms
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.vectors import Tokens
from agent_memory.stores.qdrant.points import batches
from agent_memory.stores.qdrant.store import Names, QdrantStore, embedding
from agent_memory.testing.contract import record, together, units
from tests.servers.qdrant import Refused, Request, StandIn, server

__all__ = ["server"]

BEGINNING = "agent_memory_default_v."
KEY = "k3y-of-the-test"
QUESTION = Query(units(1, 4)[0])


@pytest.fixture
def stores(server: StandIn) -> Iterator[list[QdrantStore]]:
    stores = [QdrantStore(server.url) for _ in range(6)]
    yield stores
    for store in stores:
        store.close()


def features(count: int, dimension: int = 4) -> Features:
    return Features.of_vectors(units(count, dimension))


def requests_to(server: StandIn, what: str) -> list[Request]:
    return [request for request in server.requests if str(request).startswith(what)]


def test_collections_have_an_index_by_owner(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: each search scans the points of all users."""
    stores[0].open_vectors("v", 4, "openai/m")
    (name,) = server.collections
    assert name.startswith(f"{BEGINNING}openai-m-4-")
    (made,) = requests_to(server, f"PUT /collections/{name}")[:1]
    dense = {"size": 4, "distance": "Dot"}
    assert made.body["vectors"] == {"meaning": dense}
    sparse = {"modifier": "idf"}
    assert made.body["sparse_vectors"] == {"words": sparse}
    assert made.body["hnsw_config"] == {"m": 0, "payload_m": 16}
    assert server.indexes[name] == {
        "owner": {"type": "keyword", "is_tenant": True},
        "session_id": "keyword",
        "last": "integer",
    }
    stores[0].delete_vectors("v", session_id="s", after=2)
    deleted = requests_to(server, f"POST /collections/{name}/points/delete")[0].body
    assert [one["key"] for one in deleted["filter"]["must"]] == ["session_id", "last"]


def test_concurrent_stores_can_open_a_new_block(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: processes that open a new block together fail, or write where no search reads."""

    def run(n: int) -> None:
        stores[n].open_vectors("v", 4, "m")
        stores[n].put_vectors("v", [record(f"{n}")], features(1))

    together([lambda n=n: run(n) for n in range(6)])
    (name,) = server.collections
    assert len(server.points(name)) == 6
    assert set(server.indexes[name]) == {"owner", "session_id", "last"}


@pytest.mark.parametrize("dimensions", [(4, 5), (4, 0)], ids=["both", "one has words only"])
def test_only_one_of_two_racing_embedders_opens_a_new_block(
    server: StandIn, stores: list[QdrantStore], dimensions: tuple[int, int]
) -> None:
    """Wrong: two embedders both open a new block, and one's vectors are never found."""
    meeting = threading.Barrier(6)
    seen: set[int] = set()

    def before(request: Request) -> None:
        if request.method == "PUT" and threading.get_ident() not in seen and len(seen) < 6:
            seen.add(threading.get_ident())
            meeting.wait(10)  # all have seen that no block exists

    def run(n: int) -> str:
        try:
            stores[n].open_vectors("v", dimensions[n % 2], f"m{n % 2}")
            stores[n].put_vectors("v", [record(f"{n}")], features(1, dimensions[n % 2]))
        except DimensionMismatch:
            return "refused"
        return "won"

    server.before = before
    outcomes = together([lambda n=n: run(n) for n in range(6)])
    assert sorted(outcomes) == ["refused"] * 3 + ["won"] * 3
    assert len({n % 2 for n, outcome in enumerate(outcomes) if outcome == "won"}) == 1
    (name,) = server.collections
    assert len(server.points(name)) == 3


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_half_created_block_opens(server: StandIn, stores: list[QdrantStore], cut: int) -> None:
    """Wrong: a block whose first process was killed can never be opened."""
    left = cut

    def before(request: Request) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Refused(500, "it was killed here")

    server.before = before
    try:
        stores[0].open_vectors("v", 4, "m")
    except StoreUnavailable:
        assert cut < 10
    else:
        assert cut == 10
    server.before = lambda request: None
    if server.collections:
        with pytest.raises(DimensionMismatch, match="replay"):
            stores[1].open_vectors("v", 5, "n")
    if cut % 2:
        stores[2].open_vectors("v", 4, "m")  # completes the opening
        stores[2].put_vectors("v", [record("a")], features(1))
    stores[3].clear_vectors("v")
    stores[3].open_vectors("v", 5, "n")
    stores[3].put_vectors("v", [record("b")], features(1, 5))
    (name,) = server.collections
    assert embedding(name)[0] == 5


def test_a_block_cleared_elsewhere_can_be_used(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: an open block fails forever after another process cleared it."""
    stores[0].open_vectors("v", 4, "m")
    stores[1].clear_vectors("v")
    assert server.collections == []
    assert stores[0].search_vectors("v", "user:a", QUESTION, 3) == []
    stores[0].put_vectors("v", [record("a")], features(1))
    assert len(stores[1].search_vectors("v", "user:a", QUESTION, 3)) == 1


def test_old_embedders_raise_dimension_mismatch_after_a_rebuild(stores: list[QdrantStore]) -> None:
    """Wrong: after a rebuild a process with the old embedder finds nothing instead of raising."""
    old, new = stores[:2]
    old.open_vectors("v", 4, "m")
    old.put_vectors("v", [record("a")], features(1))
    new.clear_vectors("v")
    new.open_vectors("v", 5, "n")
    for use in (
        lambda: old.search_vectors("v", "user:a", QUESTION, 3),
        lambda: old.put_vectors("v", [record("b")], features(1)),
    ):
        with pytest.raises(DimensionMismatch, match="holds vectors of 'n' with 5"):
            use()
    old.delete_vectors("v", owner="user:a")


def test_an_outage_names_address_and_setting(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: an outage raises a driver's error, or one without the address and the setting."""
    for way in ("down", "stopped"):
        server.way = "down"
        if way == "stopped":
            server.stop()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+ could not be used.*VectorM"):
            stores[0].open_vectors("v", 4, "m")
    server.way = ""
    server.restart()
    stores[0].open_vectors("v", 4, "m")


def test_calls_to_a_slow_server_time_out(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a call to a server that hangs never ends."""
    monkeypatch.setattr("agent_memory.stores.qdrant.connection._CALL_SECONDS", 1)
    store = QdrantStore(server.url)
    server.way, server.late = "slow", 2.0
    with pytest.raises(StoreUnavailable, match="timed out"):
        store.open_vectors("v", 4, "m")
    server.late = 0.01
    store.open_vectors("v", 4, "m")
    store.close()


@pytest.mark.parametrize("fault", ["none", "wrong", "may not write"])
def test_a_refused_api_key_is_not_shown_in_the_error(
    server: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """Wrong: the error does not name the setting, or the key is shown in an error, repr or log."""
    server.key = "another" if fault == "wrong" else KEY
    server.way = "refuse" if fault == "may not write" else ""
    if fault != "none":
        monkeypatch.setenv("QDRANT_API_KEY", KEY)
    store = QdrantStore(server.url)
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as raised:
        store.open_vectors("v", 4, "m")
    told = "".join(traceback.format_exception(raised.value))
    assert "QDRANT_API_KEY" in str(raised.value)
    assert "create and delete collections" in str(raised.value)
    for text in (told, repr(store), repr(vars(store)), caplog.text):
        assert KEY not in text
    store.close()


def test_an_api_key_in_a_reply_is_masked(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an error that quotes the server's reply contains the key."""
    monkeypatch.setenv("QDRANT_API_KEY", KEY)

    def before(request: Request) -> None:
        raise Refused(500, f"what is {KEY}?")

    server.before = before
    store = QdrantStore(server.url)
    with pytest.raises(StoreUnavailable) as raised:
        store.open_vectors("v", 4, "m")
    assert "what is ***?" in str(raised.value)
    store.close()


def test_a_key_is_sent_without_a_warning(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the key is not sent, or each start prints the client's warning."""
    server.key = KEY
    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    store = QdrantStore(server.url)  # warnings are errors here
    store.open_vectors("v", 4, "m")
    store.close()
    assert all(request.path.startswith("/collections") for request in server.requests)


def test_plain_keys_warn(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: no warning says that a key is sent unencrypted over the network."""
    monkeypatch.setenv("QDRANT_API_KEY", KEY)
    for url in ("http://qdrant.example:6333", "https://qdrant.example", "http://localhost:6333"):
        QdrantStore(url).close()
    (told,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert told == (
        "QDRANT_API_KEY is sent to http://qdrant.example:6333 without encryption. Use https."
    )


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{KEY}@host:6333",
        f"http://host:6333?api_key={KEY}",
        f"http://host:{KEY}",
        f"qdrant://:{KEY}@host",
        f"http://[{KEY}",
        f"http://host:6333#{KEY}",
        "http://",
        "http://:6333",
    ],
)
def test_an_invalid_qdrant_url_is_refused_without_showing_the_key(url: str) -> None:
    """Wrong: a key in an address is ignored or shown, or the driver's error is raised."""
    for make in (QdrantStore, lambda url: VectorMemory(store=url)):
        with pytest.raises(UnknownStore, match="store") as raised:
            make(url)
        assert KEY not in "".join(traceback.format_exception(raised.value))


def test_a_web_server_is_not_accepted_as_qdrant(server: StandIn, stores: list[QdrantStore]) -> None:
    """Wrong: a web server that answers 404 is taken for an empty Qdrant."""

    def before(request: Request) -> None:
        raise Refused(404, "no such page")

    server.before = before
    with pytest.raises(StoreUnavailable, match="Qdrant server"):
        stores[0].open_vectors("v", 4, "m")
    with pytest.raises(StoreUnavailable, match="Qdrant server"):
        stores[0].search_vectors("v", "user:a", QUESTION, 3)


def test_batches_stay_below_the_request_limit_of_the_server() -> None:
    """Wrong: long messages or wide vectors make a request too large for the server."""

    def sizes(texts: list[str], dimension: int, words: int = 1) -> list[int]:
        records = [record(f"{n}", text=text) for n, text in enumerate(texts)]
        rows = np.full((len(texts), dimension), 1 / 3, np.float32)
        ids = np.arange(2**32 - words, 2**32, dtype=np.uint32)
        terms = [Terms(ids, np.full(words, 1 / 3, np.float32))] * len(texts)
        places = Features.of_words(terms).places
        features = Features(rows, Tokens.none(len(texts)), terms, places)
        found = list(batches(records, features))
        assert all(
            len(batch) == 1 or sum(len(p.model_dump_json()) for p in batch) < 8 * 2**20
            for batch in found
        )
        assert [p.payload["id"] for b in found for p in b] == [r.id for r in records]
        return [len(batch) for batch in found]

    assert sizes(["short"] * 600, 8) == [256, 256, 88]
    assert max(sizes(["short"] * 300, 3072)) < 130
    assert max(sizes(["\n" * 1_000_000] * 10, 8)) < 5
    assert max(sizes(["short"] * 20, 8, words=20_000)) < 14
    assert sizes(["x" * 40_000_000, "y"], 8) == [1, 1]
    assert sizes([], 8) == []
    with pytest.raises(ValueError, match="for each record"):
        list(batches([record("a")], features(2)))


def test_collection_names_are_unique() -> None:
    """Wrong: one namespace or block reads or clears another's vectors."""
    every: dict[str, tuple[str, str]] = {}
    spaces = ["a", "a_b", "a-b", "A", "ä", "a/b", "a b", "a.b", "_", "x" * 64, "x" * 63 + "_"]
    for space in spaces:
        for block in ("c", "b_c", "c_claim"):
            names = Names(space)
            for name in (
                names.claim(block), names.vectors(block, 3, "m"), names.vectors(block, 4, "m"),
                names.vectors(block, 3, "M"),
            ):  # fmt: skip
                assert every.setdefault(name, (space, block)) == (space, block)
                assert len(name) < 200
                assert not set(name) & set('<>:"/\\|?* ')
        for name, (other, block) in every.items():
            assert names.block_of(name) == (block if other == space else None)
    assert len(every) == len(spaces) * 3 * 4
    assert embedding(Names("a.b").vectors("v", 3, "openai/m-3.5")) == (3, "openai-m-3-5")
