"""The benchmarks work on each format. Their results are not tested."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from agent_memory.testing import FakeLLM
from benchmarks.answers.__main__ import main as run_answers
from benchmarks.answers.systems import SYSTEMS
from benchmarks.recall.__main__ import main as run
from benchmarks.speed import growth

ROOT = Path(__file__).parents[2]
OURS = {"ours-sqlite", "ours-memory"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one small run, without other libraries installed."""
    found = tmp_path_factory.mktemp("benchmarks")
    command = [sys.executable, "-m", "benchmarks", "speed", "--small", "--rounds", "1"]
    command += ["--no-peers", "--out", str(found)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "Append one message" in done.stdout
    assert "not installed" in done.stdout
    return found


@pytest.fixture(scope="module")
def cells(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text())["cells"]


def test_the_speed_benchmark_loses_no_message(cells: list[dict[str, Any]]) -> None:
    """Wrong: the benchmark loses an acknowledged message, or reads it twice or out of order."""
    crowds = [cell for cell in cells if cell["work"] == "sessions" and cell["contender"] in OURS]
    assert {cell["variant"] for cell in crowds} == {"8 threads", "8 tasks"}
    for cell in crowds:
        for sample in cell["samples"]:
            wrong = [sample[name] for name in ("lost", "doubled", "disordered", "errors", "unread")]
            assert wrong == [0, 0, 0, 0, 0], cell
            assert sample["messages"] == 80
    quiet = [cell for cell in cells if cell["work"] == "background"]
    assert [sample["lost"] for cell in quiet for sample in cell["samples"]] == [0, 0]


def test_the_growth_benchmark_reports_all_figures(tmp_path: Path) -> None:
    """Wrong: the command fails, or numbers are missing in its result."""
    out = tmp_path / "out.json"
    options = ["--messages", "31", "--users", "3", "--questions", "4", "--processes", "1"]
    command = Typer()
    command.command()(growth.main)
    told = CliRunner().invoke(command, [*options, "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert "first search in a fresh process" in " ".join(told.output.split())
    result = json.loads(out.read_text())
    (stage,) = result["stages"]
    assert (stage["each"], stage["messages"]) == (10, 30)
    for name in ("search", "one_more", "newest", "cold"):
        assert 0 < stage[name][0] <= stage[name][1]
    assert stage["rate"] > 0
    assert stage["disk"] > 0


def test_the_soak_benchmark_runs_and_makes_calls() -> None:
    """Wrong: the command ends with an error, or makes no calls."""
    few = ["--minutes", "0.1", "--every", "1", "--users", "2", "--workers", "1"]
    command = [sys.executable, "-m", "benchmarks", "durability", "soak", *few]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    assert "deletions" in done.stdout
    assert "errors: " in done.stdout


app, answers_app = Typer(), Typer()
app.command()(run)
answers_app.command()(run_answers)


def turn(speaker: str, place: str, text: str, **more: str) -> dict[str, str]:
    return {"speaker": speaker, "dia_id": place, "text": text, **more}


def locomo(asked: list[dict[str, Any]], *sessions: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return one conversation in LoCoMo's form."""
    said: dict[str, Any] = {"speaker_a": "Ada", "speaker_b": "Ben"}
    for n, turns in enumerate(sessions, 1):
        said |= {f"session_{n}": turns, f"session_{n}_date_time": f"1:56 pm on 8 May, 202{n}"}
    return [{"sample_id": "c", "conversation": said, "qa": asked}]


PARROT = turn("Ada", "D1:1", "My parrot is called Figaro.")
NAME = {"question": "What is the parrot called?", "category": 4, "evidence": ["D1:1"]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    asked = [
        NAME,
        {"question": "What is Ben learning?", "category": 1, "evidence": ["D1:02; D2:1", "D:9"]},
        {"question": "Who says nothing?", "category": 2, "evidence": ["D7:7"]},
        {"question": "Is Ada's parrot blue?", "category": 5, "evidence": ["D1:1"]},
    ]
    picture = turn("Ben", "D2:1", "Look!", blip_caption="a gate of iron bars")
    said = [PARROT, turn("Ben", "D1:2", "I am learning to weld.")], [picture]
    file = tmp_path / "data.json"
    file.write_text(json.dumps(locomo(asked, *said)))
    return file


def test_the_recall_benchmark_uses_settings_and_reports_metrics(data: Path, tmp_path: Path) -> None:
    """Wrong: the command fails, ignores a setting, or reports wrong figures."""
    out = tmp_path / "out.json"
    options = ["--data", str(data), "--out", str(out), "--set", 'roles=["user"]']
    told = CliRunner().invoke(app, options)
    assert told.exit_code == 0, told.output
    result = json.loads(out.read_text())
    assert result["turns"] == 3
    assert result["settings"] == {"roles": ["user"]}
    assert set(result["figures"]) == {"all", "single-hop", "multi-hop", "adversarial"}
    assert result["figures"]["single-hop"]["recall@5"] == 100
    assert result["figures"]["multi-hop"]["recall@50"] == 0  # it is in the assistant's turns


REPORTS = [turn("Ben", f"D1:{n}", f"Weather report {n}: rain.") for n in range(2, 40)]
LOCOMO = locomo([{**NAME, "answer": "Figaro"}], [PARROT, *REPORTS])
LONGMEMEVAL = [
    {
        **{"question_id": name, "question_type": "single-session-user", "answer": "Figaro"},
        **{"question": "What is my parrot called?", "question_date": "2023/05/30 (Tue) 23:40"},
        **{"haystack_dates": ["2023/05/20 (Sat) 02:21"], "haystack_session_ids": ["answer_1"]},
        "haystack_sessions": [[
            {"role": "user", "content": "My parrot Figaro sings.", "has_answer": True},
            {"role": "assistant", "content": "How nice!"},
        ]],
    }
    for name in ("q1", "q2_abs")
]  # fmt: skip


def answer(body: dict[str, Any]) -> str:
    """Read the notes as a reader, and compare as a judge."""
    said = str(body["messages"][-1]["content"])
    if "Right answer:" in said:
        return "yes" if "Answer: Figaro" in said else "No."
    return "Figaro" if "Figaro" in said else "I do not know."


@pytest.mark.parametrize("data", [LOCOMO, LONGMEMEVAL], ids=["locomo", "longmemeval"])
def test_the_answer_benchmark_repeats_without_a_model(tmp_path: Path, data: list[Any]) -> None:
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
