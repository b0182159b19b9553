"""The benchmark of growth works; what it measures is nobody's business here."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from typer import Typer
from typer.testing import CliRunner

from benchmarks.messages import message_text, question_about, vocabulary
from benchmarks.speed.growth import Site, run


def command() -> Typer:
    """The benchmark's command."""
    app = Typer()
    app.command()(run)
    return app


def test_the_texts() -> None:
    """Wrong: the runs of two machines are of different texts, or no chat has such lengths, or a
    question shares no word with what it is about."""
    words, weights = vocabulary()
    assert len(set(words)) == len(words) == len(weights) == 30_000
    texts = [message_text(number) for number in range(2_000)]
    assert texts[7] == message_text(7)
    assert len(set(texts)) > 1_950  # some are of one word
    lengths = sorted(len(text.split()) for text in texts)
    assert 17 <= median(lengths) <= 23
    assert lengths[0] == 1
    assert 150 <= lengths[-20] <= 300
    said = set(texts[7].lower().replace(".", "").split())
    assert said & set(question_about(7).rstrip("?").split()[5:])


def test_a_memory_grows(tmp_path: Path) -> None:
    """Wrong: a stage is left out, or users don't hold what the stages say."""
    advanced: list[int] = []
    site = Site(tmp_path, users=2, each=130)
    stages = site.grow(3, 1, advanced.append)
    assert [(stage["each"], stage["messages"]) for stage in stages] == [(100, 200), (130, 260)]
    assert sum(advanced) == 260
    with site.open() as memory:
        for user in (0, 1):
            sessions = memory.sessions(user_id=f"{user}")
            grown = [one for one in sessions if not one.session_id.endswith("newest")]
            assert sum(one.end for one in grown) == 130
            first = memory.history(f"{user}-0")[0].message.text()
            assert first == message_text(user * 130)


def test_it_runs(tmp_path: Path) -> None:
    """Wrong: the command fails, or figures are missing."""
    out = tmp_path / "out.json"
    options = ["--messages", "31", "--users", "3", "--questions", "4", "--processes", "1"]
    told = CliRunner().invoke(command(), [*options, "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert "first search in a fresh process" in " ".join(told.output.split())
    result = json.loads(out.read_text())
    (stage,) = result["stages"]
    assert (stage["each"], stage["messages"]) == (10, 30)
    for name in ("search", "again", "one_more", "newest", "cold"):
        assert 0 < stage[name][0] <= stage[name][1]
    assert stage["rate"] > 0
    assert stage["disk"] > 0


def test_too_many_users() -> None:
    """Wrong: figures of users who said nothing."""
    told = CliRunner().invoke(command(), ["--messages", "2", "--users", "3"])
    assert told.exit_code == 2, told.output
