"""Grants, compared with a model of two dicts."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory import AgentMemory
from agent_memory.core.limits import Access, shared_session
from agent_memory.core.redaction import DELETED
from agent_memory.errors import AccessDenied
from agent_memory.stores import MemoryStore, Store, open_store

SHARES = ("red", "blue")
AGENTS = ("ann", "ben", "cay")
SESSIONS = ("s", "t")

shares, agents = st.sampled_from(SHARES), st.sampled_from(AGENTS)
sessions, memories = st.sampled_from(SESSIONS), st.integers(0, 1)
kinds: st.SearchStrategy[Access] = st.sampled_from(["read", "write"])


class Sharing(RuleBasedStateMachine):
    """Random calls of applications and agents. Subclasses choose the store."""

    def __init__(self) -> None:
        super().__init__()
        self.memories = [AgentMemory(store=one) for one in self.stores()]
        self.granted: dict[tuple[str, str], Access] = {}
        self.logs: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.said = 0

    def stores(self) -> list[Store]:
        store = MemoryStore()
        return [store, store]

    @rule(who=memories, share=shares, agent=agents, access=kinds)
    def grant(self, who: int, share: str, agent: str, access: Access) -> None:
        self.memories[who].share(share).grant(agent, access)
        self.granted[share, agent] = access

    @rule(who=memories, share=shares, agent=agents)
    def revoke(self, who: int, share: str, agent: str) -> None:
        self.memories[who].share(share).revoke(agent)
        self.granted.pop((share, agent), None)

    @rule(who=memories, share=shares, agent=agents, session=sessions, count=st.integers(1, 2))
    def update(self, who: int, share: str, agent: str, session: str, count: int) -> None:
        words = [f"{agent} says {self.said + n}." for n in range(count)]
        self.said += count
        messages = [{"role": "user", "content": word} for word in words]
        handle = self.memories[who].share(share).agent(agent)
        if self.granted.get((share, agent)) == "write":
            handle.update(session, messages)
            self.logs.setdefault((share, session), []).extend((agent, word) for word in words)
        else:
            with pytest.raises(AccessDenied):
                handle.update(session, messages)

    @rule(who=memories, share=shares, agent=agents, session=sessions)
    def read(self, who: int, share: str, agent: str, session: str) -> None:
        handle = self.memories[who].share(share).agent(agent)
        if (share, agent) not in self.granted:
            with pytest.raises(AccessDenied):
                handle.history(session)
            return
        said = [word for _, word in self.logs.get((share, session), [])]
        assert [entry.message.text() for entry in handle.history(session)] == said
        assert [one.text() for one in handle.get(session).messages] == said
        assert {head.session_id for head in handle.sessions()} == {
            name for of, name in self.logs if of == share
        }

    @rule(who=memories, share=shares, agent=agents, session=sessions)
    def pop(self, who: int, share: str, agent: str, session: str) -> None:
        handle = self.memories[who].share(share).agent(agent)
        if self.granted.get((share, agent)) != "write":
            with pytest.raises(AccessDenied):
                handle.pop(session)
            return
        log = self.logs.get((share, session), [])
        assert [one.text() for one in handle.pop(session)] == [word for _, word in log[-1:]]
        del log[-1:]

    @rule(who=memories, share=shares)
    def delete(self, who: int, share: str) -> None:
        self.memories[who].share(share).delete()
        self.granted = {key: one for key, one in self.granted.items() if key[0] != share}
        self.logs = {key: log for key, log in self.logs.items() if key[0] != share}

    @rule(who=memories, agent=agents)
    def delete_user(self, who: int, agent: str) -> None:
        self.memories[who].delete_user(agent)
        self.granted = {key: one for key, one in self.granted.items() if key[1] != agent}
        self.logs = {
            key: [("", DELETED) if one == agent else (one, word) for one, word in log]
            for key, log in self.logs.items()
        }

    @invariant()
    def agree(self) -> None:
        for memory in self.memories:
            for name in SHARES:
                share = memory.share(name)
                held = {one: access for (of, one), access in self.granted.items() if of == name}
                assert share.agents() == held
                for agent in AGENTS:
                    assert share.has_access(agent) is (agent in held)
                    assert share.has_access(agent, "write") is (held.get(agent) == "write")
            assert memory.sessions() == []
        for (name, session), log in self.logs.items():
            physical = shared_session(name, session)
            read = self.memories[0].components.store.read(physical)
            said = [one.message for one in read]
            assert [(one.metadata.get("agent", ""), one.text()) for one in said] == log

    def teardown(self) -> None:
        for memory in self.memories:
            memory.close()


class SharingInAFile(Sharing):
    """The same calls over two connections to an SQLite file."""

    def stores(self) -> list[Store]:
        self.folder = TemporaryDirectory()
        url = f"sqlite:///{Path(self.folder.name) / 'm.db'}"
        self.opened = [open_store(url, "default"), open_store(url, "default")]
        return list(self.opened)

    def teardown(self) -> None:
        super().teardown()
        for store in self.opened:
            store.close()
        self.folder.cleanup()


Sharing.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
SharingInAFile.TestCase.settings = settings(max_examples=5, stateful_step_count=20)
TestSharing = Sharing.TestCase
TestSharingInAFile = SharingInAFile.TestCase
