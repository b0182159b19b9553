"""Shared namespaces as applications and agents use them: access and isolation."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryConfig,
    ConfigError,
    Deployment,
    ExtractiveMemory,
    NullMemory,
    VectorMemory,
    operations,
)
from agent_memory.core.messages import Message
from agent_memory.engine.sharing.shares import DENIED, Share, SharedMemory
from agent_memory.errors import AccessDenied, InvalidId, InvalidInput, InvalidMessage, MemoryClosed
from agent_memory.stores import MemoryStore, Store
from agent_memory.testing import FakeLLM, watched
from tests.kit import model_at, opened, user


def texts(messages: Any) -> list[str]:
    return [one.message.text() for one in messages]


def facts(of: Any, **fields: Any) -> Any:
    try:
        return of.facts(**fields)
    except ConfigError:
        return []


Call = Callable[[SharedMemory], object]

READING: dict[str, Call] = {
    "get": lambda agent: agent.get("s-1", "plan"),
    "get without a message": lambda agent: agent.get("s-1"),
    "history": lambda agent: agent.history("s-1"),
    "search": lambda agent: agent.search("plan"),
    "search in a session": lambda agent: agent.search("plan", session_id="s-1"),
    "sessions": lambda agent: agent.sessions(),
    "facts": facts,
    "facts of a session": lambda agent: facts(agent, session_id="s-1"),
    "before_turn": lambda agent: agent.before_turn("s-1", "What is the plan?"),
}
WRITING: dict[str, Call] = {
    "update": lambda agent: agent.update("s-1", user("a word")),
    "update with nothing": lambda agent: agent.update("s-1", []),
    "pop": lambda agent: agent.pop("s-1"),
}
BAD: dict[str, Call] = {
    "update": lambda agent: agent.update("s-1", {"role": "nobody"}),
    "update of no session": lambda agent: agent.update("", user("a word")),
    "get": lambda agent: agent.get("s" * 300, 7),
    "before_turn": lambda agent: agent.before_turn("s-1", []),
    "completion": lambda agent: agent.completion("s-1", "Hello?"),
    "profile": lambda agent: agent.profile(),
}


def test_agents_see_shared_sessions_but_no_private_ones(store: Store) -> None:
    """Wrong: an agent misses another's shared messages, or sees its private ones."""
    with opened(store, VectorMemory()) as memory:
        share = memory.share("team-chat")
        share.grant("ann", "write")
        share.grant("ben")
        ann, ben = share.agent("ann"), share.agent("ben")
        head = ann.update("s-1", [user("The plan is to plant sage."), user("And mint.")])
        assert (head.session_id, head.user_id, head.end) == ("s-1", "team-chat", 2)
        memory.update("s-1", user("My own sage."), user_id="ann")
        memory.flush()

        assert texts(ben.history("s-1")) == ["The plan is to plant sage.", "And mint."]
        assert texts(ben.history("s-1", after=1)) == ["And mint."]
        assert {entry.session_id for entry in ben.history("s-1")} == {"s-1"}
        context = ben.get("s-2", "Which sage?")
        assert context.head is None
        assert {source for one in context.recalls for source in one.sources} <= {
            ("s-1", 1), ("s-1", 2)
        }  # fmt: skip
        assert any("plant sage" in one.text for one in context.recalls)
        shown = ben.get("s-1").head
        assert (shown.session_id, shown.user_id) == ("s-1", "team-chat")
        found = ben.search("sage", session_id="s-1")
        assert found[0].sources[0] == ("s-1", 1)
        assert ben.search("sage", session_id="s-9") == []
        assert [one.session_id for one in ben.sessions()] == ["s-1"]
        assert [one.session_id for one in share.sessions()] == ["s-1"]
        for write in WRITING.values():
            with pytest.raises(AccessDenied):
                write(ben)
        turn = ann.before_turn("s-1", "What shall we plant?")
        assert (turn.session_id, turn.user_id) == ("s-1", None)
        assert ann.after_turn(turn, "Sage.").end == 4
        assert [one.text() for one in ann.pop("s-1", 2)] == ["What shall we plant?", "Sage."]
        assert memory.stats().sessions == 2
        share.delete()
        assert (share.sessions(), share.agents(), operations.shares(memory)) == ([], {}, [])
        assert texts(memory.history("s-1")) == ["My own sage."]


def test_denied_access_reveals_nothing() -> None:
    """Wrong: an error shows whether a namespace, a session or a grant exists."""
    store = MemoryStore()
    with AgentMemory(store=store) as memory:
        team = memory.share("team")
        team.grant("ann", "write")
        team.agent("ann").update("s-1", user("x"))
        team.grant("ben")
        team.revoke("ben")
        steps: list[str] = []
        seen: set[tuple[type, str, tuple[str, ...]]] = set()
        with AgentMemory(store=watched(store, steps.append)) as other:
            for name in ("team", "nowhere"):
                for agent_id in ("ben", "eve"):
                    agent = other.share(name).agent(agent_id)
                    for call in [*READING.values(), *WRITING.values(), *BAD.values()]:
                        steps.clear()
                        with pytest.raises(AccessDenied) as caught:
                            call(agent)
                        seen.add((type(caught.value), str(caught.value), tuple(steps)))
        assert seen == {(AccessDenied, DENIED, ("before record", "after record"))}
        assert operations.shares(memory) == ["team"]
        assert [head.session_id for head in team.sessions()] == ["s-1"]


@pytest.mark.parametrize("name", READING)
def test_a_read_fails_if_access_is_revoked_meanwhile(name: str) -> None:
    """Wrong: a slow read returns data although access was revoked meanwhile."""
    store, reads = MemoryStore(), ("read", "head", "sessions", "records")
    with AgentMemory(store=store) as memory:
        share = memory.share("team")
        share.grant("ann", "write")
        share.agent("ann").update("s-1", user("the plan"))
        checked: list[str] = []

        def watch(step: str) -> None:
            checked.append(step)
            begun = len(checked) > 2  # the first step is the access check
            if begun and step.removeprefix("after ") in reads and share.has_access("ben"):
                share.revoke("ben")

        with AgentMemory(store=watched(store, watch), blocks=[ExtractiveMemory()]) as other:
            share.grant("ben")
            agent = other.share("team").agent("ben")
            checked.clear()
            with pytest.raises(AccessDenied):
                READING[name](agent)


def test_names_that_are_equal_when_joined_do_not_collide() -> None:
    """Wrong: a grant also applies to another agent and namespace whose joined names are equal."""
    parts = ("a", "b", "c")
    with AgentMemory(store="memory://") as memory:
        for between in ("\x1f", ":", "", " "):
            one, other = between.join(parts[:2]), between.join(parts[1:])
            memory.share(one).grant(parts[2])
            assert not memory.share(parts[0]).has_access(other)
            memory.share(parts[0]).grant(other, "write")
            assert memory.share(one).agents() == {parts[2]: "read"}
            memory.share(parts[0]).revoke(other)
            assert memory.share(one).has_access(parts[2])


def test_share_returns_one_handle_for_each_name() -> None:
    """Wrong: each call makes another handle, or a handle works after its memory is closed."""
    with AgentMemory(store="memory://") as memory:
        share = memory.share("team")
        assert memory.share("team") is share
        assert memory.share("Team") is not share
        assert isinstance(share, Share)
        assert repr(share) == "Share('team')"
        assert repr(share.agent("ann")) == "SharedMemory('team', agent_id='ann')"
        assert operations.shares(memory) == []
    for call in (share.agents, share.sessions, share.delete, lambda: share.grant("a")):
        with pytest.raises(MemoryClosed):
            call()
    with pytest.raises(MemoryClosed):
        memory.share("team")


def test_an_invalid_access_id_or_name_is_rejected() -> None:
    """Wrong: an invalid access, id or name is accepted."""
    with AgentMemory(store="memory://") as memory:
        share = memory.share("team")
        unknown: Any = "all"
        for call in (share.grant, share.has_access):
            with pytest.raises(InvalidInput, match='"read" or "write"'):
                call("ann", unknown)
        bad: Any
        for bad in ("", "\x1eann", None):
            for refused in (share.grant, share.revoke, share.has_access, share.agent):
                with pytest.raises(InvalidId):
                    refused(bad)
        for name in ("", "a\x1eb", "n" * 65):
            with pytest.raises(InvalidId):
                memory.share(name)
        share.grant("ann", "write")
        with pytest.raises(InvalidId, match="limit is 249"):
            share.agent("ann").update("s" * 250, user("x"))
        with pytest.raises(InvalidId):
            share.agent("ann").history("\x1eteam\x1es")
        assert share.agents() == {"ann": "write"}


def readable_text(agent: SharedMemory) -> str:
    """Return everything that an agent can read."""
    said = [
        [call(agent) for call in READING.values()],
        agent.get("s-1", "canary").to_messages(),
        agent.before_turn("s-1", "canary").messages,
    ]
    return json.dumps(said, default=str)


def read_outside(memory: AgentMemory, who: str) -> str:
    """Return everything that a user outside can read."""
    return json.dumps(
        [
            memory.get("s-1", "canary").to_messages(),
            memory.get("new", "canary", user_id=who).to_messages(),
            memory.search("canary", user_id=who), memory.search("canary", session_id="s-1"),
            memory.search("canary"), memory.history("s-1"), facts(memory.user(who)),
            memory.sessions(), memory.sessions(user_id=who),
            memory.call_tool("new", "memory_read", {"query": "canary"}, user_id=who),
        ],
        default=str,
    )  # fmt: skip


def test_no_data_passes_between_a_namespace_and_its_users(store: Store) -> None:
    """Wrong: data passes between a user, a namespace, and a user with the namespace's name."""
    with opened(store, VectorMemory()) as memory:
        for name in ("red", "blue"):
            memory.share(name).grant("ann", "write")
            memory.share(name).agent("ann").update("s-1", user(f"The canary of {name}-team."))
        memory.update("s-1", user("The canary of ann-alone."), user_id="ann")
        memory.update("s-2", user("The canary of red-user."), user_id="red")
        memory.flush()
        words = {"red": "red-team", "blue": "blue-team"}
        for name, word in words.items():
            inside = readable_text(memory.share(name).agent("ann"))
            assert word in inside
            others = {"red-team", "blue-team", "ann-alone", "red-user"} - {word}
            assert not [other for other in others if other in inside]
            assert "\\u001e" not in inside
        for who in ("ann", "red", "blue"):
            outside = read_outside(memory, who)
            assert not [word for word in ("red-team", "blue-team", "\\u001e") if word in outside]
        assert "ann-alone" in read_outside(memory, "ann")


def test_internal_ids_give_no_access_to_a_namespace() -> None:
    """Wrong: a caller reaches a shared session by the id that the store uses."""
    with AgentMemory(store="memory://") as memory:
        memory.share("team").grant("ann", "write")
        memory.share("team").agent("ann").update("s-1", user("secret"))
        session, owner = "\x1eteam\x1es-1", "\x1eteam"
        calls: list[Callable[[], object]] = [
            lambda: memory.history(session), lambda: memory.get(session),
            lambda: memory.get("s", user_id=owner), lambda: memory.update(session, user("x")),
            lambda: memory.search("secret", user_id=owner),
            lambda: memory.search("secret", session_id=session),
            lambda: memory.sessions(user_id=owner), lambda: memory.pop(session),
            lambda: memory.delete(session), lambda: memory.delete_user(owner),
            lambda: memory.flush(session), lambda: memory.session(session),
            lambda: memory.user(owner).facts(), lambda: memory.tools(session),
            lambda: memory.call_tool(session, "memory_read", {"query": "secret"}),
            lambda: memory.user(owner).notes(),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(InvalidId, match=r"memory\.share"):
                call()


def test_pages_of_sessions_have_no_gaps_for_shared_sessions(store: Store) -> None:
    """Wrong: a page of sessions has gaps because shared sessions lie between."""
    with AgentMemory(store=store) as memory:
        share = memory.share("team")
        share.grant("ann", "write")
        ann = share.agent("ann")
        for n in range(7):
            ann.update(f"s-{n}", user("x"))
        mine = sorted(["\tz", "\x1da", "a", "b", "\x1fz", "z"])
        for name in mine:
            memory.update(name, user("x"))
        for limit in (1, 2, 3, 100):
            found: list[str] = []
            while page := memory.sessions(limit=limit, after=found[-1] if found else None):
                assert len(page) <= limit
                found += [head.session_id for head in page]
            assert found == mine
            found = []
            while page := share.sessions(limit=limit, after=found[-1] if found else None):
                found += [head.session_id for head in page]
            assert found == [f"s-{n}" for n in range(7)]
        assert [one.session_id for one in ann.sessions(limit=2, after="s-4")] == ["s-5", "s-6"]
        assert memory.sessions(limit=0) == []


def test_the_author_of_a_message_cannot_be_forged() -> None:
    """Wrong: an agent signs with another's id, or a message loses its caller's metadata."""
    with AgentMemory(store="memory://") as memory:
        share = memory.share("team")
        share.grant("ann", "write")
        ann = share.agent("ann")
        given = Message(role="user", content="x", name="Ben", metadata={"agent": "ben", "n": 1})
        ann.update("s", [given, user("y", metadata={"agent": "ben"}), user("z", x=1)])
        ann.after_turn(ann.before_turn("s", "Why?"), "So.")
        log = ann.history("s")
        assert [entry.message.metadata for entry in log] == [
            {"agent": "ann", "n": 1}, *[{"agent": "ann"}] * 4
        ]  # fmt: skip
        assert log[0].message.name == "Ben"
        assert log[2].message.to_dict() == user("z", x=1, metadata={"agent": "ann"})
        assert given.metadata == {"agent": "ben", "n": 1}


@contextmanager
def answering() -> Iterator[tuple[FakeLLM, AgentMemory, Share]]:
    """Open a memory with a model, and a namespace in which Ann may write."""
    with FakeLLM("Sage.") as fake, AgentMemory("memory://", **model_at(fake)) as memory:
        share = memory.share("team")
        share.grant("ann", "write")
        yield fake, memory, share


def test_a_model_answers_in_a_namespace() -> None:
    """Wrong: a turn is not stored under its agent, or the model is called without write access."""
    with answering() as (fake, memory, share):
        share.grant("ben")
        answer = share.agent("ann").completion("s-1", "What shall we plant?", temperature=0)
        assert answer.choices[0].message.content == "Sage."
        log = share.agent("ben").history("s-1")
        assert texts(log) == ["What shall we plant?", "Sage."]
        assert {entry.message.metadata["agent"] for entry in log} == {"ann"}
        assert memory.sessions() == []
        asked = len(fake.requests)
        with pytest.raises(AccessDenied):
            share.agent("ben").completion("s-1", "And what else?")
        with pytest.raises(InvalidInput, match="no streams"):
            share.agent("ann").completion("s-1", "And what else?", stream=True)
        assert len(fake.requests) == asked


def test_a_turn_is_not_stored_if_access_is_revoked_meanwhile() -> None:
    """Wrong: the turn of an agent whose access was revoked meanwhile is stored."""
    with answering() as (fake, _, share):

        def season() -> str:
            """What season it is."""
            share.revoke("ann")
            return "spring"

        fake.call(("season", {}))
        with pytest.raises(AccessDenied):
            share.agent("ann").completion("s-1", "What shall we plant?", tools=[season])
        assert share.sessions() == []


def test_a_completion_in_a_namespace_runs_no_memory_tools() -> None:
    """Wrong: a model's tool call reaches a namespace's data without an access check."""
    with answering() as (fake, memory, share):
        schemas = memory.tools("elsewhere")
        fake.call(("memory_write", {"text": "x"}))
        response = share.agent("ann").completion("s-1", "Note it.", tools=schemas)
        assert response.choices[0].message.tool_calls  # returned, and not run
        assert share.sessions() == []


def test_a_namespace_rejects_a_regeneration_from_outside() -> None:
    """Wrong: a regeneration that began outside replaces a turn in a namespace."""
    with AgentMemory(store="memory://") as memory:
        memory.update("s", [user("Why?"), {"role": "assistant", "content": "So."}])
        memory.share("team").grant("ann", "write")
        with pytest.raises(InvalidInput, match="Nothing was stored"):
            memory.share("team").agent("ann").after_turn(memory.regenerate("s"), "Because.")
        assert texts(memory.history("s")) == ["Why?", "So."]
        assert memory.share("team").sessions() == []


def test_configured_grants_apply_only_to_new_agents(store: Store) -> None:
    """Wrong: opening a memory restores revoked grants, or removes later ones."""
    shares: Any = {"team": {"ann": "write", "ben": "read", "cay": "read"}, "other": {"ann": "read"}}
    with AgentMemory(store=store, shares=shares) as memory:
        assert memory.share("team").agents() == {"ann": "write", "ben": "read", "cay": "read"}
        assert memory.share("other").agents() == {"ann": "read"}
        memory.share("team").revoke("ann")
        memory.share("team").grant("ben", "write")
    with AgentMemory(store=store, shares=shares) as memory:
        assert memory.share("team").agents() == {"ben": "write", "cay": "read"}
    changed: Any = {"team": {"ben": "read", "cay": "write", "dan": "read"}}
    with AgentMemory(store=store, shares=changed) as memory:
        assert memory.share("team").agents() == {"ben": "write", "cay": "read", "dan": "read"}
        assert memory.share("other").agents() == {"ann": "read"}


def test_a_revocation_wins_over_a_concurrent_opening() -> None:
    """Wrong: a memory that opens at the same time overwrites a revocation."""
    store = MemoryStore()

    def watch(step: str) -> None:
        if step == "before put_records":
            with AgentMemory(store=store) as other:
                other.share("team").revoke("ann")

    shares: Any = {"team": {"ann": "write"}}
    with AgentMemory(store=watched(store, watch), shares=shares) as memory:
        assert memory.share("team").agents() == {}


@pytest.mark.parametrize(
    "shares",
    [{"": {}}, {"a\x1eb": {}}, {"n" * 65: {}}, {"a": {"": "read"}}, {"a": {"\x1e": "read"}},
     {"a": {"b": "all"}}],
)  # fmt: skip
def test_an_invalid_shares_setting_is_rejected(shares: Any) -> None:
    """Wrong: an invalid name or access in `shares` is accepted, and fails only when it is used."""
    with pytest.raises(ConfigError, match="shares"):
        AgentMemoryConfig(shares=shares)


def test_a_null_memory_checks_access_but_stores_nothing(tmp_path: Path) -> None:
    """Wrong: with memory switched off an invalid call succeeds, or something is stored."""
    with NullMemory(store=f"sqlite:///{tmp_path}/m.db") as memory:
        share = memory.share("team")
        with pytest.raises(AccessDenied):
            share.agent("ann").update("s", user("x"))
        share.grant("ann", "write")
        ann = share.agent("ann")
        ann.update("s", user("x"))
        with pytest.raises(InvalidMessage):
            ann.update("s", {"role": "nobody"})
        assert (ann.history("s"), ann.sessions()) == ([], [])
        assert ann.get("s", "x").messages == []
    assert list(tmp_path.iterdir()) == []


def test_a_profile_in_a_namespace_needs_a_profile_block() -> None:
    """Wrong: a profile without its block raises something else than the memory's own error."""
    with AgentMemory(store="memory://") as memory:
        memory.share("team").grant("ann")
        with pytest.raises(ConfigError, match="profile"):
            memory.share("team").agent("ann").profile()


def test_the_registry_finds_namespaces() -> None:
    """Wrong: a namespace is missing, listed without access, or begins by being asked for."""
    with AgentMemory("memory://") as memory:
        for name in ("team-b", "team-a", "other"):
            memory.share(name).grant("ann")
        memory.share("team-a").grant("ben", "write")
        memory.share("nothing granted")
        assert operations.shares(memory) == ["other", "team-a", "team-b"]
        assert operations.shares(memory, prefix="team-") == ["team-a", "team-b"]
        assert operations.shares(memory, agent_id="ben") == ["team-a"]
        assert operations.shares(memory, agent_id="ann", prefix="o") == ["other"]
        memory.share("team-a").revoke("ben")
        assert operations.shares(memory, agent_id="ben") == []


def test_a_namespace_has_a_database_of_its_own(tmp_path: Path) -> None:
    """Wrong: a namespace's messages or its registry are in another database."""
    table = "".join(f"[stores.{n}]\nstore = 'sqlite:///{tmp_path}/{n}.db'\n" for n in "ab")
    (tmp_path / "teams.toml").write_text(table)
    with Deployment.from_file(tmp_path / "teams.toml").open() as stores:
        share = stores["b"].share("contracts")
        share.grant("ann", "write")
        share.agent("ann").update("s-1", user("Draft the lease."))
        assert operations.shares(stores["a"]) == []
        assert operations.shares(stores["b"], agent_id="ann") == ["contracts"]
    kept = {
        n: any(b"Draft the" in one.read_bytes() for one in tmp_path.glob(f"{n}.db*")) for n in "ab"
    }
    assert kept == {"a": False, "b": True}
