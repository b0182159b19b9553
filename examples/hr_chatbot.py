"""Run an HR assistant with a small budget, which recalls messages that left the window.

Without a key the assistant's answers are scripted. Set AGENT_MEMORY_MODEL to any litellm model (and
the provider's key), and that model answers and extracts facts.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import Any

from agent_memory import (
    AgentMemory,
    Block,
    ExtractiveMemory,
    FlushToLTM,
    Session,
    StaticMemory,
    VectorMemory,
)

MODEL = os.environ.get("AGENT_MEMORY_MODEL")

POLICY = [
    "Remote work: up to 3 days a week, with the manager's approval.",
    "Eligible for remote work: 6 months of service, satisfactory reviews, a suitable role, "
    "equipment and internet.",
]
TALK = [
    (
        "Hi, I'm Sarah from Marketing. What is the policy on remote work?",
        "Hello Sarah! Up to 3 days a week, with your manager's approval.",
    ),
    (
        "I have been here for 2 years and my reviews are good. Am I eligible?",
        "With 2 years of service and good reviews you are eligible, Sarah.",
    ),
    (
        "How do I apply?",
        "Fill in form HR-101 on the employee portal; it goes to your manager.",
    ),
    (
        "And if my manager says no?",
        "Ask for feedback, propose a trial period, and if need be HR will mediate.",
    ),
    (
        "What equipment would I get?",
        "A laptop, and an allowance of up to $300 for a chair.",
    ),
    (
        "Could I work from Spain for a while?",
        "At most 2 weeks a year, approved 30 days ahead.",
    ),
]
QUESTIONS = [
    "Hi, it's Sarah again. Which department am I from?",
    "Am I eligible, with my 2 years and my reviews?",
]


def blocks() -> list[Block]:
    """Return the long-term blocks. `ExtractiveMemory` needs a model."""
    always = [StaticMemory(facts=POLICY), VectorMemory()]
    return [*always, ExtractiveMemory()] if MODEL else [*always]


def answer(session: Session, question: str, scripted: str) -> str:
    """Return the model's answer to a question, or the scripted answer if there is no model."""
    if MODEL is None:
        return scripted
    import litellm

    chat = session.get(question).to_messages()
    reply: Any = litellm.completion(model=MODEL, messages=chat, max_tokens=80)
    return str(reply.choices[0].message.content)


def main() -> None:
    """Talk until the window overflows, then ask about a message from the beginning."""
    with (
        TemporaryDirectory() as folder,
        AgentMemory(
            store=f"sqlite:///{folder}/memory.db",
            max_tokens=300,
            overflow=FlushToLTM(blocks=blocks(), max_stm_ratio=0.5),
        ) as memory,
    ):
        session = memory.session("hr-1", user_id="sarah")
        session.update({"role": "system", "content": "You are an HR assistant. Be brief."})
        for question, scripted in TALK:
            said = answer(session, question, scripted)
            # One update stores both messages, or neither of them.
            session.update(
                [{"role": "user", "content": question}, {"role": "assistant", "content": said}]
            )
            print(f"Sarah: {question}\n   HR: {said}")
        (head,) = memory.sessions()
        print(f"\nMessages 1 to {head.start} of {head.end} have left the window.")

        for question in QUESTIONS:
            context = session.get(question)
            print(f"\n{question} ({context.tokens} of {context.max_tokens} tokens)")
            for recall in context.recalls:
                print(f"  {recall.block}: {recall.text}")


if __name__ == "__main__":
    main()
