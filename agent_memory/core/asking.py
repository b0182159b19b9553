"""What is recalled for, where a message is long: what it costs does not grow with it. Pure."""

from __future__ import annotations

import re

from agent_memory.core.courtesies import is_courtesy
from agent_memory.core.messages import Message
from agent_memory.core.text import SENTENCE
from agent_memory.core.window import role_of

MOST = 2_000
"""Characters that are recalled for."""

_END = MOST // 2
_LINE = 200  # characters of either end, where neither is a paragraph of its own
_TAIL = 40
_BREAK = "\n\n"

_SENTENCES = re.compile(r"(?<=[.!?。！？])\s+")
_ENDS_ASKING = re.compile("[?\u061f\uff1f\u037e\u055e\u1367]\\s*\\Z|[か吗呢까][。.]?\\s*\\Z")
_ASKS = re.compile(f"[?\u061f\uff1f\u037e\u055e\u1367]|{_ENDS_ASKING.pattern}")


def asks(text: str) -> bool:
    """Whether a text asks something, rather than only telling it."""
    return _ASKS.search(text) is not None


def ends_asking(text: str) -> bool:
    """Whether a text asks at its end: by its mark, or by a particle that may stand without one."""
    return _ENDS_ASKING.search(text[-_TAIL:]) is not None


def asked_for(message: Message) -> Message:
    """Return the part of a message that is recalled for.

    Thanks and greetings are left out, as in "Thank you! Which size was it?". A long message is
    reduced to its question, which stands at the beginning or the end.

    Beside a document a question most often has a paragraph of its own. Else it is looked for in the
    sentences at both ends, in those that ask if any does. More of the document would only drown it.
    """
    text = message.text().strip()
    asked = asked_in(text)
    return message if asked == text else Message(role=role_of(message), content=asked)


def asked_in(text: str) -> str:
    """Return the part of a text that is recalled for; see `asked_for`."""
    text = text.strip()
    if len(text) > MOST:
        text = _at_the_ends(text)
    some = _SENTENCES.split(text)
    said = [one for one in some if not is_courtesy(one)]
    return " ".join(said) if 0 < len(said) < len(some) else text


def _at_the_ends(text: str) -> str:
    first, begun, _ = text[: _END + 1].partition(_BREAK)
    _, ended, last = text[-_END - 1 :].rpartition(_BREAK)
    ends = [end for end, whole in ((first, begun), (last, ended)) if whole]
    return "\n".join(ends or _sentences(text))


def _sentences(text: str) -> list[str]:
    """What stands at either end of a text, in whole sentences if they are short."""
    begin, end = text[:_LINE], text[-_LINE:]
    breaks = [found.end() for found in SENTENCE.finditer(begin)]
    first = next((found.end() for found in SENTENCE.finditer(end)), 0)
    ends = [begin[: breaks[-1]] if breaks else begin, end[first:]]
    said = [one for some in ends for one in _SENTENCES.split(some)]
    return [one for one in said if asks(one)] or ends
