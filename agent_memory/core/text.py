"""Plain-text helpers: sentences, terms, identifiers, escaping. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|\n+")
_SPACE = re.compile(r"\s+")
_MARKED = ((0x0483, 0x0E00), (0x0F18, 0x0FC7), (0x1B00, 0x1CD0), (0xA800, 0xAC00))


def _ranges(codes: Iterable[int]) -> str:
    """Characters as a class of `re` has them: compiled sooner than one by one."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in found)


_MARKS = _ranges(
    code
    for start, end in _MARKED
    for code in range(start, end)
    if unicodedata.category(chr(code))[0] == "M"
)
_ACCENTS = re.compile("[\u0300-\u036f]+")
_LETTERS = f"[^\\W_]+(?:[\u0300-\u036f{_MARKS}][\u0300-\u036f{_MARKS}\u200c\u200d]*[^\\W_]*)*"
WORD = re.compile(f"{_LETTERS}(?:['\u2019]{_LETTERS})*")
"""A word: letters and digits with their marks (as vowels are in Indic scripts), and apostrophes
within it."""
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
_NAME = re.compile(r"(?<![.!?。]\s)(?<!^)\b[A-Z][a-z]+(?:\s[A-Z][a-z]+)*\b")
_STOP_WORDS = (
    "a about after all also am an and any are as at be because been before being but by can could "
    "did do does doing don't for from had has have having he her here hers him his how i i'm if in "
    "into is it it's its just like me more most my no not of on or our out over please she should "
    "so some such than that that's the their them then there these they this those through to too "
    "up us very was we were what what's when where which while who why will with would you you're "
    "your yours"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


def sentences(text: str) -> list[str]:
    """A text's sentences or lines, stripped; none empty."""
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where a text's sentences and lines begin and end, without the white space around them."""
    spans = []
    end = 0
    for sentence in sentences(text):
        start = text.index(sentence, end)
        end = start + len(sentence)
        spans.append((start, end))
    return spans


def last_break(text: str, upto: int) -> int:
    """Where to end a text at or before `upto`: with a sentence, else with a word, else right there.

    The end of a sentence counts only in the second half.
    """
    ends = [found.start() for found in SENTENCE.finditer(text[: upto + 1])]
    if ends and ends[-1] * 2 >= upto:
        return ends[-1]
    words = [found.start() for found in _SPACE.finditer(text[: upto + 1])]
    return words[-1] if words and words[-1] > 0 else upto


def pieces(text: str, size: int) -> list[str]:
    """A text in pieces of up to `size` characters, parted between words; a longer word is whole."""
    if len(text) <= size:
        return [text]
    done: list[str] = []
    current = ""
    for word in text.split():
        longer = f"{current} {word}" if current else word
        if current and len(longer) > size:
            done.append(current)
            longer = word
        current = longer
    return [*done, current] if current else done


def terms(text: str) -> list[str]:
    """Lower-case words that carry meaning: no stop words, a plural s folded."""
    words = (word.lower().replace("\u2019", "'") for word in WORD.findall(text))
    return [_stem(word) for word in words if word not in STOP_WORDS]


def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def unaccented(text: str) -> str:
    """A text with its compatible characters folded, and without accents on its letters.

    Those are marks on Latin, Greek and Cyrillic letters; other marks tell words apart.
    """
    if text.isascii():
        return text
    spread = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", _ACCENTS.sub("", spread))


def identifiers(text: str) -> list[str]:
    """Numbers, amounts, codes, links, addresses, each once, in order: what must stay verbatim."""
    return list(dict.fromkeys(found.strip() for found in _IDENTIFIER.findall(text)))


def codes(text: str) -> list[str]:
    """Those of the identifiers that name one thing, and that nobody could guess: links, addresses,
    amounts of money, numbers of orders and telephones; no quantities, dates and times."""
    return [found for found in identifiers(text) if _is_code(found)]


def _is_code(found: str) -> bool:
    if not found[0].isalnum() or "@" in found or "://" in found:  # money, addresses
        return True
    digits = sum(map(str.isdigit, found))
    if digits < _CODE_DIGITS and (digits == len(found) or _QUANTITY.fullmatch(found)):
        return False
    return len(found) >= _CODE_DIGITS and not _CALENDAR.fullmatch(found)


def names(text: str) -> list[str]:
    """Capitalised words inside sentences, each once, in order."""
    return list(dict.fromkeys(_NAME.findall(text)))


def overlap_scores(query: str, texts: Sequence[str]) -> list[float]:
    """For each text, the share of the query's term weight that it holds, 0 to 1.

    A term weighs its inverse document frequency among `texts`, so that common words count little.
    """
    wanted = set(terms(query))
    held = [set(terms(text)) for text in texts]
    seen = Counter(term for bag in held for term in bag & wanted)
    weight = {term: math.log(1 + (len(texts) + 1) / (seen[term] + 0.5)) for term in wanted}
    whole = sum(weight.values())
    if not whole:
        return [0.0] * len(texts)
    return [sum(weight[term] for term in bag & wanted) / whole for bag in held]


def escape(text: str) -> str:
    """Text that can neither open nor close an element; NUL is left out."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("\x00", "")


def error_text(error: Exception) -> str:
    """An error as a model may read it: a file by its name, without its folders."""
    from pathlib import PurePath  # a hook, which has no time, comes past here

    if isinstance(error, OSError) and error.filename is not None:
        return f"{type(error).__name__}: {error.strerror}: {PurePath(str(error.filename)).name!r}"
    return f"{type(error).__name__}: {error}"
