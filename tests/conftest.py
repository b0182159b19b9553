"""Settings of all tests, and the choice of which of them run.

`--layer` names the layers to run, see `tests.layers`. The default is "core", so that `pytest` alone
takes minutes, or all layers if files or tests are named.

Hypothesis tries the same examples on every run, without a deadline. Ctrl-C interrupts, even if a
shell started the tests in the background and made them ignore it. The main thread has no event
loop: without one, litellm makes and closes a loop for each call. Otherwise it would open one for
the main thread and never close it.

The tests' files are in memory if the machine has room: SQLite waits for the disk at each new
database and checkpoint.
"""

import asyncio
import gc
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import served
from tests.layers import EXAMPLES, LAYERS, layer_of

_IN_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  # bytes

for name, count in EXAMPLES.items():
    settings.register_profile(
        name,
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.set_event_loop(None)

_SLOWEST_FIRST = ("long", "process", "server", "core")
_LAYER = pytest.StashKey[str]()
_LEFT = pytest.StashKey[Counter[str]]()
_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn")

_running: list[str] = []


def _no_processes(event: str, _: tuple[Any, ...], starts: tuple[str, ...] = _STARTS) -> None:
    # `starts` still exists after the interpreter has cleared this module
    if event in starts and _running == ["core"]:
        raise RuntimeError(
            "a test of the core starts a process: it, or one of its fixtures, must name the module "
            "that does so, for `tests.layers` to see it"
        )


sys.addaudithook(_no_processes)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--layer",
        action="append",
        choices=(*LAYERS, "all"),
        help="run the tests of this layer; may be given several times. Default: core, or all where "
        "files or tests are named",
    )
    parser.addoption(
        "--service",
        action="store_true",
        help="run the tests that `tests.served` names over a service, by its client",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.layer is None:
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.option.layer = ["all"] if named else ["core"]
    if "all" in config.option.layer:
        config.option.layer = list(LAYERS)
    settings.load_profile("core" if config.option.layer == ["core"] else "all")
    config.stash[_LEFT] = Counter()
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests of other layers, and run files that take long first."""
    if config.option.service:
        items[:], left_out = served.chosen(items)
        config.hook.pytest_deselected(items=left_out)
    wanted, left, ranks = [], [], dict[Path, int]()
    for item in items:
        layer = item.stash[_LAYER] = layer_of(item)
        (wanted if layer in config.option.layer else left).append(item)
    for item in wanted:
        rank = _SLOWEST_FIRST.index(item.stash[_LAYER])
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items[:] = sorted(wanted, key=lambda item: ranks[item.path])
    if left:
        config.hook.pytest_deselected(items=left)
        config.stash[_LEFT] = Counter(item.stash[_LAYER] for item in left)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the deselected tests to the main process."""
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left"] = dict(session.config.stash[_LEFT])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from scanning modules and tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the deselected tests of a process. All processes have the same."""
    node.config.stash[_LEFT] |= Counter(getattr(node, "workeroutput", {}).get("left", {}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the layer of the running test."""
    _running[:] = [item.stash[_LAYER]]
    try:
        return (yield)
    finally:
        _running.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were deselected, and how to run them."""
    left = terminalreporter.config.stash[_LEFT]
    if left:
        counted = ", ".join(f"{left[layer]} {layer}" for layer in LAYERS if left[layer])
        terminalreporter.write_line(
            f"{left.total()} tests were left to other layers ({counted}): "
            f"`pytest --layer {next(iter(left))}` runs one, `pytest --layer all` everything."
        )
