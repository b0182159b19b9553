"""The query text of a message: the part of a long message that asks. Pure."""

from __future__ import annotations

import re

from agent_memory.core.messages import Message
from agent_memory.core.shapes import role_of
from agent_memory.core.small_talk import is_courtesy
from agent_memory.core.text import SENTENCE

MOST = 2_000
"""The most characters of a query text."""

_END = MOST // 2
_LINE = 200  # characters at each end that count, if neither is a paragraph
_TAIL = 40
_BREAK = "\n\n"

_SENTENCES = re.compile(r"(?<=[.!?。！？])\s+")
_ENDS_ASKING = re.compile("[?\u061f\uff1f\u037e\u055e\u1367]\\s*\\Z|[か吗呢까][。.]?\\s*\\Z")
_ASKS = re.compile(f"[?\u061f\uff1f\u037e\u055e\u1367]|{_ENDS_ASKING.pattern}")

_SAYS = (
    "say|said|tell|told|suggest|recommend|propose|advi[sc]e|mention|explain|g[ia]ve|write|wrote|call"
    "|answer|c[oa]me up|describe|list|point|warn|show"
)
_ADVICE = (
    "advice|answer|explanation|fix|idea|opinion|proposal|reply|solution|suggestion|tip|trick"
    "|recommendation"
)
_ASSISTANT = re.compile(
    rf"\b(?:did|had|have|what|which|that|as|when) you\b.{{0,20}}\b(?:{_SAYS})"
    rf"|\byour (?:\w+ )?(?:{_ADVICE})|\b(?:{_ADVICE}) (?:that )?you\b"
    rf"|\byou (?:once )?(?:{_SAYS})\w*\b.*\b(?:once|before|earlier|last|me|why|how)\b"
    r"|\bhow did (?:we|i) (?:fix|get|resolve|solve)\b"
    r"|\bhast du\b|\bhaben sie\b|\b(?:as|avez)[ -](?:tu|vous)\b"
    r"|\bhas (?:dicho|sugerido|recomendado)\b|\b(?:sugeriste|dijiste|recomendaste)\b"
    r"|\bhai (?:detto|suggerito|consigliato)\b",
    re.IGNORECASE,
)
_ALL = re.compile(
    r"\b(?:everything|how (?:many|often)|every|what all|in total|altogether|so far)\b"
    r"|\b(?:all|each|list|any) (?:\w+ )?(?:of |the |my |our )|\bwhat (?:all )?have (?:i|we)\b"
    r"|\b(?:which|what) (?:\w+ ){0,2}\w+[^\Wus]s (?:did|do|have|has|had|are|were|am|can)\b"
    r"|\b(?:alles|alle|allen|wie (?:viele|oft)|welche|tout ce|tous|toutes|combien|todo lo|todos"
    r"|todas|cu[aá]nt[ao]s|tutto|tutti|tutte|quant[ei]|quais|quantas|quantos)\b",
    re.IGNORECASE,
)


def asks(text: str) -> bool:
    """Return whether a text asks a question."""
    return _ASKS.search(text) is not None


def ends_asking(text: str) -> bool:
    """Return whether a text asks at its end, by a question mark or a particle that needs none."""
    return _ENDS_ASKING.search(text[-_TAIL:]) is not None


def asks_assistant(text: str) -> bool:
    """Return whether a text asks for earlier words of the assistant."""
    return _ASSISTANT.search(text) is not None


def asks_for_all(text: str) -> bool:
    """Return whether a text asks for everything of a kind, or for an amount."""
    return _ALL.search(text) is not None


def asked_for(message: Message) -> Message:
    """Return the part of a message that is the query text.

    Thanks and greetings are left out, as in "Thank you! Which size was it?". A long message is
    reduced to its question, at its beginning or end.

    A question beside a document usually has its own paragraph. If neither end has one, the
    question is searched in the sentences at both ends. More of the document would distort the
    search.
    """
    text = message.text().strip()
    asked = asked_in(text)
    if asked == text:
        return message
    return Message(role=role_of(message), content=asked, created_at=message.created_at)


def asked_in(text: str) -> str:
    """Return the query text of a text; see `asked_for`."""
    text = text.strip()
    if len(text) > MOST:
        text = _at_the_ends(text)
    sentences = _SENTENCES.split(text)
    relevant = [sentence for sentence in sentences if not is_courtesy(sentence)]
    return " ".join(relevant) if 0 < len(relevant) < len(sentences) else text


def _at_the_ends(text: str) -> str:
    first, begin_break, _ = text[: _END + 1].partition(_BREAK)
    _, end_break, last = text[-_END - 1 :].rpartition(_BREAK)
    ends = [end for end, is_paragraph in ((first, begin_break), (last, end_break)) if is_paragraph]
    return "\n".join(ends or _sentences(text))


def _sentences(text: str) -> list[str]:
    """Return the text at both ends, in whole sentences if they are short."""
    begin, end = text[:_LINE], text[-_LINE:]
    breaks = [match.end() for match in SENTENCE.finditer(begin)]
    first = next((match.end() for match in SENTENCE.finditer(end)), 0)
    ends = [begin[: breaks[-1]] if breaks else begin, end[first:]]
    sentences = [sentence for end in ends for sentence in _SENTENCES.split(end)]
    return [sentence for sentence in sentences if asks(sentence)] or ends
