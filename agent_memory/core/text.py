"""Plain-text helpers: sentences, terms, identifiers, escaping. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

SENTENCE = re.compile(r"(?<=[.!?\u061f\u06d4\u0964])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACE = re.compile(r"\s+")
_MARKED = ((0x0483, 0x0E00), (0x0F18, 0x0FC7), (0x1B00, 0x1CD0), (0xA800, 0xAC00))


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each range of consecutive ascending numbers."""
    result: list[tuple[int, int]] = []
    for number in numbers:
        if result and result[-1][1] == number - 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


def ranges(numbers: Iterable[int], mark: str = "") -> str:
    """Return ascending numbers as text, such as "1 to 3, 7". `mark` stands before each number."""
    return ", ".join(
        f"{mark}{first}" if first == last else f"{mark}{first} to {mark}{last}"
        for first, last in runs(numbers)
    )


# Combining marks. Ranges compile faster than single characters.
_MARKS = "".join(
    f"{chr(first)}-{chr(last)}"
    for start, end in _MARKED
    for first, last in runs(
        code for code in range(start, end) if unicodedata.category(chr(code))[0] == "M"
    )
)
_ACCENTS = re.compile("[\u0300-\u036f]+")
_LETTERS = f"[^\\W_]+(?:[\u0300-\u036f{_MARKS}][\u0300-\u036f{_MARKS}\u200c\u200d]*[^\\W_]*)*"
WORD = re.compile(f"{_LETTERS}(?:['\u2019]{_LETTERS})*")
"""A word: letters and digits, their combining marks (such as Indic vowels), inner apostrophes."""
RUN = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f]+)"
)
"""A run of characters that is indexed by pairs. Its script puts no blanks between words (Thai, Lao,
Burmese, Khmer, kana, Han), or attaches particles to words (Hangul)."""
_HANGUL = "\uac00\ud7a3"
_IDENTIFIER = re.compile(
    r"https?://[^\s<>\"')]+"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
    r"|[$€£]\s?\d[\d,.]*\d|[$€£]\s?\d"
    r"|\b(?=[\w./:#-]{0,100}?\d)[A-Za-z0-9][\w./:#-]*[A-Za-z0-9%]\b%?"
    r"|\b\d+%?"
)
_QUANTITY = re.compile(r"\d[\d.,:/-]*[A-Za-z%]*")  # 3, 14th, 2.5kg, 10:30, 8/9, 30%
_CALENDAR = re.compile(
    r"(?:19|20)\d\d(?:s|[-/](?:19|20)?\d\d(?:[-/]\d\d(?:T[\d:.]+Z?)?)?)?"
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2}(?::\d\d){1,2}(?:[ap]m)?"
)
_CODE_DIGITS = 4
_UPPER, _LOWER = (
    "".join(filter(is_of, map(chr, range(0x530)))) for is_of in (str.isupper, str.islower)
)
_NAME = re.compile(f"(?<![.!?。]\\s)(?<!^)\\b[{_UPPER}][{_LOWER}]+(?:\\s[{_UPPER}][{_LOWER}]+)*\\b")


@cache
def word_lists() -> dict[str, list[str]]:
    """Return the words of each section of words.txt."""
    text = Path(__file__).with_name("words.txt").read_text("utf-8")
    sections = (part.partition("]\n") for part in text.split("\n[")[1:])
    return {name: words.split() for name, _, words in sections}


STOP_WORDS = frozenset(word_lists()["english stop words"])
LIST_KINDS = (" common", " first", " second")
"""For each language but English, words.txt has sections whose names end with these texts."""


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, stripped, without blank ones."""
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence that `sentences` returns."""
    spans = []
    end = 0
    for sentence in sentences(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        spans.append((start, end))
    return spans


def last_break(text: str, upto: int) -> int:
    """Return the index, up to `upto`, at which to cut a text after a sentence, or else a word.

    Only ends in the second half count: scripts without blanks have few. Otherwise return `upto`.
    """
    for pattern in (SENTENCE, _SPACE):
        ends = [match.start() for match in pattern.finditer(text[: upto + 1])]
        if ends and ends[-1] * 2 >= upto > 0:
            return ends[-1]
    return upto


def terms(text: str) -> list[str]:
    """Return the words of a text in lower case, without stop words and without a plural s.

    The words of a `RUN` are pairs of characters.
    """
    words = (word.lower().replace("\u2019", "'") for word in WORD.findall(text))
    if not text.isascii():
        parts = (part for word in words for part in RUN.split(word))
        words = (term for part in parts for term in (pairs(part) if RUN.match(part) else [part]))
    return [_stem(word) for word in words if word and word not in STOP_WORDS]


def word_count(text: str) -> float:
    """Count the words of a text. Two characters of a `RUN` count as one word."""
    if text.isascii():
        return len(text.split())
    return len(RUN.sub(" ", text).split()) + sum(len(run) for run in RUN.findall(text)) / 2


@cache
def _common_words() -> frozenset[str]:
    names = [name + kind for name in ("chinese", "japanese", "korean") for kind in LIST_KINDS]
    return frozenset(word for name in names for word in word_lists()[name])


def pairs(run: str) -> list[str]:
    """Return the words of a `RUN`: each pair of neighbouring characters, except common words.

    A run of one character is a word. A run of three or more that begins in Hangul is also one word.
    """
    is_word = len(run) == 1 or (len(run) > 2 and _HANGUL[0] <= run[0] <= _HANGUL[1])
    words = [*([run] if is_word else []), *(run[at : at + 2] for at in range(len(run) - 1))]
    return [word for word in words if word not in _common_words()]


def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def unaccented(text: str) -> str:
    """Return a text in normalization form KC, without accents on Latin, Greek and Cyrillic letters.

    Marks of other scripts stay, because they distinguish words.
    """
    if text.isascii():
        return text
    spread = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", spread))


def identifiers(text: str) -> list[str]:
    """Return the numbers, amounts, codes, links and e-mail addresses, each once, in order."""
    return list(dict.fromkeys(match.strip() for match in _IDENTIFIER.findall(text)))


def codes(text: str) -> list[str]:
    """Return identifiers that name one particular thing, such as links, order numbers and prices.

    Quantities, dates and times are excluded.
    """
    return [identifier for identifier in identifiers(text) if _is_code(identifier)]


def _is_code(identifier: str) -> bool:
    if not identifier[0].isalnum() or "@" in identifier or "://" in identifier:  # money, addresses
        return True
    digits = sum(map(str.isdigit, identifier))
    if digits < _CODE_DIGITS and (digits == len(identifier) or _QUANTITY.fullmatch(identifier)):
        return False
    return len(identifier) >= _CODE_DIGITS and not _CALENDAR.fullmatch(identifier)


def names(text: str) -> list[str]:
    """Return the capitalised words inside of sentences, each once, in order."""
    return list(dict.fromkeys(_NAME.findall(text)))


def overlap_scores(query: str, texts: Sequence[str]) -> list[float]:
    """Return for each text the weight of the query's terms in it, as a share from 0 to 1.

    The weight of a term is its inverse document frequency in `texts`.
    """
    wanted = set(terms(query))
    bags = [set(terms(text)) for text in texts]
    frequency = Counter(term for bag in bags for term in bag & wanted)
    weight = {term: math.log(1 + (len(texts) + 1) / (frequency[term] + 0.5)) for term in wanted}
    total = math.fsum(weight.values())  # unlike `sum`, `fsum` does not depend on the order of a set
    if not total:
        return [0.0] * len(texts)
    return [math.fsum(weight[term] for term in bag & wanted) / total for bag in bags]


def escape(text: str) -> str:
    """Escape a text so that it can neither open nor close an XML element. NULs are removed."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("\x00", "")


def listed_text(text: str, turns: Sequence[int] = ()) -> str:
    """Return a text as an escaped list item. Further messages begin at the indexes `turns`.

    Other lines are indented deeper than the beginning of a message, so that a text cannot imitate
    another speaker's message.
    """
    starts = (0, *turns)
    ends = (*(start - 1 for start in turns), len(text))
    parts = (escape(text[start:end]) for start, end in zip(starts, ends, strict=True))
    return "- " + "\n  ".join(map(indented, parts))


def indented(text: str) -> str:
    """Return a text whose lines after the first are indented by four blanks."""
    if text.isprintable():  # without a line break, and much faster than the pattern
        return text
    return _LINE_BREAK.sub(r"\g<0>    ", text)
