"""`ExtractiveMemory`: facts that a language model extracts from messages, and their history."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, Field, ImportString, PrivateAttr, model_validator

from agent_memory.core.cache import Cache
from agent_memory.core.fusion import with_pinned
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, LeftOut, Recall, Record, Scope, Source, Span
from agent_memory.core.redaction import Redactor
from agent_memory.core.settings_model import Duration
from agent_memory.errors import ModelRequired
from agent_memory.ltm_blocks.base import FactBlock, Resources, by_owner, record_id, with_successors
from agent_memory.ltm_blocks.extractive.forms import FactForm, Form, ProfileForm, prompt_version
from agent_memory.ltm_blocks.extractive.history.claims import Batch, Claim, Journal
from agent_memory.ltm_blocks.extractive.history.fact import (
    Fact,
    ImportanceScorer,
    Stale,
    StalenessDetector,
)
from agent_memory.ltm_blocks.extractive.history.findings import Rules
from agent_memory.ltm_blocks.extractive.history.history import Change, changes, facts_of
from agent_memory.ltm_blocks.extractive.history.sources import sources
from agent_memory.ltm_blocks.extractive.storage import (
    Keeper,
    checked_record,
    tombstone_of,
    vectors_of,
)
from agent_memory.ltm_blocks.llm_reranker import FactChooser
from agent_memory.ltm_blocks.registry import Tombstone
from agent_memory.ltm_blocks.versions import MOST_RECORDS, Version, erase, version_of
from agent_memory.models.embedders.best_effort import BestEffort
from agent_memory.models.loading import load_litellm

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.extractive.recalling import Remembered
    from agent_memory.models.llm import LLM

logger = logging.getLogger(__name__)

Role = Literal["user", "assistant", "tool"]
_BY_WEIGHT: tuple[Role, ...] = ("tool", "assistant", "user")


class ExtractiveMemory(FactBlock):
    """Stores facts about the user. A fact has quotes of its sources, and the time when it is true.

    One structured model call finds the facts of a batch, and relates them to known facts in the
    prompt. A long batch needs several calls. One more call follows only if new facts resemble other
    known facts. Facts without content, and facts whose quote is not in the message, are refused.
    Nothing is overwritten: the block stores every statement. From the statements, it derives the
    current facts, or the facts as they were known at an earlier time; see docs/facts.md.

    Attributes:
        roles: Roles whose messages may yield facts. Before each of these messages, the model also
            sees the end of the other speaker's message, so that "yes, the second" has a meaning.
            Tool results are shown only if "tool" is listed.
        overrule: Whether each role may change the facts of all roles. By default, a role changes no
            fact of a weightier role: "user" weighs most, then "assistant", then "tool".
        prompt: Your own instructions. In them, `{categories}` stands for the categories. With a
            profile, `{fields}` stands for its fields.
        model: A litellm model instead of the configured one.
        profile: A pydantic model to fill instead of extracting free facts, or its location as
            "module.Name". Each field needs a default.
        categories: Store only facts of these categories.
        refuse_categories: Store no facts of these categories.
        min_confidence: Minimum confidence of facts to store, as the model states it.
        redact: Redacts each text before it is stored or sent to the model: a `Redactor`, a
            function, or its location as "module.name".
        scorer: The weights by which recalls are ranked.
        staleness: The rules by which facts are too old, or too similar to others, to be recalled.
        ttl: For each category, how long a fact is recalled, counted from its last statement or its
            end, whichever is later.
        superseded: Whether to also recall superseded facts. Their texts are marked.
        choose: An LLM reranker for the facts.
    """

    selective = True

    kind: Literal["extractive"] = "extractive"
    roles: tuple[Role, ...] = Field(default=("user",), min_length=1)
    overrule: bool = False
    prompt: str | None = None
    model: str | None = None
    profile: ImportString[type[BaseModel]] | None = None
    categories: tuple[str, ...] = ()
    refuse_categories: tuple[str, ...] = ()
    min_confidence: float = Field(default=0.3, ge=0, le=1)
    redact: Redactor | ImportString[Callable[[str], str]] | None = None
    scorer: ImportanceScorer = ImportanceScorer()
    staleness: StalenessDetector = StalenessDetector()
    ttl: Mapping[str, Duration] = Field(default_factory=dict)
    superseded: bool = False
    choose: FactChooser | None = None

    _remembering: Cache[str, tuple[Version, Remembered]] = PrivateAttr()
    _keeper: Keeper = PrivateAttr()
    _embedder: BestEffort = PrivateAttr()

    @model_validator(mode="after")
    def _profile_has_defaults(self) -> Self:
        if self.profile is not None:
            ProfileForm(self.profile, self.prompt)
        return self

    @property
    def counts_recalls(self) -> bool:
        return self.scorer.recalled > 0

    def recalled(self, scope: Scope, ids: Sequence[str]) -> None:
        existing = {fact.id for fact in self._remembered(scope.owner).facts}
        self._keeper.count(scope.owner, ids, existing)

    @property
    def language_models(self) -> tuple[str | None, ...]:
        return (self.model,) if self.choose is None else (self.model, self.choose.model)

    def load(self) -> None:
        if self.choose is not None:
            load_litellm()

    def bind(self, resources: Resources) -> Self:
        bound = super().bind(resources)
        bound._remembering = Cache(MOST_RECORDS, lambda entry: len(entry[1].facts))
        bound._keeper = Keeper(resources.store, self.name)
        bound._embedder = BestEffort(lambda: resources.embedders(None))
        return bound

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Extract the facts of one session's entries, and relate them to known facts.

        Raises:
            ModelRequired: No language model is configured.
            ModelError: The model failed; nothing was changed.
        """
        from agent_memory.ltm_blocks.extractive.extraction import Absorbing, ask, bearing

        llm, form, embedder = self._llm(), self._form, self._embedder
        shown = sources(entries, self.roles, self.redact)
        span = Span(entries[0].session_id, entries[0].seq, entries[-1].seq)
        facts: list[Fact] = []
        if form.compares:
            stored = self._all(self._keeper.read(scope.owner, without=span).claims)
            facts = bearing(_current(stored, datetime.now(UTC)), shown)
        findings = ask(llm, form, shown, self.resources.counter.text, facts)
        if self.redact is not None:
            findings = [
                replace(item, text=self.redact(item.text), subject=self.redact(item.subject))
                for item in findings
            ]
        rules = Rules(
            self._weights, _folded(self.categories), _folded(self.refuse_categories),
            self.min_confidence, llm.model, prompt_version(form),
        )  # fmt: skip
        place, shown_ids = (self.name, scope.owner), [fact.id for fact in facts]
        absorbing = Absorbing(llm, form, rules, embedder, place, self._all, shown_ids)
        # one batch at a time for each user: new facts depend on known facts
        with self.resources.locked(record_id("facts", self.name, scope.owner)):
            journal = self._keeper.read(scope.owner, without=span)
            claims, refused = absorbing.claims(findings, shown, journal)
            at, count = entries[-1].created_at, len(findings)
            batch = Batch(*span, at, llm.model, rules.prompt, count, dict(refused))
            self._keeper.write(scope.owner, span, claims, batch, scope.lease)
        if refused:
            logger.info("block %r refused %s of %d findings", self.name, dict(refused), count)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        now = datetime.now(UTC)
        remembered = self._remembered(scope.owner)
        hidden = self._hidden(remembered, now)
        shown = [place for place in range(len(remembered.facts)) if place not in hidden]
        question = message.text().strip() if message else ""
        if not shown:
            return []
        is_message = scope.in_context
        query = self._embedder.query(question, is_message=is_message) if question else None
        if scope.pinned:
            scope = replace(scope, pinned=with_successors(scope.pinned, remembered.facts))
        pinned = [place for place in shown if remembered.facts[place].id in scope.pinned]
        pins = remembered.recalls(pinned, query, self.scorer, now, limit)
        least = scope.floor * self.resources.min_relevance
        counts = self._keeper.recalled(scope.owner) if self.counts_recalls else {}
        choose = self.choose if scope.floor > 0 else None
        if query and choose is None:
            relevance = remembered.index.relevance(query)
            shown = [place for place in shown if relevance[place] >= least]
        most = limit if choose is None else max(limit, choose.most)
        best = remembered.recalls(shown, query, self.scorer, now, most, counts)
        if choose is not None:
            best = choose.choose(self.resources, question, best)
        return with_pinned(best, pins, scope, limit)

    def outdated(self, scope: Scope, sources: Collection[Source]) -> Mapping[Source, datetime]:
        """Return the messages whose facts have all been superseded; see `Block.outdated`."""
        since = self._remembered(scope.owner).outdated(datetime.now(UTC))
        return {source: since[source] for source in sources if source in since}

    def left_out(self, scope: Scope, message: Message, limit: int) -> list[LeftOut]:
        now = datetime.now(UTC)
        remembered, question = self._remembered(scope.owner), message.text().strip()
        hidden = self._hidden(remembered, now)
        if not hidden or not question:
            return []
        query = self._embedder.query(question)
        why = {remembered.facts[place].id: reason for place, reason in hidden.items()}
        near = remembered.recalls(list(hidden), query, self.scorer, now, limit)
        return [LeftOut(recall, why[recall.id]) for recall in near]

    def _hidden(self, remembered: Remembered, now: datetime) -> dict[int, str]:
        """Return the indexes of the facts that are not recalled, each with the reason."""
        current, hidden = set(remembered.current(now)), dict[int, str]()
        stale = {item.fact.id: item.why for item in remembered.stale(now, self.staleness, self.ttl)}
        for place, fact in enumerate(remembered.facts):
            if place not in current and not self.superseded:
                hidden[place] = f"it is not true any more ({fact.why or 'over'})"
            elif fact.id in stale:
                hidden[place] = f"it is stale ({stale[fact.id]})"
        return hidden

    def stored_records(self, scope: Scope) -> list[Recall]:
        remembered, now = self._remembered(scope.owner), datetime.now(UTC)
        places = remembered.current(now)
        return remembered.recalls(places, None, self.scorer, now, len(places))

    @by_owner
    def delete(self, scope: Scope) -> None:
        erase(self.resources.store, self.name, scope)

    def validate_import(self, record: Record) -> Record:
        return checked_record(record, self.resources)

    def facts(
        self,
        scope: Scope,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        superseded: bool = False,
    ) -> list[Fact]:
        facts = self._all(self._journal(scope).claims, known_at)
        if superseded:
            return facts
        if as_of is not None:
            return [fact for fact in facts if fact.holds(as_of)]
        return _current(facts, known_at or datetime.now(UTC))

    def filled(
        self, scope: Scope, *, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> BaseModel | None:
        form = self._form
        if not isinstance(form, ProfileForm):
            return None
        at = as_of or known_at or datetime.now(UTC)
        return form.filled(self.facts(scope, as_of=at, known_at=known_at))

    def stale(self, scope: Scope) -> list[Stale]:
        stale = self._remembered(scope.owner).stale(datetime.now(UTC), self.staleness, self.ttl)
        stored = {claim.fact for claim in self._journal(scope).claims} if stale else ()
        return [item for item in stale if item.fact.id in stored]

    def forget(self, scope: Scope, what: str | Span, why: str) -> list[Fact]:
        journal = self._keeper.read(scope.owner)
        if isinstance(what, Span):
            erased = [claim for claim in journal.claims if what.holds(claim.session_id, claim.seq)]
            tombstones = [Tombstone(None, *what, None, datetime.now(UTC), why)]
        else:
            erased = [claim for claim in journal.claims if claim.fact == what]
            others = [claim for claim in journal.claims if claim.fact != what]
            tombstones = [tombstone_of(claim, others, why) for claim in erased]
        self._keeper.forget(scope.owner, [*erased, *journal.remains], tombstones)
        left = {claim.fact for claim in journal.claims if claim not in erased}
        return [fact for fact in self._all(journal.claims) if fact.id not in left]

    def audit(self, scope: Scope) -> list[Change]:
        journal = self._journal(scope)
        return changes(self.name, self._all(journal.claims), journal)

    def _journal(self, scope: Scope) -> Journal:
        """Return an owner's journal, without claims from sessions that are being deleted."""
        journal = self._keeper.read(scope.owner)
        sessions = self.resources.store.existing({claim.session_id for claim in journal.claims})
        claims = [claim for claim in journal.claims if claim.session_id in sessions]
        return replace(journal, claims=claims)

    def _all(self, claims: Sequence[Claim], known_at: datetime | None = None) -> list[Fact]:
        return facts_of(claims, block=self.name, weights=self._weights, known_at=known_at)

    def _remembered(self, owner: str) -> Remembered:
        """Return an owner's facts, prepared for recall. They are cached by version."""
        from agent_memory.ltm_blocks.extractive.recalling import Remembered

        # the version is read first, so the records may be newer than the version, but never older
        version = version_of(self.resources.store, self.name, owner)
        cached = self._remembering.find(owner)
        if cached is not None and cached[0] == version:
            return cached[1]
        journal, embedder = self._keeper.read(owner), self._embedder
        facts = self._all(journal.claims)
        vectors = vectors_of(facts, journal.claims, embedder)
        remembered = Remembered(facts, vectors)
        # vectors are missing while the embedder is down; such facts are not cached
        is_complete = not facts or vectors.shape[1] or embedder.has_vectors() is False
        if version is not None and is_complete:
            self._remembering.put(owner, (version, remembered))
        return remembered

    def _llm(self) -> LLM:
        llm = self.resources.models(self.model)
        if llm is None:
            raise ModelRequired(
                f"The block {self.name!r} needs a language model: set `model` in the "
                'configuration, such as model="openai/gpt-4o-mini".'
            )
        return llm

    @cached_property
    def _form(self) -> Form:
        if self.profile is None:
            return FactForm(self.prompt, self.categories)
        return ProfileForm(self.profile, self.prompt)

    @property
    def _weights(self) -> dict[str, int]:
        return {} if self.overrule else {role: at for at, role in enumerate(_BY_WEIGHT)}


def _current(facts: Sequence[Fact], now: datetime) -> list[Fact]:
    return [fact for fact in facts if fact.is_current(now)]


def _folded(categories: Sequence[str]) -> frozenset[str]:
    return frozenset(category.strip().casefold() for category in categories)
