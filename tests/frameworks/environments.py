"""Which frameworks can be installed together, and what an agent of each needs.

The OpenAI SDKs 2 and 3 exclude each other, and so do the MCP SDKs 1 and 2.
"""

from importlib.metadata import PackageNotFoundError, version

FRAMEWORKS = {
    "langchain": "langchain-openai",
    "langgraph": "langchain-openai",
    "pydantic_ai": "pydantic-ai-slim[anthropic]",
    "openai_agents": "openai-agents",
    "agent_framework": "agent-framework-openai",
    "google_adk": "google-adk",
    "haystack": "haystack-ai",
    "smolagents": "smolagents[openai]",
    "llama_index": "llama-index-llms-openai",
    "strands": "strands-agents[openai]",
    "crewai": "crewai",
    "hermes": "hermes-agent",
}
"""The package that brings the model class of each framework, beside our extra of its name."""

ENVIRONMENTS = {
    "newest": [
        *("langchain", "langgraph", "pydantic_ai", "openai_agents", "agent_framework"),
        *("google_adk", "haystack", "smolagents"),
    ],
    "openai-2-mcp-1": ["llama_index", "strands", "crewai"],
    "hermes": ["hermes"],
}


def _is_installed(package: str) -> bool:
    try:
        version(package.partition("[")[0])
    except PackageNotFoundError:
        return False
    return True


INSTALLED = [name for name, package in FRAMEWORKS.items() if _is_installed(package)]
