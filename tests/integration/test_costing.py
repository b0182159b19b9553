"""The costs of a chat log without calling a model, and the recalls that a context leaves out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemory, Message, NoteMemory, StaticMemory, TokenCounter, VectorMemory
from agent_memory.integrations.costing import STRATEGIES, Bill, costs, read_chat
from agent_memory.models.usage import Price
from tests.integration.import_samples import write_lines
from tests.kit import assistant, invoke, opened, user

WORDS = "the garden gate was painted green by Ana in spring and the fence by Bo in autumn of 2021"
SAID = [(user, assistant)[n % 2](f"{n}: {WORDS}") for n in range(60)]
CHAT = [("one", Message.of(one)) for one in SAID]
PRICES = {"mine": Price(input=1.0, output=10.0)}


@pytest.fixture(scope="module")
def bills() -> dict[str, Bill]:
    found = costs(CHAT, model="mine", max_tokens=400, prices=PRICES)
    return {bill.strategy: bill for bill in found}


def test_the_full_history_is_added_up(bills: dict[str, Bill]) -> None:
    """Wrong: a call's prompt lacks earlier messages, or includes its own answer."""
    counter = TokenCounter("mine")
    sent = sum(counter.context(SAID[:n]) for n in range(1, 60, 2))
    bill = bills["full history"]
    assert (bill.calls, bill.prompt_tokens) == (30, sent)
    assert bill.cost == pytest.approx((sent * 1.0 + bill.completion_tokens * 10.0) / 1e6)


def test_each_strategy_is_priced(bills: dict[str, Bill]) -> None:
    """Wrong: a strategy is missing, exceeds the budget, or omits the memory's own calls."""
    assert tuple(bills) == STRATEGIES
    for name in STRATEGIES[1:]:
        assert 0 < bills[name].prompt_tokens <= 30 * 400
    assert bills["trim"].memory_calls == bills["flush to vector"].memory_calls == 0
    assert bills["trim"].recalled_tokens == 0
    recalled = bills["flush to vector"].recalled_tokens
    assert recalled is not None
    assert recalled > 0
    for name in ("summarize", "facts"):
        assert bills[name].memory_calls > 0
        assert bills[name].memory_tokens > 0
        assert bills[name].is_estimated
    assert bills["facts"].recalled_tokens is None
    costs_of = [bill.cost for bill in bills.values()]
    assert None not in costs_of


def test_the_cost_command_prices_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `cost` leaves a store behind, or shows an unknown price as 0."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "chat.jsonl"
    write_lines(log, [{"session_id": "one", **one} for one in SAID[:10]])
    done = invoke(["cost", str(log), "--json", "--max-tokens", "300"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["messages"], told["sessions"], told["max_tokens"]) == (10, 1, 300)
    assert [one["cost"] for one in told["strategies"]] == [None] * 5
    shown = invoke(["cost", str(log), "--from", "jsonl"])
    assert shown.exit_code == 0, shown.output
    assert "full history" in shown.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["chat.jsonl"]
    assert read_chat(log, "jsonl")[0][0] == "one"


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    rules = StaticMemory(facts=["Prices are in euros."])
    with opened(url, VectorMemory(), NoteMemory(), rules) as memory:
        yield memory


def add(memory: AgentMemory, session: str, *texts: str) -> None:
    said = [(user, assistant)[at % 2](text) for at, text in enumerate(texts)]
    memory.update(session, said, user_id="ana")


def shown(memory: AgentMemory, question: str) -> list[str]:
    context = memory.get("now", question, user_id="ana")
    return [one.text for one in context.recalls if one.block != "static"]


def test_repeated_unanswered_questions_do_not_hide_the_answer(memory: AgentMemory) -> None:
    """Wrong: earlier unanswered questions crowd the answer out of the recalls."""
    add(memory, "mon", "By the way, I moved to Lisbon last week.", "Congratulations on the move!")
    add(memory, "tue", "What is the weather where I live?", "I don't know where you live.")
    for day in range(20):
        add(memory, f"day-{day}", "Where do I live?", "Sorry, I don't know where you live.")
    memory.flush()
    found = shown(memory, "Where do I live?")
    assert any("Lisbon" in text for text in found)
    assert not any("Sorry" in text for text in found)


def test_small_talk_recalls_only_static_facts(memory: AgentMemory) -> None:
    """Wrong: small talk recalls memories, or static facts are missing then."""
    add(memory, "mon", "Thanks, my cat Mia is ok.", "Good to hear, thanks!")
    memory.user("ana").notes().add("Thanks are to be short.")
    memory.flush()
    for courtesy in ("ok thanks", "Bye!", "👍", "Danke dir", "谢谢"):
        context = memory.get("now", courtesy, user_id="ana")
        assert [one.text for one in context.recalls] == ["Prices are in euros."]
    assert memory.search("thanks", user_id="ana")
    assert any("Mia" in text for text in shown(memory, "Thanks! How is my cat Mia?"))


def test_recalls_far_less_relevant_than_the_best_are_left_out(url: str) -> None:
    """Wrong: a context recalls records far less relevant than the best one."""
    with AgentMemory(store=url, recall_timeout=60, min_relevance=0) as memory:
        add(memory, "mon", "My telescope is a refractor, bought in Jena in 2019.", "Lovely!")
        for day in range(30):
            add(memory, f"day-{day}", f"On day {day} we looked at the sky for a while.", "I see.")
        memory.flush()
        everything = shown(memory, "Where did I buy my telescope?")
        told = {len(shown(memory, text)) for text in ("I look at the sky.", "The sky today?")}
    with AgentMemory(store=url, recall_timeout=60) as memory:
        found = shown(memory, "Where did I buy my telescope?")
        assert "Jena" in found[0]
        assert len(found) < len(everything)
        assert len(shown(memory, "I look at the sky.")) <= max(told)
        explained = memory.explain("Where did I buy my telescope?", user_id="ana")
        assert any("much more relevant" in one.why for one in explained.left_out)


def test_without_an_embedder_unrelated_questions_recall_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: without an embedder a question recalls records that share only a common word."""
    monkeypatch.setattr("agent_memory.models.embedders.local.is_installed", lambda: False)
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", recall_timeout=60) as memory:
        for day in range(60):
            add(memory, f"d-{day}", f"On day {day} I went for a walk in the park.", "How nice.")
        add(memory, "tea", "I bought a teapot in Kyoto.", "What a find!")
        memory.flush()
        assert any("Kyoto" in text for text in shown(memory, "Where is my teapot from?"))
        assert shown(memory, "How many moons does Neptune have in a day?") == []
