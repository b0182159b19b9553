"""A graph of LangGraph with our saver and our store. The model speaks OpenAI's Responses API."""

from langchain_core.messages import SystemMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore

from agent_memory import AgentMemory
from agent_memory.integrations.langgraph import AgentMemorySaver, AgentMemoryStore
from tests.frameworks.agents.runner import Turns
from tests.frameworks.conversation import BUDGET, INSTRUCTIONS, TOOLS, USER

PLACE = (USER, "said")


def converse(memory: AgentMemory, server: str, turns: Turns) -> list[str]:
    settings = {"base_url": f"{server}/v1", "max_retries": 0, "use_responses_api": True}
    bare = ChatOpenAI(model="scripted", **settings)
    model = bare.bind_tools(list(TOOLS))

    def call(state: MessagesState, store: BaseStore) -> dict[str, object]:
        question = [one for one in state["messages"] if one.type == "human"][-1]
        known = store.search(PLACE, query=question.text, limit=5)
        store.put(PLACE, str(question.id), {"text": question.text})
        told = "\n".join(str(item.value["text"]) for item in known)
        newest = trim_messages(
            state["messages"],
            max_tokens=BUDGET,
            token_counter=count_tokens_approximately,
            start_on="human",
        )
        system = SystemMessage(f"{INSTRUCTIONS}\nEarlier the user said:\n{told}")
        return {"messages": [model.invoke([system, *newest])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call)
    builder.add_node("tools", ToolNode(list(TOOLS)))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    graph = builder.compile(
        checkpointer=AgentMemorySaver(memory, user_id=USER),
        store=AgentMemoryStore(memory, user_id=USER, index={"fields": ["text"]}),
    )
    answers = []
    for session, question in turns:
        state = graph.invoke({"messages": question}, {"configurable": {"thread_id": session}})
        answers.append(state["messages"][-1].text)
    return answers
