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

from agent_memory import AgentMemory, FileMemory
from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.files import Files
from agent_memory.ltm_blocks.files.block import run_command
from agent_memory.ltm_blocks.files.commands import DOC, SDK
from agent_memory.ltm_blocks.files.paths import MAX_LINES, human_size, viewed

FILES = {
    "/memories/notes.md": "one\ntwo\nthree\nfour\nfive\nsix\ntwo again\n",
    "/memories/work/plan.txt": "a\r\nb",
    "/memories/work/deep/down/x": "x" * 2_048,
    "/memories/work/.draft": "hidden",
    "/memories/.cache/y": "hidden",
    "/memories/node_modules/z": "z" * 1_536,
    "/memories/empty": "",
}

SAME: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories/work/plan.txt"},
    {"command": "view", "path": "/memories/empty"},
    {"command": "view", "path": "/memories/notes.md", "view_range": [6, -1]},
    {"command": "view", "path": "/memories/notes.md", "view_range": [0, 2]},
    {"command": "view", "path": "/memories/notes.md", "view_range": [3, 2]},
    {"command": "view", "path": "/memories/nope"},
    {"command": "view", "path": "/memories/notes.md/x"},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "view", "path": "/memories/../x"},
    {"command": "create", "path": "/memories/new/a.md", "file_text": "{path} {0}"},
    {"command": "str_replace", "path": "/memories/notes.md", "old_str": "{x}", "new_str": ""},
    {"command": "str_replace", "path": "/memories/notes.md", "old_str": "two", "new_str": ""},
    {
        "command": "insert",
        "path": "/memories/work/plan.txt",
        "insert_line": 2,
        "insert_text": "c\n\n",
    },
    {"command": "delete", "path": "/memories/work"},
    {"command": "rename", "old_path": "/memories/work", "new_path": "/memories/old/work"},
    {"command": "delete", "path": "/memories"},
    {"command": "rename", "old_path": "/memories", "new_path": "/memories/a"},
]
"""Commands to which both profiles reply alike."""

DIFFERENT: list[tuple[dict[str, Any], str]] = [
    (
        {"command": "view", "path": "/memories"},
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden "
        "items and node_modules:\n3.6K\t/memories\n0B\t/memories/empty\n38B\t/memories/notes.md\n"
        "2.0K\t/memories/work\n2.0K\t/memories/work/deep\n4B\t/memories/work/plan.txt",
    ),
    (
        {"command": "create", "path": "/memories/empty", "file_text": ""},
        "Error: File /memories/empty already exists",
    ),
    (
        {"command": "create", "path": "/memories/work", "file_text": ""},
        "Error: File /memories/work already exists",
    ),
    (
        {
            "command": "str_replace",
            "path": "/memories/notes.md",
            "old_str": "four\nf",
            "new_str": "4\n\nf",
        },
        "The memory file has been edited.\n"
        "     2\ttwo\n     3\tthree\n     4\t4\n     5\t\n     6\tfive",
    ),
    (
        {"command": "str_replace", "path": "/memories/nope", "old_str": "a", "new_str": "b"},
        "Error: The path /memories/nope does not exist. Please provide a valid path.",
    ),
    (
        {"command": "str_replace", "path": "/memories/work", "old_str": "a", "new_str": "b"},
        "Error: The path /memories/work does not exist. Please provide a valid path.",
    ),
    (
        {"command": "insert", "path": "/memories/nope", "insert_line": 0, "insert_text": "a"},
        "Error: The path /memories/nope does not exist",
    ),
    (
        {"command": "insert", "path": "/memories", "insert_line": 0, "insert_text": "a"},
        "Error: The path /memories does not exist",
    ),
    (
        {"command": "insert", "path": "/memories/notes.md", "insert_line": 8, "insert_text": "a"},
        "Error: Invalid `insert_line` parameter: 8. It should be within the range of lines of the "
        "file: [0, 7]",
    ),
    (
        {"command": "insert", "path": "/memories/notes.md", "insert_line": -1, "insert_text": "a"},
        "Error: Invalid `insert_line` parameter: -1. It should be within the range of lines of the "
        "file: [0, 7]",
    ),
    (
        {"command": "delete", "path": "/memories/nope"},
        "Error: The path /memories/nope does not exist",
    ),
    (
        {"command": "rename", "old_path": "/memories/nope", "new_path": "/memories/b"},
        "Error: The path /memories/nope does not exist",
    ),
    (
        {"command": "rename", "old_path": "/memories/nope", "new_path": "/memories/work"},
        "Error: The destination /memories/work already exists",
    ),
]
"""The replies of the public description, where the SDK has others."""


OWN = [
    ({"command": "create", "path": "/memories/notes.md/x", "file_text": ""}, "is a file"),
    (
        {"command": "rename", "old_path": "/memories/empty", "new_path": "/memories/notes.md/x/y"},
        "is a file",
    ),
    (
        {"command": "rename", "old_path": "/memories/work", "new_path": "/memories/work/deep/w"},
        "within itself",
    ),
    (
        {"command": "rename", "old_path": "/memories/empty", "new_path": "/memories/empty/e"},
        "within itself",
    ),
    (
        {"command": "rename", "old_path": "/memories/work", "new_path": "/memories" + "/d" * 15},
        "too deep",
    ),
    (
        {"command": "str_replace", "path": "/memories/empty", "old_str": "", "new_str": "a"},
        "`old_str` is empty",
    ),
    ({"command": "view", "path": "/memories/empty", "view_range": [1]}, "`view_range`"),
    ({"command": "view", "path": "/memories/empty", "view_range": [1, -2]}, "`view_range`"),
    ({"command": "view", "path": "/memories/%2e%2e/x"}, "contains '%'"),
    ({"command": "view", "path": "/memoriesfoo.txt"}, "must start with /memories"),
]


@pytest.fixture(scope="module")
def memories() -> Iterator[dict[str, AgentMemory]]:
    blocks = {"sdk": FileMemory(), "doc": FileMemory(profile="doc")}
    opened = {name: AgentMemory(store="memory://", blocks=[one]) for name, one in blocks.items()}
    yield opened
    for memory in opened.values():
        memory.close()


def filled(memory: AgentMemory) -> Files:
    files = memory.user("ana").files()
    files.clear()
    for path, text in FILES.items():
        files.create(path, text)
    return files


def told(files: Files, command: dict[str, Any]) -> tuple[bool, str]:
    try:
        return True, run_command(files, command)
    except ToolRefused as refused:
        return False, str(refused)


def told_by_sdk(tool: BetaLocalFilesystemMemoryTool, command: dict[str, Any]) -> tuple[bool, str]:
    try:
        return True, str(tool.call(command))
    except ToolError as error:
        return False, str(error)


@pytest.mark.parametrize("command", SAME)
def test_replies_of_both_profiles(
    memories: dict[str, AgentMemory], command: dict[str, Any]
) -> None:
    """Wrong: the two profiles reply differently where they should agree."""
    replies = {told(filled(memories[profile]), command)[1] for profile in ("sdk", "doc")}
    assert len(replies) == 1


@pytest.mark.parametrize(("command", "reply"), DIFFERENT)
def test_replies_of_the_description(
    memories: dict[str, AgentMemory], command: dict[str, Any], reply: str
) -> None:
    """Wrong: a reply differs from the public description's wording."""
    assert told(filled(memories["doc"]), command)[1] == reply


@pytest.mark.parametrize(("command", "words"), OWN)
def test_refusals_of_our_own(
    memories: dict[str, AgentMemory], command: dict[str, Any], words: str
) -> None:
    """Wrong: a command that only we refuse is carried out, or changes a file."""
    files = filled(memories["sdk"])
    with pytest.raises(ToolRefused, match=words):
        run_command(files, command)
    assert {path: files.read(path) for path in files.paths()} == FILES


def test_texts_after_edits(memories: dict[str, AgentMemory]) -> None:
    """Wrong: an edit changes more than it reports, or other line ends."""
    files = filled(memories["sdk"])
    files.str_replace("/memories/work/plan.txt", "a\r\n", "A\r\n\t")
    assert files.read("/memories/work/plan.txt") == "A\r\n\tb"
    files.insert("/memories/work/plan.txt", 1, "\n- x\n- y\n\n\n")
    assert files.read("/memories/work/plan.txt") == "A\r\n\n- x\n- y\n\tb\n"
    files.insert("/memories/empty", 0, "first")
    assert files.read("/memories/empty") == "first\n"
    files.insert("/memories/empty", 1, "last")
    assert files.read("/memories/empty") == "first\nlast\n"
    with pytest.raises(ToolRefused, match="is not a file"):
        files.read("/memories/work")
    with pytest.raises(ToolRefused, match="does not exist"):
        files.read("/memories/nope")


def test_lines_and_sizes_in_numbers() -> None:
    """Wrong: a line number exceeds its column, or a size is formatted unlike the SDK's."""
    most = "\n" * (MAX_LINES - 1)
    assert viewed(SDK, "/memories/a", most, [MAX_LINES, -1]).endswith("\n999999\t")
    with pytest.raises(ToolRefused) as refused:
        viewed(SDK, "/memories/a", most + "\n", [1, 1])
    assert str(refused.value) == "File /memories/a exceeds maximum line limit of 999,999 lines."
    for size in [*range(5_000), *(1 << power for power in range(50)), *range(10**6, 10**7, 4_321)]:
        assert human_size(SDK, size) == _format_file_size(size)
    sizes = [0, 512, 1_536, 2_048, 4_096, 5_632, 1_258_291]
    told = [human_size(DOC, size) for size in sizes]
    assert told == ["0B", "512B", "1.5K", "2.0K", "4.0K", "5.5K", "1.2M"]


PATHS = [
    "/memories", "/memories/a", "/memories/a/b", "/memories/a/b/c", "/memories/a/b/c/d.md",
    "/memories/a.md", "/memories/a/z.md", "/memories/.h/x", "/memories/a/.h", "/memories/Z.md",
    "/memories/é.md", "/memories/日本/語", "/memories/q", "/memories/node_modules/m",
]  # fmt: skip
TEXTS = [
    "",
    "\n",
    "a",
    "aaa",
    "aaaa\naa",
    "a\r\nb",
    "\r",
    "b\n\n",
    "\tb\né",
    "é" * 700,
    "x" * 1_024,
]


def any_text(dice: random.Random) -> str:
    return "".join(dice.choices(TEXTS[:-2], k=dice.randrange(5))) + dice.choice(TEXTS)


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
def test_as_the_sdk_does(
    memories: dict[str, AgentMemory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Wrong: the same commands give another reply, error or file than the SDK's."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    dice, tool = random.Random(seed), BetaLocalFilesystemMemoryTool(str(tmp_path))
    files, kept = memories["sdk"].user(f"user-{seed}").files(), dict[str, str]()
    known = Counter[tuple[str, bool]]()
    for _ in range(300):
        command = any_command(dice, kept)
        done, ours = told(files, command)
        try:
            expected = told_by_sdk(tool, command)
        except OSError:  # below a file, or into itself: see `test_refusals_of_our_own`
            expected = (False, ours)
        assert done == expected[0]
        assert without_sizes_of_directories(ours) == without_sizes_of_directories(expected[1])
        kept = on_disk(tool)
        assert {path: files.read(path) for path in files.paths()} == kept
        known[command["command"], done] += 1
    assert len(known) == 12, "each command was done, and refused"


def test_the_sdks_holes_are_there(tmp_path: Path) -> None:
    """Wrong: the SDK has closed a gap that we list as a difference."""
    tool = BetaLocalFilesystemMemoryTool(str(tmp_path))
    tool.call({"command": "create", "path": "/memoriesfoo.txt", "file_text": "a"})
    assert on_disk(tool) == {"/memories/foo.txt": "a"}
    tool.call({"command": "create", "path": "/memories/%2e%2e", "file_text": "a"})
    with pytest.raises(AttributeError):
        tool.call({"command": "create", "path": "/memories/b"})
