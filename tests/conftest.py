"""Settings of all tests.

Hypothesis finds the same examples on every run and has no stopwatch. Ctrl-C interrupts, even where
a shell started the tests in the background and had them ignore it. The main thread has no event
loop: where a thread has none, litellm makes one for each of its calls, and closes it; else it opens
one for the main thread and leaves it open, and nobody knows when that is thrown away.
"""

from __future__ import annotations

import asyncio
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("quick")
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.set_event_loop(None)
