"""What SQLite itself says of a database file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from time import monotonic

_MOST = 10
_STEPS = 100_000  # of SQLite's own, between two looks at the clock


def quick_check(path: Path, seconds: float) -> list[str] | None:
    """What is wrong with a file, in SQLite's words, the first few; None where time ran out.

    Args:
        path: Of the database, or of a copy that was made page by page.
        seconds: How long it may take.
    """
    deadline = monotonic() + seconds
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
        connection.set_progress_handler(lambda: monotonic() > deadline, _STEPS)
        try:
            found = connection.execute(f"PRAGMA quick_check({_MOST})").fetchall()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError as error:
            return [str(error)]
    return [text for (text,) in found if text != "ok"]
