"""Show a user's facts, profile and audit, and forget facts."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from agent_memory.cli import common, terminal
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from agent_memory.core.records import Recall, Surplus
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.user import User
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.ltm_blocks.extractive.history.fact import Fact, Stale
    from agent_memory.ltm_blocks.extractive.history.history import Change

SessionOption = Annotated[
    str | None, Option("--session", metavar="ID", help="Only from this session.")
]
AsOfOption = Annotated[
    datetime | None, Option("--as-of", help="Facts valid at this time (UTC). Default: now.")
]
KnownAtOption = Annotated[
    datetime | None, Option("--known-at", help="Only from messages up to this time (UTC).")
]
ForgetOption = Annotated[
    bool, Option("--forget", help="Ask, then permanently forget what is shown.")
]
WhyOption = Annotated[str, Option("--why", help="The reason, for the audit.")]

_SOURCE = re.compile(r"(.+):(\d+)-(\d+)")
_SHORT = 8  # characters of an id


def _facts_block() -> Sequence[Block]:
    from agent_memory.ltm_blocks import ExtractiveMemory

    return [ExtractiveMemory()]


_with_facts = partial(common.with_memory, extra=_facts_block)


@_with_facts
def facts(
    memory: AgentMemory,
    user: common.UserOption = None,
    session: SessionOption = None,
    as_of: AsOfOption = None,
    known_at: KnownAtOption = None,
    stale: Annotated[
        bool, Option("--stale", help="Only facts not worth recalling, with the reason.")
    ] = False,
) -> None:
    """List a user's facts, each with its time and the quote it comes from."""
    owner = common.owner_of(memory, user, session)
    if stale:
        rows = ((*_row(item.fact), _reason(item)) for item in owner.stale())
        listed = terminal.table((*_COLUMNS, "why"), rows)
    else:
        current = owner.facts(
            session_id=session, as_of=common.moment_of(as_of), known_at=common.moment_of(known_at)
        )
        listed = terminal.table(_COLUMNS, map(_row, current))
    terminal.show(listed, "No facts.")


@_with_facts
def profile(
    memory: AgentMemory,
    user: common.UserOption = None,
    session: SessionOption = None,
    as_of: AsOfOption = None,
    known_at: KnownAtOption = None,
) -> None:
    """Print a user's profile as JSON."""
    owner = common.owner_of(memory, user, session)
    current = owner.profile(as_of=common.moment_of(as_of), known_at=common.moment_of(known_at))
    typer.echo(current.model_dump_json(indent=2))


@_with_facts
def audit(
    memory: AgentMemory, user: common.UserOption = None, session: SessionOption = None
) -> None:
    """List every change to a user's facts with its reason, oldest first."""
    rows = map(_change_row, common.owner_of(memory, user, session).audit())
    columns = ("when", "what", "fact", "text", "why", "messages")
    terminal.show(terminal.table(columns, rows), "No changes.")


def _change_row(change: Change) -> Sequence[str]:
    last = f"-{change.last}" if change.last > change.first else ""
    messages = f"{change.session_id} #{change.first}{last}"
    fact, text = (change.fact or terminal.NOTHING)[:_SHORT], change.text or terminal.NOTHING
    return (f"{change.at:%Y-%m-%d %H:%M}", change.what, fact, text, change.why, messages)


@_with_facts
def forget(
    memory: AgentMemory,
    fact: Annotated[
        str | None, Argument(help="A fact's id, or the beginning of the id; needs --user.")
    ] = None,
    user: common.UserOption = None,
    source: Annotated[
        str | None,
        Option(
            metavar="SESSION[:FIRST-LAST]",
            help="Instead: all facts from a session, or from a range of its messages.",
        ),
    ] = None,
    why: WhyOption = "",
) -> None:
    """Forget a fact or all facts from a session. Facts that these superseded become valid again."""
    match = _SOURCE.fullmatch(source) if source else None
    part = (match[1], int(match[2]), int(match[3])) if match else source
    owner = common.owner_of(memory, user, match[1] if match else source)
    if fact is not None and part is None:
        fact = _whole_id(fact, {change.fact for change in owner.audit() if change.fact})
    forgotten = owner.forget(fact, source=part, why=why)
    terminal.show(terminal.table(_COLUMNS, map(_row, forgotten)), "There is no such fact.")
    if forgotten:
        terminal.say("Forgotten. The messages are still in the log.", "dim")


_COLUMNS = ("id", "time", "fact", "role", "quote", "messages")


def _row(fact: Fact) -> Sequence[str | Text]:
    messages = ", ".join(f"{of} #{seq}" for of, seq in fact.sources)
    quote = terminal.cell(fact.quote, "dim")
    return (_short(fact), fact.time, fact.text, fact.role, quote, messages)


def _whole_id(begun: str, ids: set[str]) -> str:
    """Return the only id with this prefix, or the prefix itself if no id has it."""
    matches = sorted(name for name in ids if name.startswith(begun))
    if len(matches) > 1:
        raise InvalidInput(f"Several facts have ids beginning with {begun!r}. Give more of the id.")
    return matches[0] if matches else begun


@common.with_memory
def surplus(
    memory: AgentMemory,
    user: common.UserOption = None,
    session: Annotated[
        str | None, Option(metavar="ID", help="Use the memory of this session's user.")
    ] = None,
    older_than: Annotated[
        str | None, Option(metavar="TIME", help="Include records older than TIME: 30d, 12h, 15m.")
    ] = None,
    messages: Annotated[
        bool, Option("--messages", help="Include messages; --forget removes them from the log.")
    ] = False,
    forget: ForgetOption = False,
    why: WhyOption = "",
    yes: common.YesOption = False,
) -> None:
    """Report near-duplicates and old records. Changes nothing without --forget."""
    age = common.how_long("--older-than", older_than)
    owner = common.owner_of(memory, user, session)
    report = owner.surplus(older_than=age, messages=messages)
    columns = ("id", "why", "block", "time", "text", "source", "what stays")
    listed = terminal.table(columns, map(_surplus_row, report))
    terminal.show(listed, "There are no near-duplicates and no old records.")
    if forget:
        forget_shown(owner, report, messages=messages, why=why, yes=yes)


def forget_shown(
    owner: User, records: Sequence[Recall | Surplus], *, messages: bool, why: str, yes: bool
) -> None:
    """Ask, then forget the shown records. With `messages`, also remove messages from the logs."""
    if not records:
        return
    if not yes:
        logs = ", and remove messages from their logs" if messages else ""
        typer.confirm(f"Permanently forget these {len(records)}{logs}?", abort=True)
    forgotten = owner.forget_all(records, messages=messages, why=why)
    text = f"{len(forgotten)} of {len(records)} forgotten."
    if len(forgotten) < len(records) and not messages:
        text += " The other records are messages, which stay in the log without --messages."
    terminal.say(text)


def _surplus_row(item: Surplus) -> Sequence[str | Text]:
    recall, of = item.recall, item.of
    at = f"{recall.created_at:%Y-%m-%d %H:%M}" if recall.created_at else ""
    row = (_short(recall), _reason(item), recall.block, at, recall.text, terminal.sources(recall))
    return (*row, terminal.cell(of.text if of else "", "dim"))


def _reason(item: Stale | Surplus) -> str:
    return item.why if item.of is None else f"{item.why} of {_short(item.of)}"


def _short(item: Fact | Recall) -> str:
    """Return the first characters of an id. Ids of messages in the log are not shortened."""
    return item.id if item.block == "log" else item.id[:_SHORT]
