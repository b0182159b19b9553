"""What a model is told of its files, word for word, in two profiles: as Anthropic's Python SDK does
(`SDK`), and as the public description of the memory tool does (`DOC`). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Replies:
    """The sentences of one profile, as format strings, and what listings leave out.

    Attributes:
        listing: Stands above a directory's files.
        directory_mark: Stands behind a directory's name in a listing.
        left_out: Names that listings leave out, beside those that begin with a dot.
        round_sizes: Whether a size of 2,048 bytes is told as 2K, rather than 2.0K.
        content: Stands above a file's lines.
        too_many_lines: A file has more lines than can be numbered.
        missing: There is nothing to view.
        created: A file was created.
        exists: It is there already.
        replaced: A text was replaced; the lines around it follow.
        missing_to_replace: There is no file to replace a text in.
        folder_to_replace: It is a directory.
        not_found: The text to replace is not in the file.
        not_unique: It is there more than once.
        inserted: A text was inserted.
        missing_to_insert: There is no file to insert into.
        folder_to_insert: It is a directory.
        bad_line: The file does not have such a line.
        deleted: A file or directory was deleted.
        renamed: A file or directory was renamed.
        missing_to_move: There is nothing to delete or rename.
        taken: There is something already where it was to be renamed to.
        keep_root: The root can be neither deleted nor renamed.
    """

    listing: str
    directory_mark: str
    left_out: tuple[str, ...]
    round_sizes: bool
    content: str
    too_many_lines: str
    missing: str
    created: str
    exists: str
    replaced: str
    missing_to_replace: str
    folder_to_replace: str
    not_found: str
    not_unique: str
    inserted: str
    missing_to_insert: str
    folder_to_insert: str
    bad_line: str
    deleted: str
    renamed: str
    missing_to_move: str
    taken: str
    keep_root: str


SDK = Replies(
    listing=(
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    ),
    directory_mark="/",
    left_out=(),
    round_sizes=True,
    content="Here's the content of {path} with line numbers:",
    too_many_lines="File {path} exceeds maximum line limit of 999,999 lines.",
    missing="The path {path} does not exist. Please provide a valid path.",
    created="File created successfully at: {path}",
    exists="File {path} already exists",
    replaced=(
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):"
    ),
    missing_to_replace="The path {path} does not exist. Please provide a valid path.",
    folder_to_replace="The path {path} is not a file.",
    not_found=(
        "No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}."
    ),
    not_unique=(
        "No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: "
        "{lines}. Please ensure it is unique"
    ),
    inserted="The file {path} has been edited.",
    missing_to_insert="The path {path} does not exist. Please provide a valid path.",
    folder_to_insert="The path {path} is not a file.",
    bad_line=(
        "Invalid `insert_line` parameter: {line}. It should be within the range [0, {last}]."
    ),
    deleted="Successfully deleted {path}",
    renamed="Successfully renamed {path} to {new_path}",
    missing_to_move="The path {path} does not exist",
    taken="The destination {path} already exists",
    keep_root="Cannot {verb} the /memories directory itself",
)

DOC = replace(
    SDK,
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
