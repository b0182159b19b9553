"""How much of a prompt is the same as in the prompt before it. Pure.

Providers charge little for the beginning of a prompt that they have just seen. What is the same is
counted by whole messages: what two different messages begin with alike is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall
from agent_memory.core.window import is_user

Piece: TypeAlias = tuple[int, int]
"""A message of a prompt, or its memory element: a key that says whether two are the same, and the
tokens that it costs. A context has one for each of its messages, so it is a bare tuple."""


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
    above: list[Piece] = [
        (hash((one.role, one.content if type(one.content) is str else None)), tokens)
        for one, tokens in leading
    ]
    below: list[Piece] = []
    for entry in said:
        content, tokens = entry.message.content, entry.tokens
        text = content if type(content) is str else None
        below.append((hash((entry.seq, tokens, text)), tokens))
    if recalls:
        memory = hash(tuple([(one.block, str(one)) for one in recalls])), recall_tokens
        if leads:
            key, tokens = above[0] if above else (0, 0)
            return [(hash((key, memory[0])), tokens + recall_tokens), *above[1:], *below]
        places = [place for place, entry in enumerate(said) if is_user(entry)]
        below.insert(places[-1] if places else 0, memory)
    return [*above, *below]


def same(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Tokens at the beginning of a prompt that are the same as in another one."""
    kept = 0
    for (was, _), (key, tokens) in zip(before, now, strict=False):
        if was != key:
            break
        kept += tokens
    return kept
