"""What is known of the user: search, facts, profile, audit, and forgetting."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from agent_memory.engine.recall.filtering import Filter
from agent_memory.errors import InvalidInput
from agent_memory.server.operation import At, Form, SessionId, operation
from agent_memory.server.paging import MOST, Paged, cut, page_of, place_of
from agent_memory.server.problems import not_found
from agent_memory.server.views import known, talk
from agent_memory.server.views.showing import shown

Question = Annotated[str, Field(min_length=1, max_length=20_000, description="In words.")]
Why = Annotated[str, Field(max_length=1_000, description="What the audit is to say.")]


class Search(Form):
    """What to look for, and where."""

    query: Question
    session_id: SessionId | None = Field(None, description="Only what comes from this session.")
    limit: int = Field(10, ge=1, le=MOST, description="At most so many.")
    blocks: list[str] | None = Field(None, description="Only what these blocks recall.")
    roles: list[str] | None = Field(None, description="Only what comes from these roles.")
    since: AwareDatetime | None = Field(None, description="Only what was said then or later.")
    until: AwareDatetime | None = Field(None, description="Only what was said before.")
    where: dict[str, Any] | None = Field(
        None, description="What the metadata of the messages must have."
    )
    least: float | None = Field(None, description="Only what has this score.")


class Explain(Form):
    """A question."""

    question: Question
    session_id: SessionId | None = Field(None, description="In which chat; null for a new one.")


class Moments(Form):
    """As of when."""

    as_of: AwareDatetime | None = Field(None, description="What held then; now without it.")
    known_at: AwareDatetime | None = Field(None, description="By what had been said by then.")


class ListFacts(Moments, Paged):
    """Which facts."""

    session_id: SessionId | None = Field(None, description="Only what comes from this session.")
    superseded: bool = Field(
        False, description="Also facts whose place another took: the whole history."
    )


class ForgetFact(Form):
    """A fact to forget."""

    fact_id: str = Field(min_length=1, max_length=400)
    why: Why = ""


class Forget(Form):
    """A session, or a part of it, whose facts are to be forgotten."""

    session_id: SessionId
    first: int | None = Field(None, ge=1, description="From this message on; else all of it.")
    last: int | None = Field(None, ge=1, description="Up to this one; else `first` alone.")
    why: Why = ""


@operation("POST", "/search", "read")
def search(at: At, asked: Search) -> talk.Searched:
    """Search what is remembered of the user, best first. What was said a moment ago is found."""
    session_id = None if asked.session_id is None else at.to_read(asked.session_id)
    only = Filter.of(asked.blocks, asked.roles, asked.since, asked.until, asked.where, asked.least)
    found, warnings = at.memory.components.search.run(
        asked.query, at.user_id, session_id, asked.limit, only
    )
    return talk.Searched([talk.recalled(one) for one in found], warnings)


@operation("POST", "/explain", "read")
def explain(at: At, asked: Explain) -> talk.Explained:
    """Tell what would be recalled for a question, what is left out, and why. Stores nothing."""
    session_id = None if asked.session_id is None else at.to_read(asked.session_id)
    found = at.memory.explain(asked.question, user_id=at.user_id, session_id=session_id)
    return talk.explained(found)


@operation("GET", "/facts", "read")
def list_facts(at: At, asked: ListFacts) -> known.Facts:
    """List the user's facts, in the order in which they were said, with what each rests on."""
    session_id = None if asked.session_id is None else at.to_read(asked.session_id)
    found = at.user.facts(
        session_id=session_id,
        as_of=asked.as_of,
        known_at=asked.known_at,
        superseded=asked.superseded,
    )
    page, more = page_of(found, asked, lambda fact: fact.id)
    return known.Facts([fact_view(one) for one in page], len(found), more)


@operation("DELETE", "/facts/{fact_id}", "delete")
def forget_fact(at: At, asked: ForgetFact) -> known.Forgotten:
    """Forget a fact for good. The messages stay."""
    gone = at.user.forget(asked.fact_id, why=asked.why)
    if not gone:
        raise not_found()
    return known.Forgotten([one.id for one in gone])


@operation("POST", "/forget", "delete")
def forget(at: At, asked: Forget) -> known.Forgotten:
    """Forget all facts that come from a session, or from a part of it. The messages stay."""
    session_id = at.own(asked.session_id)
    if asked.first is None and asked.last is not None:
        raise InvalidInput("Say from which message on: give `first` with `last`.")
    first, last = asked.first, asked.last or asked.first
    source = session_id if first is None or last is None else (session_id, first, last)
    return known.Forgotten([one.id for one in at.user.forget(source=source, why=asked.why)])


@operation("GET", "/profile", "read")
def read_profile(at: At, asked: Moments) -> known.Profile:
    """Give the user's profile, as it stands or stood."""
    found = at.user.profile(as_of=asked.as_of, known_at=asked.known_at)
    return known.Profile(found.model_dump(mode="json"))


@operation("GET", "/audit", "read")
def list_changes(at: At, asked: Paged) -> known.Audit:
    """List every change to what is known of the user, oldest first, with the why."""
    found, after = at.user.audit(), place_of(asked.after)
    numbered = list(enumerate(found, 1))[after : after + asked.limit + 1]
    page, more = cut(numbered, asked.limit, lambda one: str(one[0]))
    return known.Audit([change_view(one) for _, one in page], len(found), more)


def fact_view(fact: Any) -> known.Fact:
    """A fact, as the service tells it."""
    evidence = [shown(known.Evidence, one) for one in fact.evidence]
    return shown(known.Fact, fact, evidence=evidence)


def change_view(change: Any) -> known.Change:
    """A change, as the service tells it."""
    said = change.evidence
    evidence = None if said is None else shown(known.Evidence, said)
    return shown(known.Change, change, evidence=evidence)
