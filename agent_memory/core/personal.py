"""Patterns of personal data and secrets, and their replacement in texts. Pure.

The time is linear in the length of a text, because no pattern backtracks far: repetitions are
possessive (`++`) or bounded, and begin only at the start of a word.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_memory.core.redaction import Redactor

_ESCAPED = r"\\[nrt]"
"""An escaped line break or tab in JSON. Its letter does not belong to the next word."""


def _begins(word: str) -> str:
    """Return a pattern for the place before the first character of a word of the class `word`."""
    return rf"(?:(?<={_ESCAPED})|(?<![{word}])(?!(?<=\\)[nrt]))"


_BEYOND = (
    r"\u00c0-\u1fff\u200c\u200d\u2c00-\u2fff\u3040-\ud7ff\uf900-\ufaff"
    r"\U00010000-\U0001efff\U00020000-\U0003ffff"
)
"""Letters and marks beyond ASCII, without blanks, East Asian punctuation and emoji."""
_LOCAL = rf"A-Za-z0-9_.%+\-{_BEYOND}"
_ADDRESS = (
    rf"[{_LOCAL}]++(?:'[{_LOCAL}]++)*"
    r"@(?!\d+(?:\.\d|x\.))"  # not `name@1.2` or `logo@2x.png`
    rf"(?:[A-Za-z0-9\-{_BEYOND}]{{1,63}}\.){{1,9}}"
    rf"(?:xn--[A-Za-z0-9\-]{{2,59}}|[A-Za-z]{{2,63}}|[{_BEYOND}]{{2,63}})"
)
_EMAIL = re.compile(  # one or more addresses without blanks between them, but not `git@host`
    rf"{_begins(_LOCAL)}(?<![{_LOCAL}]')(?!git@){_ADDRESS}(?:'?{_ADDRESS})*"
)

_KEYS = re.compile(
    _begins(r"A-Za-z0-9_\-") + r"(?:"
    r"sk-(?:proj|ant|svcacct|admin|or)-[A-Za-z0-9_-]{20,}+"
    r"|sk-(?=[A-Za-z]*+\d)[A-Za-z0-9]{20,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|gh[pousr]_[A-Za-z0-9]{36,}+|github_pat_[A-Za-z0-9_]{22,}+"
    r"|glpat-[A-Za-z0-9_-]{20,}+(?:\.[a-z0-9]{2}\.[a-z0-9]{7,9}(?![A-Za-z0-9_-]))?"
    r"|(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}+"
    r"|AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"
    r"|[prs]k_(?:live|test)_[A-Za-z0-9]{16,}+"
    r"|npm_[A-Za-z0-9]{36,}+|hf_[A-Za-z0-9]{30,}+"
    r"|SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"
    r"|eyJ[A-Za-z0-9_-]{5,}+\.eyJ[A-Za-z0-9_-]{5,}+(?:\.[A-Za-z0-9_-]*+)?"
    r")"
    r"|-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    r"[^-]*+(?:-(?!----)[^-]*+)*"
    r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----"
)
_BEARER = re.compile(
    r"(\bauthorization\\?[\"']?\s*[:=]\s*\\?[\"']?bearer\s+)"
    r"(?=[\w.~+/-]*\d|[\w.~+/-]{16}|[\w.~+/-]*[._~+/-]\w)[\w.~+/-]*[\w~+/-]=*",
    re.IGNORECASE | re.ASCII,
)

_TIME = r"(?:[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?(?:[+-]\d\d:?\d\d(?!\d))?)?"
_SEPARATORS = re.compile(
    rf"(\n|{_ESCAPED}"
    r"|(?<![\da-fA-F])[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}(?![\da-fA-F])"
    rf"|(?<![\d-])[12]\d{{3}}-[01]\d-[0-3]\d(?!\d){_TIME}"
    rf"|(?<![\d./-])[0-3]?\d(?:\.[01]?\d\.|/[0-3]?\d/|-[01]?\d-)(?:19|20)\d\d(?!\d){_TIME}"
    r"|(?<![\d.+])(?!(?:\d\d\.){3}\d\d(?!\d))(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"  # pairs: a phone
    r"|(?<![\d.+])(?:0|[1-9]\d{0,3})\.\d{4,}+(?!\.\d))"
)
"""Text at which numbers end: ends of lines, UUIDs, dates, times, IP addresses, decimals.

Four pairs of digits count as a phone number, not as an IP address.
"""

_ALONE = r"(?<![A-Za-z_\d+])(?<!\d\.)"
_ENDED = r"(?![A-Za-z_\d]|\.\d)"
_GAP = r"[ \u00a0\u202f\u2010\u2011-]"
_CARDS = (
    re.compile(  # not inside a longer row of digits, where one part in ten has a valid check digit
        rf"{_ALONE}(?<!\d{_GAP})(?=\d{{13}}|\d{{4}}{_GAP}|\d{{6}}{_GAP}|(?:\d{_GAP}){{12}})"
        rf"\d(?:{_GAP}?\d){{12,18}}(?!{_GAP}\d){_ENDED}"
    ),
    re.compile(  # cards in their usual groups, also next to other numbers such as an expiry date
        rf"{_ALONE}(?:\d{{13,19}}|\d{{4}}(?:{_GAP}\d{{4}}){{3}}(?:{_GAP}\d{{3}})?"
        rf"|\d{{4}}{_GAP}\d{{6}}{_GAP}\d{{4,5}}){_ENDED}"
    ),
)

_IBAN = re.compile(  # the country, two check digits, up to 30 characters, with or without blanks
    r"(?<![A-Za-z0-9])[A-Za-z]{2}\d\d(?:[ \u00a0]?[A-Za-z0-9]{4}){2,7}"
    r"(?:[ \u00a0]?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])"
)
_PASSWORD = re.compile(
    r"(\b(?:pass(?:word|wort|phrase|code|wd)|pwd|pin|contrase\u00f1a|mot de passe)\b"
    r"\\?[\"']?\s{0,3}(?:[:=]|\b(?:is|was|ist|lautet|est|es)\b:?)\s{0,3})"
    r"(?!\[|(?:not|no|the|a|an|too|in|on|for|that|what|your|my|wrong|incorrect|invalid|expired|weak|"
    r"strong|empty|missing|required|needed|set|correct|protected|hidden|unknown|still|now|"
    r"nicht|falsch|n\u00f6tig|pas|incorrecta?)\b)"
    r"(?:(\\?[\"'])(?:(?!\2)[^\n]){1,100}\2|[^\s\"'\\,;]{2,100}[^\s\"'\\,;.!?])",
    re.IGNORECASE,
)

_AMERICAN = re.compile(
    r"(?:(?<![\w.+-])(?:\+?1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d([.-]))|\([2-9]\d\d\) ?)"
    r"\d{3}(?(1)\1|[.-])\d{4}(?: ?(?:x|ext\.?) ?\d{1,6})?(?![\w-]|\.\d)"
)
_ABROAD = re.compile(
    r"(?:(?<![^\W\d])[+\uff0b]\(?|(?<![\w.,:+-])00 ?(?=[1-9]))\d{1,15}(?!\w)"
    r"(?:[ \u00a0\u2010\u2011()./-]{1,3}(?!00[1-9])\d{1,15}(?!\w)){0,9}"
)
_LEAST_DIGITS = 10
"""A phone number that is possible but not in use is replaced if it has at least 10 digits."""


def replaced(text: str, redactor: Redactor) -> str:
    """Replace the kinds of data for which the redactor's settings are True."""
    if redactor.keys:
        text = _BEARER.sub(r"\1[key]", _KEYS.sub("[key]", text))
    if redactor.passwords:
        text = _PASSWORD.sub(r"\1[password]", text)
    if redactor.ibans:
        text = _IBAN.sub(_iban, text)
    if redactor.emails:
        text = _EMAIL.sub("[email]", text)
    if not (redactor.cards or redactor.phones):
        return text
    parts = _SEPARATORS.split(text)
    for place in range(0, len(parts), 2):
        if redactor.cards:
            for pattern in _CARDS:
                parts[place] = pattern.sub(_card, parts[place])
        if redactor.phones:
            parts[place] = _without_phones(parts[place], redactor.region)
    return "".join(parts)


def _without_phones(text: str, region: str | None) -> str:
    text = _ABROAD.sub(_phone, _without(text, region))
    return text if region else _AMERICAN.sub("[phone]", text)


def _iban(match: re.Match[str]) -> str:
    """Return "[iban]" if the check digits are valid (ISO 13616), and else the text."""
    bare = re.sub(r"\s", "", match[0]).upper()
    number = "".join(str(int(char, 36)) for char in bare[4:] + bare[:4])
    return "[iban]" if 15 <= len(bare) <= 34 and int(number) % 97 == 1 else match[0]


def _card(match: re.Match[str]) -> str:
    digits = [int(digit) for digit in re.findall(r"\d", match[0])]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    is_card = 22 <= 10 * digits[0] + digits[1] <= 69
    return "[card]" if is_card and (sum(digits[::-2]) + sum(doubled)) % 10 == 0 else match[0]


def _without(text: str, region: str | None) -> str:
    """Replace the phone numbers that `phonenumbers` finds."""
    from phonenumbers import PhoneNumberMatcher

    if region is None and "+" not in text and "\uff0b" not in text:
        return text
    parts = []
    end = 0
    for match in PhoneNumberMatcher(text, region, max_tries=sys.maxsize):
        parts += [text[end : match.start], "[phone]"]
        end = match.end
    return "".join([*parts, text[end:]])


def _phone(match: re.Match[str]) -> str:
    """Return the replacement for a number that `phonenumbers` does not find.

    Such a number begins with "00", is followed by other numbers, or is possible but not in use.
    """
    from phonenumbers import NumberParseException, is_possible_number, is_valid_number, parse

    has_prefix = match[0].startswith("00")
    ends = [group.end() for group in re.finditer(r"\d+", match[0])]
    for passes, least in ((is_valid_number, 0), (is_possible_number, _LEAST_DIGITS)):
        if has_prefix and least:  # the zeros may be padding: only numbers in use count
            break
        for end in reversed(ends):
            number = f"+{match[0][2:end]}" if has_prefix else match[0][:end]
            if sum(map(str.isdigit, number)) < least:
                break
            try:
                if passes(parse(number)):
                    return f"[phone]{match[0][end:]}"
            except NumberParseException:  # too long or too short
                continue
    return match[0]
