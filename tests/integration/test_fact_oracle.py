"""A thousand generated lives, told in any order, and lives in which recalls are repeated."""

import html
import json
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from agent_memory import AgentMemory, ExtractiveMemory, Fact, Message, TokenCounter
from agent_memory.core.records import Entry, Scope, Span
from agent_memory.engine.leases import Locks
from agent_memory.ltm_blocks.base import Resources
from agent_memory.ltm_blocks.extractive.history.history import facts_of
from agent_memory.ltm_blocks.extractive.storage import Keeper
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Listed, groups_of, known_of, messages_of
from tests.integration.statements import END, TICK, Statement, around, expected
from tests.integration.timeline_model import TimelineModel, content
from tests.integration.timelines import History, Stretch, history
from tests.kit import assistant, at_length, model_at, user

USER = Scope("u")
WEIGHTS = {"tool": 0, "assistant": 1, "user": 2}
BLOCK = ExtractiveMemory(roles=("user", "assistant"))
HUNDREDS = pytest.mark.parametrize("first", range(0, 300, 100))


class NoEmbedder:
    """An embedder without vectors: facts are compared by their words, as during an outage."""

    name = "none"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros((len(texts), 0), np.float32)


class Absorbed:
    """A history, absorbed by the real block."""

    def __init__(self, told: History) -> None:
        self.history = told
        self._store = store = MemoryStore()
        store.existing = set  # the sessions have no logs here
        model = cast("Any", TimelineModel(told))
        self.block = BLOCK.bind(
            Resources(
                store=store, namespace="n", counter=TokenCounter(), models=lambda _: model,
                embedders=lambda _: cast("Any", NoEmbedder()), vectors=lambda _: store,
                locked=Locks(store).held,
            )
        )  # fmt: skip
        self.absorb()

    def absorb(self) -> None:
        """Pass all batches to the block."""
        for session, messages in self.history.batches:
            entries = [
                Entry(
                    session, said[0].seq, Message(role=said[0].role, content=content(said)),
                    1, 1, "test", said[0].at,
                )
                for said in messages
            ]  # fmt: skip
            self.block.update(Scope("u", session), entries)

    def claims(self) -> set[str]:
        return {one.id for one in Keeper(self._store, BLOCK.name).read(USER.owner).claims}

    def facts(self, known_at: datetime | None = None) -> list[Fact]:
        claims = Keeper(self._store, BLOCK.name).read(USER.owner).claims
        return facts_of(claims, weights=WEIGHTS, known_at=known_at)

    def check(self, said: Sequence[Statement], known: Sequence[datetime]) -> None:
        """Assert that the facts known at these times are the expected ones, at all moments."""
        moments = self.history.moments()
        for known_at in known:
            facts = self.facts(known_at)
            right = expected([one for one in said if one.at <= known_at])
            for at in moments:
                held = sorted(fact.text for fact in facts if fact.holds(at))
                assert held == right.at(at), (at, known_at)


@pytest.fixture(autouse=True, scope="module")
def everything_is_compared() -> Iterator[None]:
    """Have the model compare each new fact with all known ones."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("agent_memory.ltm_blocks.extractive.extraction._MOST_FACTS", 0)
        patched.setattr("agent_memory.ltm_blocks.extractive.settling._EACH", 1_000)
        yield


@cache
def absorbed_history(seed: int) -> Absorbed:
    return Absorbed(history(seed))


@HUNDREDS
def test_facts_of_any_time_match_the_statements(first: int) -> None:
    """Wrong: a late, early, wrong, repeated or disordered statement gives wrong facts."""
    for seed in range(first, first + 100):
        absorbed, chance = absorbed_history(seed), random.Random(seed)
        told = absorbed.history
        absorbed.check(told.statements, told.times())
        known, moments = around(told.times()), told.moments()
        for known_at, as_of in [(chance.choice(known), chance.choice(moments)) for _ in range(20)]:
            held = absorbed.block.facts(USER, as_of=as_of, known_at=known_at)
            right = expected([one for one in told.statements if one.at <= known_at])
            assert sorted(fact.text for fact in held) == right.at(as_of)


@HUNDREDS
def test_facts_of_a_completely_stated_life_match_the_truth(first: int) -> None:
    """Wrong: a life that was told completely is not known as it was."""
    seen = 0
    for seed in range(first, first + 100):
        told = absorbed_history(seed).history
        if not told.truth or any(one.role != "user" for one in told.statements):
            continue
        facts = absorbed_history(seed).facts()
        for thing in {one.thing for one in told.truth}:
            seen += 1
            stretches = [one for one in told.truth if one.thing == thing]
            for at in told.moments():
                held = [fact.text for fact in facts if fact.category == thing and fact.holds(at)]
                assert [text.split()[-1 - (thing == "diet")].strip(".") for text in held] == (
                    _lived(stretches, at)
                )
    assert seen > 50


def _lived(stretches: Sequence[Stretch], at: datetime) -> list[str]:
    day = at.date()
    now = [one for one in stretches if one.first <= day and (one.end is None or day < one.end)]
    return [one.value for one in sorted(now, key=lambda one: one.stays)][-1:]


@HUNDREDS
def test_facts_have_the_times_of_their_statements(first: int) -> None:
    """Wrong: a fact has a wrong begin, end, or time at which it was superseded."""
    seen = 0
    for seed in range(first, first + 100):
        absorbed = absorbed_history(seed)
        told, facts = absorbed.history.statements, absorbed.facts()
        odd = {
            one.thing
            for one in told
            if one.corrects or one.kind == "denial" or one.role != "user" or one.since is None
        }
        for one in told:
            if one.thing not in odd and one.again is None:
                seen += 1
                fact = next(fact for fact in facts if _says(fact, one))
                assert fact.valid_from == one.begin
                assert fact.valid_to == _over(absorbed.history, one)
                assert fact.superseded_at == _superseded(told, one)
    assert seen > 50


def _says(fact: Fact, one: Statement) -> bool:
    said = (one.session, one.seq, one.text)
    return any((it.session_id, it.seq, it.quote) == said for it in fact.evidence)


def _over(told: History, one: Statement) -> datetime | None:
    """Return the time at which a statement was last in force, or its own end."""
    right = expected(told.statements)
    days = [at for at in told.moments() if (at + TICK) in set(told.moments())]
    held = [at for at in [*days, END - TICK] if _in_force(right.in_force(at), one)]
    last = held[-1] + TICK if held else one.end
    return None if last == END else last


def _superseded(told: Sequence[Statement], one: Statement) -> datetime | None:
    """Return when a statement first was no longer in force at its own end."""
    for known_at in sorted({late.at for late in told if late.at >= one.at}):
        right = expected([late for late in told if late.at <= known_at])
        if not _in_force(right.in_force(one.end - TICK), one):
            return known_at
    return None


def _in_force(held: Any, one: Statement) -> bool:
    return any(it.root == one.root for it in held)


@HUNDREDS
def test_a_forgotten_statement_no_longer_affects_facts(first: int) -> None:
    """Wrong: a forgotten statement still affects facts, takes others with it, or comes back."""
    for seed in range(first, first + 100):
        absorbed = Absorbed(history(seed))
        told, chance = absorbed.history, random.Random(seed)
        one = chance.choice(told.statements)
        ways: list[str | Span] = [
            Span(one.session, 1, 999),
            Span(one.session, one.seq, one.seq + chance.randrange(3)),
            next(fact.id for fact in absorbed.facts() if _says(fact, one)),
        ]
        what = chance.choice(ways)
        absorbed.block.forget(USER, what, "")
        gone = [late for late in told.statements if _covers(what, one, late)]
        left = [late for late in told.statements if late not in gone]
        absorbed.check(left, [*chance.sample(told.times(), min(3, len(told.times()))), END])
        kept = absorbed.claims()
        absorbed.absorb()
        assert absorbed.claims() <= kept


def _covers(what: str | Span, one: Statement, late: Statement) -> bool:
    """Return whether a statement is forgotten together with `one`."""
    return late.root == one.root if isinstance(what, str) else what.holds(late.session, late.seq)


TURNS = at_length(100)
SETTLED = 4  # later sessions say nothing new
DAY = datetime(2024, 3, 1, tzinfo=UTC)
ASKED = [
    "I live in Oslo.",
    "My cat is called Mia.",
    "I like hiking in the woods.",
    "Where do I live?",
    "What shall we do on Sunday?",
    "What is my cat called?",
]
OFFERED = ["Nordmarka has the best trails.", "The ferry leaves at nine."]


class Greedy:
    """A model that takes each sentence and list item for a fact."""

    def __init__(self, *, careful: bool) -> None:
        self.careful = careful

    def __call__(self, body: dict[str, Any]) -> str:
        asked = body["messages"][-1]["content"]
        said = messages_of(asked)
        if said is None:
            return json.dumps({"answers": list(self._answers(asked))})
        return json.dumps({"facts": list(self._findings(html.unescape(said), known_of(asked)))})

    def _findings(self, asked: str, known: list[Listed]) -> Iterator[dict[str, Any]]:
        for number, text in re.findall(r"(?m)^\[(\d+)\] \S+ \w+: (.*)$", asked):
            for said in re.split(r" ?- \[[^]]*\] |(?<=[.?]) (?=[A-Z])", text):
                if said:
                    before = self._held(said, known)
                    tied = {"known": before, "relation": "same"} if before else {}
                    yield {"text": said, "message": int(number), "quote": said, **tied}

    def _answers(self, asked: str) -> Iterator[dict[str, Any]]:
        for new, older in groups_of(asked):
            before = self._held(new.text, older)
            if before:
                yield {"number": new.number, "answer": "same", "which": before}

    def _held(self, text: str, known: list[Listed]) -> list[int]:
        if not self.careful:
            return []
        return [one.number for one in known if one.text.rstrip(".") in text][:1]


def talk(memory: AgentMemory) -> Iterator[None]:
    """Hold a long talk in which the assistant repeats its recalls, and yield after each session."""
    for turn in range(TURNS):
        session = f"s{turn // 4}"  # facts that the window shows are not recalled
        text = ASKED[turn % len(ASKED)]
        context = memory.get(session, text, user_id="ann")
        shown = [line for fact in context.extracted_facts for line in fact.text.splitlines()]
        chat = context.to_messages()
        recalled = "".join(one["content"] for one in chat if one["role"] == "system")
        answer = "You told me: " + " ".join(f"- [] {line}" for line in shown)
        if turn < len(OFFERED):
            answer = OFFERED[turn]
        elif turn % 3 == 0:  # with the marks and dates of recalls
            answer = " ".join(line for line in recalled.splitlines() if line.startswith("-"))
        answer = answer or "Hm."
        if turn % 10 == 9:  # the message is stored with its recalls
            text = f"{recalled}\n\n{text}"
        at = DAY + timedelta(hours=turn)
        said = [user(text, created_at=at), assistant(answer, created_at=at)]
        memory.update(session, said, user_id="ann")
        if turn % 4 == 3:
            assert [done.error for done in memory.flush(session)] == [None]
            yield


@pytest.mark.parametrize("careful", [True, False])
@pytest.mark.parametrize("roles", [("user",), ("user", "assistant")])
def test_a_repeated_recall_does_not_become_another_fact(roles: Any, careful: bool) -> None:
    """Wrong: a recalled fact that is repeated becomes another fact."""
    store = MemoryStore()
    with FakeLLM(Greedy(careful=careful)) as fake:
        blocks = [ExtractiveMemory(roles=roles)]
        memory = AgentMemory(store=store, blocks=blocks, max_tokens=2000, **model_at(fake))
        kept = []
        with memory:
            for _ in talk(memory):
                facts = memory.user("ann").facts()
                records = store.records("extractive", "user:ann")
                others = [one for one in records if one.metadata.get("role") not in (None, "user")]
                kept.append(([fact.text for fact in facts], [one.id for one in others]))
            texts, others_kept = kept[-1]
            assert kept[SETTLED:] == [kept[-1]] * (TURNS // 4 - SETTLED)
            assert set(ASKED) <= set(texts)
            assert bool(others_kept) == ("assistant" in roles)
            assert len(texts) == len(set(texts)) <= len(ASKED) + len(OFFERED) + 2
            assert not any("memory" in text or "according" in text for text in texts)
