"""Install the peers, each in a virtualenv of its own: `python -m benchmarks peers`."""

import subprocess
import venv
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.speed.contenders import CONTENDERS, PEERS_DIR, venv_python


def main(
    peers_dir: Annotated[Path, typer.Option(help="Where peers are installed.")] = PEERS_DIR,
) -> None:
    """Install or upgrade each peer."""
    failed = False
    for name, needs in {one.venv: one.needs for one in CONTENDERS if one.kind == "peer"}.items():
        python = venv_python(peers_dir / name)
        if not python.exists():
            venv.create(peers_dir / name, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", *needs]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        error = done.stderr.strip().splitlines()[-1:] or ["failed"]
        print(f"{name}: {'installed' if done.returncode == 0 else error[0]}")
        failed |= done.returncode != 0
    raise typer.Exit(failed)
