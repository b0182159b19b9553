"""Tasks for a model with tools: what is remembered before, what is said, what must hold after.

They stand in `benchmarks/asked/tasks.toml`. Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from benchmarks.wording import says

TASKS = Path(__file__).with_name("asked") / "tasks.toml"

Over = Literal["completion", "mcp"]
Place = Literal["notes", "facts", "files", "skills", "scratchpad"]
Holds = Mapping[Place, Sequence[str]]
"""What each place of a memory holds, as texts."""

_FILLER = re.compile(r"\{filler (\d+)\}")
_ITEM = "{0}. The lender's clerk enters item {0} in the ledger and signs for it."


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Known(_Form):
    """A fact that a model found: its quote in what the user said, and its text."""

    quote: str
    text: str


class Session(_Form):
    """An earlier conversation: its id, its time, and pairs of role and text."""

    name: str
    at: datetime
    messages: tuple[tuple[str, str], ...]


class Procedure(_Form):
    """A skill."""

    name: str
    description: str
    steps: tuple[str, ...]


class Before(_Form):
    """What stands in memory."""

    notes: tuple[str, ...] = ()
    facts: tuple[Known, ...] = ()
    sessions: tuple[Session, ...] = ()
    skills: tuple[Procedure, ...] = ()
    files: dict[str, str] = {}


class Meanwhile(_Form):
    """What another process does before a request of the model: the `before`th of the task.

    Attributes:
        before: Which request.
        files: Files that it writes.
        forgets: It forgets the notes that say this.
    """

    before: int = Field(ge=2)
    files: dict[str, str] = {}
    forgets: str = ""


class Task(_Form):
    """One task.

    Attributes:
        name: Its name.
        about: What it looks at.
        says: What the user says, message by message, in one conversation.
        tools: The tools that may be called, for each way of asking; a way without is not played.
        needs: Of these at least one is called.
        calls: So many calls are enough.
        before: What stands in memory.
        meanwhile: What somebody else does in between.
        max_tokens: The budget of a context.
        there: Keywords of which each is in some text of that place.
        gone: Keywords of which none is in any text of that place.
        count: How many texts that place holds.
        answer: Keywords that are in the last answer.
        answer_not: Keywords that are not.
    """

    name: str
    about: str
    says: tuple[str, ...] = Field(min_length=1)
    tools: dict[Over, tuple[str, ...]]
    needs: tuple[str, ...] = ()
    calls: int = Field(ge=0)
    before: Before = Before()
    meanwhile: Meanwhile | None = None
    max_tokens: int = 16_000
    there: dict[Place, tuple[str, ...]] = {}
    gone: dict[Place, tuple[str, ...]] = {}
    count: dict[Place, int] = {}
    answer: tuple[str, ...] = ()
    answer_not: tuple[str, ...] = ()

    def amiss(self, over: Over, called: Sequence[str], answer: str, holds: Holds) -> list[str]:
        """Why it was not done; nothing where it was.

        Args:
            over: How the model was asked.
            called: The tools that it called.
            answer: Its last answer.
            holds: What the memory holds at the end.
        """
        strange = sorted({*called} - {*self.tools[over]})
        found = [f"called {name}" for name in strange]
        if self.needs and not {*called} & {*self.needs}:
            found.append(f"called none of {', '.join(self.needs)}")
        for place, keywords in self.there.items():
            found += [f"{place}: no {one}" for one in keywords if not _some(holds[place], one)]
        for place, keywords in self.gone.items():
            found += [f"{place}: {one}" for one in keywords if _some(holds[place], one)]
        for place, number in self.count.items():
            if len(holds[place]) != number:
                found.append(f"{place}: {len(holds[place])}, not {number}")
        found += [f"answer: no {one}" for one in self.answer if not says(answer, one)]
        found += [f"answer: {one}" for one in self.answer_not if says(answer, one)]
        return found


def read(path: Path) -> list[Task]:
    """The tasks of a file.

    Raises:
        ValueError: It has another form.
    """
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    tasks = TypeAdapter(dict[str, list[Task]]).validate_python(given).get("tasks", [])
    names = [one.name for one in tasks]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Two tasks are named {min(twice)}.")
    return tasks


def told(text: str) -> str:
    """A task's text; `{filler N}` stands for N dull lines, which tell nothing."""
    return _FILLER.sub(
        lambda found: "\n".join(map(_ITEM.format, range(1, int(found[1]) + 1))), text
    )


def _some(texts: Iterable[str], keyword: str) -> bool:
    return any(says(text, keyword) for text in texts)
