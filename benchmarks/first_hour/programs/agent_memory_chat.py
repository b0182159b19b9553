import sys

from openai import OpenAI

from agent_memory import AgentMemory

memory = AgentMemory(sys.argv[1])
client = OpenAI()


def chat(session_id, user_id, question):
    session = memory.session(session_id, user_id)
    messages = session.get(question).to_messages()
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=messages)
    text = answer.choices[0].message.content
    session.update([{"role": "user", "content": question}, {"role": "assistant", "content": text}])
    return text


print(chat(sys.argv[2], "ana", sys.argv[3]))
