"""The one call that finds facts in a batch; more where a message is longer than batches are, or the
batch too long for the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.transcript import Count, split
from agent_memory.errors import ContextTooLong
from agent_memory.ltm_blocks.extractive.forms import Form
from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.sources import Said

if TYPE_CHECKING:
    from agent_memory.models.llm import LLM

_LEAST_TOKENS = 200
_MOST_TOKENS = 9_000
"""Of one call: an ordinary batch fits. In a document of many pages a model passes over facts."""
_SHARE = 0.6  # our tokenizer may not be the model's, and the answer takes room too


def ask(llm: LLM, form: Form, shown: Sequence[Said], count: Count) -> list[Candidate]:
    """What a model finds in the messages.

    Args:
        llm: The model.
        form: What to ask for.
        shown: The messages.
        count: Counts tokens.

    Raises:
        ModelError: The model failed, or answered twice in another form.
    """
    if not any(said.number is not None for said in shown):
        return []
    room = int(llm.context_window() * _SHARE) - count(form.prompt)
    limit = max(_LEAST_TOKENS, min(_MOST_TOKENS, room))
    while True:
        try:
            return [
                found
                for part in parts(shown, count, limit)
                for found in form.found(llm.structured(_messages(form, part), form.schema))
            ]
        except ContextTooLong:
            if limit <= _LEAST_TOKENS:
                raise
            limit = max(_LEAST_TOKENS, limit // 2)


def parts(shown: Sequence[Said], count: Count, limit: int) -> Iterator[str]:
    """The messages as lines, in parts of at most so many tokens, each with something to find in.

    A message that alone is longer is split; each part has its number.
    """
    lines: list[str] = []
    size, numbered = 0, False
    for said in shown:
        head, _, text = said.line().partition(": ")
        for piece in split(text, count, max(1, limit - count(head) - 2)):
            one = f"{head}: {piece}"
            cost = count(one) + 1
            if lines and size + cost > limit:
                if numbered:
                    yield "\n".join(lines)
                lines, size, numbered = [], 0, False
            lines.append(one)
            size += cost
            numbered = numbered or said.number is not None
    if numbered:
        yield "\n".join(lines)


def _messages(form: Form, part: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": form.prompt},
        {"role": "user", "content": f"<messages>\n{part}\n</messages>"},
    ]
