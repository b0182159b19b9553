"""Installing the peers, each in a virtualenv of its own, by uv where it is there, else by pip."""

from __future__ import annotations

import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contenders import CONTENDERS, venv_python


def plan() -> dict[str, tuple[str, ...]]:
    """The virtualenvs, and what goes into each."""
    return {one.venv: one.needs for one in CONTENDERS if one.kind == "peer"}


def install(peers_dir: Path) -> Iterator[tuple[str, str | None]]:
    """Install or upgrade each peer.

    Yields:
        The name of each virtualenv when it is done, and why it failed, if it did.
    """
    for name, needs in plan().items():
        try:
            _install(peers_dir / name, needs)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip().splitlines()
            yield name, said[-1] if said else str(error)
        else:
            yield name, None


def _install(folder: Path, needs: tuple[str, ...]) -> None:
    uv, python = shutil.which("uv"), venv_python(folder)
    if uv is not None:
        if not python.exists():
            _run([uv, "venv", "--quiet", str(folder)])
        _run([uv, "pip", "install", "--quiet", "--upgrade", "--python", str(python), *needs])
        return
    if not python.exists():
        venv.create(folder, with_pip=True)
    _run([str(python), "-m", "pip", "install", "--quiet", "--upgrade", *needs])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
