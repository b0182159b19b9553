"""Connections that threads take in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic, sleep

from agent_memory.stores.sql.database import Place, Places


class Connection:
    """Count the open ones."""

    def __init__(self, open_ones: set[Connection]) -> None:
        self._open = open_ones
        open_ones.add(self)

    def close(self) -> None:
        self._open.discard(self)


@contextmanager
def held(places: Places[Connection]) -> Iterator[None]:
    for place in places:
        place.lock.acquire()
    try:
        yield
    finally:
        for place in places:
            place.lock.release()


def test_places_are_taken_in_order_and_waited_for() -> None:
    """Wrong: a busy connection is used before a free one, or a wait ends too early or never."""
    places: Places[Connection] = Places(3, 1)
    first, second, _ = places
    assert places.any() is first
    with first.lock:
        assert places.any() is second
    assert [place.keeps for place in places] == [True, False, False]
    places: Places[Connection] = Places(2, 2)
    with held(places):
        began = monotonic()
        assert places.awaited(0.3) is None
        assert monotonic() - began >= 0.3
        assert places.any() in list(places)


def test_who_waits_is_told() -> None:
    """Wrong: a waiting thread is not woken when a connection is free."""
    places: Places[Connection] = Places(1, 1)
    found: list[Place[Connection] | None] = []
    with held(places):
        thread = threading.Thread(target=lambda: found.append(places.awaited(30)))
        thread.start()
        sleep(0.05)
    places.tell()
    thread.join(30)
    assert found == list(places)
    places.tell()  # without a waiter, the signal is not kept for the next one
    with held(places):
        assert places.awaited(0) is None


def test_many_threads_share_few() -> None:
    places: Places[Connection] = Places(3, 1)
    open_ones: set[Connection] = set()
    most, used = [0], [0]

    def work(_: int) -> None:
        place = places.awaited(30)
        assert place is not None
        try:
            with place.lock:
                place.connection = place.connection or Connection(open_ones)
                most[0] = max(most[0], len(open_ones))
                used[0] += 1
                sleep(0.0005)
                if not place.keeps:
                    place.clear()
        finally:
            places.tell()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(400)))
    assert used[0] == 400
    assert most[0] <= 3
    assert len(open_ones) <= 1
    places.clear()
    assert not open_ones


def test_what_is_in_use_stays_open() -> None:
    places: Places[Connection] = Places(2, 2)
    open_ones: set[Connection] = set()
    for place in places:
        place.connection = Connection(open_ones)
    first, second = places
    with first.lock:
        places.clear()
    assert first.connection is not None
    assert second.connection is None
    assert open_ones == {first.connection}
