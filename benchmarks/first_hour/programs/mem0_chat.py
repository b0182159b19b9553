import sys

from mem0 import Memory
from openai import OpenAI

place = sys.argv[1]
store = {"provider": "qdrant", "config": {"path": place, "on_disk": True}}
if place.startswith("postgresql"):
    store = {"provider": "pgvector", "config": {"connection_string": place}}
memory = Memory.from_config({"vector_store": store})
client = OpenAI()


def chat(session_id, user_id, question):
    found = memory.search(question, filters={"user_id": user_id}, top_k=5)
    known = "\n".join(one["memory"] for one in found["results"])
    messages = [{"role": "system", "content": f"What you know of the user:\n{known}"}]
    messages += [{"role": "user", "content": question}]
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=messages)
    text = answer.choices[0].message.content
    messages.append({"role": "assistant", "content": text})
    memory.add(messages[1:], user_id=user_id, run_id=session_id)
    return text


print(chat(sys.argv[2], "ana", sys.argv[3]))
