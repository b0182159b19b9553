"""`FileMemory`: a model's files under /memories, as in the Claude memory tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import signature
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import AfterValidator, ImportString

from agent_memory.core.forms import Form, Name
from agent_memory.core.idempotency import check_version, version_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Record, Scope, Span
from agent_memory.core.redaction import Redactor
from agent_memory.core.settings_model import Duration, Positive
from agent_memory.core.tools import Tool
from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.files.commands import (
    DESCRIPTION,
    ROOT,
    FileCommand,
    above,
    below,
    check_text,
    checked_path,
    checked_root,
    exists,
    inserted,
    listed,
    replaced,
    viewed,
)
from agent_memory.ltm_blocks.keyed_records import Collection, CollectionBlock


def _path(text: str) -> str:
    if checked_path(text) != text:
        raise ValueError("the path is not a valid path under /memories")
    return text


class _StoredForm(Form):
    """The metadata of a file's record."""

    id: Name
    path: Annotated[str, AfterValidator(_path)]


class FileMemory(CollectionBlock):
    """A user's files. A model writes and reads them with a tool, or with Claude's memory tool.

    Contexts do not recall files: the model reads a file when it needs it. A file is deleted with
    its user, not with the session in which it was written.

    Attributes:
        max_files: Maximum number of files of a user.
        max_chars: Maximum characters of a file.
        max_total_chars: Maximum characters of all files together.
        root: The directory with which all paths begin.
        ttl: Lifetime of a file after its last write. The next write erases expired files.
        redact: Redacts texts before they are stored, in addition to the memory's own `redact`.
    """

    _stored_form = _StoredForm

    kind: Literal["files"] = "files"
    max_files: Positive = 500
    max_chars: Positive = 100_000
    max_total_chars: Positive = 1_000_000
    root: Annotated[str, AfterValidator(checked_root)] = ROOT
    ttl: Duration | None = None
    redact: Redactor | ImportString[Callable[[str], str]] | None = None

    def open(self, scope: Scope) -> Files:
        """Return the files of a user, or of a session without a user."""
        return Files(self._keyed(scope), self)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        """Return nothing: the model reads its files itself."""
        return []

    def stored_records(self, scope: Scope) -> list[Recall]:
        files = self.open(scope)
        return [
            Recall(self.name, files._shown(path), record.text, created_at=record.created_at)
            for path, record in files._all().items()
        ]

    def forget(self, scope: Scope, what: str | Span, why: str) -> Sequence[str]:
        """Forget a file by its path. Spans have no effect: files come from no messages."""
        files = self.open(scope)
        if not isinstance(what, str) or what not in files.paths():
            return []
        files.delete(what)
        return [what]

    def tools(self) -> Sequence[Tool]:
        def run(scope: Scope, command: FileCommand) -> str:
            return _run(self.open(scope), command)

        description = DESCRIPTION.replace(ROOT, self.root)
        return [Tool(self.name, description, FileCommand, run)]

    def redacted(self, text: str) -> str:
        """Redact a text with the redaction of the memory, then with that of the block."""
        check_text(text)
        text = self.resources.redact(text)
        return text if self.redact is None else self.redact(text)


class Files(Collection[FileMemory]):
    """A handle on the files of one user, from `User.files`.

    All paths begin with the block's `root`, by default /memories. `view`, `create`, `str_replace`,
    `insert`, `delete` and `rename` are the commands of the memory tool. They return a reply for the
    model. On an error they raise `ToolRefused` with the reply, and change nothing.
    """

    _item = "file"
    _error = ToolRefused

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(map(self._shown, self._all()))

    def exists(self, path: str) -> bool:
        """Return whether a path is a file or a directory."""
        return exists(self._all(), self._path(path))

    def read(self, path: str) -> str:
        """Return the text of a file.

        Raises:
            ToolRefused: The file does not exist.
        """
        return self._file(self._all(), self._path(path)).text

    def version(self, path: str) -> str:
        """Return the version of a file, which changes with its text.

        Raises:
            ToolRefused: The file does not exist.
        """
        return version_of(self.read(path))

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        """Show a directory two levels deep, or a file with its lines numbered.

        Args:
            view_range: The first and last line of a file to show; -1 is the end.

        Raises:
            ToolRefused: The path does not exist, or the range is invalid.
        """
        path = self._path(path)
        files = self._all()
        if path not in files and exists(files, path):
            sizes = {self._shown(name): len(record.text.encode()) for name, record in files.items()}
            return listed(self._shown(path), sizes)
        return viewed(self._shown(path), self._file(files, path).text, view_range)

    def create(self, path: str, file_text: str) -> str:
        """Create a file and its directories.

        Raises:
            ToolRefused: The path exists or is below a file, or a limit of the block is exceeded.
        """
        path = self._path(path)
        redacted = self._limits.redacted(file_text)
        with self._keyed.changing():
            files = self._all(erase=True)
            self._check_new(files, path)
            self._check_room(files, path, redacted)
            self._put(uuid4().hex, path, redacted)
        return f"File created successfully at: {self._shown(path)}{_note(redacted != file_text)}"

    def write(self, path: str, file_text: str, *, expected: str | None = None) -> None:
        """Write a file's text. Create the file if needed.

        Args:
            expected: The `version` that you read. The file is written only if it still has this
                version.

        Raises:
            ToolRefused: The path is a directory or below a file, or a limit of the block is
                exceeded; nothing was written.
            VersionConflict: The file has another version, or no longer exists; nothing was written.
        """
        path = self._path(path)
        file_text = self._limits.redacted(file_text)
        with self._keyed.changing():
            files = self._all(erase=True)
            file = files.get(path)
            check_version(expected, None if file is None else version_of(file.text))
            if file is None:
                self._check_new(files, path)
            self._check_room(files, path, file_text)
            name = uuid4().hex if file is None else file.metadata["id"]
            self._put(name, path, file_text)

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        """Replace a text that occurs once in a file.

        Raises:
            ToolRefused: The file does not exist, the text does not occur exactly once, or a limit
                of the block is exceeded.
        """
        return self._edit(path, lambda path, text: replaced(path, text, old_str, new_str))

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        """Insert lines into a file after a line; 0 is the beginning.

        Raises:
            ToolRefused: The file or line does not exist, or a limit of the block is exceeded.
        """
        return self._edit(path, lambda path, text: inserted(path, text, insert_line, insert_text))

    def delete(self, path: str, *, expected: str | None = None) -> str:
        """Delete a file, or a directory with everything in it.

        Args:
            expected: The `version` of a file that you read. The file is deleted only if it still
                has this version.

        Raises:
            ToolRefused: The path does not exist, or is the root.
            VersionConflict: The file has another version; nothing was deleted.
        """
        path = self._path(path)
        self._keep_root(path, "delete")
        with self._keyed.changing():
            files = self._all()
            names = self._below(files, path)
            check_version(expected, version_of(files[path].text) if path in files else None)
            for name in names:
                self._keyed.drop(files[name].metadata["id"])
        return f"Successfully deleted {self._shown(path)}"

    def rename(self, old_path: str, new_path: str) -> str:
        """Rename a file or a directory.

        The files of a directory move one by one. Each file has either its old or its new path at
        any time.

        Raises:
            ToolRefused: The old path does not exist or is the root, or the new path exists, is
                below a file, or is within the old path.
        """
        old_path, new_path = self._path(old_path), self._path(new_path)
        self._keep_root(old_path, "rename")
        with self._keyed.changing():
            files = self._all()
            if exists(files, new_path):
                raise ToolRefused(f"The destination {self._shown(new_path)} already exists")
            moved = self._below(files, old_path)
            if new_path.startswith(f"{old_path}/"):
                raise ToolRefused(f"Cannot rename {self._shown(old_path)} to a path within itself.")
            self._check_directories(files, new_path)
            paths = {name: checked_path(new_path + name.removeprefix(old_path)) for name in moved}
            for name, path in paths.items():
                self._put(files[name].metadata["id"], path, files[name].text)
        return f"Successfully renamed {self._shown(old_path)} to {self._shown(new_path)}"

    def _shown(self, path: str) -> str:
        return self._limits.root + path.removeprefix(ROOT)

    def _path(self, path: str) -> str:
        return checked_path(path, self._limits.root)

    def _all(self, *, erase: bool = False) -> dict[str, Record]:
        """Return the current files by stored path. With `erase`, erase expired files."""
        ttl, records = self._limits.ttl, self._keyed.all()
        if ttl is not None:
            since = datetime.now(UTC) - ttl
            for record in records if erase else ():
                if record.created_at <= since:
                    self._keyed.drop(record.metadata["id"])
            records = [record for record in records if record.created_at > since]
        return {record.metadata["path"]: record for record in records}

    def _edit(self, path: str, change: Callable[[str, str], tuple[str, str]]) -> str:
        path = self._path(path)
        with self._keyed.changing():
            files = self._all(erase=True)
            record = self._file(files, path)
            text, reply = change(self._shown(path), record.text)
            redacted = self._limits.redacted(text)
            self._check_room(files, path, redacted)
            self._put(record.metadata["id"], path, redacted)
        return reply + _note(redacted != text)

    def _put(self, name: str, path: str, text: str) -> None:
        # a renamed file keeps its id, so that one write moves it
        self._keyed.put(name, text, {"id": name, "path": path}, with_session=False)

    def _keep_root(self, path: str, verb: str) -> None:
        if path == ROOT:
            raise ToolRefused(f"Cannot {verb} the {self._limits.root} directory itself")

    def _file(self, files: Mapping[str, Record], path: str) -> Record:
        if path in files:
            return files[path]
        problem = "does not exist. Please provide a valid path."
        if exists(files, path):
            problem = "is not a file."
        raise ToolRefused(f"The path {self._shown(path)} {problem}")

    def _below(self, files: Mapping[str, Record], path: str) -> list[str]:
        """Return the stored paths that equal the path or are below it. Refuse a missing path."""
        if not (paths := below(files, path)):
            raise ToolRefused(f"The path {self._shown(path)} does not exist")
        return paths

    def _check_directories(self, files: Mapping[str, Record], path: str) -> None:
        if parent := next((parent for parent in above(path) if parent in files), None):
            shown = self._shown(parent)
            raise ToolRefused(f"The path {shown} is a file and cannot contain other files.")

    def _check_new(self, files: Mapping[str, Record], path: str) -> None:
        if exists(files, path):
            raise ToolRefused(f"File {self._shown(path)} already exists")
        self._check_directories(files, path)
        self._check_count(len(files), self._limits.max_files)

    def _check_room(self, files: Mapping[str, Record], path: str, text: str) -> None:
        limits = self._limits
        if len(text) > limits.max_chars:
            raise ToolRefused(
                f"{self._shown(path)} would have {len(text)} characters; the maximum is "
                f"{limits.max_chars}. Nothing was changed. Shorten it, or write several files."
            )
        total = len(text) + sum(len(file.text) for name, file in files.items() if name != path)
        if total > limits.max_total_chars:
            raise ToolRefused(
                f"All files together would have {total} characters; the maximum is "
                f"{limits.max_total_chars}. Nothing was changed. Delete or shorten some."
            )


def _note(redacted: bool) -> str:
    return "\nPersonal data or secrets in it were replaced before saving." if redacted else ""


def run_command(files: Files, command: Mapping[str, Any] | str | None) -> str:
    """Run a model's command of the memory tool.

    Raises:
        ToolRefused: The command failed. The error's text is the reply for the model.
    """
    tool = Tool("memory", DESCRIPTION, FileCommand, lambda _, command: _run(files, command))
    return tool.call(Scope(), command)


def _run(files: Files, command: FileCommand) -> str:
    call: Callable[..., str] = getattr(files, command.command)
    needs = {
        name: parameter.default is parameter.empty
        for name, parameter in signature(call).parameters.items()
        if name in FileCommand.model_fields
    }
    arguments = {name: getattr(command, name) for name in needs}
    lacking = [name for name, needed in needs.items() if needed and arguments[name] is None]
    if lacking:
        raise ToolRefused(f"The command {command.command} also needs {' and '.join(lacking)}.")
    return call(**arguments)
