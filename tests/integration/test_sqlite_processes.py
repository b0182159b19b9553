"""SQLite under many processes: starting at once, appending at once, and forked."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent_memory.stores.sql.store import SQLStore

APPENDS = 40

WRITER = """
import sys, threading
from agent_memory.stores.sql.store import SQLStore
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft

url, name, appends = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
store = SQLStore(url)

def run(thread):
    for n in range(appends):
        message = Message(role="user", content=f"{name}-{thread}-{n}")
        store.append("s", [Draft(message, 2, "test")])

threads = [threading.Thread(target=run, args=(thread,)) for thread in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
store.close()
"""

FORKER = """
import os, sys, threading
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft
from agent_memory.stores.sql.store import SQLStore

def draft(content, tokens):
    return Draft(Message(role="user", content=content), tokens, "test")

store = SQLStore(sys.argv[1])
store.append("s", [draft("parent", 2)])
child = os.fork()
if child == 0:
    status = 1
    try:
        for n in range(20):
            store.append("s", [draft(f"child-{n}", 2)])
        store.close()
        status = 0
    finally:
        os._exit(status)
for n in range(20):
    store.append("s", [draft(f"parent-{n}", 2)])
_, status = os.waitpid(child, 0)
store.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@contextmanager
def _child(code: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-c", code, *args]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_processes_create_and_append_at_once(url: str) -> None:
    """Wrong: processes that start together raise 'database is locked', or lose a message."""
    names = ["a", "b", "c", "d"]
    with (
        _child(WRITER, url, "a", str(APPENDS)) as a,
        _child(WRITER, url, "b", str(APPENDS)) as b,
        _child(WRITER, url, "c", str(APPENDS)) as c,
        _child(WRITER, url, "d", str(APPENDS)) as d,
    ):
        writers = [a, b, c, d]
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            _, errors = writer.communicate(timeout=90)
            assert (writer.returncode, errors) == (0, "")
    store = SQLStore(url)
    entries = store.read("s")
    store.close()
    total = len(names) * 2 * APPENDS
    assert [e.seq for e in entries] == list(range(1, total + 1))
    assert [e.total for e in entries] == list(range(2, 2 * total + 1, 2))
    said = [str(e.message.content) for e in entries]
    for name in names:
        for thread in range(2):
            prefix = f"{name}-{thread}-"
            mine = [text for text in said if text.startswith(prefix)]
            assert mine == [f"{prefix}{n}" for n in range(APPENDS)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_connections_of_its_own(url: str) -> None:
    """Wrong: a forked child corrupts the file that its parent has open."""
    with _child(FORKER, url) as child:
        _, errors = child.communicate(timeout=60)
        assert (child.returncode, errors) == (0, "")
    store = SQLStore(url)
    said = [str(e.message.content) for e in store.read("s")]
    store.close()
    for name in ("parent", "child"):
        assert [t for t in said if t.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(20)]
    assert len(said) == 41
