"""The benchmark of answers works on each format; its figures are of models, and no test's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from agent_memory.testing import FakeLLM
from benchmarks.answers.__main__ import run
from benchmarks.answers.models import verdict
from benchmarks.answers.systems import SYSTEMS
from benchmarks.recall.formats import read

app = Typer()
app.command()(run)

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
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        count = len(fake.requests)
        again = CliRunner().invoke(app, [*asked, "--no-ask"])
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
        app, ["--data", str(file), "--answers", str(tmp_path / "none"), "--no-ask"]
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


def test_a_judge_says_yes_or_no() -> None:
    """Wrong: a judge's excuse counts as a verdict."""
    assert verdict(" Yes.\n")
    assert not verdict("no")
    with pytest.raises(ValueError, match="neither"):
        verdict("Not sure")
