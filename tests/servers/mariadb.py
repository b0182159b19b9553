"""A private MariaDB server, from the `mariadbd` on the PATH."""

import getpass
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.servers.process import CannotStart, PrivateServer, accepts

PASSWORD = "s3cr3t-tiger"
LONGEST = 12 * 2**20
ATTEMPTS = 3
"""To make its tables: `mariadbd --bootstrap` died of a segmentation fault once, in CI."""

_FIRST = f"""
CREATE USER IF NOT EXISTS 'owner'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO 'owner'@'127.0.0.1' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS memory;
"""


class MariaDBServer(PrivateServer):
    """MariaDB in its own folder, whose path keeps that of the socket short."""

    def __init__(self) -> None:
        self._program = _program("mariadbd", "mysqld")
        super().__init__(Path(tempfile.mkdtemp(prefix="agent-memory-mariadb-")))
        self._data = self.folder / "data"

    @property
    def url(self) -> str:
        return self.url_of("memory")

    def url_of(self, database: str, user: str = "owner", password: str = PASSWORD) -> str:
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def command(self) -> Sequence[str]:
        return [
            self._program, "--no-defaults", f"--datadir={self._data}",
            f"--user={getpass.getuser()}", "--bind-address=127.0.0.1", f"--port={self.port}",
            f"--socket={self.folder}/socket", f"--pid-file={self.folder}/pid",
            f"--init-file={self.folder}/first.sql", "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M",
            f"--max-allowed-packet={LONGEST}", "--max-connections=200",
        ]  # fmt: skip

    def ready(self) -> bool:
        return accepts(self.port)

    def start(self) -> None:
        """Start it, with new system tables if it has none."""
        if not self._data.exists():
            self._make_tables()
        super().start()

    def _make_tables(self) -> None:
        (self.folder / "first.sql").write_text(_FIRST)
        command = [
            _program("mariadb-install-db", "mysql_install_db"), "--no-defaults",
            f"--datadir={self._data}", f"--user={getpass.getuser()}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ]  # fmt: skip
        for _ in range(ATTEMPTS):
            shutil.rmtree(self._data, ignore_errors=True)
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if not made.returncode:
                return
        raise CannotStart(f"{command[0]}: {made.stdout[-1000:]}{made.stderr[-1000:]}")


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
        if found is not None:
            return found
    raise CannotStart(f"There is no {names[0]} on the PATH. Install the MariaDB server.")
