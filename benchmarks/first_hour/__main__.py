"""The first hour, side by side: `python -m benchmarks first_hour [--server postgresql://...]`.

Each side is installed into an empty virtualenv. Then a program chats in two processes. In the
first, the user says where they live. In the second, which uses another session, the user asks for
it. All sides use the same local model server. `--server` is the URL of an empty database for each
side, with `{}` for its name: `agent_memory`, `mem0` or `agents`. Needs a package index.
"""

import os
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from benchmarks.first_hour.server import serve

_ROOT = Path(__file__).parents[2]
_PROGRAMS = Path(__file__).parent / "programs"
_SIDES = {
    "agent_memory": (["{root}"], ["{root}[postgres]"]),
    "mem0": (["mem0ai"], ["mem0ai", "psycopg[binary,pool]"]),
    "agents": (["openai-agents"], ["openai-agents[sqlalchemy]", "asyncpg"]),
}
_CHATS = [("monday", "I moved to Lisbon last week."), ("tuesday", "Where do I live since I moved?")]


def main(
    server: Annotated[str | None, typer.Option(help="postgresql://user:password@host/{}")] = None,
) -> None:
    """Run all sides and print a line for each."""
    model = serve()
    threading.Thread(target=model.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{model.server_address[1]}/v1"
    environment = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": base, "OPENAI_API_KEY": "x"}
    print(f"{'':14} lines  distributions   MiB  install s  first s  second s  remembered  errors")
    for side in _SIDES:
        with TemporaryDirectory() as folder:
            _run(side, Path(folder), server, {**environment, "HOME": folder})
    model.shutdown()


def _run(side: str, folder: Path, server: str | None, environment: dict[str, str]) -> None:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    packages = [one.format(root=_ROOT) for one in _SIDES[side][server is not None]]
    began = time.perf_counter()
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    installed = time.perf_counter() - began
    site = folder / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    size = sum(one.stat().st_size for one in site.rglob("*") if one.is_file()) / 2**20
    count = sum(1 for _ in site.glob("*.dist-info")) - 1  # without pip
    program = _PROGRAMS / f"{side}_chat.py"
    lines = sum(bool(line.strip()) for line in program.read_text("utf-8").splitlines())
    place = str(folder / "memory.db") if server is None else server.format(side)
    seconds, errors, said = [], 0, ""
    for session, question in _CHATS:
        began = time.perf_counter()
        chat = [str(python), str(program), place, session, question]
        done = subprocess.run(chat, env=environment, capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - began)
        errors += "Traceback" in done.stderr
        said = done.stdout
    remembered = "yes" if "Lisbon" in said else "no"
    print(
        f"{side:14} {lines:5} {count:14} {size:5.0f} {installed:10.0f} {seconds[0]:8.1f} "
        f"{seconds[1]:9.1f}  {remembered:10} {errors:6}",
        flush=True,
    )
