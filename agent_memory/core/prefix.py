"""How much of a prompt is the same as in the prompt before it. Pure.

Providers charge little for the beginning of a prompt that they have just seen. What is the same is
counted by whole messages: what two different messages begin with alike is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall
from agent_memory.core.window import is_user


class Piece(NamedTuple):
    """A message of a prompt, or its memory element.

    Attributes:
        key: Says whether two are the same.
        tokens: What it costs.
    """

    key: int
    tokens: int


def pieces(
    leading: Sequence[tuple[Message, int]],
    said: Sequence[Entry],
    recalls: Sequence[Recall],
    recall_tokens: int,
    *,
    leads: bool = False,
) -> list[Piece]:
    """A context as it is sent.

    Args:
        leading: What stands before the turns, and what each of it costs.
        said: The turns, the one under way included.
        recalls: What is recalled: it stands before the newest message of the user.
        recall_tokens: What that costs.
        leads: Whether it stands at the end of the first message instead.
    """
    above = [Piece(hash((one.role, _content(one))), tokens) for one, tokens in leading]
    below = [Piece(hash((one.seq, one.tokens, _content(one.message))), one.tokens) for one in said]
    if recalls:
        memory = Piece(hash(tuple([(one.block, str(one)) for one in recalls])), recall_tokens)
        if leads:
            first = above[0] if above else Piece(0, 0)
            one = Piece(hash((first.key, memory.key)), first.tokens + recall_tokens)
            return [one, *above[1:], *below]
        places = [place for place, entry in enumerate(said) if is_user(entry)]
        below.insert(places[-1] if places else 0, memory)
    return [*above, *below]


def same(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Tokens at the beginning of a prompt that are the same as in another one."""
    alike = takewhile(lambda pair: pair[0].key == pair[1].key, zip(before, now, strict=False))
    return sum(one.tokens for _, one in alike)


def _content(message: Message) -> str | None:
    return message.content if isinstance(message.content, str) else None
