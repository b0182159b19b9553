"""The benchmarks of recall and answers work on each format; their figures are no test's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from agent_memory.testing import FakeLLM
from benchmarks.answers.__main__ import run as run_answers
from benchmarks.answers.systems import SYSTEMS
from benchmarks.recall.__main__ import run
from benchmarks.recall.formats import read

app, answers_app = Typer(), Typer()
app.command()(run)
answers_app.command()(run_answers)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One conversation of two sessions, in LoCoMo's form."""
    said: dict[str, Any] = {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "My parrot is called Figaro."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "I am learning to weld."},
        ],
        "session_2_date_time": "10:05 am on 2 June, 2023",
        "session_2": [
            {
                "speaker": "Ben",
                "dia_id": "D2:1",
                "text": "Look!",
                "blip_caption": "a gate of iron bars",
            },
        ],
    }
    asked = [
        {"question": "What is the parrot called?", "category": 4, "evidence": ["D1:1"]},
        {"question": "What is Ben learning?", "category": 1, "evidence": ["D1:02; D2:1", "D:9"]},
        {"question": "Who says nothing?", "category": 2, "evidence": ["D7:7"]},
        {"question": "Is Ada's parrot blue?", "category": 5, "evidence": ["D1:1"]},
    ]
    file = tmp_path / "data.json"
    file.write_text(json.dumps([{"sample_id": "c", "conversation": said, "qa": asked}]))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two chats, 2 and 10, in BEAM's form."""
    for number in (10, 2):
        chat = tmp_path / "chats" / str(number)
        (chat / "probing_questions").mkdir(parents=True)
        (chat / "chat.json").write_text(json.dumps(_batches(number)))
        asked = {
            "temporal_reasoning": [
                {"question": "When was it?", "source_chat_ids": {"first": [0], "then": [3]}},
                {"question": "And who?", "source_chat_ids": [77]},
            ],
            "event_ordering": [{"question": "What came first?", "source_chat_ids": [2, [0]]}],
            "preference_following": [{"question": "Which tea?"}],
            "abstention": [{"question": "Why not?", "source_chat_ids": [1]}],
            "summarization": [{"question": "Sum it up", "source_chat_ids": [0, 1, 2, 3]}],
        }
        file = chat / "probing_questions" / "probing_questions.json"
        file.write_text(json.dumps(asked))
    return tmp_path / "chats"


def _batches(number: int) -> list[dict[str, Any]]:
    day = {"time_anchor": "March-15-2024", "index": "1,2"}
    said = [
        {"role": "user", "id": 0, "content": f"I have {number} ferrets. ->-> 1,2", **day},
        {"role": "assistant", "id": 1, "content": "How lovely -> tell me\nmore."},
        {"role": "user", "id": 2, "content": "They sleep all day.\n\n->-> 1,3\nbye"},
    ]
    undated = {"role": "user", "id": 4, "content": "Hello?"}
    later = {"role": "user", "id": 3, "content": "Back again.", "time_anchor": "April-02-2024"}
    return [
        {"batch_number": 1, "turns": [said[:2], said[2:]]},
        {"batch_number": 2, "turns": [[undated, later]]},
    ]


def test_what_is_read(data: Path) -> None:
    """Wrong: evidence is lost, or a turn stands in another session, time or role."""
    (conversation,) = read(data)
    assert [question.evidence for question in conversation.questions] == [
        {"D1:1"},
        {"D1:2", "D2:1"},
        {"D1:1"},
    ]
    messages = conversation.sessions["c-2"]
    assert [turn for turn, _ in messages] == ["D2:1"]
    message = messages[0][1]
    assert message["content"] == "Look! [shares an image: a gate of iron bars]"
    assert (message["role"], message["name"]) == ("assistant", "Ben")
    assert message["created_at"].isoformat() == "2023-06-02T10:05:00+00:00"


def test_which_chats_are_read(folder: Path) -> None:
    """Wrong: evidence within names or lists is lost, or questions are asked that have none, or a
    message stands in another session or day, or shows the plan that it was made of."""
    small, large = read(folder)
    assert (small.name, large.name) == ("2", "10")
    assert [(one.text, one.category, one.evidence) for one in small.questions] == [
        ("When was it?", "temporal reasoning", {"0", "3"}),
        ("What came first?", "event ordering", {"0", "2"}),
    ]
    said = [(turn, one["role"], one["content"]) for turn, one in large.sessions["10-1"]]
    assert said == [
        ("0", "user", "I have 10 ferrets."),
        ("1", "assistant", "How lovely -> tell me\nmore."),
        ("2", "user", "They sleep all day."),
    ]
    times = [one["created_at"].isoformat() for _, one in large.sessions["10-1"]]
    assert times[::2] == ["2024-03-15T00:00:00+00:00", "2024-03-15T00:01:00+00:00"]
    (_, undated), (turn, later) = large.sessions["10-2"]
    assert "created_at" not in undated
    assert (turn, later["created_at"].isoformat()) == ("3", "2024-04-02T00:00:30+00:00")


def test_it_runs(data: Path, tmp_path: Path) -> None:
    """Wrong: the command fails, or tells of questions without evidence."""
    out = tmp_path / "out.json"
    told = CliRunner().invoke(
        app, ["--data", str(data), "--out", str(out), "--set", 'roles=["user"]']
    )
    assert told.exit_code == 0, told.output
    result = json.loads(out.read_text())
    assert result["turns"] == 3
    assert result["settings"] == {"roles": ["user"]}
    assert set(result["figures"]) == {"all", "single-hop", "multi-hop", "adversarial"}
    assert result["figures"]["single-hop"]["recall@5"] == 100
    assert result["figures"]["multi-hop"]["recall@50"] == 0  # the assistant's turns hold it


def test_the_chats_that_are_named(folder: Path, tmp_path: Path) -> None:
    """Wrong: other chats are asked than those named."""
    out = tmp_path / "out.json"
    told = CliRunner().invoke(app, ["--data", str(folder), "--only", "10", "--out", str(out)])
    assert told.exit_code == 0, told.output
    result = json.loads(out.read_text())
    assert (result["conversations"], result["turns"]) == (["10"], 5)
    assert result["figures"].keys() == {"all", "temporal reasoning", "event ordering"}


LOCOMO = [
    {
        "sample_id": "c",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "My parrot is called Figaro."},
                *(
                    {"speaker": "Ben", "dia_id": f"D1:{n}", "text": f"Weather report {n}: rain."}
                    for n in range(2, 40)
                ),
            ],
        },
        "qa": [
            {
                "question": "What is the parrot called?",
                "answer": "Figaro",
                "category": 4,
                "evidence": ["D1:1"],
            }
        ],
    }
]
LONGMEMEVAL = [
    {
        "question_id": name,
        "question_type": "single-session-user",
        "question": "What is my parrot called?",
        "answer": "Figaro",
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["answer_1"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "My parrot Figaro sings.", "has_answer": True},
                {"role": "assistant", "content": "How nice!"},
            ]
        ],
    }
    for name in ("q1", "q2_abs")
]


def answer(body: dict[str, Any]) -> str:
    """Reads the notes as a reader, and compares as a judge."""
    said = str(body["messages"][-1]["content"])
    if "Right answer:" in said:
        return "yes" if "Answer: Figaro" in said else "No."
    return "Figaro" if "Figaro" in said else "I do not know."


@pytest.mark.parametrize("data", [LOCOMO, LONGMEMEVAL], ids=["locomo", "longmemeval"])
def test_it_asks_once_and_repeats_without_a_model(tmp_path: Path, data: list[Any]) -> None:
    """Wrong: a system's answer is given to another, or a run that is repeated asks again."""
    file, out = tmp_path / "data.json", tmp_path / "out.json"
    file.write_text(json.dumps(data))
    given = ["--data", str(file), "--answers", str(tmp_path / "answers"), "--out", str(out)]
    with FakeLLM() as fake:
        fake.default = answer
        models = ["--reader", "openai/r", "--judge", "openai/j", "--tokens", "100"]
        asked = [*given, *models, "--api-base", fake.api_base, "--api-key", "k"]
        done = CliRunner().invoke(answers_app, asked)
        assert done.exit_code == 0, done.output
        count = len(fake.requests)
        again = CliRunner().invoke(answers_app, [*asked, "--no-ask"])
        assert again.exit_code == 0, again.output
        assert len(fake.requests) == count
    rows = json.loads(out.read_text())
    right = {one["system"]: one["right"] for one in rows}
    newest = data is LONGMEMEVAL  # there all of it fits
    assert right == dict(zip(SYSTEMS, (True, newest, True), strict=True))
    assert all(one["tokens"] <= 100 for one in rows)


def test_without_answers_it_says_so(tmp_path: Path) -> None:
    """Wrong: figures come from nothing."""
    file = tmp_path / "data.json"
    file.write_text(json.dumps(LOCOMO))
    done = CliRunner().invoke(
        answers_app, ["--data", str(file), "--answers", str(tmp_path / "none"), "--no-ask"]
    )
    assert done.exit_code == 2
    assert "--ask" in done.output


def test_longmemeval_has_evidence_and_the_day_of_its_question(tmp_path: Path) -> None:
    """Wrong: a question without an answer is asked, or one is asked on another day."""
    file = tmp_path / "data.json"
    file.write_text(json.dumps(LONGMEMEVAL))
    (one,) = read(file)
    (question,) = one.questions
    assert question.evidence == {"answer_1:0:0"}
    assert question.asked_at is not None
    assert question.asked_at.isoformat() == "2023-05-30T23:40:00+00:00"
