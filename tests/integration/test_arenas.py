"""The number of memory arenas that a process with many threads allocates."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_ARENAS = """
import ctypes, threading
from agent_memory.core.processes import share_arenas
share_arenas()
gate = threading.Barrier(8)
def work():
    gate.wait()
    [bytes(number) for number in range(1_000, 3_000)]
    gate.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has none")
@pytest.mark.parametrize(("told", "most"), [({}, 2), ({"MALLOC_ARENA_MAX": "1"}, 1)])
def test_threads_share_arenas(told: dict[str, str], most: int) -> None:
    """Wrong: each thread gets its own arena, whose memory a long-running service never returns, or
    `MALLOC_ARENA_MAX` has no effect."""
    given = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", _ARENAS], env={**given, **told}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert 1 <= done.stdout.count("<heap nr=") <= most
