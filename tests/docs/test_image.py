"""The image, the compose file and the unit of `examples/service`, tested without an engine.

Parts are run. The rest is compared with the command line and the files.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_memory import AgentMemoryConfig
from tests.kit import invoke

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "examples" / "service"
UID = 10001
PINNED = re.compile(r"[a-z]+:\d+\.\d+(\.\d+)?-\S+")


def instructions() -> list[tuple[str, str]]:
    text = (SERVICE / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def last(name: str) -> str:
    return [rest for one, rest in instructions() if one == name][-1]


def environment() -> dict[str, str]:
    """Return the variables that the image sets, except its paths of programs."""
    pairs = (pair.partition("=") for pair in shlex.split(last("ENV")))
    return {name: value for name, _, value in pairs if name != "PATH"}


def compose() -> dict[str, Any]:
    return yaml.safe_load((SERVICE / "compose.yaml").read_text(encoding="utf-8"))


def written() -> Iterator[list[str]]:
    """Return every command of ours in the files and the page about them."""
    yield [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    for service in compose()["services"].values():
        if "build" in service:
            yield ["agent-memory", *service.get("command", json.loads(last("CMD")))]
    for file in (*SERVICE.iterdir(), ROOT / "docs" / "image.md"):
        text = re.sub(r"\\\n[ #]*", " ", file.read_text(encoding="utf-8"))
        begin = "(?:run --rm server|bin/agent-memory|data agent-memory)"
        for found in re.findall(f"{begin} (.+)", text):
            yield ["agent-memory", *shlex.split(found)]


@pytest.mark.parametrize("command", [*written()], ids=" ".join)
def test_each_documented_command_and_option_exists(command: list[str]) -> None:
    """Wrong: a file or the page uses a command or an option that does not exist."""
    name, *rest = command
    assert name == "agent-memory"
    words = [one for one in rest if not one.startswith("-")]
    path = words[:2] if words[0] == "keys" else words[:1]
    done = invoke([*path, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    for option in (one for one in rest if one.startswith("--")):
        assert option in done.output


def test_each_environment_variable_is_a_setting() -> None:
    """Wrong: a variable is set that no setting reads."""
    given = [environment(), *(one.get("environment", {}) for one in compose()["services"].values())]
    names = {name for one in given for name in one if name.startswith("AGENT_MEMORY_")}
    fields = {name.removeprefix("AGENT_MEMORY_").lower() for name in names}
    assert fields <= AgentMemoryConfig.model_fields.keys()
    assert "store" in fields


def test_base_images_are_pinned_to_a_version() -> None:
    """Wrong: a base image is not pinned, or a file contains a password."""
    bases = [rest.split(" AS ")[0] for name, rest in instructions() if name == "FROM"]
    bases += [one["image"] for one in compose()["services"].values() if "build" not in one]
    assert all(map(PINNED.fullmatch, bases)), bases
    postgres = compose()["services"]["postgres"]["environment"]
    assert postgres["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")


def test_the_container_is_unprivileged_and_read_only() -> None:
    """Wrong: the container runs as root, has capabilities, or writes outside /data."""
    assert last("USER") == f"{UID}:{UID}"
    assert json.loads(last("VOLUME")) == ["/data"]
    for name in ("server", "worker"):
        service = compose()["services"][name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built only from what the Dockerfile copies, and installed."""
    source = tmp_path_factory.mktemp("source")
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *files, _ = rest.split()
            for file in files:
                assert f"!{file}" in (SERVICE / "Dockerfile.dockerignore").read_text().split()
                if (ROOT / file).is_dir():
                    shutil.copytree(ROOT / file, source / file)
                else:
                    shutil.copy(ROOT / file, source / file)
    code = "from hatchling.build import build_wheel; print(build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(source / done.stdout.strip()) as wheel:
        wheel.extractall(folder)
    folder.chmod(0o755)
    return folder


def test_the_extras_of_the_image_exist(site: Path) -> None:
    """Wrong: the image installs an extra that does not exist."""
    [metadata] = site.glob("*.dist-info/METADATA")
    provided = message_from_bytes(metadata.read_bytes()).get_all("Provides-Extra") or []
    [asked] = re.findall(r"agent-memory-log\[(.*?)\]", " ".join(rest for _, rest in instructions()))
    assert set(asked.split(",")) <= set(provided)


def as_nobody(command: Sequence[str]) -> list[str]:
    """Return a command for a user who can read everything and write only its own files."""
    if os.geteuid() != 0:
        return list(command)
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not here, so that root cannot run it as somebody else")
    caps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"]
    who = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *caps, "--bounding-set=-all"]
    return ["setpriv", *who[:-1], "--", *command]


def test_the_service_runs_with_the_command_of_the_image(site: Path, tmp_path: Path) -> None:
    """Wrong: the service does not start on an empty volume as an unprivileged user, starts without
    a key, is not healthy, or ignores the stop signal."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(data, UID, UID)
    store = environment()["AGENT_MEMORY_STORE"]
    assert store == "sqlite:////data/memory.db"
    given = {
        **environment(),
        "AGENT_MEMORY_STORE": f"sqlite:///{data}/memory.db",
        "HOME": "/nonexistent",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(site),
    }
    entry = [sys.executable, "-c", "from agent_memory.cli.entry import main; main()"]
    command = json.loads(last("CMD"))
    command[command.index("--port") + 1] = "0"
    where: dict[str, Any] = {"cwd": data, "env": given, "text": True}
    early = subprocess.run(as_nobody([*entry, *command]), **where, capture_output=True)
    assert early.returncode == 1
    assert "There is no credential" in " ".join(early.stderr.split())
    made = ["keys", "create", "--label", "x", "--users", "*", "--rights", "read,admin"]
    key = subprocess.run(as_nobody([*entry, *made]), **where, capture_output=True)
    assert key.stdout.startswith("am_"), key.stderr
    with subprocess.Popen(
        as_nobody([*entry, *command]), **where, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        line = process.stdout.readline()
        found = re.search(r":(\d+)/v1", line)
        assert found, (line, process.communicate())
        check = json.loads(last("HEALTHCHECK").partition(" CMD ")[2])
        check = [sys.executable, *(one.replace("8766", found[1]) for one in check[1:])]
        healthy = subprocess.run(check, **where, capture_output=True)
        process.send_signal(getattr(signal, last("STOPSIGNAL")))
        _, errors = process.communicate(timeout=60)
    assert (healthy.returncode, process.returncode) == (0, 0), (healthy.stderr, errors)
    dead = subprocess.run(check, **where, capture_output=True)
    assert dead.returncode != 0
    if os.geteuid() == 0:
        assert {file.stat().st_uid for file in data.iterdir()} == {UID}
