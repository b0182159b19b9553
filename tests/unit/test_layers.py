"""Layers of tests: each test is in the layer of its needs, and none is lost."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layers import EXAMPLES

ROOT = Path(__file__).parents[2]

TESTS = """
import multiprocessing
import os
import subprocess
import sys
from functools import cache, partial

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from benchmarks.recall.evidence import figures
from tests.servers.redis import RedisServer


def begin():
    subprocess.run(["true"], check=True)


class Rig:
    def begin(self):
        return [begin() for _ in range(1)]


@pytest.fixture
def redis_url():
    return RedisServer


@pytest.fixture(params=["core", "redis"])
def store(request):
    return request.param == "core" or request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def asking(request):
    return request.getfixturevalue("redis_url")


class Contract:
    def helped(self):
        os.fork()

    def test_process_by_a_method(self):
        self.helped()


class TestContract(Contract):
    pass


class Story(RuleBasedStateMachine):
    @rule()
    def go(self):
        pass


Story.TestCase.__test__ = True
test_long = Story.TestCase


def test_core(tmp_path):
    os.getpid()


def test_core_examples():
    assert settings().max_examples == int(os.environ["EXAMPLES"])


def test_server_by_a_fixture(redis_url):
    pass


def test_server_by_the_name_of_a_fixture(asking):
    pass


def test_server_before_process(redis_url):
    begin()


def test_either(store):
    pass


def test_process():
    begin()


def test_process_by_a_class():
    Rig()


def test_process_within():
    def run():
        multiprocessing.Process()


@given(st.just(1))
def test_process_with_examples(one):
    begin()


@pytest.mark.parametrize("how", [begin, partial(begin)])
def test_process_by_what_is_given(how):
    pass


def test_long_by_a_benchmark():
    figures


def test_long_by_a_command():
    [sys.executable, "-m", "benchmarks"]


@cache
def once():
    return figures


def test_long_by_what_is_kept():
    once


@pytest.mark.parametrize("seed", range(3))
def test_chance(seed):
    pass


def test_long_cut_short_at_any_step():
    pass


def test_process_killed_at_any_step():
    begin()
"""
NAMES = {
    "core": "test_core test_core_examples test_either[core] test_chance[0] test_chance[1]",
    "server": "test_server_by_a_fixture test_server_by_the_name_of_a_fixture "
    "test_server_before_process test_either[redis]",
    "process": "test_process_by_a_method test_process test_process_killed_at_any_step "
    "test_process_by_a_class test_process_within test_process_with_examples "
    "test_process_by_what_is_given[begin] test_process_by_what_is_given[how1]",
    "long": "runTest test_long_by_a_benchmark test_long_by_a_command test_long_by_what_is_kept "
    "test_chance[2] test_long_cut_short_at_any_step test_code",
}
ALL = {layer: set(names.split()) for layer, names in NAMES.items()}
DOCS = "import subprocess\n\ndef test_code():\n    subprocess.run(['true'])\n"
HIDDEN = """
from importlib import import_module


def test_core_hides_a_process():
    import_module("subprocess").run(["true"])
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name, text in {"unit/test_all": TESTS, "docs/test_docs": DOCS}.items():
        file = tmp_path / f"tests/{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    return tmp_path


def ran(suite: Path, *arguments: str, examples: int = EXAMPLES["all"]) -> str:
    plugins = ("tests.conftest", "no:cacheprovider", "xdist", "_hypothesis_pytestplugin")
    named = [word for plugin in plugins for word in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", *named]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EXAMPLES": str(examples)}
    done = subprocess.run(
        [*command, "--import-mode=importlib", *arguments],
        cwd=suite, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def listed(suite: Path, *arguments: str) -> list[str]:
    told = ran(suite, "-n0", "-q", "--collect-only", *arguments)
    return sorted(re.findall(r"::(\w+(?:\[.*\])?)$", told, re.MULTILINE))


@pytest.mark.parametrize("layer", ALL)
def test_a_test_belongs_to_the_layer_of_its_requirements(layer: str, suite: Path) -> None:
    """Wrong: a layer runs tests that need servers or time that it excludes."""
    assert listed(suite, "--layer", layer) == sorted(ALL[layer])


def test_every_test_is_in_exactly_one_layer(suite: Path) -> None:
    """Wrong: a test is in no layer or in two, or is not run although its file is named."""
    everything = sorted(name for layer in ALL.values() for name in layer)
    assert listed(suite, "--layer", "all") == everything
    assert listed(suite, *(f"--layer={layer}" for layer in ALL)) == everything
    assert listed(suite, "tests") == everything


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_a_run_of_the_core_reports_the_tests_that_it_omits(processes: str, suite: Path) -> None:
    """Wrong: a run of the core does not say how many tests it left out."""
    told = ran(suite, processes, examples=EXAMPLES["core"])
    assert "5 passed" in told
    assert "19 tests were left to other layers (4 server, 8 process, 7 long)" in told
    assert "`pytest --layer all`" in told


def test_a_core_test_that_starts_a_process_fails(suite: Path) -> None:
    """Wrong: a core test that starts a process passes."""
    (suite / "tests/unit/test_all.py").write_text(HIDDEN)
    told = ran(suite, "-n0", "--layer=core")
    assert "a test of the core starts a process" in told
    assert "1 failed" in told
