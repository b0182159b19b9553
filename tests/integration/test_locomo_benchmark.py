"""The recall benchmark works; what it measures is nobody's business here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks.conversations import read
from benchmarks.locomo import run

app = Typer()
app.command()(run)


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


def test_it_runs(data: Path, tmp_path: Path) -> None:
    """Wrong: the command fails, or tells of questions without evidence."""
    out = tmp_path / "out.json"
    told = CliRunner().invoke(app, ["--data", str(data), "--out", str(out), "--set", "min_score=0"])
    assert told.exit_code == 0, told.output
    result = json.loads(out.read_text())
    assert result["turns"] == 3
    assert result["settings"] == {"min_score": 0}
    assert set(result["figures"]) == {"categories 1-4", "single-hop", "multi-hop", "adversarial"}
    assert result["figures"]["single-hop"]["recall@5"] == 100


@pytest.mark.parametrize("bad", ["min_score", "min_score=high"])
def test_a_setting_that_cannot_be_read(data: Path, bad: str) -> None:
    """Wrong: an ablation runs with the defaults."""
    told = CliRunner().invoke(app, ["--data", str(data), "--set", bad])
    assert told.exit_code == 2
    assert "JSON" in told.output
