"""On every store, new messages are found immediately, in other processes too."""

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from agent_memory import AgentMemory, VectorMemory
from agent_memory.stores.base import Store

SAID = "I am allergic to peanuts, badly."
ASKED = "Am I allergic to peanuts?"
FOUND = [f"user: {SAID}"]
_ASK = """
import json, sys
from agent_memory import AgentMemory, VectorMemory
given, asked = json.loads(sys.argv[1]), sys.argv[2]
with AgentMemory(**given, blocks=[VectorMemory()], recall_timeout=60) as memory:
    found = memory.search(asked, user_id="u")
    recalls = memory.get("elsewhere", asked, user_id="u").recalls
    print(json.dumps([[one.text for one in some] for some in (found, recalls)]))
"""


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_the_next_chat_knows_it_on_every_store(store: Store) -> None:
    """Wrong: a store misses pending messages, or finds another user's."""
    with AgentMemory(store=store, blocks=[VectorMemory()], recall_timeout=60) as memory:
        memory.update("a", [said("Good morning!"), said(SAID)], user_id="u")
        memory.update("b", said("I eat peanuts, and am allergic to nothing."), user_id="v")
        for absorbed in (False, True):
            assert [one.text for one in memory.search(ASKED, user_id="u", limit=1)] == FOUND
            recalls = memory.get("c", ASKED, user_id="u").recalls
            assert [one.sources[-1] for one in recalls] == [("a", 2)]
            assert memory.get("a", ASKED).recalls == []
            if not absorbed:
                memory.flush()


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_another_process_knows_it(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Wrong: another process does not find messages that are not absorbed yet."""
    server = kind != "sqlite"
    url = request.getfixturevalue(f"{kind}_url") if server else f"sqlite:///{tmp_path}/m.db"
    given = {"store": url, "namespace": f"fresh{uuid4().hex}"}

    def asked() -> list[list[str]]:
        call = [sys.executable, "-c", _ASK, json.dumps(given), ASKED]
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        answer: list[list[str]] = json.loads(done.stdout)
        return answer

    with AgentMemory(**given, blocks=[VectorMemory()]) as memory:
        memory.update("a", said(SAID), user_id="u")
        assert asked() == [FOUND, FOUND]
    assert asked() == [FOUND, FOUND]
