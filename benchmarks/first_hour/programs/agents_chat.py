import sys

from agents import Agent, Runner, SQLiteSession, set_default_openai_api, set_tracing_disabled

set_default_openai_api("chat_completions")
set_tracing_disabled(True)
agent = Agent(name="Assistant", model="gpt-4o-mini")


def chat(session_id, user_id, question):
    session = SQLiteSession(session_id, sys.argv[1])
    if sys.argv[1].startswith("postgresql"):
        from agents.extensions.memory import SQLAlchemySession

        url = sys.argv[1].replace("postgresql", "postgresql+asyncpg")
        session = SQLAlchemySession.from_url(session_id, url=url, create_tables=True)
    return Runner.run_sync(agent, question, session=session).final_output


print(chat(sys.argv[2], "ana", sys.argv[3]))
