"""The messages that every contender gets: 60 tokens each (o200k_base), no two alike."""

from __future__ import annotations

from random import Random

Chat = dict[str, str]

# Each is one token after a space, in o200k_base and cl100k_base.
_TEXT = """
about after again also always another answer because before between board book both bring build
call change city clear close common cost country course decide different early enough every
example family figure first follow form general group hand help high home house idea important
keep large learn leave letter light line long main make matter mean might money month most move
much name need never next number often open order other paper part people person place plan point
possible present problem question reach read reason right room same school second seem several
short should show since small some sound start state still story study such sure system table take
talk team tell thing think time today together travel turn under until usual value visit voice
wait want water week while white whole without word work world write year young
"""
_WORDS = _TEXT.split()
_LENGTH = 57


def chats(first: int, count: int) -> list[Chat]:
    """Messages `first`, `first + 1`, ... of a conversation, user and assistant in turn."""
    return [_chat(number) for number in range(first, first + count)]


def number_of(content: str) -> int:
    """Which message a content is of."""
    return int(content.partition(" ")[0])


def _chat(number: int) -> Chat:
    words = Random(number).choices(_WORDS, k=_LENGTH)
    return {"role": ("user", "assistant")[number % 2], "content": f"{number:07} {' '.join(words)}"}
