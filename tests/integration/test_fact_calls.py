"""The calls about facts: current and earlier facts, forgetting, and the audit."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM
from agent_memory.errors import ConfigError, InvalidInput, MemoryClosed, SessionOfAnotherUser
from agent_memory.ltm_blocks.registry import FORGOTTEN
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model, absorbed, at, dated, remembering, texts
from tests.kit import model_at

HOME = "Lives in Paris."
MOVED = "Lives in Rome."


@pytest.fixture
def model() -> Model:
    """A model that finds a move, a job in both sessions, and a dog."""
    model = Model()
    model.tell("I live in Paris", HOME, category="home", since="2020")
    model.tell("moved to Rome", MOVED, ("update", HOME), category="home", since="2024-05")
    model.tell("work at Acme", "Works at Acme.", category="work", since="2021")
    model.tell("a dog named Rex", "Has a dog named Rex.", category="pets")
    return model


def store_sessions(memory: AgentMemory) -> None:
    """Store two sessions of Ada: she lives in Paris, then in Rome, and works at Acme in both."""
    absorbed(
        memory,
        "s1",
        dated("I live in Paris and work at Acme", "2024-01-05"),
        dated("I see.", "2024-01-05", "assistant"),
    )
    absorbed(
        memory,
        "s2",
        dated("I moved to Rome", "2024-06-05"),
        dated("I still work at Acme", "2024-06-06"),
        dated("I have a dog named Rex", "2024-06-07"),
    )


def now(memory: Any, user_id: str = "ada") -> list[str]:
    return sorted(texts(memory.user(user_id).facts()))


BEFORE = [HOME, "Works at Acme."]
AFTER = ["Has a dog named Rex.", MOVED, "Works at Acme."]


def test_facts_of_an_earlier_time_can_be_read(store: Store, model: Model) -> None:
    """Wrong: a newer fact erases older ones, or a fact that was read back has lost its times."""
    with remembering(model, store) as memory:
        store_sessions(memory)
        assert now(memory) == AFTER
        assert sorted(texts(memory.user("ada").facts(as_of=at("2024-04-30")))) == BEFORE
        assert MOVED in texts(memory.user("ada").facts(as_of=at("2024-05-01")))
        assert sorted(texts(memory.user("ada").facts(known_at=at("2024-06-04")))) == BEFORE
        (home,) = memory.user("ada").facts(as_of=at("2020-06-01"))
        (moved,) = [one for one in memory.user("ada").facts() if one.text == MOVED]
        assert (home.valid_from, home.valid_to) == (at("2020-01-01"), at("2024-05-01"))
        assert (home.superseded_by, home.why) == (moved.id, "updated")
        assert (home.superseded_at, home.recorded_at) == (at("2024-06-05"), at("2024-01-05"))
        (work,) = [one for one in memory.user("ada").facts() if "Acme" in one.text]
        assert work.sources == (("s1", 1), ("s2", 2))
        assert [one.quote for one in work.evidence] == ["work at Acme"] * 2
        assert {one.model for one in work.evidence} == {"openai/any"}
        assert all(one.prompt for one in work.evidence)
        assert now(memory, "bob") == []


def test_a_timestamp_requires_a_time_zone(model: Model) -> None:
    """Wrong: a date is read in the machine's time zone, or a time without a zone is accepted."""
    with remembering(model) as memory:
        store_sessions(memory)
        east = timezone(timedelta(hours=5))
        for moment, home in (
            (date(2024, 4, 30), HOME),
            (date(2024, 5, 1), MOVED),
            (datetime(2024, 5, 1, tzinfo=UTC), MOVED),
            (datetime(2024, 5, 1, 4, 59, tzinfo=east), HOME),
            (datetime(2024, 5, 1, 5, tzinfo=east), MOVED),
        ):
            assert home in texts(memory.user("ada").facts(as_of=moment)), moment
        assert now(memory) == sorted(texts(memory.user("ada").facts(known_at=date(2030, 1, 1))))
        assert memory.user("ada").facts(known_at=date(2023, 1, 1)) == []
        for naive in (datetime(2024, 5, 1), "2024-05-01", 5):
            for name in ("as_of", "known_at"):
                with pytest.raises(InvalidInput, match=f"{name} is .*time zone"):
                    memory.user("ada").facts(**{name: naive})
                with pytest.raises(InvalidInput, match=name):
                    memory.user("ada").profile(**{name: naive})


def test_an_invalid_user_or_fact_id_is_refused(model: Model) -> None:
    """Wrong: an invalid user or fact id returns or forgets facts."""
    with remembering(model) as memory:
        store_sessions(memory)
        with pytest.raises(InvalidInput, match="user_id must be text"):
            memory.user(None)  # type: ignore[arg-type]
        for both in ({}, {"fact_id": "x", "source": "s1"}):
            with pytest.raises(InvalidInput, match="either a fact"):
                memory.user("ada").forget(**both)
        for bad in ("", 7):
            with pytest.raises(InvalidInput):
                memory.user(bad).facts()  # type: ignore[arg-type]
        assert now(memory) == AFTER
    with pytest.raises(MemoryClosed):
        memory.user("ada").facts()


def test_facts_of_a_session_are_shown_only_to_its_user(model: Model) -> None:
    """Wrong: a session shows facts of another session, or a user those of another user."""
    with remembering(model) as memory:
        store_sessions(memory)
        absorbed(memory, "own", dated("I have a dog named Rex"), user_id=None)
        ada, own = memory.session("s1").owner(), memory.session("own").owner()
        assert texts(ada.facts(session_id="s1")) == ["Works at Acme."]
        assert HOME in texts(ada.facts(session_id="s1", as_of=at("2024-02-01")))
        assert sorted(texts(memory.user("ada").facts(session_id="s2"))) == AFTER
        assert texts(own.facts(session_id="own")) == texts(own.facts()) == ["Has a dog named Rex."]
        assert memory.session("nobody's").owner().facts(session_id="nobody's") == []
        assert memory.user("bob").facts(session_id="new") == []
        rex = own.facts(session_id="own")[0].id
        with pytest.raises(SessionOfAnotherUser):
            memory.user("bob").facts(session_id="s1")
        with pytest.raises(SessionOfAnotherUser):
            memory.session("s1", "bob").owner()
        for source in ("s1", ("s1", 1, 1)):
            with pytest.raises(SessionOfAnotherUser):
                memory.user("bob").forget(source=source)
        with pytest.raises(InvalidInput, match="alone"):
            own.forget(source="s1")
        assert memory.user("bob").forget(rex) == []
        assert memory.user("bob").forget(memory.user("ada").facts()[0].id) == []
        assert memory.session("nobody's").owner().forget(source="nobody's") == []
        assert now(memory) == AFTER
        assert texts(own.forget(rex)) == ["Has a dog named Rex."]
        assert own.facts(session_id="own") == []


def replayed(memory: AgentMemory) -> AgentMemory:
    list(memory.replay("extractive"))
    return memory


def test_forgetting_a_fact_restores_the_superseded_one(store: Store, model: Model) -> None:
    """Wrong: forgetting restores no superseded fact, removes others, or a replay undoes it."""
    with remembering(model, store) as memory:
        store_sessions(memory)
        (moved,) = [one for one in memory.user("ada").facts() if one.text == MOVED]
        assert texts(memory.user("ada").forget(moved.id, why="not true")) == [MOVED]
        left = ["Has a dog named Rex.", *BEFORE]
        assert now(memory) == left
        assert memory.user("ada").forget(moved.id) == []
        assert now(memory) == left
        assert now(replayed(memory)) == left
        assert MOVED not in texts(memory.user("ada").audit())
        (gone,) = [one for one in memory.user("ada").audit() if one.what == "forgotten"]
        assert (gone.why, gone.fact, gone.session_id) == ("not true", moved.id, "s2")
        assert "Rome" not in str(store.records("extractive", "user:ada"))
        assert "Rome" not in str(store.records(FORGOTTEN, "user:ada"))


def test_forgetting_a_fact_leaves_other_facts_of_its_sentence(store: Store) -> None:
    """Wrong: forgetting a fact also removes other facts from the same sentence."""
    model = Model()
    sentence = "I am a nurse from Leeds"
    model.tell(sentence, "Is a nurse.", category="work")
    model.tell(sentence, "Is from Leeds.", category="home")
    with remembering(model, store) as memory:
        absorbed(memory, "s", dated(sentence))
        (nurse,) = [one for one in memory.user("ada").facts() if "nurse" in one.text]
        assert texts(memory.user("ada").forget(nurse.id)) == ["Is a nurse."]
        assert now(memory) == ["Is from Leeds."]
        assert now(replayed(memory)) == ["Is from Leeds."]
        (leeds,) = memory.user("ada").facts()
        assert texts(memory.user("ada").forget(leeds.id)) == ["Is from Leeds."]
        assert now(replayed(memory)) == []
        gone = [one.fact for one in memory.user("ada").audit() if one.what == "forgotten"]
        assert sorted(map(str, gone)) == sorted([nurse.id, leeds.id])


@pytest.mark.parametrize(
    "source", [("s",), ("s", 5, 1), ("s", 0, 2), ("s", "a", 2), ("s", 1, 2, 3), 7]
)
def test_an_invalid_source_is_refused(model: Model, source: Any) -> None:
    """Wrong: an invalid source is ignored, or raises an error of Python."""
    with remembering(model) as memory, pytest.raises(InvalidInput, match="session's id"):
        memory.user("ada").forget(source=source)


def test_pending_messages_of_a_forgotten_source_are_not_absorbed(model: Model) -> None:
    """Wrong: pending messages of a forgotten session are absorbed later."""
    with remembering(model) as memory:
        memory.update("s", dated("I have a dog named Rex"), user_id="ada")
        assert memory.session("s").owner().forget(source="s") == []
        memory.update("s", dated("I work at Acme"), user_id="ada")
        memory.flush()
        assert now(memory) == ["Works at Acme."]


def test_a_message_under_a_forgotten_and_popped_seq_is_absorbed(store: Store, model: Model) -> None:
    """Wrong: a message stored under the seq of a forgotten and popped one is never absorbed, or the
    rest is remembered again."""
    with remembering(model, store) as memory:
        absorbed(memory, "s", dated("I have a dog named Rex"), dated("I work at Acme"))
        memory.session("s").owner().forget(source="s")
        assert len(memory.pop("s")) == 1
        absorbed(memory, "s", dated("I live in Paris"))
        assert now(memory) == [HOME]
        assert now(replayed(memory)) == [HOME]
        (home,) = memory.user("ada").facts()
        assert home.sources == (("s", 2),)
        memory.session("s").owner().forget(source=("s", 2, 2))
        memory.pop("s")
        absorbed(memory, "s", dated("I live in Paris"))
        assert now(memory) == [HOME]


@pytest.mark.parametrize(
    "change",
    [
        lambda log: ["Hello.", *log[1:]],
        lambda log: [entry for entry in log if entry.message.text() != "Hi."],
        lambda log: ["Hello.", *log],
        lambda log: [log[0], log[2], log[1]],
    ],
    ids=["replace", "remove", "insert", "swap"],
)
def test_an_edit_of_another_message_restores_no_forgotten_fact(store: Store, change: Any) -> None:
    """Wrong: after an edit that renumbers a message, its forgotten fact is learned again and leaves
    the audit, or another fact of the message is forgotten too."""
    model, sentence = Model(), "I am a nurse from Leeds"
    model.tell(sentence, "Is a nurse.", category="work")
    model.tell(sentence, "Is from Leeds.", category="home")
    model.tell("a dog named Rex", "Has a dog named Rex.", category="pets")
    with remembering(model, store) as memory:
        absorbed(memory, "s", dated("Hi."), dated(sentence), dated("I have a dog named Rex"))
        ada = memory.user("ada")
        (nurse,) = [one for one in ada.facts() if "nurse" in one.text]
        ada.forget(nurse.id, why="asked")
        ada.forget(source=("s", 3, 3))
        for _ in range(2):
            memory.edit("s", change)
            assert not [one.error for one in memory.flush("s") if one.error]
            assert now(memory) == ["Is from Leeds."]
        assert now(replayed(memory)) == ["Is from Leeds."]
        gone = [one for one in ada.audit() if one.what == "forgotten"]
        assert [one.fact for one in gone] == [nurse.id, None]
        seqs = [entry.seq for entry in memory.history("s") if "nurse" in entry.message.text()]
        assert seqs == [gone[0].first]


def test_a_changed_message_is_absorbed_like_a_new_one(store: Store, model: Model) -> None:
    """Wrong: a message that an edit changed yields no facts, or an edit reads all messages anew."""
    with remembering(model, store) as memory:
        absorbed(memory, "s", dated("Hi."))
        absorbed(memory, "s", dated("I have a dog named Rex"), dated("I work at Acme"))
        memory.user("ada").forget(source=("s", 1, 9))
        model.asked.clear()
        memory.edit("s", lambda log: [log[0], dated("Yes, I have a dog named Rex"), log[2]])
        absorbed(memory, "s", dated("I live in Paris"))
        assert now(memory) == ["Has a dog named Rex.", HOME]
        assert ["\n[4]" in text for text in model.asked] == [False]


def test_the_audit_lists_changes_in_order_with_reasons(store: Store, model: Model) -> None:
    """Wrong: the audit omits a change, or lists it out of order or without its reason."""
    model.tell("never had a dog", "Has no dog.", ("contradict", "Has a dog named Rex."))
    model.finds["never had a dog"][0]["category"] = "pets"
    model.tell("paid by Globex", "Works at Globex.", ("update", "Works at Acme."), category="work")
    model.finds["I see."] = [{"text": "Sees.", "quote": "nothing of it"}]
    block = ExtractiveMemory(roles=("user", "assistant"))
    with remembering(model, store, block) as memory:
        store_sessions(memory)
        absorbed(memory, "s3", dated("I never had a dog", "2024-07-01"))
        absorbed(memory, "s4", dated("So you are paid by Globex", "2024-07-02", "assistant"))
        forgotten_after = datetime.now(UTC)
        memory.session("s3").owner().forget(source="s3", why="it was a joke")
        changes = memory.user("ada").audit()
    steps = [(one.what, one.text, one.session_id, one.first) for one in changes]
    assert sorted(steps[:2]) == [("learned", HOME, "s1", 1), ("learned", "Works at Acme.", "s1", 1)]
    assert steps[2:] == [
        ("refused", "", "s1", 1),
        ("learned", MOVED, "s2", 1),
        ("updated", HOME, "s2", 1),
        ("said again", "Works at Acme.", "s2", 2),
        ("learned", "Has a dog named Rex.", "s2", 3),
        ("learned", "Works at Globex.", "s4", 1),
        ("outranked", "Works at Globex.", "s1", 1),
        ("forgotten", "", "s3", 1),
    ]
    by_what = {one.what: one for one in changes}
    assert by_what["refused"].why == "1 of 3 findings quoted what the message does not say"
    assert by_what["refused"].evidence is None
    assert by_what["updated"].why == f"another fact took its place: {MOVED}"
    assert by_what["updated"].evidence.quote == "moved to Rome"
    assert by_what["said again"].why == 'user said: "work at Acme"'
    assert by_what["outranked"].why == (
        "a statement of a weightier role takes precedence: Works at Acme."
    )
    assert by_what["forgotten"].why == "it was a joke"
    assert by_what["forgotten"].at >= forgotten_after
    assert [one.at for one in changes] == sorted(one.at for one in changes)
    assert {one.block for one in changes} == {"extractive"}


def test_a_recalled_fact_shows_its_times_and_role(model: Model) -> None:
    """Wrong: a recalled fact lacks its times or role, or a superseded one is shown by default."""
    model.tell("contract ends", "Rents a flat.", category="home", since="2023", until="2024-03")
    model.tell("you like jazz", "Likes jazz.", category="preference")
    for superseded in (False, True):
        block = ExtractiveMemory(roles=("user", "assistant"), superseded=superseded)
        with remembering(model, block=block) as memory:
            store_sessions(memory)
            absorbed(
                memory,
                "s3",
                dated("My contract ends", "2024-01-09"),
                dated("I know that you like jazz", "2024-01-10", "assistant"),
            )
            found = [str(one) for one in memory.search("Where do I live?", user_id="ada", limit=99)]
            assert f"[since 2024-05] {MOVED}" in found
            assert "[2023 to 2024-03] Rents a flat." in found
            assert "[said 2024-01-10] Likes jazz. (according to the assistant)" in found
            assert any(one.endswith(HOME) for one in found) is superseded
            context = memory.get("new", "Where do I live?", user_id="ada")
            assert MOVED in str(context.to_messages())


@pytest.mark.parametrize("question", ["Which dogs do I have?", "Do I have a dog?"])
def test_a_context_has_only_relevant_facts(model: Model, question: str) -> None:
    """Wrong: one relevant fact brings all others into the context of a question for a list."""
    with remembering(model, min_relevance=0.1) as memory:
        store_sessions(memory)
        found = memory.get("new", question, user_id="ada").recalls
        assert texts(found) == ["Has a dog named Rex."]
        found = memory.search(question, user_id="ada", least=0)
        assert len(found) == 3


def test_facts_are_found_after_a_change_of_the_embedder(tmp_path: Path, model: Model) -> None:
    """Wrong: after a change of the embedder, vectors of two models are compared."""
    with FakeLLM(model) as fake:
        for number, embedding in enumerate([None, "openai/embed", "local", "openai/other"]):
            fake.dimension = 16 * (number + 1)
            store = {"store": f"sqlite:///{tmp_path}/m.db", "embedding": embedding}
            overflow = FlushToLTM(blocks=[ExtractiveMemory()])
            with AgentMemory(**store, overflow=overflow, **model_at(fake)) as memory:
                if not number:
                    absorbed(memory, "s1", dated("I live in Paris and work at Acme"))
                elif number == 1:
                    absorbed(memory, "s2", dated("I moved to Rome", "2024-06-05"))
                home = MOVED if number else HOME
                assert now(memory) == [home, "Works at Acme."]
                found = memory.search("Acme", user_id="ada", least=0.0)
                assert sorted(texts(found)) == [home, "Works at Acme."]
                assert all(one.views["relevance"] >= 0 for one in found)
                assert memory.user("ada").stale() == []


@pytest.mark.parametrize("call", ["facts", "stale", "audit", "forget"])
def test_calls_without_a_fact_block_raise_an_error_with_the_fix(call: str) -> None:
    """Wrong: without a block for facts the calls return nothing instead of an error."""
    arguments = ("some-id",) if call == "forget" else ()
    with AgentMemory(store="memory://") as memory:
        for owner in memory.user("ada"), memory.session("s", "ada").owner():
            with pytest.raises(ConfigError, match=r"blocks=\[ExtractiveMemory\(...\)\]"):
                getattr(owner, call)(*arguments)
