"""Install every framework and run its tests: `python -m tests.frameworks FOLDER [NAME...]`.

Frameworks that exclude each other get virtualenvs of their own in the folder. Each test is named:
one that cannot be collected is an error.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.frameworks.environments import ENVIRONMENTS, FRAMEWORKS

ROOT = Path(__file__).parents[2]
_TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")


def main(folder: Path, *chosen: str) -> int:
    """Return the number of environments whose tests failed."""
    if unknown := {*chosen} - FRAMEWORKS.keys():
        raise SystemExit(f"Unknown: {', '.join(unknown)}. Frameworks: {', '.join(FRAMEWORKS)}.")
    failed = 0
    with ThreadPoolExecutor(1) as installing:  # prepares the next one during a test
        pythons = {
            environment: installing.submit(_install, folder / environment, names)
            for environment, names in ENVIRONMENTS.items()
            if not chosen or {*chosen} & {*names}
        }
        for environment, python in pythons.items():
            wanted = [name for name in ENVIRONMENTS[environment] if not chosen or name in chosen]
            print(f"\n=== frameworks, {environment}: {', '.join(wanted)}", flush=True)
            # by test, because all conversations are in one file
            command = [str(python.result()), "-m", "pytest", "-q", "-n", "2", "--dist", "load"]
            tests = [test for name in wanted for test in _tests(name)]
            failed += subprocess.run([*command, *tests], cwd=ROOT, check=False).returncode != 0
    return failed


def _install(place: Path, names: list[str]) -> Path:
    uv = [sys.executable, "-m", "uv"]
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(place)], check=True)
    # "mongodb", since the fixtures of tests/integration import its server
    extras = ",".join(["local", "mongodb", *(name.replace("_", "-") for name in names)])
    packages = ["-e", f"{ROOT}[{extras}]", *_TOOLS, *{FRAMEWORKS[name] for name in names}]
    install = [*uv, "pip", "install", "-q", "--python", str(python), *packages]
    cache = {"UV_CACHE_DIR": str(place.parent / "cache")}
    subprocess.run(install, env={**cache, **os.environ}, check=True)
    return python


def _tests(name: str) -> list[str]:
    """Return the adapter's own tests, the example and the conversation of a framework."""
    own = [
        path
        for folder in ("frameworks", "integration")
        if (ROOT / (path := f"tests/{folder}/test_{name}.py")).exists()
    ]
    examples = [
        f"tests/docs/test_examples.py::test_a_framework_example_runs[{example.stem}]"
        for example in (ROOT / "examples" / "frameworks").glob(f"{name}_*.py")
    ]
    return [
        *own,
        *examples,
        f"tests/frameworks/test_conversations.py::test_a_scripted_conversation_succeeds[{name}]",
    ]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(f"{__doc__}")
    raise SystemExit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
