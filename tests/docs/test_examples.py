"""Every example runs from an empty folder, prints what it should, and leaves nothing behind."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

EXPECTED = {
    "quickstart": [
        "4 of them have left the window.",
        "- Remote work: up to 3 days a week with approval.",
        "My badge number is M-4417.",
        "of at most 220 tokens.",
        "After delete the log holds 0 messages.",
    ],
    "hr_chatbot": [
        "have left the window.",
        "  vector: user: Hi, I'm Sarah from Marketing.",
        "  vector: user: I have been here for 2 years and my reviews are good.",
        "assistant: With 2 years of service and good reviews you are eligible, Sarah.",
        "  static: Eligible for remote work: 6 months of service",
    ],
    "swap_a_block": [
        "With Trim alone: []",
        "replay 6/6: week-6",
        "With VectorMemory: user: I planted sage in pot 4.",
    ],
    "find_again": [
        "  2.49  assistant: Would you rather go to the sea or to the mountains, and for how long?",
        "(meaning 0.58, meaning_around 0.28, nearest 1.49, words 0.92, words_around 0.92,",
        "What did I buy for hiking?\n  1.",
        "  user: The mountains, ten days.",
    ],
    "profile": [
        "Today:        name='Ana' city='Lisbon' employer='Cortiça' children=3 hobbies=['surfing']",
        "In June 2025: name='Ana' city='Porto' employer='Cortiça' children=None",
        "contradicted  children: 2",
        "Left:      name='Ana' city='Porto' employer='Cortiça' children=3 hobbies=['surfing']",
        "The address was sent to nobody: True",
    ],
    "files": [
        "File created successfully at: /memories/garden/tomatoes.md",
        "     3\t- water every day, once it is hot",
        "Path /memories/../../etc/passwd would escape /memories directory",
        "ben: []",
    ],
    "skills": [
        "Broken: outage.md, line 3: This is not YAML: mapping values are not allowed here.",
        "  deploy: Roll a release of the web service out to production. Use when asked to ship.",
        "The model: Saved under the name weekly-report.",
        "Bob sees: ['deploy']",
    ],
    "deployment": [
        "support: 24 messages in the log",
        "a summary stands for the rest: True",
        "recalled: ['The office opens at 8.']",
        "scratch: 24 messages in the log",
        "a context shows 4, in ",
    ],
    "mcp_client": [
        "tools: search_memories, add_memory, update_memory, delete_memory",
        "found: user: We moved our stand-up to half past nine, on Tuesdays too.",
        "note: Kim is off on Thursdays.",
        "refused: True",
        "memory://sessions/monday%2F1: ['user', 'assistant']",
    ],
    "working": [
        "  -> There is no value with the key 'offer'. Keys: 'budget', 'offers', 'plan'.",
        '- plan: ["compare","order"]\n- offers: {"Oak &amp; Sons":310,"Chairly":285}\n- budget:',
        "And in another one of the same user: []",
        "After the end: {}",
    ],
    "team_chat": [
        "auditor was refused.",
        "  auditor reads: planner: Today: the login page.",
        "  coder may not read.",
        "Agents: {'auditor': 'read', 'planner': 'write'}",
        "  planner reads: nobody: [deleted]",
        "Outside of the namespace: []",
    ],
    "tools": [
        "-> memory_read was called with bad arguments: user_id: Extra inputs are not permitted.",
        '"text":"Ana is vegetarian."}',
        "-> Nothing in memory is relevant to this.",
        "Notes of ben: []",
    ],
    "spatial": [
        "  0.69  Keys on the kitchen table.  (8.9 m away, confidence 0.90)",
        "  0.75  Keys on the shelf in the hall.  (6.8 m away, confidence 1.00)",
        "  0.27  Something red on the floor, perhaps a ball.",
        "[('The door is open.', 0.5)]",
    ],
    "loop": [
        "  2 assistant (calls order_status, memory_write)",
        "> Take size 42, as for the boots.",
        "Broken off, so that it stays at 4.",
        "  6 messages to send, recalled: Ana wears size 42.",
        "  40 of 40 answers, 40 of 40 results.\n  Within 6,000 tokens: True; warnings: []",
        '  The oldest: [Old result of read_log({"host": 1}), 1,816 tokens: Log of host 1',
        '  Read: {"seq":3,"from":"tool",',
    ],
    "langchain_agent": [
        "The model is sent 2 messages:\n  system: You are Ana's assistant.",
        "- [20",
        "] user: I have a cat. She is called Mia.",
        "Answer: She is called Mia.",
    ],
    "standalone": [
        "Saved: ['Which of these is a berry?', 'The banana.', 'Really?']",
        "  0.977  pear\n  0.870  apple\n  0.862  banana\n",
        "Refused: The query has 2 numbers; the vectors of the index 'fruit' have 3.",
        "Left of kim: [] []\nLeft of all: ['pear', 'apple', 'banana', 'lemon']",
    ],
    "migrate": [
        "Stopped after 25 of 40 sessions.",
        "Sessions: 40 of 40",
        "Equal on both sides: Migrated(sessions=40, messages=40, facts=41, vectors=0)",
        "This is talk 40.",
        "Talk 40 was short.",
    ],
    "regenerate": [
        "Sent for another one: ['system', 'user']",
        "Found: ['user: Name a plant for a dark corner.', 'assistant: A cast-iron plant.']",
        "Taken back: ['user', 'assistant'], and found: []",
    ],
    "duckdb_store": ["user: I moved to Lisbon last week."],
    "custom_block": ["From promises: I will send form HR-101 by Friday. (message 1)"],
    "guest_book": [
        "Guests: ['Ada Lovelace', 'Ben', 'Eve']",
        "The model finds: Ada Lovelace",
        "Rebuilt, and Ben stays forgotten: ['Ada Lovelace', 'Eve']",
        "Left of the desk: []",
        "Refused: line 5: 'buy now!' is nobody's name. Nothing was imported",
        "Imported: ['Ada Lovelace']",
        "And rebuilt there: ['Ada Lovelace']",
    ],
    "custom_strategy": [
        "Task: compare three offers for chairs.",
        "Offer 10: a chair for $300.",
        "of at most 150 tokens",
    ],
    "two_memories": [
        "  support.vector: user: My drill is a KX-20.",
        "  company.static: Repairs under warranty are free for 24 months after the sale.",
        "  rules: Never promise a date.",
        "Warnings: []",
        "Left of Kim: [0, 0]",
    ],
    "snapshot": [
        "3 messages and 4 records of blocks.",
        "Restored: team, of ada, 3 messages.",
        "The same is found: True",
        "Its plan: ['order coffee']",
        "its `sha256` does not fit the lines before it",
        "Sessions there: []",
    ],
    "async_memory": [
        "ana -> user: I'm ana and I live in Lisbon.",
        "ben -> user: I'm ben and I live in Oslo.",
        "3 sessions, 6 messages",
    ],
}

CATS = ["She is Mia."]
FRAMEWORKS = {
    "agent_framework_agent": ("agent_framework", CATS),
    "anthropic_tool": ("anthropic", ["     1\tShe is called Mia.", "'memory_20250818'"]),
    "crewai_memory": ("crewai", ["Recalled: The cat is called Mia.", "'/crew/home/pets'"]),
    "google_adk_agent": ("google.adk", ["tuesday: She is Mia."]),
    "haystack_agent": ("haystack", ["tuesday: She is Mia."]),
    "hermes_provider": ("agent.memory_provider", ["Every message up to", "user: My cat is called"]),
    "langgraph_store": ("langgraph", ["Goes on from: {'visits': 1}", "Kept: [{'last': 1}]"]),
    "llama_index_agent": ("llama_index.core", ["tuesday: She is Mia."]),
    "openai_agents_session": ("agents", ["tuesday: She is Mia."]),
    "pydantic_ai_agent": ("pydantic_ai", ["tuesday: She is Mia."]),
    "smolagents_agent": ("smolagents", ["tuesday: She is Mia."]),
    "strands_agent": ("strands", ["I was sent 1 messages.\nI was sent 3 messages.\n"]),
}


PROVIDERS = {
    "openai_chat": ["tool AX-4471: shipped\nuser By the way", "assistant It arrives on 6 March."],
    "openai_responses": ["reasoning \nfunction_call call_1\nfunction_call_output call_1\n"],
    "anthropic_messages": ["system: You help with orders.", "'signature': 'c2ln'",
                           "user [{'type': 'tool_result'", "'text': 'It arrives on 6 March.'"],
    "google_contents": ["'thought_signature': b'signed'", "[{'text': 'It arrives on 6 March.'}]"],
    "bedrock_converse": ["AX-4471: shipped'}]}}, {'text': 'By the way, I moved to Lisbon.'}]",
                         "[{'text': 'It arrives on 6 March.'}]"],
    "langchain_messages": ["tool AX-4471: shipped\nhuman By", "ai It arrives on 6 March."],
}  # fmt: skip


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_example_runs(name: str, tmp_path: Path) -> None:
    """Wrong: the provider's SDK or API refuses the example's request."""
    done = run(EXAMPLES / "providers" / f"{name}.py", tmp_path)
    assert done.returncode == 0, done.stderr
    for expected in PROVIDERS[name]:
        assert expected in done.stdout


def test_each_example_has_an_expected_output() -> None:
    """Wrong: an example is not run by any test."""
    assert sorted(EXPECTED) == sorted(file.stem for file in EXAMPLES.glob("*.py"))
    files = {file.stem for file in EXAMPLES.glob("providers/*.py")} - {"server"}
    assert set(PROVIDERS) == files
    assert sorted(FRAMEWORKS) == sorted(file.stem for file in EXAMPLES.glob("frameworks/*.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_without_key_and_network(name: str, tmp_path: Path) -> None:
    """Wrong: an example fails without key and network, prints something else, or leaves files."""
    done = run(EXAMPLES / f"{name}.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for expected in EXPECTED[name]:
        assert expected in done.stdout
    assert list(tmp_path.iterdir()) == []


def is_there(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package cannot be imported either
        return False


@pytest.mark.parametrize("name", [name for name in FRAMEWORKS if is_there(FRAMEWORKS[name][0])])
def test_a_framework_example_runs(name: str, tmp_path: Path) -> None:
    """Wrong: an example fails without key and network, or prints something else. `python -m
    tests.frameworks` runs those of all frameworks."""
    _, expected = FRAMEWORKS[name]
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    home = {"HERMES_HOME": str(tmp_path), "HAYSTACK_TELEMETRY_ENABLED": "false"}
    done = run(EXAMPLES / "frameworks" / f"{name}.py", tmp_path, **quiet, **home)
    assert done.returncode == 0, done.stderr  # frameworks may print warnings
    for said in expected:
        assert said in done.stdout


def run(example: Path, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder, without settings and keys."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("AGENT_MEMORY_") and not key.endswith("_API_KEY")
    }
    env |= {"AGENT_MEMORY_RECALL_TIMEOUT": "60", **settings}  # a busy machine
    command = [sys.executable, "-W", "error::ResourceWarning", str(example)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
