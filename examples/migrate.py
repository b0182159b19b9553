"""Move a deployment to another database: stop half-way, resume, and compare both databases.

Both databases are SQLite files here. Any two store URLs work. No key or model is needed.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_memory import AgentMemory, NoteMemory
from agent_memory.operations import migrate


def main() -> None:
    """Fill a database, move it in two runs, and read what arrived."""
    with TemporaryDirectory() as folder:
        old, new = f"sqlite:///{Path(folder) / 'old.db'}", f"sqlite:///{Path(folder) / 'new.db'}"
        with AgentMemory(store=old, blocks=[NoteMemory()]) as memory:
            for number in range(1, 41):
                session = memory.session(f"talk-{number:02}", f"user-{number % 4}")
                session.update({"role": "user", "content": f"This is talk {number}."})
                session.owner().notes().add(f"Talk {number} was short.")

        with closing(migrate(old, new)) as steps:
            for step in steps:
                if step.what == "sessions" and step.done == 25:
                    print(f"Stopped after {step.done} of {step.total} sessions.")
                    break

        for step in migrate(old, new):  # the same call resumes
            if step.what == "sessions" and step.done == step.total:
                print(f"Sessions: {step.done} of {step.total}")
            if step.verified:
                print("Equal on both sides:", step.verified)

        with AgentMemory(store=new, blocks=[NoteMemory()]) as memory:
            print(memory.history("talk-40")[0].message.text())
            print(memory.session("talk-40", "user-0").owner().notes().all()[-1].text)


if __name__ == "__main__":
    main()
