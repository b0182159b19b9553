"""Several memories read as one: merged search within one budget, whichever member fails."""

import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, CompositeMemory, Message, Trim, Turn
from agent_memory.core.fusion import merge
from agent_memory.core.records import Recall, Scope
from agent_memory.errors import ConfigError, InvalidId, MemoryClosed, SessionOfAnotherUser
from agent_memory.ltm_blocks import Block, NoteMemory, StaticMemory, VectorMemory
from agent_memory.testing import FakeLLM
from tests.histories import histories, unpaired
from tests.integration.composing import SECONDS, Reader, composed, opened
from tests.kit import Echo, assistant, at_length, model_at, texts
from tests.kit import user as said

USERS = ["ada", "bob", "cleo", "dan", "eve"]


@pytest.fixture
def stores(tmp_path: Path) -> Callable[[str], str]:
    return lambda name: f"sqlite:///{tmp_path / name}.db"


def by_block(recalls: list[Recall]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for recall in recalls:
        found.setdefault(recall.block, []).append((recall.id, recall.text))
    return found


def test_a_merged_search_returns_the_recalls_of_every_member(stores: Callable[[str], str]) -> None:
    """Wrong: a member's recalls are lost, doubled or altered, or not in the order of `merge`."""
    support = opened(VectorMemory(), store=stores("support"))
    company = opened(
        StaticMemory(facts=["The port opens at nine.", "Ships need a pilot."]),
        VectorMemory(name="talks"),
        store=stores("company"),
    )
    rules = StaticMemory(facts=["Name no prices.", "Be kind to captains."])
    with composed({"support": support, "company": company, "rules": rules}) as both:
        ship = [said("My ship is the Anna."), said("She sails at dawn.")]
        both.update("s-1", ship, user_id="ada")
        company.update("c-1", said("Ada's ship had a new engine in May."), user_id="ada")
        both.flush()
        question = "When may my ship leave the port?"
        alone = {
            "support": support.search(question, user_id="ada"),
            "company": company.search(question, user_id="ada"),
        }
        ruled = opened(rules).search(question, user_id="ada")
        found = both.search(question, user_id="ada", limit=100)
        grouped = by_block(found)
        for name, recalls in alone.items():
            assert recalls
            for block, pairs in by_block(recalls).items():
                assert grouped.pop(f"{name}.{block}") == pairs
        assert grouped.pop("rules") == by_block(ruled)["static"]
        assert grouped == {}
        scores = {r.id: r.score for r in [*alone["support"], *alone["company"], *ruled]}
        assert all(recall.score == scores[recall.id] for recall in found)
        shares = {name: [one for one in found if one.block == name] for name in by_block(found)}
        order = ["support.vector", "company.static", "company.talks", "rules"]
        merged = merge({name: shares[name] for name in order})
        assert [recall.id for recall in found] == [recall.id for recall in merged]
        context = both.get("s-2", question, user_id="ada")
        assert {r.id for r in context.recalls} <= {r.id for r in found}
        assert {r.block for r in context.recalls} == set(order)
        assert context.warnings == []


def test_the_context_names_blocks_and_their_kinds() -> None:
    """Wrong: a member's name makes no valid element, or `static_facts` misses recalls."""
    members: dict[str, AgentMemory | Block] = {
        "support": opened(VectorMemory()),
        "company_2": opened(StaticMemory(facts=["A < B."])),
        "rules": StaticMemory(facts=["Be kind."]),
    }
    with composed(members) as both:
        both.update("s-1", said("My ship is the Anna."), user_id="ada")
        both.flush()
        context = both.get("s-2", "Which ship is mine?", user_id="ada")
        memory = ET.fromstring(context.to_messages()[0]["content"])
        assert [child.tag for child in memory] == [
            "support.vector_memory", "company_2.static_memory", "rules_memory",
        ]  # fmt: skip
        assert [one.text for one in context.static_facts] == ["A < B.", "Be kind."]
        assert [one.text for one in context.vector_matches] == ["user: My ship is the Anna."]
        assert context.extracted_facts == []


def test_two_members_can_have_the_same_session_id() -> None:
    """Wrong: the home's window hides a member's session of that id, or `search` returns it."""
    support, company = opened(Echo()), opened(Echo())
    with composed({"support": support, "company": company}) as both:
        company.update("s-1", [said("the anchor"), said("the rudder")], user_id="ada")
        both.update("s-1", [said("the sail"), said("the mast")], user_id="ada")
        company.flush()
        both.flush()
        context = both.get("s-1", "What?", user_id="ada")
        assert [entry.message.text() for entry in both.history("s-1")] == ["the sail", "the mast"]
        assert {(one.block, one.text) for one in context.recalls} == {
            ("company.echo", "the anchor"), ("company.echo", "the rudder"),
        }  # fmt: skip
        found = both.search("the", session_id="s-1", user_id="ada")
        assert {one.text for one in found} == {"the sail", "the mast"}


def test_a_session_without_a_user_reads_no_session_of_another_member() -> None:
    """Wrong: a session without a user reads a session with the same id in another member."""
    reader = Reader()
    support, company = opened(Echo()), opened(Echo(), reader)
    with composed({"support": support, "company": company}) as both:
        company.update("s-1", said("somebody else's secret"))
        company.flush()
        both.update("s-1", said("hello"))
        both.flush()
        assert [one.block for one in both.get("s-1", "What?").recalls] == ["company.reader"]
        assert reader.scopes == [Scope()]
        found = both.search("What?", session_id="s-1")
        assert {one.text for one in found} == {"hello", "What it knows."}
    reader = Reader(says="Tides are high.")
    with composed({"support": opened(), "tides": reader}) as both:
        both.update("s-1", said("hello"), user_id="ada")
        (found,) = both.get("s-1", "When?").recalls
        assert (found.block, found.text) == ("tides", "Tides are high.")
        assert reader.scopes == [Scope("ada", "s-1")]
        both.delete("s-1")
        both.delete_user("ada")


def test_logs_questions_and_notes_of_members_are_searched() -> None:
    """Wrong: the home's log is not searched, or the same note is returned twice."""
    with composed({"support": opened(), "rules": StaticMemory(facts=["Be kind."])}) as both:
        both.update("s-1", [said("The anchor is rusty."), said("The sail is new.")])
        both.update("s-2", said("Another anchor."))
        found = both.search("anchor", session_id="s-1")
        logged = [one.text for one in found if one.block == "support.log"]
        assert logged == ["user: The anchor is rusty."]
        assert [one.text for one in found if one.block != "support.log"] == ["Be kind."]
        assert all(one.tokens > 0 for one in found)
    with composed({"support": opened(), "company": opened(VectorMemory())}) as both:
        both.memories["company"].update("c", said("The ferry to Porto leaves at six."), user_id="u")
        both.flush()
        asked = [said("When does the ferry leave?"), assistant("Hm.")]
        both.update("s", asked, user_id="u")
        assert [one.block for one in both.get("s").recalls] == ["company.vector"]
    with composed({"support": opened(), "company": opened(NoteMemory())}) as both:
        for memory in both.memories.values():
            memory.user("ada").notes().add("Ada is vegetarian.")
        (found,) = both.search("vegetarian", user_id="ada")
        assert found.block == "support.notes"  # equal notes are merged
        recalls = both.get("s", "Food?", user_id="ada").recalls
        assert [one.block for one in recalls] == ["company.notes"]


def test_a_slow_member_causes_a_warning_and_no_delay() -> None:
    """Wrong: a member that hangs delays a context, hides other recalls, or goes unnamed."""
    never, later = threading.Event(), threading.Event()
    slow = opened(Reader(name="slow", before=never.wait), Reader(name="quick", says="Quick."))
    patient = Reader(says="Waited for.", before=later.wait)
    members: dict[str, AgentMemory | Block] = {
        "home": opened(), "company": slow, "patient": patient, "hurried": Reader(before=never.wait),
    }  # fmt: skip
    timer = threading.Timer(0.3, later.set)
    try:
        own = {"company": 1.5, "patient": SECONDS, "home": SECONDS}
        with composed(members, timeout=0.02, timeouts=own) as both:
            timer.start()
            context = both.get("s", "What?")
            assert {one.block for one in context.recalls} == {"company.quick", "patient"}
            assert context.warnings == [
                "The block 'company.slow' did not answer within 1.5 s.",
                "The block 'hurried' did not answer within 0.02 s.",
            ]
            never.set()
    finally:
        never.set()
        timer.join()


def test_a_failing_member_causes_a_warning_and_is_paused() -> None:
    """Wrong: a member's failure is raised, hides other members, or is never paused."""
    asked: list[str] = []

    def fail() -> None:
        asked.append("asked")
        raise ConnectionError("down")

    members: dict[str, AgentMemory | Block] = {
        "home": opened(), "company": opened(Reader(before=fail)), "rules": Reader(says="Be kind."),
    }  # fmt: skip
    with composed(members) as both:
        for n in range(4):
            context = both.get("s", "What?")
            assert [one.block for one in context.recalls] == ["rules"]
            (warning,) = context.warnings
            told = "failed: ConnectionError: down" if n < 2 else "failed before"
            assert warning.startswith(f"The block 'company.reader' {told}")
        assert len(asked) == 2


def test_a_failed_absorb_of_a_member_causes_a_warning() -> None:
    """Wrong: no warning says that a member could not absorb."""

    class Picky(Echo):
        def update(self, scope: Scope, entries: Any) -> None:
            raise OSError("full")

    with composed({"home": opened(), "company": opened(Picky())}) as both:
        both.memories["company"].update("c", said("The anchor."), user_id="ada")
        both.memories["company"].flush()
        (warning,) = both.get("s", "What?", user_id="ada").warnings
        assert warning.startswith("company: The block 'echo' could not absorb")


@pytest.mark.parametrize("role", ["system", "user", "leading"])
@hypothesis_settings(max_examples=at_length(20))
@given(given_=st.data())
def test_the_budget_is_the_homes(role: str, given_: Any) -> None:
    """Wrong: recalls of several members exceed the home's budget, or are not counted."""
    history = given_.draw(histories(10))
    budget = given_.draw(st.integers(120, 600))
    company = opened(Echo(), StaticMemory(facts=["Ships <need> a pilot. " * 9, "Be kind."]))
    settings = {"max_tokens": budget, "max_recall_tokens": budget, "memory_role": role}
    home = opened(Echo(), overflow=Trim(), **settings)
    tides = Reader(says="Tides are high. " * 40)
    with composed({"home": home, "company": company, "tides": tides}) as both:
        for message in history:
            both.update("s", message, user_id="ada")
            company.update("c", message, user_id="ada")
        company.flush()
        context = both.get("s", "Which ships need a pilot?", user_id="ada")
        chat = context.to_messages()
        assert context.tokens <= context.max_tokens == budget
        assert home.components.resources.counter.context(chat) <= context.tokens
        assert unpaired(chat) == []
        assert not any("time" in warning for warning in context.warnings)


def test_members_return_only_data_of_the_user(stores: Callable[[str], str]) -> None:
    """Wrong: the composite returns another user's data from one of its members."""
    members: dict[str, AgentMemory | Block] = {
        name: opened(Echo(), VectorMemory(), NoteMemory(), store=stores(name))
        for name in ("one", "two", "three")
    }
    homes = ["one", "two", "three"]

    def route(session_id: str, user_id: str | None) -> str:
        return homes[int(session_id.split("-")[1]) % 3]

    with composed(members, route=route) as both:
        for n, user in enumerate(USERS):
            for k in range(3):
                both.update(f"s-{5 * k + n}", said(f"My code is canary-{user}-{k}."), user_id=user)
            for name, memory in both.memories.items():
                memory.user(user).notes().add(f"The note canary-{user}-{name} is mine.")
        both.flush()
        for user in USERS:
            context = both.get("s-99", "What is my code?", user_id=user)
            seen = [
                *map(str, context.to_messages()),
                *(one.text for one in both.search("code canary note", user_id=user, limit=99)),
                *(str(both.history(head.session_id)) for head in both.sessions(user_id=user)),
            ]
            assert all(f"canary-{user}-{k}" in str(seen) for k in range(3))
            for other in USERS:
                assert (f"canary-{other}" in str(seen)) == (other == user)
        assert "canary" not in str(both.get("s-99", "What is my code?"))
        assert both.search("code canary note") == []
        with pytest.raises(SessionOfAnotherUser):
            both.get("s-0", "code?", user_id="bob")
        with pytest.raises(SessionOfAnotherUser):
            both.search("code?", session_id="s-0", user_id="bob")


def test_a_turn_recalls_from_all_members_and_is_stored_in_the_home() -> None:
    """Wrong: a turn lacks recalls of other members, or is stored in another memory."""
    with FakeLLM() as fake:
        home = opened(overflow=Trim(), **model_at(fake))
        other, tides = opened(), Reader(says="Tides are high.")
        members: dict[str, AgentMemory | Block] = {"other": other, "home": home, "tides": tides}
        with composed(members, route="home") as both:
            turn = both.before_turn("s", "May I sail?", user_id="ada")
            assert "Tides are high." in str(turn.messages)
            both.after_turn(turn, "You may.")
            fake.reply("Sail now.")
            session = both.session("s", "ada")
            assert session.completion("And now?").choices[0].message.content == "Sail now."
            assert "Tides are high." in str(fake.requests[-1]["messages"])
            assert texts(home, "s") == ["May I sail?", "You may.", "And now?", "Sail now."]
            again = home.regenerate("s", user_id="ada")
            both.after_turn(again, "Not yet.")
            assert texts(home, "s")[-2:] == ["And now?", "Not yet."]
            assert other.sessions() == []


def test_a_session_binds_the_ids() -> None:
    """Wrong: a call of a session handle reaches another session, or behaves differently."""
    with composed({"home": opened(Echo()), "rules": Reader(says="Be kind.")}) as both:
        with both.session("s", "ada") as session:
            assert repr(session) == "CompositeSession('s', user_id='ada')"
            session.update([said("one"), said("two"), said("three")])
            assert [one.text() for one in session.pop()] == ["three"]
            assert [entry.seq for entry in session.history(after=1)] == [2]
            assert [one.block for one in session.flush()] == ["home.echo"]
            assert {one.text for one in session.search("what")} == {"one", "two", "Be kind."}
            assert session.get("what").head == session.home.get("what").head
            session.after_turn(session.before_turn("four"), "five")
        assert both.home("s").blocks["echo"].name == "echo"
        assert both.memories["home"].stats().blocks["echo"].lag == 0  # ended with the handle
        assert both.stats()["home"].entries == 4
        session.delete()
        assert both.history("s") == []
        own = both.session("own")
        own.update(said("mine"))
        own.flush()
        assert {one.text for one in own.search("what")} == {"mine", "Be kind."}
        with pytest.raises(InvalidId):
            both.session("")


def test_pins_small_talk_and_hooks_work_as_in_one_memory() -> None:
    """Wrong: pins have no effect, small talk recalls, a follow-up is searched alone, or a member
    block misses its turn hooks."""
    heard: list[str] = []
    searched: list[str] = []

    class Hooked(Reader):
        def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
            searched.append(message.text() if message is not None else "")
            return super().get(scope, message, limit)

        def turn_began(self, scope: Scope, turn: Turn) -> None:
            heard.append(f"began {scope.session_id}")

        def turn_ended(self, scope: Scope, turn: Turn, messages: Sequence[Message]) -> None:
            heard.append(f"ended {scope.session_id}")

    support, company = opened(VectorMemory()), opened(NoteMemory())
    with composed({"support": support, "company": company, "own": Hooked()}) as both:
        notes = company.user("ada").notes()
        pinned, other = notes.add("The gate code is 4417."), notes.add("The gate opens at six.")
        company.user("ada").pin(pinned.id)
        both.update("s-1", said("The gate squeaks."), user_id="ada")
        for question in ("When does the gate open?", "What is the weather?"):
            recalls = both.get("s-2", question, user_id="ada").recalls
            assert [one.id for one in recalls if one.pinned] == [pinned.id]
        found = both.get("s-2", "Thanks!", user_id="ada").recalls
        assert {one.block for one in found} <= {"own", "company.notes"}
        assert other.id not in {one.id for one in found}
        turn = both.before_turn("s-2", "When does the gate open?", user_id="ada")
        both.after_turn(turn, "At six.")
        assert heard == ["began s-2", "ended s-2"]
        both.get("s-2", "And when does it close?", user_id="ada")
        assert searched[-1] == "When does the gate open? And when does it close?"


def test_closing_closes_every_member() -> None:
    """Wrong: a member stays open, for example because another could not be closed."""
    ended: list[str] = []

    class Closing(Reader):
        def close(self) -> None:
            ended.append(self.name)
            if self.says == "fails":
                raise OSError("stuck")

    one, two = opened(Closing(name="inner")), opened()
    both = composed({"one": one, "stuck": Closing(says="fails"), "two": two})
    assert repr(both) == "CompositeMemory(['one', 'two', 'stuck'])"
    with pytest.raises(Exception, match=r"close\(\) failed in 'stuck': OSError: stuck"):
        both.close()
    assert sorted(ended) == ["inner", "stuck"]
    for call in (both.stats, both.sessions, both.flush, lambda: both.search("what")):
        with pytest.raises(MemoryClosed):
            call()
    with pytest.raises(MemoryClosed):
        both.get("s", "what")
    with pytest.raises(MemoryClosed):
        two.sessions()


def test_invalid_arguments_and_settings_are_refused() -> None:
    """Wrong: invalid members or settings are accepted, and fail later."""
    memory = opened(StaticMemory(facts=["A."]))
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"rules": StaticMemory()}, {}, "needs an AgentMemory"),
        ({}, {}, "needs an AgentMemory"),
        ({"m": memory, "v": VectorMemory()}, {}, "Add the block to a memory"),
        ({"m": memory, "e": Echo()}, {}, "Add the block to a memory"),
        ({"m": memory, "x": "memory://"}, {}, "is a str"),
        ({"My memory": memory}, {}, "lower-case letters"),
        ({"a.b": memory}, {}, "lower-case letters"),
        ({"m": memory, "static": StaticMemory()}, {}, "another name"),
        ({"m": memory, "notes": NoteMemory()}, {}, "another name"),
        ({"m": memory, "a": Reader(name="x"), "b": Reader(name="x")}, {}, "another name"),
        ({"m": memory}, {"timeouts": {"n": 1.0}}, "`timeouts` names"),
        ({"m": memory}, {"timeouts": {"m": 0.0}}, "not above 0"),
        ({"m": memory}, {"timeout": -1.0}, "not above 0"),
        ({"m": memory}, {"route": "n"}, "is not a memory"),
        ({"m": memory, "r": Reader()}, {"route": "r"}, "is not a memory"),
        ({"m": memory}, {"route": ["m"]}, "is not a memory"),
    ]
    for members, settings, sentence in refused:
        with pytest.raises(ConfigError, match=sentence):
            CompositeMemory(members, **settings)
    assert memory.search("A") != []  # the caller's memory is still open
    memory.close()


def test_bound_blocks_are_closed_if_another_block_fails_to_bind() -> None:
    """Wrong: a bound block stays open when the composite cannot be created."""
    ended: list[str] = []

    class Opening(Reader):
        def bind(self, resources: Any) -> Any:
            if self.says == "fails":
                raise ConfigError("cannot")
            return super().bind(resources)

        def close(self) -> None:
            ended.append(self.name)

    with opened() as memory, pytest.raises(ConfigError, match="cannot"):
        CompositeMemory({"m": memory, "a": Opening(), "b": Opening(says="fails")})
    assert ended == ["a"]
