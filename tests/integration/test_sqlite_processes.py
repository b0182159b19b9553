"""SQLite under many processes: starting at once, appending at once, and forked."""

import os

import pytest

from tests.processes import check_fork, check_writers


def test_processes_create_and_append_at_once(url: str) -> None:
    """Wrong: processes that start together raise 'database is locked', or lose a message."""
    check_writers(url, "default", 4, 40)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_connections_of_its_own(url: str) -> None:
    """Wrong: a forked child corrupts the file that its parent has open."""
    check_fork(url)
