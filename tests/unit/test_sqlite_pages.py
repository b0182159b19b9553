"""Pages of arbitrary SQLite files: all gaps are found, and nothing else."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.stores.sql.sqlite_pages import (
    NoTree,
    RawFile,
    children,
    gap,
    of_trees,
    page_size,
    untidy,
)

_TABLES = (
    "CREATE TABLE rows (name TEXT PRIMARY KEY, body TEXT)",
    "CREATE TABLE bare (name TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID",
    "CREATE INDEX bodies ON rows (body)",
)
_DATABASES = {
    "seed": st.integers(0, 2**32),
    "size": st.sampled_from([512, 1024, 4096, 65536]),
    "vacuum": st.sampled_from(["NONE", "FULL", "INCREMENTAL"]),
    "rows": st.integers(0, 150),
}
Content = list[list[tuple[str, str]]]


@given(**_DATABASES)
def test_nothing_is_read_from_gaps(seed: int, size: int, vacuum: str, rows: int) -> None:
    """Wrong: a byte that SQLite needs counts as part of a gap."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "any.db")
        before = _made(path, seed, size, vacuum, rows)
        data = bytearray(path.read_bytes())
        assert page_size(data) == size
        noise = Random(seed)
        for number in _in_trees(path, data):
            page = _page(data, number, size)
            found = gap(page)
            assert found is not None
            begin = (number - 1) * size
            place = slice(begin + found.start, begin + found.stop)
            data[place] = noise.randbytes(found.stop - found.start)
        path.write_bytes(data)
        assert _content(path) == before


@given(**_DATABASES)
def test_a_tidy_file_has_no_deleted_data(seed: int, size: int, vacuum: str, rows: int) -> None:
    """Wrong: a page is missed, or emptied at a wrong place."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "any.db")
        before = _made(path, seed, size, vacuum, rows)
        raw = RawFile(str(path))
        raw.tidy(_roots(path), list(raw.untidy()))
        raw.close()
        data = path.read_bytes()
        assert b"deleted" not in data
        assert not [n for n in _in_trees(path, data) if untidy(_page(data, n, size))]
        assert _content(path) == before


@given(kind=st.sampled_from([2, 5, 10, 13, 0]), rest=st.binary(min_size=511, max_size=511))
def test_any_bytes_are_a_page_or_none(kind: int, rest: bytes) -> None:
    """Wrong: random bytes raise, or have a gap outside the page."""
    page = bytes([kind]) + rest
    found = gap(page)
    assert found is None or 0 <= found.start <= found.stop <= len(page)
    try:
        children(page)
    except NoTree:
        return
    assert found is not None


def test_a_cyclic_page_tree_raises_an_error() -> None:
    """Wrong: a cycle in a damaged file makes an erasure run forever."""
    interior = bytes([5, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 2, 1, 0xFC]) + bytes(494)
    interior += (2).to_bytes(4, "big")
    with pytest.raises(NoTree):
        of_trees(lambda number: interior, [2], [3])


def _made(path: Path, seed: int, size: int, vacuum: str, rows: int) -> Content:
    """Make a SQLite file with rows of any length, many of them deleted. Return its content."""
    chance = Random(seed)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"PRAGMA page_size={size}")
        database.execute(f"PRAGMA auto_vacuum={vacuum}")
        database.execute("PRAGMA secure_delete=ON")
        for table in _TABLES:
            database.execute(table)
        database.execute("BEGIN")
        names = []
        for _ in range(rows):
            word = chance.choice(["deleted", "kept"])
            name = f"{chance.randrange(10**9)} {word * chance.choice([1, 3, 9])}"
            body = word * chance.choice([1, 10, 50, 300])
            for table in ("rows", "bare"):
                database.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (name, body))
            names.append(name)
        chance.shuffle(names)
        for name in names:
            if "deleted" in name:
                for table in ("rows", "bare"):
                    database.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
        database.execute("COMMIT")
    return _content(path)


def _content(path: Path) -> Content:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [
            database.execute(f"SELECT name, body FROM {source} ORDER BY name").fetchall()
            for source in ("rows", "bare", "rows INDEXED BY bodies WHERE body > ''")
        ]


def _roots(path: Path) -> list[int]:
    query = "SELECT rootpage FROM sqlite_master WHERE rootpage > 0"
    with closing(sqlite3.connect(path)) as database:
        return [root for (root,) in database.execute(query)]


def _in_trees(path: Path, data: bytes | bytearray) -> Iterator[int]:
    size = page_size(data)
    every = range(1, len(data) // size + 1)
    yield from of_trees(lambda number: _page(data, number, size), _roots(path), every)


def _page(data: bytes | bytearray, number: int, size: int) -> bytes:
    return bytes(data[(number - 1) * size : number * size])
