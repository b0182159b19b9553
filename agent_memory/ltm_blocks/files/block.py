"""`FileMemory`: files that a model keeps under /memories, as the Claude memory tool has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import AfterValidator, Field

from agent_memory.core.forms import Form, Name
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Record, Scope
from agent_memory.core.tools import Tool
from agent_memory.core.versions import check_version, version_of
from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.base import ManualBlock
from agent_memory.ltm_blocks.files.commands import DESCRIPTION, FileCommand
from agent_memory.ltm_blocks.files.editing import check_text, inserted, replaced, viewed
from agent_memory.ltm_blocks.files.paths import ROOT, above, below, checked_path, is_there, listed
from agent_memory.ltm_blocks.files.replies import PROFILES
from agent_memory.ltm_blocks.keyed_records import KeyedRecords, forget


def _path(text: str) -> str:
    try:
        same = checked_path(text) == text
    except ToolRefused:
        same = False
    if not same:
        raise ValueError("no path under /memories")
    return text


class _StoredForm(Form):
    """The metadata of a file's record."""

    id: Name
    path: Annotated[str, AfterValidator(_path)]


class FileMemory(ManualBlock):
    """Files that a model writes and looks up by itself, with a tool or as Claude's memory; per
    user. Nothing of them is recalled: the model looks where it wants to.

    A file goes with its user, not with the session in which it was written.

    Attributes:
        profile: The words of replies: those of Anthropic's Python SDK, or of the public
            description of its memory tool.
        max_files: So many a user can have.
        max_chars: So many characters each can have.
        max_total_chars: So many all together can have.
    """

    kind: Literal["files"] = "files"
    profile: Literal["sdk", "doc"] = "sdk"
    max_files: int = Field(default=500, gt=0)
    max_chars: int = Field(default=100_000, gt=0)
    max_total_chars: int = Field(default=1_000_000, gt=0)

    def open(self, scope: Scope) -> Files:
        """The files of a user, or of a session without one."""
        return Files(KeyedRecords(self.resources, self.name, scope, "user"), self)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Nothing: the model looks into its files by itself."""
        return []

    def delete(self, scope: Scope) -> None:
        forget(self.resources, self.name, scope)

    def validate_import(self, record: Record) -> Record:
        _StoredForm.model_validate(record.metadata)
        return record

    def tools(self) -> Sequence[Tool]:
        def run(scope: Scope, asked: FileCommand) -> str:
            return _run(self.open(scope), asked)

        return [Tool(self.name, DESCRIPTION, FileCommand, run)]


class Files:
    """The files of one user; made by `User.files`.

    Paths are /memories and below. The six commands of the memory tool give the text that the model
    is to read, and raise `ToolRefused` with the text of what went wrong; nothing changed then.

    Args:
        keyed: Where they are kept.
        limits: What the block allows, and how it puts things.
    """

    def __init__(self, keyed: KeyedRecords, limits: FileMemory) -> None:
        self._keyed = keyed
        self._limits = limits
        self._say = PROFILES[limits.profile]

    def paths(self) -> list[str]:
        """The paths of all files, in order."""
        return sorted(self._all())

    def read(self, path: str) -> str:
        """The text of a file.

        Raises:
            ToolRefused: There is no such file.
        """
        path = checked_path(path)
        return _found(self._all(), path, self._say.missing, "The path {path} is not a file.").text

    def version(self, path: str) -> str:
        """The version of a file: another one after each change of its text.

        Raises:
            ToolRefused: There is no such file.
        """
        return version_of(self.read(path))

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Show a directory, two levels deep, or a file with its lines numbered.

        Args:
            path: Either.
            view_range: Of a file, only the lines from the first to the second; -1 is the end.

        Raises:
            ToolRefused: There is no such path, or the range is none.
        """
        path = checked_path(path)
        files = self._all()
        if path in files:
            return viewed(self._say, path, files[path].text, view_range)
        if is_there(files, path):
            sizes = {one: len(record.text.encode()) for one, record in files.items()}
            return listed(self._say, path, sizes)
        raise ToolRefused(self._say.missing.format(path=path))

    def create(self, path: str, file_text: str) -> str:
        """Make a new file, and the directories that it is in.

        Raises:
            ToolRefused: There is something already, or no room.
        """
        path = checked_path(path)
        check_text(file_text)
        with self._keyed.changing():
            files = self._all()
            self._check_new(files, path)
            self._check_room(files, path, file_text)
            self._put(uuid4().hex, path, file_text)
        return self._say.created.format(path=path)

    def write(self, path: str, file_text: str, *, expected: str | None = None) -> None:
        """Have a file say this, whatever it said; it is made if need be.

        Args:
            path: The file.
            file_text: What it is to say.
            expected: Its `version` as it was read: write it only if it is that yet.

        Raises:
            ToolRefused: It is a directory, or there is no room; nothing was written.
            VersionConflict: It is another version by now, or gone; nothing was written.
        """
        path = checked_path(path)
        check_text(file_text)
        with self._keyed.changing():
            files = self._all()
            known = files.get(path)
            check_version(expected, None if known is None else version_of(known.text))
            if known is None:
                self._check_new(files, path)
            self._check_room(files, path, file_text)
            name = uuid4().hex if known is None else known.metadata["id"]
            self._put(name, path, file_text)

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a text that a file holds once.

        Raises:
            ToolRefused: There is no such file, it holds the text not at all or more than once, or
                there is no room.
        """
        say = self._say
        return self._edit(
            path,
            say.missing_to_replace,
            say.folder_to_replace,
            lambda path, text: replaced(say, path, text, old_str, new_str),
        )

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert lines into a file, behind a line; 0 is the beginning.

        Raises:
            ToolRefused: There is no such file or line, or no room.
        """
        say = self._say
        return self._edit(
            path,
            say.missing_to_insert,
            say.folder_to_insert,
            lambda path, text: inserted(say, path, text, insert_line, insert_text),
        )

    def delete(self, path: str, *, expected: str | None = None) -> str:
        """Delete a file, or a directory with all that is in it.

        Args:
            path: Either.
            expected: Of a file its `version` as it was read: delete it only if it is that yet.

        Raises:
            ToolRefused: There is no such path, or it is the root.
            VersionConflict: It is another version by now; nothing was deleted.
        """
        path = checked_path(path)
        self._keep_root(path, "delete")
        with self._keyed.changing():
            files = self._all()
            gone = below(files, path)
            if not gone:
                raise ToolRefused(self._say.missing_to_move.format(path=path))
            check_version(expected, version_of(files[path].text) if path in files else None)
            for one in gone:
                self._keyed.drop(files[one].metadata["id"])
        return self._say.deleted.format(path=path)

    def rename(self, old_path: str, new_path: str) -> str:
        """Give a file or a directory another path.

        A file has its old path or its new one, whatever happens in between, and so has each file
        of a directory.

        Raises:
            ToolRefused: There is no such path, something is at the other already, or one of them
                is the root or within the other.
        """
        old_path, new_path = checked_path(old_path), checked_path(new_path)
        self._keep_root(old_path, "rename")
        with self._keyed.changing():
            files = self._all()
            if is_there(files, new_path):
                raise ToolRefused(self._say.taken.format(path=new_path))
            moved = below(files, old_path)
            if not moved:
                raise ToolRefused(self._say.missing_to_move.format(path=old_path))
            if new_path.startswith(f"{old_path}/"):
                raise ToolRefused(f"Cannot rename {old_path} to a path within itself.")
            _check_directories(files, new_path)
            paths = {one: checked_path(new_path + one.removeprefix(old_path)) for one in moved}
            for one, path in paths.items():
                self._put(files[one].metadata["id"], path, files[one].text)
        return self._say.renamed.format(path=old_path, new_path=new_path)

    def clear(self) -> None:
        """Delete all files."""
        with self._keyed.changing():
            self._keyed.clear()

    def _all(self) -> dict[str, Record]:
        return {record.metadata["path"]: record for record in self._keyed.all()}

    def _edit(
        self, path: str, missing: str, folder: str, change: Callable[[str, str], tuple[str, str]]
    ) -> str:
        path = checked_path(path)
        with self._keyed.changing():
            files = self._all()
            record = _found(files, path, missing, folder)
            text, reply = change(path, record.text)
            self._check_room(files, path, text)
            self._put(record.metadata["id"], path, text)
        return reply

    def _put(self, name: str, path: str, text: str) -> None:
        # its id stays when it is renamed: one write, after which it is at the new path only
        self._keyed.put(name, text, {"id": name, "path": path}, with_session=False)

    def _keep_root(self, path: str, verb: str) -> None:
        if path == ROOT:
            raise ToolRefused(self._say.keep_root.format(verb=verb))

    def _check_new(self, files: Mapping[str, Record], path: str) -> None:
        if is_there(files, path):
            raise ToolRefused(self._say.exists.format(path=path))
        _check_directories(files, path)
        if len(files) >= self._limits.max_files:
            raise ToolRefused(
                f"There are {len(files)} files, and no more are kept. Delete some that are not "
                "needed any more."
            )

    def _check_room(self, files: Mapping[str, Record], path: str, text: str) -> None:
        limits = self._limits
        if len(text) > limits.max_chars:
            raise ToolRefused(
                f"{path} would have {len(text)} characters, and at most {limits.max_chars} are "
                "kept. Nothing was changed. Shorten it, or write several files."
            )
        total = len(text) + sum(len(file.text) for one, file in files.items() if one != path)
        if total > limits.max_total_chars:
            raise ToolRefused(
                f"All files together would have {total} characters, and at most "
                f"{limits.max_total_chars} are kept. Nothing was changed. Delete or shorten some."
            )


def run_command(files: Files, command: Mapping[str, Any] | str | None) -> str:
    """Run a command of the memory tool as a model gave it, once it is checked.

    Args:
        files: Whose files.
        command: A mapping with `command` and what that takes, or its JSON.

    Raises:
        ToolRefused: It is none, or it cannot be done; the sentence is for the model.
    """
    tool = Tool("memory", DESCRIPTION, FileCommand, lambda _, asked: _run(files, asked))
    return tool.call(Scope(), command)


def _run(files: Files, asked: FileCommand) -> str:
    reply: str = getattr(files, asked.command)(**asked.arguments())
    return reply


def _found(files: Mapping[str, Record], path: str, missing: str, folder: str) -> Record:
    """The file of a path; else what is to be said."""
    if path not in files:
        what = folder if is_there(files, path) else missing
        raise ToolRefused(what.format(path=path))
    return files[path]


def _check_directories(files: Mapping[str, Record], path: str) -> None:
    for one in above(path):
        if one in files:
            raise ToolRefused(f"The path {one} is a file, so that nothing can be put below it.")
