"""Unit tests run pure code. None opens a connection."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_network() -> Iterator[None]:
    """Make every connection raise, so that a download is noticed."""

    def refuse(*args: object) -> None:
        raise AssertionError(f"a connection was opened: {args[1:]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        yield
