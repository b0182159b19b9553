"""A conversation with a tool over any chat model of LangChain: `pip install langchain-core`."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from server import provider

from agent_memory import AgentMemory


class ChatModel(BaseChatModel):
    """A chat model over HTTP, like those of LangChain's provider packages."""

    address: str

    @property
    def _llm_type(self) -> str:
        return "example"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        body = {"model": "any", "messages": convert_to_openai_messages(messages)}
        request = Request(f"{self.address}/v1/chat/completions", json.dumps(body).encode())
        with urlopen(request) as answer:
            (message,) = convert_to_messages([json.load(answer)["choices"][0]["message"]])
        return ChatResult(generations=[ChatGeneration(message=message)])


def main() -> None:
    """Pass LangChain's messages to `update`, and the context to `invoke`."""
    with provider() as address, AgentMemory(store="memory://", blocks=[]) as memory:
        model = ChatModel(address=address)

        def ask() -> None:
            context = memory.get("s-1", format="langchain")
            memory.update("s-1", model.invoke(**context.to_arguments()))

        memory.update("s-1", {"role": "system", "content": "You help with orders."})
        memory.update("s-1", HumanMessage("Where is my order AX-4471?"))
        ask()
        memory.update("s-1", HumanMessage("By the way, I moved to Lisbon."))
        memory.update("s-1", ToolMessage("AX-4471: shipped", tool_call_id="call_1"))
        ask()
        for message in memory.get("s-1", format="langchain").to_messages():
            print(message["type"], message["content"] or message["tool_calls"])


if __name__ == "__main__":
    main()
