"""The commands of the Claude memory tool, as one set of arguments. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import AliasChoices, Field, create_model

from agent_memory.core.tools import Arguments
from agent_memory.errors import ToolRefused

ROOT = "/memories"

DESCRIPTION = (
    "Your files, kept under /memories beyond this conversation, for lists, plans and longer texts. "
    "Look there where a task goes on from earlier work. `view` shows a directory or a file, "
    "`create` makes a new file, `str_replace` and `insert` change one, `delete` and `rename` work "
    "on files and directories."
)

_NEEDED = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}


class FileCommand(Arguments):
    """One command. What its kind does not need is passed over."""

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

    def arguments(self) -> dict[str, Any]:
        """What the command takes, by name.

        Raises:
            ToolRefused: Something that it needs is not given.
        """
        lacking = [name for name in _NEEDED[self.command] if getattr(self, name) is None]
        if lacking:
            raise ToolRefused(f"The command {self.command} needs {' and '.join(lacking)}, too.")
        optional = ("view_range",) if self.command == "view" else ()
        return {name: getattr(self, name) for name in (*_NEEDED[self.command], *optional)}


@cache
def commands_under(root: str) -> type[FileCommand]:
    """The commands as a model is told of them, for files under another root."""
    path = FileCommand.model_fields["path"]
    told = (path.description or "").replace(ROOT, root)
    if told == path.description:
        return FileCommand
    field: Any = Field(default=None, description=told)
    return create_model("FileCommand", __base__=FileCommand, path=(str | None, field))
