"""Share a namespace between agents: grant and revoke rights, and delete an agent's messages."""

from __future__ import annotations

from agent_memory import AgentMemory
from agent_memory.engine.sharing.shares import SharedMemory
from agent_memory.errors import AccessDenied


def try_to_write(agent: SharedMemory, text: str) -> None:
    """Write to the stand-up, if the agent has the right."""
    try:
        agent.update("standup", {"role": "assistant", "content": text})
        print(f"{agent.agent_id} writes: {text}")
    except AccessDenied:
        print(f"{agent.agent_id} was refused.")


def read(agent: SharedMemory) -> None:
    """Print the stand-up as the agent sees it."""
    try:
        for entry in agent.history("standup"):
            author = entry.message.metadata.get("agent", "nobody")
            print(f"  {agent.agent_id} reads: {author}: {entry.message.text()}")
    except AccessDenied:
        print(f"  {agent.agent_id} may not read.")


def main() -> None:
    """Let two agents and an auditor use one namespace."""
    with AgentMemory(store="memory://") as memory:
        team = memory.share("team-chat")
        team.grant("planner", "write")
        team.grant("coder", "write")
        team.grant("auditor", "read")
        planner, coder, auditor = map(team.agent, ("planner", "coder", "auditor"))

        try_to_write(planner, "Today: the login page.")
        try_to_write(coder, "I take it.")
        try_to_write(auditor, "May I add something?")
        read(auditor)

        team.revoke("coder")
        try_to_write(coder, "One more thing.")
        read(coder)
        print("Agents:", team.agents())

        memory.delete_user("coder")
        read(planner)
        print("Outside of the namespace:", memory.history("standup"))


if __name__ == "__main__":
    main()
