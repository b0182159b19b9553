"""The benchmarks of recall and answers run on each format. Their results are not tested."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from agent_memory.testing import FakeLLM
from benchmarks.answers.__main__ import main as run_answers
from benchmarks.answers.systems import SYSTEMS
from benchmarks.recall.__main__ import main as run

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
            }
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


def test_it_runs(data: Path, tmp_path: Path) -> None:
    """Wrong: the command fails, ignores a setting, or reports wrong figures."""
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
    assert result["figures"]["multi-hop"]["recall@50"] == 0  # it is in the assistant's turns


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
    """Read the notes as a reader, and compare as a judge."""
    said = str(body["messages"][-1]["content"])
    if "Right answer:" in said:
        return "yes" if "Answer: Figaro" in said else "No."
    return "Figaro" if "Figaro" in said else "I do not know."


@pytest.mark.parametrize("data", [LOCOMO, LONGMEMEVAL], ids=["locomo", "longmemeval"])
def test_it_asks_once_and_repeats_without_a_model(tmp_path: Path, data: list[Any]) -> None:
    """Wrong: answers of two systems are mixed up, or a repeated run calls the model again."""
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
    newest = data is LONGMEMEVAL  # the whole conversation fits there
    assert right == dict(zip(SYSTEMS, (True, newest, True), strict=True))
    assert all(one["tokens"] <= 100 for one in rows)
