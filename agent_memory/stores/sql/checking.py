"""Check of a database file by SQLite itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from time import monotonic

_MOST = 10
_STEPS = 100_000  # of SQLite, between two checks of the time


def quick_check(path: Path, seconds: float) -> list[str] | None:
    """Return the first problems of a file, in SQLite's words; None if the time ran out.

    Args:
        path: The database, or a copy that was made page by page.
        seconds: The time limit.
    """
    deadline = monotonic() + seconds
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
        connection.set_progress_handler(lambda: monotonic() > deadline, _STEPS)
        try:
            rows = connection.execute(f"PRAGMA quick_check({_MOST})").fetchall()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError as error:
            return [str(error)]
    return [text for (text,) in rows if text != "ok"]
