"""A conversation with a tool over Bedrock's Converse API: `pip install botocore`."""

from __future__ import annotations

from botocore.session import get_session
from server import provider

from agent_memory import AgentMemory


def main() -> None:
    """Let the user write while the tool runs. The result and this text become one message."""
    with provider() as address, AgentMemory(store="memory://", blocks=[]) as memory:
        client = get_session().create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=address,
            aws_access_key_id="none",
            aws_secret_access_key="none",
        )

        def ask() -> None:
            context = memory.get("s-1", format="bedrock.converse")
            memory.update("s-1", client.converse(modelId="any", **context.to_arguments()))

        memory.update("s-1", {"role": "system", "content": "You help with orders."})
        memory.update("s-1", {"role": "user", "content": [{"text": "Where is my order AX-4471?"}]})
        ask()
        memory.update("s-1", "By the way, I moved to Lisbon.")
        result = {"toolUseId": "tooluse_1", "content": [{"text": "AX-4471: shipped"}]}
        memory.update("s-1", {"role": "user", "content": [{"toolResult": result}]})
        ask()
        for message in memory.get("s-1", format="bedrock.converse").to_messages():
            print(message["role"], message["content"])


if __name__ == "__main__":
    main()
