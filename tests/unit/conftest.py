"""Unit tests are of pure code: none of them opens a connection."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_network() -> Iterator[None]:
    """Any connection raises, so that a download would be seen."""

    def refuse(*args: object) -> None:
        raise AssertionError(f"a connection was opened: {args[1:]}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        yield
