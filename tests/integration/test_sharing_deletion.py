"""A deleted user's text leaves shared namespaces, and a revoked grant holds in all processes."""

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent_memory import AgentMemory, Chain, FlushToLTM, Summarize, VectorMemory, operations
from agent_memory.core.limits import shared_session
from agent_memory.core.records import Entry, Scope
from agent_memory.core.redaction import DELETED
from agent_memory.engine.assembly import Components
from agent_memory.engine.paging import all_heads
from agent_memory.engine.sharing.shares import Share
from agent_memory.errors import AccessDenied, StoreUnavailable
from agent_memory.stores import MemoryStore, Store
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.testing import watched
from tests.kit import Cut, Echo, cut_at, every_nth, opened, piped, steps_of, user

PLACES = ("_grants", "_authors", "_notes", "_failed", "kept", "vector")


class FailsAtPoison(Echo):
    """Fails at messages with "poison"."""

    kind: str = "kept"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if any("poison" in entry.message.text() for entry in entries):
            raise ValueError("It cannot take this: poison.")
        super().update(scope, entries)


def log_of(share: Share, session_id: str) -> list[str]:
    """Return a session's log as a reader of the namespace sees it."""
    share.grant("reader")
    return [entry.message.text() for entry in share.agent("reader").history(session_id)]


def team(memory: AgentMemory) -> Share:
    """A namespace in which Ann and Ben may write."""
    share = memory.share("team")
    share.grant("ann", "write")
    share.grant("ben", "write")
    return share


def everything(store: Store) -> str:
    """Return all sessions of a store, and all facts of blocks and the engine."""
    heads = list(all_heads(store))
    owners = {"shares", "agent:ann", "share:team", "user deletions", "scrubs", "kept"}
    owners |= {Scope(head.user_id).owner for head in heads} | {"user:ann", "user:\x1eteam"}
    facts = [fact for place in PLACES for owner in owners for fact in store.records(place, owner)]
    logs = [entry for head in heads for entry in store.read(head.session_id)]
    return f"{heads} {logs} {facts}"


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_a_deleted_user_leaves_no_data_in_namespaces(store: Store, tmp_path: Path) -> None:
    """Wrong: a deleted agent's text stays in a log, summary, record, context or file, or its grants
    do. Also wrong: another agent's text is lost."""
    flush = FlushToLTM(blocks=[VectorMemory(), FailsAtPoison()], max_stm_ratio=0.5)
    overflow = Chain([flush, Summarize(max_summary_tokens=100)])
    with opened(store, overflow=overflow, max_tokens=600) as memory:
        share, other = team(memory), memory.share("other")
        other.grant("ann")
        ann, ben = share.agent("ann"), share.agent("ben")
        for n in range(12):
            ben.update("s", user(f"Ben planted bencanary number {n} in the long bed."))
            ann.update("s", user(f"Ann planted anncanary number {n} in the short bed."))
        ann.update("only", {"role": "system", "content": "Speak of anncanary only."})
        ben.update("none", user("Ben was alone with bencanary."))
        memory.update("own", user("My own anncanary."), user_id="ann")
        memory.flush()
        before = ben.get("s", "Which canary?")
        assert "anncanary" in before.head.summary.text

        memory.delete_user("ann")
        assert share.agents() == {"ben": "write"}
        assert other.agents() == {}
        assert "anncanary" not in everything(store)
        assert "'ann'" not in everything(store)
        for _ in range(2):
            asked = "Who planted the short bed?"
            contexts = [ben.get(name, asked) for name in ("s", "only", "none")]
            assert "anncanary" not in str(contexts)
            assert "anncanary" not in str(ben.search("anncanary", limit=100))
            memory.flush()
        assert "bencanary" in str(ben.search("Ben planted bencanary"))
        log = ben.history("s")
        assert [entry.seq for entry in log] == list(range(1, 25))
        assert [one.message.text() for one in log[1::2]] == [DELETED] * 12
        assert [one.message.text() for one in log[::2]] == [
            f"Ben planted bencanary number {n} in the long bed." for n in range(12)
        ]
        after = ben.get("s", "Which canary?")
        assert after.head.total == before.head.total
        counter = memory.components.resources.counter
        assert after.tokens == counter.context(after.to_messages()) <= 600
        only = ben.get("only")
        assert only.head.system is None
        assert only.messages == []
        assert memory.sessions() == []
        # other agents' earlier messages are still stored once, unchanged
        kept = [fact.text for fact in store.records("kept", "user:\x1eteam")]
        assert sorted(text for text in kept if "long bed" in text) == sorted(
            f"Ben planted bencanary number {n} in the long bed." for n in range(12)
        )
    store.close()
    assert b"anncanary" not in bytes_of(tmp_path)
    with pytest.raises(AccessDenied):
        opened("memory://").share("team").agent("ann").history("s")


def test_provider_messages_of_a_deleted_agent_are_redacted(store: Store) -> None:
    """Wrong: deleted text stays in a provider's own fields, or a call loses its result."""
    raw = [
        {"type": "reasoning", "encrypted_content": "secret"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":"secret"}'},
        {"type": "function_call_output", "call_id": "c", "output": "secret"},
    ]
    with AgentMemory(store=store, tokenizer="approximate") as memory:
        share = team(memory)
        share.agent("ann").update("s", user("Go."))
        share.agent("ann").update("s", [{"raw": one, "format": "openai.responses"} for one in raw])
        function = {"name": "f", "arguments": "secret"}
        old = {"role": "assistant", "content": "", "function_call": function}
        share.agent("ann").update("s", old)
        share.agent("ann").update("s", {"role": "function", "name": "f", "content": "secret"})
        memory.delete_user("ann")
        assert "secret" not in everything(store)
        chat = share.agent("ben").get("s").to_messages()
        assert [one["role"] for one in chat] == [
            "user", "assistant", "tool", "assistant", "function",
        ]  # fmt: skip
        assert chat[1]["tool_calls"][0]["id"] == chat[2]["tool_call_id"] == "c"
        assert chat[3]["function_call"] == {"name": "f", "arguments": "{}"}
        assert chat[4]["name"] == "f"


def test_system_messages_of_a_deleted_agent_are_removed(store: Store) -> None:
    """Wrong: a deleted agent's system message is still sent, or another's is lost."""
    with AgentMemory(store=store) as memory:
        share = team(memory)
        ann, ben = share.agent("ann"), share.agent("ben")

        def system(text: str) -> dict[str, Any]:
            return {"role": "system", "content": text}

        ben.update("first", [system("By Ben."), user("x")])
        ann.update("first", system("By Ann."))
        ann.update("last", [system("By Ann."), user("x")])
        ben.update("last", system("By Ben."))
        ann.update("alone", [system("By Ann."), user("x")])
        memory.delete_user("ann")
        shown = {name: ben.get(name).to_messages()[0] for name in ("first", "last", "alone")}
        assert shown["first"] == shown["last"] == system("By Ben.")
        assert shown["alone"] == user(DELETED)
        heads = {head.session_id: head for head in share.sessions()}
        assert heads["alone"].system_tokens == 0
        assert heads["first"].system_tokens == heads["last"].system_tokens > 0
        ben.pop("last")
        assert ben.get("last").to_messages() == [user(DELETED)]
        ben.update("alone", system("Anew."))
        assert ben.get("alone").to_messages()[0] == system("Anew.")
        assert "By Ann" not in everything(store)


def test_a_summary_without_the_deleted_agents_text_is_kept() -> None:
    """Wrong: a summary without the agent's text is discarded, and must be paid for again."""
    overflow = Summarize(max_summary_tokens=60, keep_messages=4)
    with AgentMemory(store="memory://", overflow=overflow, max_tokens=300) as memory:
        share = team(memory)
        ben = share.agent("ben")
        for n in range(20):
            ben.update("s", user(f"Ben planted sage number {n} in the long bed by the old wall."))
        share.agent("ann").update("s", user("x"))
        before = ben.get("s").head
        memory.delete_user("ann")
        after = ben.get("s").head
        assert after.summary == before.summary is not None
        assert after.start == before.start


def test_a_log_shortened_by_retention_is_redacted(store: Store) -> None:
    """Wrong: the rest of a shortened log is not redacted, or at a wrong place."""
    old = datetime.now(UTC) - timedelta(days=9)
    overflow = FlushToLTM(blocks=[FailsAtPoison()], max_stm_ratio=0.5)
    fields: Any = {"overflow": overflow, "max_tokens": 600, "retention": "window"}
    with opened(store, **fields) as memory:
        share = team(memory)
        ann, ben = share.agent("ann"), share.agent("ben")
        for n in range(20):
            ben.update("later", user(f"Ben planted sage {n} in the long bed by the old wall."))
        for name in ("early", "later"):
            ann.update(name, user("Ann planted anncanary, early on.", created_at=old))
        for n in range(30):
            for name in ("early", "later", "never"):
                ben.update(name, user(f"Ben planted bencanary number {n} in the long bed."))
        ann.update("later", user("Ann planted anncanary again."))
        memory.flush()
        heads = {head.session_id: head for head in share.sessions()}
        assert heads["later"].expired > 21
        assert heads["early"].expired > 1
        assert "anncanary" in everything(store)
        memory.delete_user("ann")
        assert "anncanary" not in everything(store)
        after = {head.session_id: head for head in share.sessions()}
        assert after["never"] == heads["never"]
        log = ben.history("later")
        assert log[-1].message.text() == DELETED
        assert [entry.seq for entry in log] == list(range(after["later"].expired + 1, 53))
        assert log[-1].total == heads["later"].total
        memory.flush()
        for name in after:
            context = ben.get(name, "canary")
            assert "anncanary" not in str(context)
            assert "bencanary" in str(context.to_messages())
            assert context.head.lag("kept") == 0
        kept = [fact.text for fact in store.records("kept", "user:\x1eteam")]
        assert len([text for text in kept if "sage" in text]) == 20  # before Ann's first message


def test_dead_letters_of_a_deleted_agent_are_redacted() -> None:
    """Wrong: a dead letter keeps the agent's text, or loses other agents' messages."""
    store = MemoryStore()
    overflow = FlushToLTM(blocks=[FailsAtPoison()], absorb="every_update")
    with opened(store, overflow=overflow, absorb_attempts=1) as memory:
        share = team(memory)
        share.agent("ben").update("s", user("sage"))
        share.agent("ann").update("s", user("poison"))
        share.agent("ben").update("s", user("mint"))
        assert len(operations.dead_letters(memory)) == 1
        memory.delete_user("ann")
        assert operations.dead_letters(memory) == []
        memory.flush()
        kept = [fact.text for fact in store.records("kept", "user:\x1eteam")]
        assert sorted(kept) == sorted(["sage", DELETED, "mint"])
        assert "poison" not in everything(store)


def test_agents_with_similar_names_are_not_deleted(store: Store) -> None:
    """Wrong: deleting an agent also deletes an agent or a namespace with a similar name."""
    with AgentMemory(store=store) as memory:
        share = memory.share("ann")
        for agent in ("ann", "Ann", "ann ", "team", "ann\x1f"):
            share.grant(agent, "write")
            share.agent(agent).update("s", user(f"By {agent!r}."))
        memory.delete_user("ann")
        assert list(share.agents()) == ["Ann", "ann\x1f", "ann ", "team"]
        assert log_of(share, "s") == [
            DELETED, "By 'Ann'.", "By 'ann '.", "By 'team'.", "By 'ann\\x1f'."
        ]  # fmt: skip
        memory.delete_user("team")
        assert log_of(share, "s")[3] == DELETED


def test_system_messages_in_a_separate_store_are_included(tmp_path: Path) -> None:
    """Wrong: an interrupted deletion leaves the agent's system messages in their own store."""
    for step in range(1, 200):
        url, system = f"sqlite:///{tmp_path}/m{step}.db", MemoryStore()
        with AgentMemory(store=url, system_store=system) as memory:
            ben, ann = (team(memory).agent(name) for name in ("ben", "ann"))
            ben.update("s", [{"role": "system", "content": "By Ben."}, user("x")])
            ann.update("s", {"role": "system", "content": "By anncanary."})
            ann.update("t", {"role": "system", "content": "By anncanary."})
        cut = False
        try:
            broken = KernelStore(watched(system.kernel, cut_at(step)[0]))
            with AgentMemory(store=url, system_store=broken) as memory:
                memory.delete_user("ann")
        except Cut:
            cut = True
        with AgentMemory(store=url, system_store=system) as memory:
            memory.delete_user("ann")
            ben = team(memory).agent("ben")
            assert ben.get("s").to_messages()[0]["content"] == "By Ben."
            assert ben.get("t").to_messages() == []
            owners = [f"session:{shared_session('team', name)}" for name in ("s", "t")]
            told = str([system.records("_system", owner) for owner in owners])
            assert "By Ben." in told
            assert "anncanary" not in told
            assert "'ann'" not in told.replace('"', "'")
        assert b"anncanary" not in bytes_of(tmp_path)
        if not cut:
            break
    assert step > 5


def again(memory: AgentMemory, delete: Callable[[AgentMemory], None]) -> None:
    delete(memory)


def flush(memory: AgentMemory, delete: Callable[[AgentMemory], None]) -> None:
    memory.flush()


def work(memory: AgentMemory, delete: Callable[[AgentMemory], None]) -> None:
    parts = Components(memory.config)
    worker = parts.worker(1)
    worker.run_once()
    worker.stop()


WAYS = [again, flush, work]


def of_user(memory: AgentMemory) -> None:
    memory.delete_user("ann")


def of_share(memory: AgentMemory) -> None:
    memory.share("team").delete()


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("delete", [of_user, of_share])
@pytest.mark.parametrize("finish", WAYS)
def test_a_rebuild_survives_any_interruption(
    delete: Callable[[AgentMemory], None], finish: Callable[..., None]
) -> None:
    """Wrong: an interrupted deletion leaves data for good, or restores the agent's access."""
    fields: Any = {"overflow": FlushToLTM(blocks=[FailsAtPoison()], absorb="every_update")}
    for step in steps_of(finish, WAYS):
        store = MemoryStore()
        with opened(store, **fields) as memory:
            share = team(memory)
            for name in ("s", "t"):
                for agent in ("ben", "ann", "ben"):
                    share.agent(agent).update(name, user(f"{agent}canary in {name}"))
        try:
            with opened(watched(store, cut_at(step)[0]), **fields) as memory:
                delete(memory)
        except Cut:
            pass
        else:
            break
        time.sleep(0.006)
        with opened(store, **fields) as memory:
            begun = bool(store.records("_notes", "user deletions"))
            share = memory.share("team")
            whole = share.agents() == {"ann": "write", "ben": "write"}
            finish(memory, delete)
            gone = begun or finish is again or not whole
            left = everything(store)
            assert ("anncanary" in left) is not gone, step
            assert share.has_access("ann") is not gone
            if not gone:
                continue
            assert "user deletions" not in left
            if delete is of_share:
                assert "canary" not in left
                assert (share.agents(), share.sessions(), operations.shares(memory)) == ({}, [], [])
                assert not store.records("_grants", "agent:ann")
                continue
            assert not store.records("_grants", "agent:ann")
            memory.flush()
            for name in ("s", "t"):
                own = f"bencanary in {name}"
                assert log_of(share, name) == [own, DELETED, own]
            kept = [fact.text for fact in store.records("kept", "user:\x1eteam")]
            assert len(kept) == 6
            assert sum("bencanary" in text for text in kept) == 4
    assert step > 30


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize("delete", [of_user, of_share])
def test_a_new_grant_survives_an_old_deletion(delete: Callable[[AgentMemory], None]) -> None:
    """Wrong: finishing an old deletion removes a new grant or a message written since."""
    for step in every_nth(range(2, 400), 4):
        store = MemoryStore()
        with AgentMemory(store=store) as memory:
            team(memory).agent("ann").update("s", user("anncanary"))
        try:
            with AgentMemory(store=watched(store, cut_at(step)[0])) as memory:
                delete(memory)
        except Cut:
            pass
        else:
            break
        time.sleep(0.006)
        with AgentMemory(store=store) as memory:
            if not store.records("_notes", "user deletions"):
                continue
            share = memory.share("team")
            share.grant("ann", "write")
            assert "anncanary" not in everything(store)
            share.agent("ann").update("s", user("Back again."))
            memory.flush()
            assert share.agents()["ann"] == "write"
            assert log_of(share, "s")[-1:] == ["Back again."]
    assert step > 20


def test_a_message_written_during_a_deletion_is_redacted() -> None:
    """Wrong: a message stored just after the deletion, by a call that began before it, stays."""
    store = MemoryStore()
    with AgentMemory(store=store) as memory:
        share = team(memory)

        def watch(step: str) -> None:
            if step == "before append" and share.has_access("ann"):
                memory.delete_user("ann")

        with AgentMemory(store=watched(store, watch)) as other:
            other.share("team").agent("ann").update("s", user("anncanary"))
        assert log_of(share, "s") == [DELETED]
        assert "anncanary" not in everything(store)


def test_a_second_deletion_redacts_writes_during_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the message stays for good, because no later deletion finds the namespace."""
    monkeypatch.setattr("agent_memory.engine.leases._WAIT_SECONDS", 0.05)
    store = MemoryStore()
    with AgentMemory(store=store) as memory:
        share, session = team(memory), shared_session("team", "s")
        share.agent("ben").update("s", user("by ben"))

        def watch(step: str) -> None:
            if step == "before append" and share.has_access("ann"):
                memory.delete_user("ann")
                assert store.lease(session, "worker", 60)

        with (
            AgentMemory(store=watched(store, watch)) as other,
            pytest.raises(StoreUnavailable, match="call delete_user again"),
        ):
            other.share("team").agent("ann").update("s", user("anncanary"))
        store.release(session, "worker")
        memory.delete_user("ann")
        assert log_of(share, "s") == ["by ben", DELETED]
        assert "ann" not in everything(store)


SECONDS = 3.0
AGENTS = ("ann", "ben")
AGENT = """
import json, sys, threading, time
from agent_memory import AgentMemory
from agent_memory.errors import AccessDenied

url, namespace, agent_id = sys.argv[1:]
stop = threading.Event()

def wait():
    sys.stdin.readline()
    stop.set()

with AgentMemory(store=url, namespace=namespace, tokenizer="approximate") as memory:
    agent = memory.share("team").agent(agent_id)
    calls = {
        "write": lambda: agent.update("s", {"role": "user", "content": agent_id}),
        "read": lambda: (agent.history("s", limit=3), agent.get("s")),
    }
    print("ready", flush=True)
    threading.Thread(target=wait, daemon=True).start()
    done = []
    while not stop.is_set():
        for kind, call in calls.items():
            begun = time.monotonic()
            try:
                call()
                outcome = True
            except AccessDenied:
                outcome = False
            done.append([kind, begun, time.monotonic(), outcome])
    print(json.dumps(done), flush=True)
"""


@dataclass(frozen=True)
class Change:
    """A change of a grant, with the times of its call and its return."""

    begun: float
    ended: float
    access: str | None


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db"
    else:
        yield request.getfixturevalue("redis_url")


def may(access: str | None, kind: str) -> bool:
    return access == "write" or access == kind


def test_no_call_succeeds_after_its_revocation(url: str) -> None:
    """Wrong: a process caches a grant, or misses a new one."""
    namespace, rng = uuid4().hex, random.Random(7)
    changes: dict[str, list[Change]] = {agent: [] for agent in AGENTS}
    with AgentMemory(store=url, namespace=namespace) as memory:
        share = memory.share("team")

        def change(agent: str, access: str | None) -> None:
            begun = time.monotonic()
            if access is None:
                share.revoke(agent)
            else:
                share.grant(agent, access)  # type: ignore[arg-type]
            changes[agent].append(Change(begun, time.monotonic(), access))

        command = [sys.executable, "-W", "error", "-c", AGENT]
        processes = {agent: piped(*command, url, namespace, agent, stderr=None) for agent in AGENTS}
        try:
            for process in processes.values():
                assert process.stdout.readline() == "ready\n"
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                change(rng.choice(AGENTS), rng.choice(["read", "write", None]))
                time.sleep(rng.uniform(0.0, 0.1))
            for agent in AGENTS:
                change(agent, "write")
            time.sleep(0.3)
            for agent in AGENTS:
                change(agent, None)
            time.sleep(0.3)
            calls = {
                agent: json.loads(process.communicate("stop\n", timeout=60)[0])
                for agent, process in processes.items()
            }
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
        share.grant("host", "read")
        log = [entry.message for entry in share.agent("host").history("s")]
        memory.share("team").delete()

    for agent in AGENTS:
        settled = 0
        told = [Change(0.0, 0.0, None), *changes[agent], Change(1e18, 1e18, None)]
        for kind, begun, ended, succeeded in calls[agent]:
            # grants in force at some moment of the call: the last one that had returned before it
            # began, and those that were under way meanwhile
            last = max(n for n, one in enumerate(told) if one.ended <= begun)
            in_force = {one.access for one in told[last:] if one.begun <= ended}
            if succeeded:
                assert any(may(access, kind) for access in in_force), (agent, kind, begun, ended)
            else:
                assert not all(may(access, kind) for access in in_force), (agent, kind, begun)
            settled += len(in_force) == 1
        outcomes = {(kind, succeeded) for kind, _, _, succeeded in calls[agent]}
        assert outcomes == {(kind, done) for kind in ("read", "write") for done in (True, False)}
        assert settled > len(calls[agent]) / 2
        wrote = sum(1 for kind, _, _, succeeded in calls[agent] if kind == "write" and succeeded)
        assert sum(one.metadata == {"agent": agent} for one in log) == wrote
        assert all(one.text() == one.metadata["agent"] for one in log)
