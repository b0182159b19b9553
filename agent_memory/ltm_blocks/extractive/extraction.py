"""The model calls that find facts in messages, and the conversion of the findings to claims.

A claim is the statement of one fact by one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from agent_memory.core.text import escape
from agent_memory.core.transcript import Count, split
from agent_memory.errors import ContextTooLong
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.extractive.forms import Form, ProfileForm
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Journal
from agent_memory.ltm_blocks.extractive.history.fact import Fact, listed, most_alike, unmarked
from agent_memory.ltm_blocks.extractive.history.findings import Candidate, Draft, Rules, drafts
from agent_memory.ltm_blocks.extractive.history.sources import SourceMessage, helpful
from agent_memory.ltm_blocks.extractive.settling import Existing, reconcile, settle, settle_fields
from agent_memory.ltm_blocks.extractive.storage import vectors_of, with_vectors

if TYPE_CHECKING:
    from agent_memory.models.embedders.best_effort import BestEffort
    from agent_memory.models.llm import LLM

_LEAST_TOKENS = 200
_MOST_TOKENS = 9_000
"""Maximum tokens of the messages in one call. Models overlook facts in long inputs."""
_MOST_NAME = 80  # maximum characters of the user's name
_MOST_FACTS = 15  # maximum number of known facts in a prompt
_DAY_TOKENS = 12  # maximum tokens of a line with the day
_SHARE = 0.6  # share of the context window for the prompt; the answer needs the other tokens


def ask(
    llm: LLM, form: Form, shown: Sequence[SourceMessage], count: Count, facts: Sequence[Fact] = ()
) -> list[Candidate]:
    """Return a model's findings in messages."""
    if not any(message.number is not None for message in shown):
        return []
    head = _head(shown, facts)
    names = {number: fact.id for number, fact in enumerate(facts, 1)}
    room = int(llm.context_window() * _SHARE) - count(form.prompt) - count(head)
    limit = max(_LEAST_TOKENS, min(_MOST_TOKENS, room))
    sources = helpful(shown)
    while True:
        try:
            requests = (_messages(form, head, part) for part in parts(sources, count, limit))
            answers = [llm.structured(messages, form.schema) for messages in requests]
            return [finding for answer in answers for finding in form.candidates(answer, names)]
        except ContextTooLong:
            if limit <= _LEAST_TOKENS:
                raise
            limit = max(_LEAST_TOKENS, limit // 2)


def parts(shown: Sequence[SourceMessage], count: Count, limit: int) -> Iterator[str]:
    """Yield the messages as lines below their days, in parts of at most `limit` tokens.

    Each part contains at least one numbered message: facts come only from these. A message longer
    than the limit is split, and each piece has the message's number.
    """
    lines: list[str] = []
    day, size, numbered = "", 0, False
    for message in shown:
        head, _, text = message.line().partition(": ")
        for piece in split(text, count, max(1, limit - count(head) - _DAY_TOKENS)):
            line = f"{head}: {piece}"
            cost = count(line) + (1 if message.day == day else _DAY_TOKENS)
            if lines and size + cost > limit:
                if numbered:
                    yield "\n".join(lines)
                lines, day, size, numbered = [], "", 0, False
            lines += [line] if message.day == day else [f"{message.day}:", line]
            day = message.day
            size += cost
            numbered = numbered or message.number is not None
    if numbered:
        yield "\n".join(lines)


def bearing(facts: Sequence[Fact], shown: Sequence[SourceMessage]) -> list[Fact]:
    """Return the known facts to show to the model: those that messages may repeat or change."""
    texts = [message.text for message in shown if message.number is not None]
    return [facts[at] for at in most_alike([fact.text for fact in facts], texts, _MOST_FACTS)]


def _head(shown: Sequence[SourceMessage], facts: Sequence[Fact]) -> str:
    """Return the text before the messages: the user's name and the known facts."""
    lines = []
    numbered = [message for message in shown if message.number is not None]
    who = {message.who for message in numbered if message.role == "user"}
    if len(who) == 1 and (name := who.pop()) != "user":
        lines.append(escape(f"The user is {name[:_MOST_NAME]}."))
    if facts:
        fact_lines = (f"{number}. {listed(fact)}" for number, fact in enumerate(facts, 1))
        lines += ["<known>", *map(escape, fact_lines), "</known>"]
    return "".join(f"{line}\n" for line in lines)


def _messages(form: Form, head: str, part: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": form.prompt},
        {"role": "user", "content": f"{head}<messages>\n{part}\n</messages>"},
    ]


@dataclass(frozen=True, slots=True)
class Absorbing:
    """Converts a model's findings into claims."""

    llm: LLM
    form: Form
    rules: Rules
    embedder: BestEffort
    place: tuple[str, str]  # the block and the owner, which are part of each claim's id
    facts_of: Callable[[Sequence[Claim]], Sequence[Fact]]
    shown: Collection[str] = ()  # ids of the facts that the model was shown

    def claims(
        self, findings: Sequence[Candidate], messages: Sequence[SourceMessage], journal: Journal
    ) -> tuple[list[Claim], Counter[str]]:
        """Return the claims of a batch, and the number of refused findings by reason.

        `journal` has no claims from `messages`.
        """
        findings = [replace(finding, text=unmarked(finding.text)) for finding in findings]
        shown_claims = [claim for claim in journal.claims if claim.fact in self.shown]
        drafted, refused = drafts(
            findings, messages, journal.forgotten, self.rules, self._id, shown_claims
        )
        settled, echoes = self._settled(drafted, journal)
        news = self._news(settled, journal)
        refused["echo"] += echoes + len(settled) - len(news)
        return news, +refused

    def _settled(self, drafts: Sequence[Draft], journal: Journal) -> tuple[list[Claim], int]:
        if not drafts:
            return [], 0
        weights, now = self.rules.weights, datetime.now(UTC)
        facts = [fact for fact in self.facts_of(journal.claims) if fact.why != "contradicted"]
        current = {fact.id for fact in facts if fact.is_current(now)}
        marked, vectors = with_vectors([draft.claim for draft in drafts], self.embedder)
        drafts = [replace(draft, claim=claim) for draft, claim in zip(drafts, marked, strict=True)]
        if isinstance(self.form, ProfileForm):
            return settle_fields(drafts, facts, current, weights)
        of_facts = vectors_of(facts, journal.claims, self.embedder)
        if of_facts.shape[1] != vectors.shape[1]:  # the facts or the drafts have no vectors
            of_facts, vectors = np.zeros((len(facts), 0)), vectors[:, :0]
        existing = Existing(facts, current, journal.claims, of_facts, self.shown)
        return settle(drafts, vectors, existing, weights, partial(reconcile, self.llm))

    def _news(self, settled: Sequence[Claim], journal: Journal) -> list[Claim]:
        """Drop claims of an assistant or tool if an equal or weightier role stated the fact.

        The assistant may know the fact from this memory, and the memory would then confirm itself.
        """
        weights = self.rules.weights
        weight_of: dict[str, int] = {}
        for claim in journal.claims:
            weight_of[claim.fact] = max(weight_of.get(claim.fact, 0), weights.get(claim.role, 0))
        return [
            claim
            for claim in settled
            if claim.role == "user" or weights.get(claim.role, 0) > weight_of.get(claim.fact, -1)
        ]

    def _id(self, message: SourceMessage, finding: Candidate) -> str:
        entry = message.entry
        # the dates are part of the id, since one sentence may report two journeys
        content = (finding.subject, finding.text, finding.since, finding.until)
        return record_id(*self.place, entry.session_id, entry.seq, *content)
