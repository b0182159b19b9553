"""The one call that finds facts in a batch; more where a message is longer than batches are, or the
batch too long for the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.text import escape
from agent_memory.core.transcript import Count, split
from agent_memory.errors import ContextTooLong
from agent_memory.ltm_blocks.extractive.forms import Form
from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.fact import Fact, listed
from agent_memory.ltm_blocks.extractive.history.likeness import most_alike
from agent_memory.ltm_blocks.extractive.history.sources import Said, helpful

if TYPE_CHECKING:
    from agent_memory.models.llm import LLM

_LEAST_TOKENS = 200
_MOST_TOKENS = 9_000
"""Of one call: an ordinary batch fits. In a document of many pages a model passes over facts."""
_MOST_NAME = 80  # characters
_MOST_KNOWN = 15  # facts that a model is shown beside the messages
_DAY_TOKENS = 12  # at most, of the line that tells the day
_SHARE = 0.6  # our tokenizer may not be the model's, and the answer takes room too


def ask(
    llm: LLM, form: Form, shown: Sequence[Said], count: Count, known: Sequence[Fact] = ()
) -> list[Candidate]:
    """What a model finds in the messages.

    Args:
        llm: The model.
        form: What to ask for.
        shown: The messages.
        count: Counts tokens.
        known: Facts that the messages may say again, or change.

    Raises:
        ModelError: The model failed, or answered twice in another form.
    """
    if not any(said.number is not None for said in shown):
        return []
    head = _head(shown, known)
    names = {number: fact.id for number, fact in enumerate(known, 1)}
    room = int(llm.context_window() * _SHARE) - count(form.prompt) - count(head)
    limit = max(_LEAST_TOKENS, min(_MOST_TOKENS, room))
    said = helpful(shown)
    while True:
        try:
            asked = (_messages(form, head, part) for part in parts(said, count, limit))
            answers = [llm.structured(messages, form.schema) for messages in asked]
            return [found for answer in answers for found in form.found(answer, names)]
        except ContextTooLong:
            if limit <= _LEAST_TOKENS:
                raise
            limit = max(_LEAST_TOKENS, limit // 2)


def parts(shown: Sequence[Said], count: Count, limit: int) -> Iterator[str]:
    """The messages as lines below their days, in parts of at most so many tokens, each with
    something to find in.

    A message that alone is longer is split; each part has its number.
    """
    lines: list[str] = []
    day, size, numbered = "", 0, False
    for said in shown:
        head, _, text = said.line().partition(": ")
        for piece in split(text, count, max(1, limit - count(head) - _DAY_TOKENS)):
            one = f"{head}: {piece}"
            cost = count(one) + (1 if said.day == day else _DAY_TOKENS)
            if lines and size + cost > limit:
                if numbered:
                    yield "\n".join(lines)
                lines, day, size, numbered = [], "", 0, False
            lines += [one] if said.day == day else [f"{said.day}:", one]
            day = said.day
            size += cost
            numbered = numbered or said.number is not None
    if numbered:
        yield "\n".join(lines)


def bearing(facts: Sequence[Fact], shown: Sequence[Said]) -> list[Fact]:
    """The facts that messages may say again or change, so far as a model is shown them."""
    said = [one.text for one in shown if one.number is not None]
    return [facts[at] for at in most_alike([fact.text for fact in facts], said, _MOST_KNOWN)]


def _head(shown: Sequence[Said], known: Sequence[Fact]) -> str:
    """What stands before the messages: who the user is, and what is known."""
    lines = []
    who = {said.who for said in shown if said.number is not None and said.role == "user"}
    if len(who) == 1 and (name := who.pop()) != "user":
        lines.append(escape(f"The user is {name[:_MOST_NAME]}."))
    if known:
        told = (f"{number}. {listed(fact)}" for number, fact in enumerate(known, 1))
        lines += ["<known>", *map(escape, told), "</known>"]
    return "".join(f"{line}\n" for line in lines)


def _messages(form: Form, head: str, part: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": form.prompt},
        {"role": "user", "content": f"{head}<messages>\n{part}\n</messages>"},
    ]
