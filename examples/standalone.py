"""Use two parts without a memory: a chat history and a vector index."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from agent_memory import AgentMemory, ChatHistory, VectorIndex
from agent_memory.errors import DimensionMismatch
from agent_memory.standalone.item_index import Item

TURNS = [
    {"role": "user", "content": "Which of these is a berry?"},
    {"role": "assistant", "content": "The banana."},
]
# The sweetness, sourness and crunchiness of each fruit.
FRUIT = {"apple": [5, 3, 8], "banana": [8, 0, 0], "lemon": [1, 9, 0], "pear": [6, 2, 5]}


def main() -> None:
    """Replace a conversation, search for fruit, and delete a user from both parts."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/parts.db"
        with ChatHistory(url) as history, VectorIndex(url, name="fruit", dimension=3) as index:
            history.save("quiz", TURNS, user_id="kim")
            history.save("quiz", [*history.load("quiz"), {"role": "user", "content": "Really?"}])
            print("Saved:", [message.text() for message in history.load("quiz")])
            history.save("quiz", TURNS[:1])
            print("Replaced:", [message.text() for message in history.load("quiz")])

            index.store([Item(name, vector=vector) for name, vector in FRUIT.items()])
            index.store(Item("mine", "The pear from the garden.", [6, 1, 6]), user_id="kim")
            print("\nLike something sweet and a little crunchy:")
            for match in index.search([7, 1, 4], top_k=3, threshold=0.8):
                print(f"  {match.score:.3f}  {match.id}")
            print("Of kim's:", [match.text for match in index.search([7, 1, 4], user_id="kim")])
            try:
                index.search([7, 1])
            except DimensionMismatch as error:
                print("Refused:", error)

            with AgentMemory(store=url) as memory:
                print("\nA memory over the same store shows:", memory.get("quiz").to_messages())
                memory.delete_user("kim")
            print("Left of kim:", history.load("quiz"), index.search([7, 1, 4], user_id="kim"))
            print("Left of all:", [match.id for match in index.search([7, 1, 4])])


if __name__ == "__main__":
    main()
