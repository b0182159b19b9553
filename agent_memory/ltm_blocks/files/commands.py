"""The commands of the Claude memory tool, and its replies. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import AliasChoices, Field, create_model

from agent_memory.core.tools import Arguments

ROOT = "/memories"

DESCRIPTION = (
    "Your files, kept under /memories beyond this conversation, for lists, plans and longer texts. "
    "Look there where a task goes on from earlier work. `view` shows a directory or a file, "
    "`create` makes a new file, `str_replace` and `insert` change one, `delete` and `rename` work "
    "on files and directories."
)


class FileCommand(Arguments):
    """One command. Arguments that it does not use are ignored."""

    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"] = Field(
        description="What to do."
    )
    path: str | None = Field(
        default=None,
        description="The file, such as /memories/notes.md; view and delete take directories too. "
        "For all commands but rename.",
    )
    view_range: list[int] | None = Field(
        default=None,
        description="For view, if need be: the first line and the last; -1 is the end.",
    )
    file_text: str | None = Field(
        default=None,
        validation_alias=AliasChoices("file_text", "content"),
        description="For create: the file's text.",
    )
    old_str: str | None = Field(
        default=None,
        description="For str_replace: the text to replace, exactly as the file has it, and so "
        "much of it that it is there once.",
    )
    new_str: str | None = Field(default=None, description="For str_replace: what replaces it.")
    insert_line: int | None = Field(
        default=None, description="For insert: the line behind which to insert; 0 is the beginning."
    )
    insert_text: str | None = Field(default=None, description="For insert: what to insert.")
    old_path: str | None = Field(default=None, description="For rename: the path as it is.")
    new_path: str | None = Field(default=None, description="For rename: the path as it is to be.")


@cache
def commands_under(root: str) -> type[FileCommand]:
    """Return the commands with descriptions for another root."""
    path = FileCommand.model_fields["path"]
    description = (path.description or "").replace(ROOT, root)
    if description == path.description:
        return FileCommand
    field: Any = Field(default=None, description=description)
    return create_model("FileCommand", __base__=FileCommand, path=(str | None, field))


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies of a profile, as format strings. The defaults are those of Anthropic's SDK."""

    listing: str = (
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    )
    directory_mark: str = "/"
    # names that listings omit, in addition to names that begin with a dot
    left_out: tuple[str, ...] = ()
    round_sizes: bool = True  # whether a size of 2,048 bytes is shown as 2K, rather than 2.0K
    content: str = "Here's the content of {path} with line numbers:"
    too_many_lines: str = "File {path} exceeds maximum line limit of 999,999 lines."
    missing: str = "The path {path} does not exist. Please provide a valid path."
    created: str = "File created successfully at: {path}"
    exists: str = "File {path} already exists"
    replaced: str = (
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):"
    )
    missing_to_replace: str = "The path {path} does not exist. Please provide a valid path."
    folder_to_replace: str = "The path {path} is not a file."
    not_found: str = (
        "No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
    )
    not_unique: str = (
        "No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: "
        "{lines}. Please ensure it is unique"
    )
    inserted: str = "The file {path} has been edited."
    missing_to_insert: str = "The path {path} does not exist. Please provide a valid path."
    folder_to_insert: str = "The path {path} is not a file."
    bad_line: str = (
        "Invalid `insert_line` parameter: {line}. It should be within the range [0, {last}]."
    )
    deleted: str = "Successfully deleted {path}"
    renamed: str = "Successfully renamed {path} to {new_path}"
    missing_to_move: str = "The path {path} does not exist"
    taken: str = "The destination {path} already exists"
    keep_root: str = "Cannot {verb} the /memories directory itself"


SDK = Replies()

DOC = Replies(
    listing=(
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items "
        "and node_modules:"
    ),
    directory_mark="",
    left_out=("node_modules",),
    round_sizes=False,
    exists="Error: File {path} already exists",
    replaced="The memory file has been edited.",
    missing_to_replace=(
        "Error: The path {path} does not exist. Please provide a valid path."
    ),
    folder_to_replace="Error: The path {path} does not exist. Please provide a valid path.",
    missing_to_insert="Error: The path {path} does not exist",
    folder_to_insert="Error: The path {path} does not exist",
    bad_line=(
        "Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of "
        "the file: [0, {last}]"
    ),
    missing_to_move="Error: The path {path} does not exist",
    taken="Error: The destination {path} already exists",
)  # fmt: skip

PROFILES = {"sdk": SDK, "doc": DOC}
