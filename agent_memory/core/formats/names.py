"""The names of formats and of roles."""

CHAT = "openai.chat"
RESPONSES = "openai.responses"
ANTHROPIC = "anthropic.messages"
GOOGLE = "google.contents"
CONVERSE = "bedrock.converse"
ADK = "google.adk"
AGENT_FRAMEWORK = "agent_framework"
AI_SDK = "ai_sdk"
HAYSTACK = "haystack"
LANGCHAIN = "langchain"
LLAMA_INDEX = "llama_index"
PYDANTIC_AI = "pydantic_ai"
SMOLAGENTS = "smolagents"
ENCRYPTED = "agent-memory.sealed"  # the format of encrypted messages that are read without the key

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_ALIASES = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant"}
_ALIASES |= {"chatbot": "assistant"}


def role_in(role: str) -> str:
    """Return the standard name of a role, such as "user" for "Human"."""
    lower = role.lower()
    return _ALIASES.get(lower, lower)
