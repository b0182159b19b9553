"""Write an overflow strategy of your own: the first user message always stays in the window."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Literal

from agent_memory import AgentMemory, Strategy
from agent_memory.core.window import choose_cut
from agent_memory.strategies import Cut, Window


class KeepTask(Strategy):
    """Keep the first user message and the newest whole turns."""

    kind: Literal["keep_task"] = "keep_task"

    def cut(self, window: Window) -> Cut | None:
        """Remove the oldest turns, but pin the task and leave room for it."""
        task = next((e for e in window.entries if e.message.role == "user"), None)
        if task is None:
            return None
        cut = choose_cut(window.entries, window.low_water - task.tokens)
        if cut is None:
            return None
        return Cut(cut.start, tuple(sorted({task.seq, *cut.pinned})))


def main() -> None:
    """Overflow a small window several times; the task stays."""
    with (
        TemporaryDirectory() as folder,
        AgentMemory(
            store=f"sqlite:///{folder}/memory.db", max_tokens=150, overflow=KeepTask()
        ) as memory,
    ):
        memory.update("s-1", {"role": "user", "content": "Task: compare three offers for chairs."})
        for number in range(1, 11):
            text = f"Offer {number}: a chair for ${200 + 10 * number}."
            memory.update("s-1", {"role": "user", "content": text})

        context = memory.get("s-1")
        for message in context.messages:
            print(message.text())
        print(f"\n{context.tokens} of at most {context.max_tokens} tokens; the log has all 11.")


if __name__ == "__main__":
    main()
