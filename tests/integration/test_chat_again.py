"""`agent-memory chat`: asking again, and taking back."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

from agent_memory.testing import FakeLLM
from tests.integration.test_cli import MODEL, _surroundings, fake, logged, run, store

__all__ = ["_surroundings", "fake"]


def test_again_puts_the_new_answer_in_the_old_ones_place(fake: FakeLLM) -> None:
    """Wrong: both answers stand in the log, or the model reads the old one."""
    fake.reply("First.")
    fake.reply("Second.")
    told = run("chat", *MODEL, "--system", "Be kind.", typed="Who am I?\n/again\n/quit\n")
    assert told.index("First.") < told.index("Second.")
    assert logged() == [("system", "Be kind."), ("user", "Who am I?"), ("assistant", "Second.")]
    first, second = [r["messages"] for r in fake.requests if r.get("stream")]
    assert first == second
    assert "First." not in json.dumps(second)


def test_again_with_nothing_to_ask(fake: FakeLLM) -> None:
    """Wrong: a traceback, or an empty request."""
    told = run("chat", *MODEL, typed="/again\n/undo\nhi\n/quit\n")
    assert "no question to ask again. Ask one first. Nothing was changed." in told
    assert "There is no question to take back." in told
    assert logged() == [("user", "hi"), ("assistant", "Good to know.")]


def test_again_asks_what_has_no_answer_yet(fake: FakeLLM) -> None:
    """Wrong: a question that another program left without an answer can't be asked."""
    with store() as memory:
        memory.update("chat", {"role": "user", "content": "Who am I?"})
    run("chat", *MODEL, typed="/again\n/quit\n")
    assert logged() == [("user", "Who am I?"), ("assistant", "Good to know.")]


def test_again_that_fails_keeps_the_old_answer(fake: FakeLLM) -> None:
    """Wrong: the model fails, or breaks off, and the old answer is gone."""
    fake.reply("First.")
    fake.fail(401)
    fake.reply("Second, but broken off in the middle.", events=3)
    told = run("chat", *MODEL, typed="hi\n/again\n/again\n/quit\n")
    assert told.count("Nothing was changed.") == 2
    assert logged() == [("user", "hi"), ("assistant", "First.")]


def test_again_stopped_in_the_middle_keeps_the_old_answer(fake: FakeLLM) -> None:
    """Wrong: Ctrl-C while the model thinks ends the chat, or costs the old answer."""
    fake.reply("First.")
    fake.hang(60)

    def interrupt() -> None:
        while len(fake.requests) < 2:
            time.sleep(0.01)
        time.sleep(0.5)  # by then the client waits for the answer
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    told = run("chat", *MODEL, typed="hi\n/again\n/again\n/quit\n")
    thread.join()
    assert "Stopped. Nothing was changed." in told
    assert logged() == [("user", "hi"), ("assistant", "Good to know.")]


def test_undo_takes_a_question_and_its_answer_back(fake: FakeLLM) -> None:
    """Wrong: half of a turn is left, or the instructions go with it."""
    fake.reply("First.")
    typed = "one\n/undo\ntwo\n/quit\n"
    told = run("chat", *MODEL, "--system", "Be kind.", typed=typed)
    assert "Taken back: one" in told
    assert logged() == [("system", "Be kind."), ("user", "two"), ("assistant", "Good to know.")]
    told = run("chat", *MODEL, "--system", "Be brief.", typed="/undo\n/help\n")
    assert logged() == [("system", "Be kind."), ("system", "Be brief.")]
    assert "/again" in told
    assert "/undo" in told
