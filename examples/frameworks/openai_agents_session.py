"""An agent of OpenAI's SDK that recalls a message of another chat. It needs no key.

pip install "agent-memory-log[local,openai-agents]"
"""

from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from agent_memory import AgentMemory
from agent_memory.integrations.openai_agents import AgentMemorySession


class Cats(Model):
    """A scripted model. Its answer shows whether it got the cat's name."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        said = "She is Mia." if "Mia" in str((args, kwargs)) else "I don't know."
        text = ResponseOutputText(text=said, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("The example does not stream.")


with AgentMemory(store="memory://") as memory:
    for chat, said in (("monday", "My cat is called Mia."), ("tuesday", "What is my cat called?")):
        session = AgentMemorySession(memory, chat, user_id="ana")
        config = RunConfig(session_input_callback=session.recalled, tracing_disabled=True)
        agent = Agent(name="assistant", model=Cats())
        done = Runner.run_sync(agent, said, session=session, run_config=config)
        print(f"{chat}: {done.final_output}")
