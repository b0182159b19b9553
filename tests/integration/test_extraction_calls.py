"""Calls to the model during extraction: their number, their content, and invalid answers."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, operations
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model, absorbed, dated, remembering, texts
from tests.kit import model_at


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(json.dumps({"facts": []})) as fake:
        yield fake


def open_at(fake: FakeLLM, **fields: Any) -> AgentMemory:
    overflow = FlushToLTM(blocks=[ExtractiveMemory()])
    return AgentMemory("memory://", **{"overflow": overflow, **model_at(fake), **fields})


def shown(model: Model) -> list[str]:
    return [one for one in model.asked if "<messages>" in one]


def test_a_batch_without_text_of_the_user_costs_no_call(model: Model) -> None:
    """Wrong: a batch without text of the user costs a call."""
    with remembering(model) as memory:
        silent = [dated("Be kind.", role="system"), dated("I am here to help", role="assistant")]
        absorbed(memory, "s", *silent, dated("<memory>The user is a pilot.</memory>"), dated("  "))
        assert memory.stats().usage.calls == 0
        assert memory.user("ada").facts() == []


def test_a_batch_too_long_for_the_model_is_split(model: Model) -> None:
    """Wrong: a batch too long for the model is cut, sent twice, or numbered wrongly."""
    with remembering(model) as memory:
        memory.blocks["extractive"].resources.models(None)._window = 2000
        each = [" ".join(f"m{n}w{word}" for word in range(100)) for n in range(10)]
        absorbed(memory, "s", *map(dated, each))
        told = shown(model)
        assert memory.stats().usage.calls == len(told) > 1
    assert re.findall(r"m\d+w\d+", "".join(told)) == " ".join(each).split()
    for part in told:
        for number, word in re.findall(r"\[(\d+)\] \S+ user: m(\d+)w", part):
            assert int(number) == int(word) + 1


def test_a_batch_that_the_server_refuses_as_too_long_is_split(fake: FakeLLM) -> None:
    """Wrong: a batch that the server refuses as too long is not split, and fails for ever."""
    fake.fail(400, code="context_length_exceeded", message="maximum context length", times=2)
    with open_at(fake) as memory:
        words = " ".join(str(word) for word in range(1500))
        memory.update("s", [dated(words), dated("the end")], user_id="ada")
        (done,) = memory.flush()
        assert done.error is None
        told = [one["messages"][-1]["content"] for one in fake.requests]
        sizes = [len(one) for one in told]
        assert sizes[0] == sizes[1] > 2 * max(sizes[2:]) or sizes[0] > sizes[1] > max(sizes[2:])
        assert "the end" in told[-1]


def test_a_message_that_is_always_too_long_fails_after_few_calls(fake: FakeLLM) -> None:
    """Wrong: a message that is always refused is retried for ever, or counts as absorbed."""
    fake.fail(400, code="context_length_exceeded", message="maximum context length", times=99)
    with open_at(fake) as memory:
        memory.update("s", dated("hello"), user_id="ada")
        (failed,) = memory.flush()
        assert failed.error is not None
        assert "ContextTooLong" in failed.error
        assert len(fake.requests) < 10


BAD = [
    "Here you are!",
    "[]",
    "{}",
    '{"facts": {}}',
    '{"facts": [{"message": 1}]}',
    '{"facts": [{"text": " ", "message": 1, "quote": "Rome"}]}',
    '{"facts": [{"text": "Lives in Rome.", "message": "first", "quote": "Rome"}]}',
    '{"facts": [{"text": "Lives in Rome.", "message": 1, "quote": "Rome"}',
]
GOOD = json.dumps({"facts": [{"text": "Lives in Rome.", "message": 1, "quote": "Rome"}]})


@pytest.mark.parametrize("bad", BAD)
def test_an_invalid_answer_is_requested_again_with_the_error(bad: str, fake: FakeLLM) -> None:
    """Wrong: an invalid answer counts as one without facts, or is retried without the error."""
    fake.reply(bad)
    fake.reply(GOOD)
    with open_at(fake) as memory:
        absorbed(memory, "s", dated("I live in Rome"))
        assert texts(memory.user("ada").facts()) == ["Lives in Rome."]
    assert len(fake.requests) == 2
    told = [one["content"] for one in fake.requests[1]["messages"]]
    assert bad in told
    assert "validation error" in told[-1]


@pytest.mark.parametrize("bad", BAD)
def test_a_second_invalid_answer_is_a_failure(bad: str, fake: FakeLLM) -> None:
    """Wrong: after two invalid answers the messages count as absorbed."""
    fake.default = bad
    with open_at(fake, absorb_attempts=3) as memory:
        memory.update("s", dated("I live in Rome"), user_id="ada")
        for attempt in (1, 2):
            (failed,) = memory.flush()
            assert failed.error is not None
            assert "ModelOutputInvalid" in failed.error
            assert "max_tokens" not in failed.error
            assert "Use another model" in failed.error
            assert (failed.first, failed.last) == (1, 0)
            assert len(fake.requests) == 2 * attempt
            assert memory.stats().blocks["extractive"].lag == 1
            assert not operations.dead_letters(memory)
            assert memory.user("ada").audit() == memory.user("ada").facts() == []
        memory.flush()
        (letter,) = operations.dead_letters(memory)
        assert (letter.first, letter.last, letter.attempts) == (1, 1, 3)
        assert memory.user("ada").audit() == memory.user("ada").facts() == []
        fake.default = GOOD
        (done,) = operations.retry(memory)
        assert done.error is None
        assert texts(memory.user("ada").facts()) == ["Lives in Rome."]
        assert not operations.dead_letters(memory)


@pytest.fixture
def unshown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show no known facts in the first request, as for a user with very many of them."""
    monkeypatch.setattr("agent_memory.ltm_blocks.extractive.extraction._MOST_FACTS", 0)


def second_calls(model: Model) -> list[str]:
    return [one for one in model.asked if one.startswith("<facts>")]


def test_two_times_of_one_event_become_two_facts() -> None:
    """Wrong: of two events with the same text but different times one is dropped."""
    model = Model()
    told = "I was in Kyoto in 2019 and in 2021"
    for year in ("2019", "2021"):
        model.tell(told, "Travelled to Kyoto.", category="event", since=year, until=year)
    with remembering(model) as memory:
        absorbed(memory, "s", dated(told))
        years = [one.valid_from.year for one in memory.user("ada").facts() if one.valid_from]
        assert years == [2019, 2021]


def test_the_same_words_cost_no_second_call(model: Model) -> None:
    """Wrong: a fact repeated in the same words costs a second call, or is stored twice."""
    model.tell("live in Rome", "Lives in Rome.", category="home")
    with remembering(model) as memory:
        for day in range(1, 6):
            absorbed(memory, f"s{day}", dated("I live in Rome", f"2024-01-0{day}"))
        assert second_calls(model) == []
        (fact,) = memory.user("ada").facts()
        assert len(fact.evidence) == 5


def test_a_batch_costs_at_most_two_calls(model: Model) -> None:
    """Wrong: a batch with many facts costs more than two calls."""
    with remembering(model) as memory:
        for day in (1, 2):
            for n in range(30):
                model.tell(f"day {day} item {n}.", f"On day {day} owns item {n}.", category="x")
        absorbed(memory, "s1", *[dated(f"day 1 item {n}.") for n in range(30)])
        absorbed(memory, "s2", *[dated(f"day 2 item {n}.", "2024-01-06") for n in range(30)])
        assert memory.stats().usage.calls == 4
        assert len(second_calls(model)) == 2
        assert len(memory.user("ada").facts()) == 60


def test_the_first_request_lists_stored_facts_before_the_messages(model: Model) -> None:
    """Wrong: the first request lacks the known facts, so that an update costs a second call."""
    model.tell("I live in Rome", "Ada lives in <Rome>.", category="home", kind="state")
    moved = ("update", "Ada lives in <Rome>.")
    model.tell("I moved", "Ada lives in Bonn.", moved, category="home", kind="state")
    with remembering(model) as memory:
        absorbed(memory, "s1", dated("I live in Rome", name="Ada"))
        absorbed(memory, "s2", dated("I moved", "2024-02-01", name="Ada"))
        assert shown(model)[1].splitlines() == [
            "The user is Ada.",
            "<known>",
            "1. home, state [said 2024-01-05]: Ada lives in &lt;Rome&gt;.",
            "</known>",
            "<messages>",
            "2024-02-01:",
            "[1] Thu Ada: I moved",
            "</messages>",
        ]
        assert second_calls(model) == []
        assert texts(memory.user("ada").facts()) == ["Ada lives in Bonn."]


def answering(fake: FakeLLM, *answers: dict[str, Any]) -> list[str]:
    """Return the current facts after Rome, then Bonn, with these answers of the second call."""
    fake.reply(GOOD)
    with open_at(fake) as memory:
        absorbed(memory, "s", dated("I live in Rome"))
        fake.reply_json({"facts": [{"text": "Lives in Bonn.", "message": 1, "quote": "Bonn"}]})
        fake.reply_json({"answers": list(answers)})
        absorbed(memory, "t", dated("It is Bonn", "2024-02-01"))
        assert len(fake.requests) == 3
        return texts(memory.user("ada").facts())


BOTH, NEWER = ["Lives in Rome.", "Lives in Bonn."], ["Lives in Bonn."]


@pytest.mark.parametrize(
    ("answers", "current"),
    [
        ([], BOTH),
        ([{"number": 2, "answer": "add"}], BOTH),
        ([{"number": 2, "answer": "add", "which": [1]}], BOTH),
        ([{"number": 2, "answer": "update", "which": [1]}], NEWER),
        ([{"number": 2, "answer": "update", "which": 1}], NEWER),
        ([{"number": 2, "answer": "contradict", "which": [1]}], NEWER),
        ([{"number": 2, "answer": "update", "which": [1, 7, 0, -1, 2]}], NEWER),
        ([{"number": 2, "answer": "update", "which": [7, 0, -1, 2]}], BOTH),
        ([{"number": 2, "answer": "update", "which": []}], BOTH),
        ([{"number": 2, "answer": "update", "which": None}], BOTH),
        ([{"number": 2, "answer": "same"}], BOTH),
        ([{"number": 2, "answer": "same", "which": [1]}], ["Lives in Rome."]),
        ([{"number": 1, "answer": "contradict", "which": [2]}], BOTH),
        ([{"number": 1, "answer": "update", "which": [1]}], BOTH),
        ([{"number": 3, "answer": "update", "which": [1]}], BOTH),
        ([{"number": 0, "answer": "contradict", "which": [1]}], BOTH),
        ([{"number": -1, "answer": "contradict", "which": [1]}], BOTH),
    ],
)
@pytest.mark.usefixtures("unshown")
def test_unlisted_fact_numbers_are_ignored(
    answers: list[dict[str, Any]], current: list[str], fake: FakeLLM
) -> None:
    """Wrong: an invalid number changes a fact or fails the batch, or an unanswered fact is lost."""
    assert answering(fake, *answers) == current


def test_two_new_facts_with_the_same_meaning_are_merged(fake: FakeLLM) -> None:
    """Wrong: two new facts that the model calls the same are both stored, or lose a source."""
    found = [
        {"text": "Lives in Rome.", "message": 1, "quote": "Rome", "category": "home"},
        {"text": "Has a flat in Rome.", "message": 2, "quote": "my flat", "category": "home"},
    ]
    fake.reply_json({"facts": found})
    fake.reply_json({"answers": [{"number": 2, "answer": "same", "which": [1]}]})
    with open_at(fake) as memory:
        absorbed(memory, "s", dated("I live in Rome"), dated("my flat is there"))
        (fact,) = memory.user("ada").facts()
        assert fact.text == "Lives in Rome."
        assert [one.seq for one in fact.evidence] == [1, 2]


def test_the_audit_counts_refused_findings_without_their_text(fake: FakeLLM) -> None:
    """Wrong: the audit does not count refused findings, or their text is stored."""
    fake.reply_json(
        {
            "facts": [
                {"text": "Is a secret agent.", "message": 1, "quote": "secret agent"},
                {"text": "Is a secret spy.", "message": 1, "quote": "secret spy"},
                {"text": "Has a secret.", "message": 9, "quote": "Rome"},
                {"text": "Has secret 5551234.", "message": 1, "quote": "Rome"},
                {"text": "Secretly likes it.", "message": 1, "quote": "Rome", "confidence": 0.1},
                {"text": "Lives in Rome.", "message": 1, "quote": "Rome", "since": 2020},
            ]
        }
    )
    with open_at(fake) as memory:
        absorbed(memory, "s", dated("I live in Rome"))
        (fact,) = memory.user("ada").facts()
        assert fact.text == "Lives in Rome."
        refused = [one for one in memory.user("ada").audit() if one.what == "refused"]
        assert sorted(one.why for one in refused) == [
            "1 of 6 findings named a message that is not in the batch",
            "1 of 6 findings named a number or a code that nobody said",
            "1 of 6 findings were guesses",
            "2 of 6 findings quoted what the message does not say",
        ]
        assert all((one.fact, one.text, one.evidence) == (None, "", None) for one in refused)
        assert all((one.session_id, one.first, one.last) == ("s", 1, 1) for one in refused)
        kept = memory._store.records("extractive", "user:ada")
        assert "secret" not in str(kept).lower()


def test_a_custom_prompt_includes_the_rules_and_categories() -> None:
    """Wrong: a custom prompt is sent without the rules for answers, or without the categories."""
    versions = set()
    for prompt in (None, "Note allergies: {categories} {x}.", "Note pets."):
        with FakeLLM(GOOD) as fake:
            blocks = [ExtractiveMemory(prompt=prompt, categories=["health", "home", "other"])]
            with open_at(fake, overflow=FlushToLTM(blocks=blocks)) as memory:
                absorbed(memory, "s", dated("I live in Rome"))
                (fact,) = memory.user("ada").facts()
                versions.add(fact.evidence[0].prompt)
                assert fact.evidence[0].model == "openai/any"
            told = fake.requests[0]["messages"][0]["content"]
            assert "`quote` is copied from that line, letter by letter" in told
            if prompt is None or "{categories}" in prompt:
                assert "health, home, other" in told
            if prompt:
                assert told.startswith(prompt.replace("{categories}", "health, home, other"))
    assert len(versions) == 3


def test_a_block_with_its_own_model_calls_that_model(fake: FakeLLM) -> None:
    """Wrong: a block with its own model calls the memory's model."""
    fake.default = GOOD
    blocks = [ExtractiveMemory(model="openai/other")]
    with open_at(fake, overflow=FlushToLTM(blocks=blocks)) as memory:
        absorbed(memory, "s", dated("I live in Rome"))
        assert {one["model"] for one in fake.requests} == {"other"}
        assert memory.user("ada").facts()[0].evidence[0].model == "openai/other"


@pytest.mark.long
def test_a_thousand_messages_cost_few_calls() -> None:
    """Wrong: with default settings a long conversation costs a call for every few messages."""
    words = " ".join(f"word{n % 10}" for n in range(28))

    def answer(body: dict[str, Any]) -> str:
        told = body["messages"][-1]["content"]
        found = re.findall(r"^\[(\d+)\] .*: (\d+) ", told, re.MULTILINE)
        facts = [
            {"text": f"Owns item {n}.", "message": int(number), "quote": f"{n} word0"}
            for number, n in found
        ]
        return json.dumps({"answers": []} if told.startswith("<facts>") else {"facts": facts})

    with FakeLLM(answer) as fake, open_at(fake) as memory:
        for n in range(1000):
            role = "assistant" if n % 2 else "user"
            memory.update("s", dated(f"{n} {words}", role=role), user_id="ada")
        memory.flush()
        assert 55 <= memory.history("s", limit=1)[0].tokens <= 70
        assert len(memory.user("ada").facts()) == 500
        assert memory.stats().usage.calls <= 45
