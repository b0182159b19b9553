"""Replies of file commands, word for word, compared with Anthropic's own implementation."""

import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import (
    BetaLocalFilesystemMemoryTool,
    _format_file_size,
)

from agent_memory import AgentMemory, FileMemory, ToolRefused
from agent_memory.ltm_blocks.files import Files
from agent_memory.ltm_blocks.files.block import run_command
from agent_memory.ltm_blocks.files.commands import MAX_LINES, human_size, viewed

FILES = {
    "/memories/notes.md": "one\ntwo\nthree\nfour\nfive\nsix\ntwo again\n",
    "/memories/work/plan.txt": "a\r\nb",
    "/memories/work/deep/down/x": "x" * 2_048,
    "/memories/work/.draft": "hidden",
    "/memories/.cache/y": "hidden",
    "/memories/node_modules/z": "z" * 1_536,
    "/memories/empty": "",
}

Command = dict[str, Any]


def view(path: str, **more: Any) -> Command:
    return {"command": "view", "path": path, **more}


def create(path: str, text: str) -> Command:
    return {"command": "create", "path": path, "file_text": text}


def replace(path: str, old: str, new: str) -> Command:
    return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def rename(old: str, new: str) -> Command:
    return {"command": "rename", "old_path": old, "new_path": new}


OWN = [
    (create("/memories/notes.md/x", ""), "is a file"),
    (rename("/memories/empty", "/memories/notes.md/x/y"), "is a file"),
    (rename("/memories/work", "/memories/work/deep/w"), "within itself"),
    (rename("/memories/empty", "/memories/empty/e"), "within itself"),
    (rename("/memories/work", "/memories" + "/d" * 15), "too deep"),
    (replace("/memories/empty", "", "a"), "`old_str` is empty"),
    (view("/memories/empty", view_range=[1]), "`view_range`"),
    (view("/memories/empty", view_range=[1, -2]), "`view_range`"),
    (view("/memories/%2e%2e/x"), "contains '%'"),
    (view("/memoriesfoo.txt"), "must start with /memories"),
]


@pytest.fixture(scope="module")
def memory() -> Iterator[AgentMemory]:
    with AgentMemory(store="memory://", blocks=[FileMemory()]) as memory:
        yield memory


def filled(memory: AgentMemory) -> Files:
    files = memory.user("ana").files()
    files.clear()
    for path, text in FILES.items():
        files.create(path, text)
    return files


def outcome(files: Files, command: dict[str, Any]) -> tuple[bool, str]:
    try:
        return True, run_command(files, command)
    except ToolRefused as refused:
        return False, str(refused)


def reply_of_sdk(tool: BetaLocalFilesystemMemoryTool, command: dict[str, Any]) -> tuple[bool, str]:
    try:
        return True, str(tool.call(command))
    except ToolError as error:
        return False, str(error)


@pytest.mark.parametrize(("command", "words"), OWN)
def test_refusals_change_nothing(memory: AgentMemory, command: dict[str, Any], words: str) -> None:
    """Wrong: a command that only we refuse is carried out, or changes a file."""
    files = filled(memory)
    with pytest.raises(ToolRefused, match=words):
        run_command(files, command)
    assert {path: files.read(path) for path in files.paths()} == FILES


def test_line_numbers_and_sizes_are_formatted_like_the_sdk() -> None:
    """Wrong: a line number exceeds its column, or a size is formatted unlike the SDK's."""
    most = "\n" * (MAX_LINES - 1)
    assert viewed("/memories/a", most, [MAX_LINES, -1]).endswith("\n999999\t")
    with pytest.raises(ToolRefused) as refused:
        viewed("/memories/a", most + "\n", [1, 1])
    assert str(refused.value) == "File /memories/a exceeds maximum line limit of 999,999 lines."
    for size in [*range(5_000), *(1 << power for power in range(50)), *range(10**6, 10**7, 4_321)]:
        assert human_size(size) == _format_file_size(size)


PATHS = [
    "/memories", "/memories/a", "/memories/a/b", "/memories/a/b/c", "/memories/a/b/c/d.md",
    "/memories/a.md", "/memories/a/z.md", "/memories/.h/x", "/memories/a/.h", "/memories/Z.md",
    "/memories/é.md", "/memories/日本/語", "/memories/q", "/memories/node_modules/m",
]  # fmt: skip
SHORT = ["", "\n", "a", "aaa", "aaaa\naa", "a\r\nb", "\r", "b\n\n", "\tb\né"]
TEXTS = [*SHORT, "é" * 700, "x" * 1_024]


def any_text(dice: random.Random) -> str:
    return "".join(dice.choices(SHORT, k=dice.randrange(5))) + dice.choice(TEXTS)


def any_command(dice: random.Random, files: dict[str, str]) -> dict[str, Any]:
    """Return a command that often applies to an existing file."""

    def path() -> str:
        return dice.choice([*PATHS, *files] if dice.random() < 0.5 or not files else [*files])

    name = dice.choice(
        ["view"] * 3 + ["create"] * 4 + ["str_replace", "insert"] * 4 + ["rename", "delete"]
    )
    if name == "rename":
        return {"command": name, "old_path": path(), "new_path": dice.choice(PATHS)}
    command: dict[str, Any] = {"command": name, "path": path()}
    if name == "view" and dice.random() < 0.5:
        command["view_range"] = [dice.randrange(-1, 9), dice.randrange(-1, 9)]
    if name == "create":
        command |= {"path": dice.choice(PATHS), "file_text": any_text(dice)}
    if name == "str_replace":
        text = files.get(command["path"]) or "a"
        place = dice.randrange(len(text))
        old = text[place : place + dice.randrange(1, 9)] if dice.random() < 0.9 else "aa"
        command |= {"old_str": old, "new_str": any_text(dice)}
    if name == "insert":
        command |= {"insert_line": dice.randrange(-1, 6), "insert_text": any_text(dice)}
    return command


def on_disk(tool: BetaLocalFilesystemMemoryTool) -> dict[str, str]:
    """Return the SDK's files, and remove empty directories, which ours do not have."""
    root = tool.memory_root
    for folder, _, _ in os.walk(root, topdown=False):
        if folder != str(root) and not os.listdir(folder):
            os.rmdir(folder)
    return {
        f"/memories/{file.relative_to(root)}": file.read_bytes().decode()
        for file in root.rglob("*")
        if file.is_file()
    }


def without_sizes_of_directories(reply: str) -> str:
    """Remove directories' sizes, which depend on the file system."""
    head, *rows = reply.split("\n")
    if not head.startswith("Here're the files"):
        return reply
    return "\n".join((head, "", *(re.sub(r"^.*\t(?=.*/$)", "\t", row) for row in rows[1:])))


@pytest.mark.parametrize("seed", range(8))
def test_random_commands_give_the_same_results_as_the_sdk(
    memory: AgentMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Wrong: the same commands give another reply, error or file than the SDK's."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    dice, tool = random.Random(seed), BetaLocalFilesystemMemoryTool(str(tmp_path))
    files, kept = memory.user(f"user-{seed}").files(), dict[str, str]()
    known = Counter[tuple[str, bool]]()
    for _ in range(300):
        command = any_command(dice, kept)
        done, ours = outcome(files, command)
        try:
            expected = reply_of_sdk(tool, command)
        except OSError:  # below a file, or into itself: see `test_refusals_change_nothing`
            expected = (False, ours)
        assert done == expected[0]
        assert without_sizes_of_directories(ours) == without_sizes_of_directories(expected[1])
        kept = on_disk(tool)
        assert {path: files.read(path) for path in files.paths()} == kept
        known[command["command"], done] += 1
    assert len(known) == 12, "each command was done, and refused"


def test_the_listed_gaps_of_the_sdk_still_exist(tmp_path: Path) -> None:
    """Wrong: the SDK has closed a gap that we list as a difference."""
    tool = BetaLocalFilesystemMemoryTool(str(tmp_path))
    tool.call({"command": "create", "path": "/memoriesfoo.txt", "file_text": "a"})
    assert on_disk(tool) == {"/memories/foo.txt": "a"}
    tool.call({"command": "create", "path": "/memories/%2e%2e", "file_text": "a"})
    with pytest.raises(AttributeError):
        tool.call({"command": "create", "path": "/memories/b"})
