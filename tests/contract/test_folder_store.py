"""The contract suite on a folder of plain files, and what only that promises."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

from agent_memory import AgentMemory, NoteMemory, VectorMemory
from agent_memory.core.idempotency import Append
from agent_memory.errors import StoreError, StoreUnavailable, UnknownStore
from agent_memory.stores import Store, check_url, open_store
from agent_memory.stores.damage import noted
from agent_memory.stores.folder.files import Files
from agent_memory.stores.folder.layout import file_name, lines_in
from agent_memory.stores.kernel.contract import Scan
from agent_memory.testing import StoreContract
from agent_memory.testing.contract import draft, for_words, record, units, worded
from tests.contract.clock_contract import ClockContract
from tests.contract.import_contract import ImportContract
from tests.contract.long_log_contract import LongLogContract
from tests.contract.segments_contract import SegmentsContract
from tests.contract.whole_deletion_contract import WholeDeletionContract
from tests.kit import Handles
from tests.processes import check_fork


class TestFolderStore(
    Handles,
    StoreContract,
    SegmentsContract,
    LongLogContract,
    ClockContract,
    ImportContract,
    WholeDeletionContract,
):
    """`FolderStore` keeps the contract, and another handle sees all of it."""

    def count_segments(self, store: Store) -> int:
        kinds = ("vector:", "catalog:", "segment:")
        names = [name for kind in kinds for name in store._kernel.collections(kind)]
        return sum(len(store._kernel.scan(Scan(name))) for name in names)

    def held(self, store: Store) -> bytes:
        data = store._folder.files.read(f"vectors/{file_name('v')}")
        features = [line["features"] for _, line in lines_in(data) if "features" in line]
        return b"".join(map(base64.b64decode, features))

    def alter(self, store: Store) -> None:
        path = store._folder.files._folder / "vectors" / file_name("v")
        text = path.read_text("utf-8")
        path.write_text(re.sub(r'("features": ?"[^"]{80})....', r"\1AAAA", text), "utf-8")

    @pytest.fixture
    def opens(self, tmp_path: Path) -> Callable[[str], Store]:
        return lambda more: open_store(f"folder:///{tmp_path}/memories", f"default{more}")


SAYING = """
import sys
from agent_memory.stores import open_store
from agent_memory.testing.contract import draft
store = open_store(sys.argv[1])
for n in range(int(sys.argv[3])):
    store.append("s", [draft(f"{sys.argv[2]} {n}")])
    print(n, flush=True)
"""


def url_of(folder: Path) -> str:
    return f"folder:///{folder}/memories"


def saying(folder: Path, who: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SAYING, url_of(folder), who, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def texts(store: Store, session_id: str = "s") -> list[str]:
    return [entry.message.text() for entry in store.read(session_id)]


def session_file(folder: Path) -> Path:
    (file,) = (folder / "memories" / "sessions").glob("*.jsonl")
    return file


def holding(folder: Path, text: str) -> list[str]:
    found = [one for one in (folder / "memories").rglob("*") if one.is_file()]
    return [one.name for one in found if text.encode() in one.read_bytes()]


def test_acknowledged_messages_survive_a_process_kill(tmp_path: Path) -> None:
    """Wrong: a process killed during a write loses a message, or leaves half a file."""
    with saying(tmp_path, "said", 10_000) as child:
        acknowledged = [next(child.stdout) for _ in range(25)]
        child.send_signal(signal.SIGKILL)
    store = open_store(url_of(tmp_path))
    said = texts(store)
    assert said[: len(acknowledged)] == [f"said {n}" for n in range(len(acknowledged))]
    assert said == [f"said {n}" for n in range(len(said))]
    store.append("s", [draft("after")])
    assert not list((tmp_path / "memories").rglob("*.tmp"))


def test_concurrent_processes_lose_no_message(tmp_path: Path) -> None:
    """Wrong: a process overwrites what another has just written."""
    children = [saying(tmp_path, who, 30) for who in ("a", "b", "c")]
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0, 0, 0]
    store = open_store(url_of(tmp_path))
    assert [entry.seq for entry in store.read("s")] == list(range(1, 91))
    for who in ("a", "b", "c"):
        assert [t for t in texts(store) if t.startswith(who)] == [f"{who} {n}" for n in range(30)]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("after", [False, True])
def test_a_failed_write_leaves_the_old_or_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, after: bool
) -> None:
    """Wrong: after a failed write the process's cache differs from the files."""
    store = open_store(url_of(tmp_path))
    store.append("s", [draft("first")])
    written, steps = Files.write, iter(range(100))

    def failing(files: Files, path: str, data: bytes) -> Any:
        breaks = next(steps) == place
        if breaks and not after:
            raise StoreUnavailable("the disk is full")
        mark = written(files, path, data)
        if breaks:
            raise StoreUnavailable("the disk is full")
        return mark

    monkeypatch.setattr(Files, "write", failing)
    done = ["first"]
    for n in range(3):
        try:
            store.append("s", [draft(f"more {n}")])
            done.append(f"more {n}")
        except StoreUnavailable:
            done = texts(open_store(url_of(tmp_path)))
    monkeypatch.undo()
    assert texts(store) == texts(open_store(url_of(tmp_path))) == done
    assert [entry.seq for entry in store.read("s")] == list(range(1, len(done) + 1))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("edited", [False, True])
def test_a_commit_to_several_files_is_atomic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, edited: bool
) -> None:
    """Wrong: after a crash between two files only one has its message."""
    store = open_store(url_of(tmp_path))
    for name in ("s", "t"):
        store.append(name, [draft("first")])
    written, steps = Files.write, iter(range(100))

    def failing(files: Files, path: str, data: bytes) -> Any:
        if next(steps) >= place:
            raise StoreUnavailable("the process is dead")
        return written(files, path, data)

    monkeypatch.setattr(Files, "write", failing)
    outcomes = store.append_all([Append(name, [draft("more")]) for name in ("s", "t")])
    monkeypatch.undo()
    journal = tmp_path / "memories" / ".journal.json"
    assert journal.exists() == (place in (1, 2))
    file = tmp_path / "memories" / "sessions" / file_name("t")
    if edited:
        file.write_text(file.read_text("utf-8").replace("first", "mine"), "utf-8")
    fresh = open_store(url_of(tmp_path))
    assert not journal.exists()
    assert texts(fresh, "s") == (["first", "more"] if place else ["first"])
    if not edited:
        assert texts(fresh, "t") == texts(fresh, "s")
    else:
        assert texts(fresh, "t")[0] == "mine"
    failed = [isinstance(one, Exception) for one in outcomes]
    assert failed == [place < 3] * 2
    assert texts(store, "s") == texts(fresh, "s")


def test_people_can_read_and_edit_the_files(tmp_path: Path) -> None:
    """Wrong: people cannot read or search the files."""
    with AgentMemory(url_of(tmp_path), blocks=[]) as memory:
        memory.update("monday chat", {"role": "user", "content": "Grüße aus Köln"}, user_id="ana")
        file = session_file(tmp_path)
        assert file.name.startswith("monday chat-")
        head, message, *_ = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        assert (head["session"], head["user"]) == ("monday chat", "ana")
        assert message["message"] == {"role": "user", "content": "Grüße aus Köln"}
        file.write_text(file.read_text("utf-8").replace("Köln", "Kiel"), "utf-8")
        memory.update("monday chat", {"role": "assistant", "content": "Moin!"})
        said = [entry.message.text() for entry in memory.history("monday chat")]
        assert said == ["Grüße aus Kiel", "Moin!"]


def test_a_session_file_with_a_merge_conflict_affects_no_other(tmp_path: Path) -> None:
    """Wrong: a merge conflict in a file stops all sessions, hides one, or is overwritten."""
    store = open_store(url_of(tmp_path))
    store.append("s", [draft("mine")])
    file, whole = session_file(tmp_path), session_file(tmp_path).read_text("utf-8")
    store.append("other", [draft("fine")])
    file.write_text(f"<<<<<<< ours\n{whole}", "utf-8")
    calls: list[Callable[[], object]] = [
        lambda: store.read("s"), lambda: store.head("s"), lambda: store.delete("s"),
        lambda: store.append("s", [draft("more")]),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreError, match="line 1 is not JSON"):
            call()
    assert texts(store, "other") == ["fine"]
    assert [head.session_id for head in store.sessions()] == ["other"]
    store.append("other", [draft("still")])
    assert file.read_text("utf-8").startswith("<<<<<<<")
    file.write_text(whole, "utf-8")
    assert texts(store) == ["mine"]


@pytest.mark.parametrize("features", ['"features": "AAAA"', '"features": "no base64"', '"was": ""'])
def test_damaged_features_are_reported_and_hide_no_record(tmp_path: Path, features: str) -> None:
    """Wrong: damaged features hide their record or their block's, or are not reported."""
    store = open_store(url_of(tmp_path))
    store.open_vectors("v", 8, "m")
    said = ["the red fox", "the red owl"]
    two = [record(name, text=text) for name, text in zip("ab", said, strict=True)]
    store.put_vectors("v", two[:1], worded(said[:1], units(2)[:1]))
    (file,) = (tmp_path / "memories" / "vectors").glob("*.jsonl")
    file.write_text(re.sub(r'"features": "[^"]*"', features, file.read_text("utf-8")), "utf-8")
    store.put_vectors("v", two[1:], worded(said[1:], units(2)[1:]))
    query = for_words("red", np.zeros(8, np.float32))
    for handle in (store, open_store(url_of(tmp_path))):
        hits = handle.search_vectors("v", "user:a", query, 9)
        assert sorted(hit.record.id for hit in hits) == ["a", "b"]
        with noted() as damaged:
            assert [one.id for some, _ in handle.all_vectors("v") for one in some] == ["b"]
        assert [error.damage and error.damage.record_id for error in damaged] == ["a"]
    store.put_vectors("v", [record("c")], worded(["red"], units(1)))
    if features.startswith('"features'):
        assert features.split('"')[3] in file.read_text("utf-8")
    store.put_vectors("v", two, worded(said, units(2)))
    with noted() as damaged:
        assert sum(len(some) for some, _ in store.all_vectors("v")) == 3
    assert damaged == []
    file.write_text(file.read_text("utf-8").replace("red owl", "red hen"), "utf-8")
    hits = store.search_vectors("v", "user:a", query, 9)
    assert "the red hen" in [hit.record.text for hit in hits]
    store.delete_vectors("v", owner="user:a")
    assert store.search_vectors("v", "user:a", query, 9) == []


def test_a_folder_can_be_copied_to_another_machine(tmp_path: Path) -> None:
    """Wrong: a folder without its machine's state cannot be opened."""
    blocks: list[Any] = [VectorMemory(), NoteMemory()]
    with AgentMemory(url_of(tmp_path / "here"), blocks=blocks) as memory:
        memory.update("s", {"role": "user", "content": "I keep bees."}, user_id="ana")
        memory.flush()
        memory.remember("Ana is allergic to peanuts.", user_id="ana")
        memory.update("s", {"role": "user", "content": "And I row on the lake."}, user_id="ana")
        expected = [one.text for one in memory.search("bees, peanuts, lake", user_id="ana")]
    copytree(tmp_path / "here", tmp_path / "there")
    (tmp_path / "there" / "memories" / ".state.json").unlink()
    with AgentMemory(url_of(tmp_path / "there"), blocks=blocks) as memory:
        assert [one.text for one in memory.search("bees, peanuts, lake", user_id="ana")] == expected
        assert [head.session_id for head in memory.components.store.due()] == ["s"]
        memory.delete_user("ana")
    assert not holding(tmp_path / "there", "bees")
    assert not holding(tmp_path / "there", "peanuts")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_use_the_folder(tmp_path: Path) -> None:
    """Wrong: parent and child share one lock, and lose each other's writes."""
    check_fork(url_of(tmp_path))


@pytest.mark.parametrize("rest", ["", "relative", "/", "/a?b", "/a\0b", "/:memory:"])
def test_a_url_without_a_path_is_refused(rest: str) -> None:
    """Wrong: a URL without a path is accepted, or the error describes SQLite URLs."""
    with pytest.raises(UnknownStore, match="folder:///") as caught:
        check_url(f"folder://{rest}")
    assert "sqlite" not in str(caught.value).casefold()


def test_only_the_owner_can_read_the_folder(tmp_path: Path) -> None:
    """Wrong: other accounts of the machine can read the files."""
    open_store(url_of(tmp_path)).append("s", [draft("secret")])
    for one in [tmp_path / "memories", *(tmp_path / "memories").rglob("*")]:
        if one.name != ".gitignore":
            assert one.stat().st_mode & 0o077 == 0, one
