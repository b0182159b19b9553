"""Store procedures as Markdown files. People and a model write them, and recall finds them."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_memory import AgentMemory, SkillMemory

DEPLOY = """---
name: deploy
description: Roll a release of the web service out to production. Use when asked to ship.
tags: [ops]
---

1. Run the tests.
2. Tag the release.
3. Watch the error rate for an hour.
"""
BROKEN = """---
name: outage
description: Use when: the site is down
---
"""


def main() -> None:
    """Write a valid and an invalid file, ask two questions, then let a model save a skill."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "skills"
        folder.mkdir()
        (folder / "deploy.md").write_text(DEPLOY, encoding="utf-8")
        (folder / "outage.md").write_text(BROKEN, encoding="utf-8")
        with AgentMemory(store="memory://", blocks=[SkillMemory(folder=folder)]) as memory:
            for broken in memory.open("skills").broken():
                print(f"Broken: {broken}")
            for question in ("Can you ship release 2.3 today?", "I like my coffee black."):
                recalls = memory.get("s-1", question, user_id="sarah").recalls
                print(f"\n{question}", *(recall.text for recall in recalls), sep="\n  ")

            learned = {
                "name": "weekly-report",
                "description": "Write Sarah's weekly report.",
                "steps": ["List what was shipped.", "Ask her what went badly."],
            }
            print("\nThe model:", memory.call_tool("s-1", "skills_save", learned, user_id="sarah"))
            found = memory.call_tool("s-2", "skills_find", {"query": "report"}, user_id="sarah")
            print("Next week it finds:", json.loads(found)[0]["name"])
            print("Bob sees:", [skill.name for skill in memory.user("bob").skills().all()])


if __name__ == "__main__":
    main()
