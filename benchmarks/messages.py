"""Makes up messages, the same in each run, and describes the machine of a run."""

import os
import platform
from functools import cache
from itertools import accumulate
from math import log
from pathlib import Path
from random import Random
from typing import Any

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


def machine() -> dict[str, Any]:
    """Return the Python, the system and the number of cores."""
    system = f"{platform.system()} {platform.machine()}"
    return {"python": platform.python_version(), "system": system, "cores": os.cpu_count()}


def resident() -> float | None:
    """Return the MiB that this process holds; None if the system has no /proc."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def chats(first: int, count: int) -> list[Chat]:
    """Return messages of 60 tokens (o200k_base), no two alike, user and assistant in turn."""
    return [_chat(number) for number in range(first, first + count)]


def number_of(content: str) -> int:
    """Return the number of the message with this content."""
    return int(content.partition(" ")[0])


def _chat(number: int) -> Chat:
    words = Random(number).choices(_WORDS, k=_LENGTH)
    return {"role": ("user", "assistant")[number % 2], "content": f"{number:07} {' '.join(words)}"}


_ENGLISH = """
the be to of and a in that have i it for not on with he as you do at this but his by from they we
say her she or an will my one all would there their what so up out if about who get which go me
"""
_COMMON = _ENGLISH.split()  # nearly a third of the words of a text, by the weights below


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """Return 30,000 words and their cumulative weights by Zipf's law.

    The most frequent words are English. The others are made of syllables.
    """
    random = Random(30_000)
    syllables = [a + b + c for a in "bdfgklmnprstv" for b in "aeiou" for c in ("", "n", "r", "l")]
    made: dict[str, None] = {}
    while len(made) < 30_000 - len(_COMMON):
        made["".join(random.choices(syllables, k=random.randint(2, 3)))] = None
    words = [*_COMMON, *made]
    return words, list(accumulate(1 / (rank + 2.7) for rank in range(1, len(words) + 1)))


def message_text(number: int) -> str:
    """Return a message's text. Half of the texts have up to 20 words, one in 100 has over 200."""
    words = _words(number)
    sentences = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
    return ". ".join(sentences).capitalize() + "."


def question_about(number: int) -> str:
    """Return a question about a message, with some of the message's words."""
    words = _words(number)
    telling = [word for word in words if word not in _COMMON] or words
    some = Random(f"about {number}").sample(telling, min(4, len(telling)))
    return f"What did we say about {' '.join(some)}?"


def _words(number: int) -> list[str]:
    random = Random(number)
    length = min(max(round(random.lognormvariate(log(20), 1.0)), 1), 800)
    words, weights = vocabulary()
    return random.choices(words, cum_weights=weights, k=length)
