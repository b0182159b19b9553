"""A service on a port of this machine, for tests of its page. Its memory holds a year of chats of a
few users, or an attack in every text."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_memory import AgentMemory, AsyncAgentMemory
from agent_memory.server.application import Application
from agent_memory.server.credentials import Credentials
from agent_memory.server.keys import KeyRing
from agent_memory.server.monitoring import Metrics
from agent_memory.testing import FakeLLM
from tests.histories import call, result
from tests.integration.fact_model import Model, dated
from tests.integration.serving import ANYTHING, Service, every_block, listening
from tests.kit import assistant, model_at

POISON = "%%% unreadable scan %%%"
SUMMARY = (
    "Ana plans to move house: two quotes were asked for (Lopes & Filhos 1,180 EUR, Mudanzas Vigo "
    "1,420 EUR). Her piano weighs 240 kg. Booking MV-7731 is held until 2026-09-30."
)


@contextmanager
def paging(
    folder: Path, model: Model, summary: str = SUMMARY, **fields: Any
) -> Iterator[tuple[Service, str]]:
    """Start a service, and yield it with the address of its page."""

    def answered(body: dict[str, Any]) -> str:
        told = str(body["messages"])
        if "running summary" in told:
            return summary
        return "no facts, but prose" if POISON in told else model(body)

    blocks = every_block(folder)
    with FakeLLM(answered) as fake:
        settings = {"keep_contexts": True, "absorb_attempts": 1, **model_at(fake), **fields}
        with AgentMemory(store="memory://", blocks=blocks, **settings) as memory:
            ring = KeyRing(memory.components.store)
            app = Application(AsyncAgentMemory(memory), Credentials(ring), Metrics(), ANYTHING)
            with app.figures.reporting(), listening(app) as url:
                yield Service(memory, app, ring), f"{url}/"


def model_of_a_year() -> Model:
    """Return a model that finds the facts in the year's chats."""
    model, home, work = Model(), {"category": "home"}, {"category": "work"}
    model.tell("I live in Porto", "Lives in Porto.", since="2025-02", **home)
    model.tell(
        "I moved to Lisbon", "Lives in Lisbon.", ("update", "Lives in Porto."),
        since="2026-10", **home,
    )  # fmt: skip
    model.tell("I work at Acme", "Works at Acme as a carpenter.", since="2024-06", **work)
    model.tell(
        "I started at Globex", "Works at Globex as a set builder.",
        ("update", "Works at Acme as a carpenter."), since="2026-03", **work,
    )  # fmt: skip
    model.tell("allergic to peanuts", "Is allergic to peanuts.", category="health")
    model.tell("a dog named Rex", "Has a dog named Rex.", category="pets")
    wrong = ("contradict", "Has a dog named Rex.")
    model.tell("never had a dog", "Has no dog.", wrong, category="pets")
    model.tell("My sister Rita", "Has a sister, Rita, who lives in Faro.", category="family")
    return model


def _turn(memory: AgentMemory, session: str, user: str, question: str, answer: Any) -> None:
    turn = memory.before_turn(session, question, user_id=user)
    memory.after_turn(turn, answer)


def fill(service: Service) -> None:
    """Store a year of two users: tools, superseded facts, prompt logs, a dead letter."""
    memory, ana = service.memory, service.memory.user("ana")
    spring = [
        dated("I live in Porto with my brother, and I work at Acme.", "2025-11-03T09:12"),
        dated("Nice! Carpentry, you said?", "2025-11-03T09:12", "assistant"),
        dated("Yes. By the way, I am allergic to peanuts.", "2025-11-03T09:15"),
        dated("Noted: no peanuts.", "2025-11-03T09:15", "assistant"),
        dated("And there is a dog named Rex.", "2025-11-04T18:40"),
        dated("Good dog.", "2025-11-04T18:40", "assistant"),
    ]
    memory.update("intro-2025", spring, user_id="ana")
    memory.flush("intro-2025")
    news = [
        dated("I started at Globex: set building, finally.", "2026-03-12T08:30"),
        dated("Congratulations.", "2026-03-12T08:31", "assistant"),
        dated("No, I never had a dog. My sister Rita has one.", "2026-03-12T08:40"),
        dated("My mistake.", "2026-03-12T08:40", "assistant"),
    ]
    memory.update("work-news", news, user_id="ana")
    memory.describe("work-news", {"title": "New job at Globex", "tags": ["work"]}, user_id="ana")
    memory.flush("work-news")
    _move(memory)
    for text in ("Prefers short answers.", "Her landlord is called Mr. Vale; call after 18:00."):
        ana.notes().add(text)
    ana.files().create("/memories/moving/plan.md", "# Moving\n\n- piano: 240 kg\n- van on the 14th")
    ana.files().create("/memories/preferences.md", "short answers, metric units")
    steps = ["Look the booking up by its code.", "Ask for the new date.", "Confirm by e-mail."]
    ana.skills().write("rebook", "Moves a booking to another day.", steps=steps, tags=["booking"])
    ana.spatial().observe("a spare key under the blue pot", [2.5, 7.25], confidence=0.8)
    ana.spatial().observe("fuse box behind the door", [0.4, 1.1], metadata={"floor": 2})
    _turn(memory, "ben-1", "ben", "Which plugs does Denmark use?", "Types C, E, F and K.")
    memory.update("ben-scan", {"role": "user", "content": POISON}, user_id="ben")
    memory.flush()


def _move(memory: AgentMemory) -> None:
    """Store Ana's long chat with tool calls, whose window is cut. Two more chats ask where she
    lives, before and after she moved."""
    memory.update(
        "moving-house",
        {"role": "system", "content": "You are the assistant of a moving company. Be brief."},
        user_id="ana",
    )
    memory.describe("moving-house", {"title": "Moving house"}, user_id="ana")
    quotes = '[{"firm": "Lopes & Filhos", "eur": 1180}, {"firm": "Mudanzas Vigo", "eur": 1420}]'
    answer = [
        call(["call_81"], "find_quotes", '{"from": "Porto", "weight_kg": 240}'),
        result("call_81", quotes),
        {"role": "assistant", "content": "Lopes & Filhos asks 1,180 EUR, Mudanzas Vigo 1,420 EUR."},
    ]
    _turn(memory, "moving-house", "ana", "I need quotes for moving a piano of 240 kg.", answer)
    for number in range(1, 9):
        question = f"Box list {number}: what still goes into the van, and how heavy is it by now?"
        told = f"Box {number} has kitchen things, books and lamps; with it the van carries "
        _turn(memory, "moving-house", "ana", question, f"{told}{number * 115} kg of 1,200 kg. " * 3)
    _turn(memory, "where-1", "ana", "Which city do I live in?", "In Porto, as you told me.")
    memory.flush("moving-house")
    moved = dated("I moved to Lisbon last week, near the river.", "2026-10-20T19:05")
    answer = dated("Enjoy it!", "2026-10-20T19:05", "assistant")
    memory.update("lisbon", [moved, answer], user_id="ana")
    memory.flush("lisbon")
    _turn(memory, "where-2", "ana", "Which city do I live in?", "In Lisbon, since October.")


CLASSICS = (
    "<script>window.hit = 1</script>",
    '<img src=x onerror="window.hit = 2">',
    '"><svg onload=window.hit=3>',
    "'><iframe srcdoc='<script>parent.hit=4</script>'>",
    "javascript:window.hit=5",
    '<a href="javascript:window.hit=6">x</a>',
    "</textarea></title></style><script>window.hit=7</script>",
    "<details open ontoggle=window.hit=8>",
    "<math><mtext></p><style><img src=x onerror=window.hit=9></style>",
    "${window.hit=10}{{constructor.constructor('window.hit=11')()}}",
    "<!--><script>window.hit=12</script>-->",
    "\u202e<b onmouseover=window.hit=13>\u2066\ufeff",
    '<meta http-equiv=refresh content="0;url=javascript:window.hit=14">',
    "<base href=//evil.invalid/><link rel=stylesheet href=//evil.invalid/x.css>",
)


def attack(number: int, word: str = "") -> str:
    """Return one of the attacks, with a word that marks where it is stored."""
    return f"{CLASSICS[number % len(CLASSICS)]} {word}".strip()


def hostile_model() -> Model:
    """Return a model that finds a fact in each attack."""
    model = Model()
    for number, text in enumerate(CLASSICS):
        more = {"category": f"<i>c{number}", "subject": f"<b onclick=hit=1>s{number}"}
        ties = ("update", f"fact {CLASSICS[number - 1]}") if number else None
        model.tell(text, f"fact {text}", ties, **more)
    return model


def fill_hostile(service: Service) -> str:
    """Store an attack in every field, and return the user's id."""
    memory, user = service.memory, attack(0, "user")
    for number, text in enumerate(CLASSICS):
        session = f"{text} session"
        asks = call([f"{text} call"], f"{text} tool", f'{{"a": "{number} {text}"}}')
        messages = [
            {"role": "user", "content": f"{text} says", "name": f"{text} name", text: text},
            {**asks, "content": f"{text} asks"},
            result(f"{text} call", f"{text} result"),
            assistant([{"type": "text", "text": f"{text} part"}, {"u": text}]),
        ]
        memory.update(session, {"role": "system", "content": f"{text} system"}, user_id=user)
        turn = memory.before_turn(session, f"{text} asked", user_id=user)
        memory.after_turn(turn, f"{text} answered")
        memory.update(session, messages, user_id=user)
        memory.describe(session, {"title": f"{text} title", text: [text]}, user_id=user)
        memory.user(user).notes().add(f"{text} note")
        memory.user(user).spatial().observe(f"{text} seen", [number, 1], metadata={text: text})
        path = re.sub("[/\u202e\u2066\ufeff]", "", text)
        memory.user(user).files().create(f"/memories/{path} file", f"{text} file text")
    memory.user(user).skills().write(
        "hostile", attack(1, "skill"), steps=[attack(2), attack(3)], body=attack(4), tags=["a<b"]
    )
    memory.update(attack(5, "dead"), {"role": "user", "content": POISON}, user_id=user)
    memory.flush()
    (fact, *_) = memory.user(user).facts()
    memory.user(user).forget(fact.id, why=attack(6, "why"))
    return user
