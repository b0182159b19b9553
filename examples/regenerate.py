"""Replace an answer with `regenerate`, and remove a turn with `pop`, also from recalls.

Without a key the model's answers are scripted, by a server on this machine that speaks OpenAI's
API. Set AGENT_MEMORY_MODEL to any litellm model (and the provider's key), and that model answers.
"""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from typing import Any

from agent_memory import AgentMemory, FlushToLTM, Session, VectorMemory
from agent_memory.testing import FakeLLM

# If the main thread calls litellm, an event loop stays open when the program ends.
warnings.filterwarnings("ignore", "unclosed", ResourceWarning)

MODEL = os.environ.get("AGENT_MEMORY_MODEL")
QUESTION = "Name a plant for a dark corner."


def show(session: Session) -> None:
    """Print the log of a session."""
    for entry in session.history():
        print(f"  {entry.message.role:9} {entry.message.text()}")


def ask_yourself(settings: dict[str, Any], messages: list[dict[str, Any]]) -> Any:
    """Call the model with any client, here litellm."""
    import litellm

    return litellm.completion(messages=messages, **settings)


def main() -> None:
    """Ask, ask again, and remove the turn."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {"model": MODEL}
        if MODEL is None:
            fake = stack.enter_context(FakeLLM())
            for answer in ("A cactus.", "A cast-iron plant."):
                fake.reply(answer)
            settings = {"model": "openai/scripted", "api_base": fake.api_base, "api_key": "none"}
        overflow = FlushToLTM(blocks=[VectorMemory()], absorb="every_update")
        memory = stack.enter_context(AgentMemory(store="memory://", overflow=overflow, **settings))
        session = memory.session("plants", "ana")
        session.update({"role": "system", "content": "Answer in three words."})

        session.completion(QUESTION)
        print("The first answer, absorbed at once:")
        show(session)

        turn = session.regenerate()
        print(f"Sent for another one: {[message['role'] for message in turn.messages]}")
        session.after_turn(turn, ask_yourself(settings, turn.messages))
        print("In the old one's place:")
        show(session)
        found = [recall.text for recall in session.search("plant for a dark corner")]
        print(f"Found: {found}")

        taken = session.pop(2)
        print(f"Taken back: {[message.role for message in taken]}, and found:", end=" ")
        print([recall.text for recall in session.search("plant for a dark corner")])


if __name__ == "__main__":
    main()
