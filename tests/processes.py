"""Processes that append to one store: started together, and forked."""

import sys

from agent_memory.stores import open_store
from tests.kit import SECONDS, piped

WRITER = """
import sys, threading
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft
from agent_memory.stores import open_store

url, namespace, name, appends = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
store = open_store(url, namespace)

def run(thread):
    for n in range(int(appends)):
        store.append("s", [Draft(Message(role="user", content=f"{name}{thread}-{n}"), 2, "test")])

threads = [threading.Thread(target=run, args=(thread,)) for thread in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
store.close()
"""

FORKER = """
import os, sys
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft
from agent_memory.stores import open_store

def append(session, content):
    store.append(session, [Draft(Message(role="user", content=content), 2, "test")])

store = open_store(*sys.argv[1:])
append("s", "first")
child = os.fork()
name = "parent" if child else "child"
for n in range(20):
    append("s", f"{name}-{n}")
    append(name, f"{n}")
    assert [entry.message.content for entry in store.read(name, after=n)] == [f"{n}"]
if child:
    assert os.waitpid(child, 0)[1] == 0
store.close()
"""

_PYTHON = (sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c")


def check_writers(url: str, namespace: str, count: int, appends: int) -> None:
    """Append from processes of two threads that begin at one moment. All is stored, in order."""
    names = "abcd"[:count]
    writers = [piped(*_PYTHON, WRITER, url, namespace, name, str(appends)) for name in names]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=SECONDS)
        assert (writer.returncode, errors) == (0, "")
    _check(url, namespace, [f"{name}{thread}" for name in names for thread in "01"], appends)


def check_fork(url: str, namespace: str = "default") -> None:
    """Append from a process and its fork. Each reads what it has written."""
    process = piped(*_PYTHON, FORKER, url, namespace)
    assert (process.communicate(timeout=SECONDS)[1], process.returncode) == ("", 0)
    _check(url, namespace, ["parent", "child"], 20, first=1)


def _check(url: str, namespace: str, names: list[str], appends: int, first: int = 0) -> None:
    store = open_store(url, namespace)
    entries = store.read("s")
    store.close()
    total = first + len(names) * appends
    assert [one.seq for one in entries] == list(range(1, total + 1))
    assert [one.total for one in entries] == list(range(2, 2 * total + 1, 2))
    said = [one.message.text() for one in entries]
    for name in names:
        mine = [text for text in said if text.startswith(f"{name}-")]
        assert mine == [f"{name}-{n}" for n in range(appends)]
