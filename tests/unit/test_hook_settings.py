"""Settings of coding agents with our hooks, and without."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import ConfigError, InvalidInput
from agent_memory.integrations.hooks.events import AGENTS, EVENTS, GEMINIS, answer, read_event
from agent_memory.integrations.hooks.prompt import _counter
from agent_memory.integrations.hooks.settings import PLACES, with_hooks, without_hooks
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.words import roots, words

COMMAND = ["/a venv/bin/agent-memory", "--user", "ana b", "--store", "sqlite:////m.db"]
THEIRS = {"type": "command", "command": "say done; agent-memory hooks are nice", "timeout": 5}


@pytest.mark.parametrize("agent", AGENTS)
def test_in_and_out_again(agent: str) -> None:
    """Wrong: installing twice adds two hooks, or uninstalling changes the user's settings."""
    own = THEIRS if agent == "cursor" else {"matcher": "x", "hooks": [THEIRS]}
    stop = PLACES[agent].events["Stop"]
    before: dict[str, Any] = {"z": 1, "hooks": {stop: [own], "other": [own]}, "a": [2]}
    copy = json.dumps(before)
    once = with_hooks(agent, COMMAND, before)
    assert json.dumps(before) == copy, "the given settings were changed"
    assert with_hooks(agent, COMMAND, once) == once
    told = json.dumps(once)
    assert len(re.findall("agent-memory' hook [A-Z]", told)) == len(PLACES[agent].events)
    assert "--user 'ana b'" in told
    assert list(once)[:3] == ["z", "hooks", "a"]
    assert once["hooks"][stop][0] == own
    moved = with_hooks(agent, ["/b/agent-memory", *COMMAND[1:]], once)
    assert "/a venv" not in json.dumps(moved)
    assert without_hooks(moved) == {**before, **PLACES[agent].fixed}
    assert without_hooks(before) == before
    assert without_hooks(with_hooks(agent, COMMAND, {})) == PLACES[agent].fixed


def test_a_hook_of_theirs_beside_ours_stays() -> None:
    """Wrong: a user's hook in our group is removed with ours."""
    made = with_hooks("claude-code", COMMAND, {})
    made["hooks"]["Stop"][0]["hooks"].append(THEIRS)
    assert without_hooks(made) == {"hooks": {"Stop": [{"hooks": [THEIRS]}]}}


@pytest.mark.parametrize("hooks", [[], {"Stop": {}}, "x", None])
def test_another_form_is_left_alone(hooks: Any) -> None:
    """Wrong: settings of an unknown form are overwritten."""
    with pytest.raises(ConfigError, match="hooks"):
        with_hooks("codex", COMMAND, {"hooks": hooks})


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"\xff\x00\x01",
        b"[]",
        b"null",
        b'{"session_id": 5}',
        b'{"session_id": ""}',
        b"[" * 9999,
    ],
)
def test_what_is_no_event(given: bytes) -> None:
    """Wrong: an invalid event prints a traceback."""
    with pytest.raises(InvalidInput):
        read_event("codex", "Stop", given)


def test_events() -> None:
    """Wrong: a session is assigned to another agent; Cursor runs Claude Code's hooks."""
    given = {"session_id": "s", "prompt": "hi", "cwd": "/x", "user": "eve", "store": "evil"}
    event = read_event("claude-code", "Stop", json.dumps(given).encode())
    assert (event.session_id, event.prompt, event.cwd) == ("claude-code:s", "hi", "/x")
    assert "eve" not in str(event)
    given = {"conversation_id": "c", "cursor_version": "3", "workspace_roots": ["/w"]}
    event = read_event("claude-code", "Stop", json.dumps(given).encode())
    assert (event.agent, event.session_id, event.cwd) == ("cursor", "cursor:c", "/w")


@pytest.mark.parametrize("agent", AGENTS)
def test_answers(agent: str) -> None:
    """Wrong: a context is in a field that the agent does not read."""
    for name in EVENTS:
        event = read_event(agent, name, b'{"session_id": "s"}')
        assert answer(event, "") == ""
        told = json.loads(answer(event, "caf\u00e9"))
        if agent == "gemini-cli":
            specific = {"hookEventName": GEMINIS[name], "additionalContext": "caf\u00e9"}
            assert told == {"hookSpecificOutput": specific}
        elif agent == "cursor":
            assert told == {"additional_context": "caf\u00e9"}
        else:
            specific = {"hookEventName": name, "additionalContext": "caf\u00e9"}
            assert told == {"hookSpecificOutput": specific}


def test_gemini_counts_in_milliseconds() -> None:
    """Wrong: a limit of 10 ms ends each hook before it answers."""
    made = with_hooks("gemini-cli", COMMAND, {})
    ((hook,),) = [entry["hooks"] for entry in made["hooks"]["BeforeAgent"]]
    assert hook["timeout"] == 10_000


# --- Counting the question's words in a message, without stemming the whole message ---------------

_SOME = [
    *("deploy", "deployed", "Deployment", "redeploy", "port", "ports", "the", "of", "policies"),
    *("policy", "fly", "flies", "O'Brien", "user_id", "don't", "a-b", "x.py", "42"),
    *("caf\u00e9", "cafe"),
]


@given(st.lists(st.sampled_from(_SOME), min_size=1), st.lists(st.sampled_from(_SOME)))
def test_the_counts_are_those_of_all_words(prompt: list[str], text: list[str]) -> None:
    """Wrong: a word is not counted because only the question's words were stemmed."""
    asked = " ".join(prompt)
    root_of = roots(asked, ENGLISH)
    looked = list(dict.fromkeys(words(asked)))
    count = _counter(asked, [root_of.get(word, word) for word in looked], ENGLISH)
    counts, length = count(" ".join(text))
    expected = Counter(words(" ".join(text)))
    assert length == expected.total()
    assert {word: counts[word] for word in looked} == {word: expected[word] for word in looked}
