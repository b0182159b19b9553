"""From what a model found in a batch of messages to the claims that are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.extractive.filling import settle_fields
from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Journal
from agent_memory.ltm_blocks.extractive.history.drafting import Draft, Rules, drafts
from agent_memory.ltm_blocks.extractive.history.fact import Fact, unmarked
from agent_memory.ltm_blocks.extractive.history.sources import Said
from agent_memory.ltm_blocks.extractive.meanings import Meanings
from agent_memory.ltm_blocks.extractive.profiles import ProfileForm
from agent_memory.ltm_blocks.extractive.reconciling import reconcile
from agent_memory.ltm_blocks.extractive.settling import Known, settle

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.extractive.forms import Form
    from agent_memory.models.llm import LLM


@dataclass(frozen=True, slots=True)
class Absorbing:
    """How findings become claims.

    Attributes:
        llm: The model.
        form: What it was asked for.
        rules: What is kept.
        meanings: Makes vectors.
        place: What the ids of claims begin with: block and owner.
        facts_of: What claims add up to, all of them.
        seen: Ids of the facts that the model had before it.
    """

    llm: LLM
    form: Form
    rules: Rules
    meanings: Meanings
    place: tuple[str, str]
    facts_of: Callable[[Sequence[Claim]], Sequence[Fact]]
    seen: Collection[str] = ()

    def claims(
        self, found: Sequence[Candidate], shown: Sequence[Said], journal: Journal
    ) -> tuple[list[Claim], Counter[str]]:
        """The claims of a batch, and how many findings are refused, by the reason.

        Args:
            found: What the model found.
            shown: In which messages.
            journal: What is known, without what came of these messages before.
        """
        found = [replace(one, text=unmarked(one.text)) for one in found]
        drafted, refused = drafts(found, shown, journal.forgotten, self.rules, self._id)
        settled, echoes = self._settled(drafted, journal)
        kept = self._news(settled, journal)
        refused["echo"] += echoes + len(settled) - len(kept)
        return kept, +refused

    def _settled(self, drafted: Sequence[Draft], journal: Journal) -> tuple[list[Claim], int]:
        if not drafted:
            return [], 0
        weights, now = self.rules.weights, datetime.now(UTC)
        facts = [fact for fact in self.facts_of(journal.claims) if fact.why != "contradicted"]
        current = {fact.id for fact in facts if fact.is_current(now)}
        marked, vectors = self.meanings.marked([draft.claim for draft in drafted])
        drafted = [replace(one, claim=claim) for one, claim in zip(drafted, marked, strict=True)]
        if isinstance(self.form, ProfileForm):
            return settle_fields(drafted, facts, current, weights)
        of_known = self.meanings.of_facts(facts, journal.claims)
        if of_known.shape[1] != vectors.shape[1]:  # one of the two could not be had
            of_known, vectors = np.zeros((len(facts), 0)), vectors[:, :0]
        known = Known(facts, current, journal.claims, of_known, self.seen)
        return settle(drafted, vectors, known, weights, partial(reconcile, self.llm))

    def _news(self, settled: Sequence[Claim], journal: Journal) -> list[Claim]:
        """Without the claims by which an assistant or a tool says again what was known: memory may
        have told them, and would be its own evidence."""
        weights = self.rules.weights
        known: dict[str, int] = {}
        for one in journal.claims:
            known[one.fact] = max(known.get(one.fact, 0), weights.get(one.role, 0))
        return [
            one
            for one in settled
            if one.role == "user" or weights.get(one.role, 0) > known.get(one.fact, -1)
        ]

    def _id(self, said: Said, one: Candidate) -> str:
        entry = said.entry
        told = (one.subject, one.text, one.since, one.until)  # two journeys may be told in one
        return record_id(*self.place, entry.session_id, entry.seq, *told)
