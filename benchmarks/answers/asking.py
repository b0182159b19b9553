"""The reader's and the judge's prompts, and their answers. Pure."""

from __future__ import annotations

from datetime import datetime

from benchmarks.conversations import Question

_READ = (
    "You answer a question about earlier conversations from notes. Answer in one short sentence, "
    "from the notes alone. A note has the day on which it was said: work out relative times from "
    "it. If the notes do not tell, answer: I do not know."
)
_JUDGE = (
    "You judge an answer to a question, given the right answer. Say yes if it tells what the "
    "right answer tells, in any words or with more detail; a date may be written in any way, or "
    "as a relative time that means the same day. Say no if it is wrong, misses a part that was "
    "asked for, or does not know. Answer with one word: yes or no."
)


def reading(question: Question, at: datetime, notes: str) -> list[dict[str, str]]:
    """What the reader is sent."""
    asked = f"<notes>\n{notes}\n</notes>\n\nToday is {at:%A, %d %B %Y}.\n\n{question.text}"
    return [{"role": "system", "content": _READ}, {"role": "user", "content": asked}]


def judging(question: Question, answer: str) -> list[dict[str, str]]:
    """What the judge is sent: nothing in it tells which system made the context."""
    asked = f"Question: {question.text}\nRight answer: {question.answer}\nAnswer: {answer}"
    return [{"role": "system", "content": _JUDGE}, {"role": "user", "content": asked}]


def verdict(told: str) -> bool:
    """What a judge said.

    Raises:
        ValueError: It is neither yes nor no.
    """
    word = told.strip().strip(".*").lower()
    if word not in ("yes", "no"):
        raise ValueError(f"The judge answered neither yes nor no: {told[:80]!r}.")
    return word == "yes"
