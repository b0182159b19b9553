"""The commands forget only what they showed, and only after a confirmation."""

from pathlib import Path

import pytest

from agent_memory import AgentMemory
from tests.kit import run

DOCK = "The boat lies at the eastern dock of the old harbour, next to the blue lamp."
NUTS = "Ana is allergic to peanuts and all other kinds of nuts, says her {}."


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("AGENT_MEMORY_STORE", "sqlite:///m.db")
    monkeypatch.setenv("AGENT_MEMORY_RECALL_TIMEOUT", "30")
    monkeypatch.chdir(tmp_path)
    with AgentMemory("m.db") as memory:
        for doctor in ("doctor", "new doctor"):
            memory.remember(NUTS.format(doctor), user_id="ana")
        said = {"role": "user", "content": DOCK, "metadata": {"topic": "boats"}}
        memory.update("s", [said, {"role": "assistant", "content": "A boat, fine."}], user_id="ana")
        memory.update("t", {"role": "user", "content": "Another boat."}, user_id="ben")


def stored() -> tuple[list[str], list[str]]:
    """Return Ana's notes and messages."""
    with AgentMemory("m.db") as memory:
        notes = [one.text for one in memory.user("ana").notes().all()]
        return notes, [one.message.text() for one in memory.history("s")]


def test_surplus_forgets_only_with_the_option_and_confirmation() -> None:
    """Wrong: `surplus` forgets notes without `--forget`, or after the user said no."""
    before = stored()
    for arguments, given, code in (
        (["--user", "ana"], None, 0),
        (["--user", "ana", "--forget"], "n", 1),
        (["--session", "s", "--messages", "--older-than", "1d"], None, 0),
    ):
        told = run("surplus", *arguments, given=given, code=code)
        assert NUTS.format("doctor") in told
        assert NUTS.format("new doctor") in told
    assert stored() == before
    assert "1 of 1 forgotten" in run("surplus", "--user", "ana", "--forget", given="y")
    assert stored() == ([NUTS.format("new doctor")], before[1])
    assert "There are no near-duplicates" in run("surplus", "--user", "ana", "--forget")
    assert "is not a duration" in run("surplus", "--user", "ana", "--older-than", "P3D", code=1)
    assert "No user is named" in run("surplus", code=1)


def test_search_forgets_only_matching_records() -> None:
    """Wrong: `search --forget` ignores a filter, or deletes messages without `--messages`."""
    filters = ["--user", "ana", "--role", "user", "--where", "topic=boats", "--since", "2026-01-01"]
    assert DOCK in run("search", "boat", *filters)
    assert "Nothing found" in run("search", "boat", *filters, "--until", "2026-01-02")
    assert "Nothing found" in run("search", "boat", *filters, "--block", "notes")
    assert "everyone" not in run("search", "doctor", "--user", "ana", "--block", "notes")
    told = run("search", "boat", *filters, "--forget", "--yes")
    assert "0 of 1 forgotten" in told
    assert "--messages" in told
    assert stored()[1] == [DOCK, "A boat, fine."]
    assert "forget these 1" in run("search", "boat", *filters, "--forget", "--messages", given="y")
    assert stored()[1] == ["A boat, fine."]
    assert "No user is named" in run("search", "boat", "--forget", "--yes", code=1)
    assert "KEY=VALUE" in run("search", "boat", *filters, "--where", "topic", code=1)
    with AgentMemory("m.db") as memory:
        assert len(memory.history("t")) == 1
