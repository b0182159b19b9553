"""The commands about facts, run as in a shell."""

from pathlib import Path

import pytest

from agent_memory import AgentMemory, ExtractiveMemory
from agent_memory.testing import FakeLLM
from tests.kit import clean_environment, model_at, run

SAID = [
    ("2024-01-05T09:00Z", "I live in Paris.", {"text": "Lives in Paris.", "since": "2020"}),
    ("2024-06-05T09:00Z", "I went to Rome in May.", {"text": "Lives in Rome.", "since": "2024-05"}),
]


@pytest.fixture(autouse=True)
def _known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory in the folder with two homes of one user."""
    clean_environment(monkeypatch, tmp_path)
    with FakeLLM() as fake, AgentMemory(blocks=[ExtractiveMemory()], **model_at(fake)) as memory:
        for number, (at, text, fact) in enumerate(SAID, 1):
            tied = {"known": [1], "relation": "update"} if number > 1 else {}
            found = {**fact, "category": "home", "message": 1, "quote": text, **tied}
            fake.reply_json({"facts": [found]})
            message = {"role": "user", "content": text, "created_at": at}
            memory.update(f"s{number}", message, user_id="ana")
            memory.flush()


def rows(told: str) -> list[list[str]]:
    """Return the cells of a printed table, without its heading."""
    lines = told.splitlines()[1:]
    return [[part.strip() for part in line.split("  ") if part.strip()] for line in lines]


def test_facts_prints_current_facts_and_those_of_an_earlier_time() -> None:
    """Wrong: `facts` shows superseded facts as current, or not the facts of an earlier time."""
    (now,) = rows(run("facts", "--user", "ana"))
    assert now[1:] == [
        "since 2024-05", "Lives in Rome.", "user", "I went to Rome in May.", "s2 #1",
    ]  # fmt: skip
    (then,) = rows(run("facts", "--user", "ana", "--as-of", "2022-01-01"))
    assert then[1:3] == ["2020 to 2024-04", "Lives in Paris."]
    (known,) = rows(run("facts", "--user", "ana", "--known-at", "2024-02-01"))
    assert known[2] == "Lives in Paris."
    assert run("facts", "--user", "ben").strip() == "No facts."
    assert run("facts", "--user", "ana", "--stale").strip() == "No facts."


def test_the_audit_lists_every_change() -> None:
    """Wrong: the audit omits a change, or its reason."""
    told = run("audit", "--user", "ana")
    assert [line.split()[2] for line in told.splitlines()[1:]] == ["learned", "learned", "updated"]
    assert 'user said: "I live in Paris."' in told
    assert "another fact took its place: Lives in Rome." in told


def test_forget_accepts_the_beginning_of_an_id() -> None:
    """Wrong: `forget` removes another fact, or the superseded fact does not hold again."""
    begun = rows(run("facts", "--user", "ana"))[0][0]
    told = run("forget", begun, "--user", "ana", "--why", "asked by mail")
    assert "Lives in Rome." in told
    assert "still in the log" in told
    assert "Lives in Paris." in run("facts", "--user", "ana")
    assert "asked by mail" in run("audit", "--user", "ana")
    assert "There is no such fact." in run("forget", begun, "--user", "ana")


def test_forget_removes_only_facts_of_the_source() -> None:
    """Wrong: `forget --source` removes other facts than those from that source."""
    assert "There is no such fact" in run("forget", "--source", "s1:2-9")
    assert "Lives in Paris." in run("forget", "--source", "s1:1-1")
    assert "Lives in Rome." in run("forget", "--source", "s2")
    assert run("facts", "--user", "ana").strip() == "No facts."
