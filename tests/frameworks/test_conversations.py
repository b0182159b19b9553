"""An agent of each framework holds 30 turns with tools, over a restart and two sessions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from tests.frameworks.conversation import RESTART, TURNS
from tests.frameworks.environments import INSTALLED
from tests.frameworks.server import WINDOW, Provider
from tests.kit import texts

WINDOWS = {"hermes": 64_000}
"""Hermes refuses a model with a smaller window."""

WITHOUT_LOG = ("crewai", "langgraph")
"""The agents of these frameworks store values, not messages."""

ROOT = Path(__file__).parents[2]


def hold(name: str, provider: Provider, folder: Path, first: int, end: int) -> list[str]:
    """Hold some turns in a separate process. Return the answers."""
    result = folder / f"{end}.json"
    command = [sys.executable, "-m", "tests.frameworks.agents.runner", name]
    command += [f"sqlite:///{folder}/m.db", provider.url, str(result)]
    turns = json.dumps([[turn.session, turn.question] for turn in TURNS[first:end]])
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
    environment = {**os.environ, **dict.fromkeys(keys, "none"), "HOME": str(folder)}
    done = subprocess.run(
        command, input=turns, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert not provider.refused, provider.refused
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return json.loads(result.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", INSTALLED)
def test_a_scripted_conversation_succeeds(name: str, tmp_path: Path) -> None:
    """Wrong: a request is refused, a turn is lost or stored twice, recalls are stored, or a session
    does not recall the other."""
    with Provider(TURNS, WINDOWS.get(name, WINDOW)) as provider:
        answers = hold(name, provider, tmp_path, 0, RESTART)
        answers += hold(name, provider, tmp_path, RESTART, len(TURNS))
    assert answers == [turn.answer for turn in TURNS]
    for number, turn in enumerate(TURNS):
        sent = [json.dumps(one.body) for one in provider.requests if one.turn == number]
        assert len(sent) == 1 + len(turn.rounds)
        assert turn.needs is None or turn.needs in sent[0], f"{turn.question} {sent[0][:4000]}"
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db") as memory:
        log = [text for head in memory.sessions() for text in texts(memory, head.session_id)]
    assert "<memory>" not in str(log)
    if name not in WITHOUT_LOG:
        assert [sum(turn.question in text for text in log) for turn in TURNS] == [1] * len(TURNS)
        assert [sum(turn.answer in text for text in log) for turn in TURNS if turn.rounds] == (
            [1] * sum(bool(turn.rounds) for turn in TURNS)
        )
