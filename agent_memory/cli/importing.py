"""`import` and `cost`: bring chats of other programs into a memory, or estimate their cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from agent_memory.cli import common, terminal
from agent_memory.errors import InvalidInput, InvalidMessage
from agent_memory.integrations.imports import From

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.messages import Message
    from agent_memory.integrations.costing import Bill, Chat
    from agent_memory.integrations.imports.conversations import Imported

_FEW = 5
_LONGEST = 2**28  # maximum bytes of a line in a log


@common.with_settings
def import_(
    settings: AgentMemoryConfig,
    file: Annotated[Path, Argument(exists=True, help="A file, a zip, or a folder.")],
    session: Annotated[
        str | None, Argument(help="The session to append a chat log in JSON lines to.")
    ] = None,
    source: Annotated[From | None, Option("--from", help="The source of the chats.")] = None,
    user: common.UserOption = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be imported.")] = False,
    yes: common.YesOption = False,
    deleted: Annotated[
        bool, Option("--deleted", help="Also import sessions that were deleted here.")
    ] = False,
    assign: Annotated[
        bool,
        Option("--assign", help="Assign sessions that were imported without a user to --user."),
    ] = False,
) -> None:
    """Import chats: an export or database of another program, or a log in JSON lines.

    With --from, each conversation becomes a session, with its times and branches. Unreadable items
    are listed, and the command then exits with 1. Items that were imported before are not stored
    again. No model is called.

    With SESSION, the lines of FILE (role and content) are appended to that session.
    `created_at`, `create_time` or `timestamp` is a message's time. `id` and `session_id` go into
    its metadata. For files of `snapshot`, use `restore`.
    """
    if (session is None) == (source is None):
        text = "Pass either --from with the source of FILE, or the SESSION to append a log to"
        raise InvalidInput(f"{text}. Sources: {', '.join(From)}.")
    if source is None:
        assert session is not None
        _append(file, session, user, settings, dry_run=dry_run)
    else:
        how = {"deleted": deleted, "assign": assign}
        _bring(file, source, user, settings, how, dry_run=dry_run, yes=yes)


def _bring(
    file: Path,
    source: From,
    user: str | None,
    settings: AgentMemoryConfig,
    how: dict[str, bool],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    from agent_memory.integrations.importing import import_chats, preview

    if dry_run or not yes:
        with _read(file, "reading") as progress:
            report = preview(file, source, user_id=user, progress=progress)
        _show(report)
        if not report.messages and not report.notes:
            raise InvalidInput(f"{file} has no readable chats of {source}.")
        if user is None:
            terminal.note("No --user: a session without a user is not recalled in other sessions.")
        if dry_run:
            _list(report, len(report.unread))
            return
        _list(report, _FEW)
        typer.confirm("Import this?", abort=True)
    # background threads would call models during the import
    settings = settings.model_copy(update={"overflow_mode": "inline"})
    with (
        common.resumable(),
        common.open_memory(settings, create=True) as memory,
        _read(file, "importing") as progress,
    ):
        done = import_chats(memory, file, source, user_id=user, progress=progress, **how)
    _print_result(done, user)
    _list(done, len(done.unread))
    if done.failed:
        raise typer.Exit(common.FAILED)


def _show(report: Imported) -> None:
    parts = [f"{report.sessions:,} sessions", f"{report.messages:,} messages"]
    if report.notes:
        parts.append(f"{report.notes:,} notes")
    text = ", ".join(parts)
    if report.first is not None and report.last is not None:
        text += f", from {report.first:%Y-%m-%d} to {report.last:%Y-%m-%d}"
    terminal.say(f"{text}.")
    for kind, count in report.left_out.most_common():
        terminal.say(f"Left out: {count:,} {kind}.")


def _print_result(done: Imported, user: str | None) -> None:
    text = f"{done.new_messages:,} messages imported, in {done.new_sessions:,} new sessions"
    text += f"; {done.new_notes:,} notes." if done.notes else "."
    terminal.say(text)
    if not done.messages and not done.notes and not done.failed:
        terminal.say("There is nothing to import.")
    elif not done.new_messages and not done.new_notes and not done.failed and not done.deleted:
        terminal.say("Everything was imported before.")
    if done.assigned:
        terminal.say(f"{done.assigned:,} sessions belong to {user} now.")
    if done.deleted:
        text = "sessions were deleted here and not imported: --deleted imports them."
        terminal.note(f"{done.deleted:,} {text}")
    for owner, count in done.elsewhere.most_common():
        if owner is None:
            text = f"were imported without a user. --assign assigns them to {user}."
        else:
            text = f"belong to {owner}. To move them, delete them and import again with --deleted."
        terminal.note(f"{count:,} sessions {text}")
    if done.new_messages or done.assigned:
        terminal.say(
            "The messages can be recalled now. To extract facts from them: agent-memory flush"
        )


def _list(report: Imported, most: int) -> None:
    if not report.failed:
        return
    terminal.note(f"{report.failed:,} could not be read or stored:", "red")
    for item in report.unread[:most]:
        terminal.note(str(item), "")
    if report.failed > most:
        terminal.note(f"... and {report.failed - most:,} more.", "")


@contextmanager
def _read(file: Path, what: str) -> Iterator[Callable[[int], object]]:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from agent_memory.integrations.importing import size_of

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with terminal.progress_bar(*columns) as progress:
        task = progress.add_task(what, total=size_of(file))
        yield lambda count: progress.advance(task, count)


def _append(
    file: Path, session: str, user: str | None, settings: AgentMemoryConfig, *, dry_run: bool
) -> None:
    """Append a log to one session.

    A message's key is the digest of the log up to this message. Within `keep_keys`, a repeated
    import of the log, or of a longer log, stores no message twice.
    """
    from agent_memory.core.idempotency import digest_of

    if file.is_dir():
        raise InvalidInput(f"{file} is a folder. Name the source of its chats with --from.")
    lines = read_lines(file)
    if dry_run:
        terminal.say(f"{len(lines)} messages for {session}.")
        return
    digest = sha256()
    with common.open_memory(settings, create=True) as memory, terminal.progress_bar() as progress:
        before = memory.update(session, []).end
        for done, (where, message) in enumerate(progress.track(lines, description="importing")):
            digest.update(digest_of([message]).encode())
            key = f"import {digest.hexdigest()}"
            try:
                memory.update(session, message, user_id=user, key=key)
            except InvalidInput as error:
                text = f"{where}: {error} The {done} earlier messages were imported."
                raise InvalidInput(text) from None
        head = common.head_of(memory, session)
    new = head.end - before
    text = f"{new} messages imported as #{before + 1} to #{head.end} of {session}."
    if new < len(lines):
        text = f"{len(lines) - new} of {len(lines)} messages were imported before. " + (
            text if new else "Nothing is new."
        )
    terminal.say(text)


def read_lines(path: Path) -> list[tuple[str, Message]]:
    """Read all messages of a log in JSON lines, each with its place in the file.

    A line is an object in the form of an OpenAI chat message. The object's `created_at`,
    `create_time` or `timestamp` is the message's time. Its `id` and `session_id` go into the
    message's metadata. A line that is not a message, or is longer than 256 MiB, is refused.
    """
    from agent_memory.integrations.imports.conversations import Unread
    from agent_memory.integrations.imports.files import SourceFiles, lines

    messages: list[tuple[str, Message]] = []
    for file in SourceFiles(path).files("*.jsonl"):
        for part in [file] if isinstance(file, Unread) else lines(file, _LONGEST):
            if isinstance(part, Unread):
                raise InvalidInput(f"{part}.")
            try:
                messages.append((part.where, _message(part.value)))
            except InvalidMessage as error:
                raise InvalidInput(f"{part.where}: {error}") from None
    if not messages:
        raise InvalidInput(f"{path.name} has no messages. Write one JSON object per line.")
    return messages


def _message(fields: Any) -> Message:
    from agent_memory.core.messages import Message
    from agent_memory.core.timestamps import TIMES, parse_time

    if not isinstance(fields, dict):
        raise InvalidMessage('not an object. Write {"role": "user", "content": "..."}.')
    for key in TIMES:
        time = fields.get(key)
        if fields.get("created_at") is None and time is not None and parse_time(time) is None:
            raise InvalidMessage(
                f"the message's `{key}` {time!r} is not a time. Use epoch seconds, or ISO 8601 "
                'such as "2026-03-01T12:00:00+00:00".'
            )
    notes = {key: fields.pop(key) for key in ("id", "session_id") if key in fields}
    metadata = fields.get("metadata")
    if notes and (metadata is None or isinstance(metadata, dict)):
        fields["metadata"] = {**notes, **(metadata or {})}
    return Message.of(fields)


def cost(
    file: Annotated[Path, Argument(exists=True, help="A file, a zip, or a folder.")],
    source: Annotated[
        From | None, Option("--from", help="The source of the chats. Default: a log in JSON lines.")
    ] = None,
    model: common.ModelOption = None,
    max_tokens: Annotated[
        int, Option(metavar="N", min=64, help="The token budget of a context.")
    ] = 4_000,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    config: common.ConfigOption = None,
) -> None:
    """Estimate a chat log's calls, tokens, cost and recalled tokens under each strategy.

    No model is called, and nothing is stored. Each answer in FILE counts as one call, with the
    prompt that `get` would return. The memory's own calls for summaries and facts are estimates,
    marked "~". The cost needs a --model whose price litellm knows, or the setting `prices`.
    """
    from agent_memory.integrations.costing import STRATEGIES, costs

    settings = common.load_config(None, config, model=model)
    model = settings.model
    chat = _chat(file, source)
    with terminal.progress_bar() as progress:
        task = progress.add_task("pricing", total=len(chat) * len(STRATEGIES))
        bills = list(
            costs(
                chat,
                model=model,
                max_tokens=max_tokens,
                prices=settings.prices,
                progress=lambda count: progress.advance(task, count),
            )
        )
    if not as_json:
        _print_table(chat, bills, model, max_tokens)
        return
    summary = {
        "messages": len(chat),
        "sessions": len({session for session, _ in chat}),
        "model": model,
        "max_tokens": max_tokens,
        "strategies": [{**asdict(bill), "is_estimated": bill.is_estimated} for bill in bills],
    }
    typer.echo(json.dumps(summary, ensure_ascii=False, indent=2))


def _chat(file: Path, source: From | None) -> Chat:
    from agent_memory.integrations.costing import read_chat

    if source is not None:
        return read_chat(file, source)
    messages = (message for _, message in read_lines(file))
    return [(str(message.metadata.get("session_id", "one")), message) for message in messages]


def _print_table(chat: Chat, bills: Sequence[Bill], model: str | None, max_tokens: int) -> None:
    from rich.table import Table

    setup = f"{model or 'no model named'}, contexts of {max_tokens:,} tokens"
    answers = f"{bills[0].calls:,} answers of {bills[0].completion_tokens:,} tokens in all"
    table = Table(title=f"{len(chat):,} messages, {answers}: {setup}")
    table.add_column("strategy", no_wrap=True)
    for name in ("sent", "of it recalled", "calls of memory", "their tokens", "US $"):
        table.add_column(name, justify="right")
    for bill in bills:
        own = "~" if bill.memory_calls else ""
        recalled = "?" if bill.recalled_tokens is None else f"{bill.recalled_tokens:,}"
        money = "?" if bill.cost is None else f"{own}{bill.cost:,.4f}"
        memory = (f"{own}{bill.memory_calls:,}", f"{own}{bill.memory_tokens:,}")
        table.add_row(bill.strategy, f"{bill.prompt_tokens:,}", recalled, *memory, money)
    terminal.out().print(table)
    terminal.say(
        '"~" marks estimates. "?" marks unknown values. Discounts for cached prompts are left out.'
    )
