"""`AgentMemory` on a store that is down or has an invalid URL."""

import logging

import pytest

from agent_memory import AgentMemory
from agent_memory.errors import AgentMemoryError, ConfigError, StoreUnavailable
from tests.servers.process import free_port
from tests.servers.sql import hides

_USER = "bob:s3cr3t@127.0.0.1"
_DOWN = [
    f"postgresql://{_USER}:{{port}}/db",
    f"mysql://{_USER}:{{port}}/db",
    f"redis://{_USER}:{{port}}/0",
    f"mongodb://{_USER}:{{port}}/db?serverSelectionTimeoutMS=100",
]


@pytest.mark.parametrize("url", _DOWN, ids=lambda url: url.partition(":")[0])
def test_unreachable_servers_raise_clear_errors(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: opening hangs, or the error lacks the server's address, or shows its password."""
    caplog.set_level(logging.DEBUG)
    port = free_port()
    with pytest.raises(StoreUnavailable) as caught:
        AgentMemory(store=url.format(port=port))
    for told in ("127.0.0.1", str(port), "`store`"):
        assert told in str(caught.value)
    assert hides(caught.value)
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["postgresql://", "postgresql://bob:s3cr3t%zz@host/db",
     "postgresql://bob:s3cr3t@host/db?tiger=1", "mysql://bob:s3cr3t@host",
     "mysql://bob:s3cr3t@host:tiger/db", "mysql://bob:s3cr3t@host/db?sslmode=tiger",
     "redis://bob:s3cr3t@host/tiger", "mongodb://",
     "mongodb://bob:s3cr3t@host:tiger/db", "mongodb+srv://bob:s3cr3t@host/db",
     "oracle://bob:s3cr3t@host/db"],
)  # fmt: skip
def test_invalid_url_errors_hide_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: an invalid URL raises a driver's error, or shows the password."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AgentMemoryError) as caught:
        AgentMemory(store=url)
    assert isinstance(caught.value, ConfigError | StoreUnavailable)
    assert hides(caught.value)
    assert "s3cr3t" not in caplog.text
