"""Addresses, phone, card and account numbers, passwords and keys taken out of a text. Pure.

No pattern goes back over what it has read, so that a long text takes linear time: runs are
possessive (`++`) or bounded, and begin only where a word does.
"""

from __future__ import annotations

import re
import sys
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from agent_memory.errors import ConfigError, MissingExtra

_ESCAPED = r"\\[nrt]"
"""A line break or tab inside JSON text, whose letter is not of the word after it."""


def _begins(word: str) -> str:
    """Where a run of such characters begins."""
    return rf"(?:(?<={_ESCAPED})|(?<![{word}])(?!(?<=\\)[nrt]))"


_BEYOND = (
    r"\u00c0-\u1fff\u200c\u200d\u2c00-\u2fff\u3040-\ud7ff\uf900-\ufaff"
    r"\U00010000-\U0001efff\U00020000-\U0003ffff"
)
"""Letters and marks beyond ASCII; no blanks, no punctuation of east Asia, no emoji."""
_LOCAL = rf"A-Za-z0-9_.%+\-{_BEYOND}"
_ADDRESS = (
    rf"[{_LOCAL}]++(?:'[{_LOCAL}]++)*"
    r"@(?!\d+(?:\.\d|x\.))"  # a version, or `logo@2x.png`
    rf"(?:[A-Za-z0-9\-{_BEYOND}]{{1,63}}\.){{1,9}}"
    rf"(?:xn--[A-Za-z0-9\-]{{2,59}}|[A-Za-z]{{2,63}}|[{_BEYOND}]{{2,63}})"
)
_EMAIL = re.compile(  # with those that hang on it; `git@host:` begins the address of a repository
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
_APART = re.compile(
    rf"(\n|{_ESCAPED}"
    r"|(?<![\da-fA-F])[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}(?![\da-fA-F])"
    rf"|(?<![\d-])[12]\d{{3}}-[01]\d-[0-3]\d(?!\d){_TIME}"
    rf"|(?<![\d./-])[0-3]?\d(?:\.[01]?\d\.|/[0-3]?\d/|-[01]?\d-)(?:19|20)\d\d(?!\d){_TIME}"
    r"|(?<![\d.+])(?!(?:\d\d\.){3}\d\d(?!\d))(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"  # pairs: a phone
    r"|(?<![\d.+])(?:0|[1-9]\d{0,3})\.\d{4,}+(?!\.\d))"
)
"""What no number goes across: ends of lines, UUIDs, dates and times, IP addresses, decimals."""

_ALONE = r"(?<![A-Za-z_\d+])(?<!\d\.)"
_ENDED = r"(?![A-Za-z_\d]|\.\d)"
_GAP = r"[ \u00a0\u202f\u2010\u2011-]"
_CARDS = (
    re.compile(  # all that stands together; not any groups, or every tenth table would be a card
        rf"{_ALONE}(?<!\d{_GAP})(?=\d{{13}}|\d{{4}}{_GAP}|\d{{6}}{_GAP}|(?:\d{_GAP}){{12}})"
        rf"\d(?:{_GAP}?\d){{12,18}}(?!{_GAP}\d){_ENDED}"
    ),
    re.compile(  # the usual groups, beside other numbers, as the day it expires
        rf"{_ALONE}(?:\d{{13,19}}|\d{{4}}(?:{_GAP}\d{{4}}){{3}}(?:{_GAP}\d{{3}})?"
        rf"|\d{{4}}{_GAP}\d{{6}}{_GAP}\d{{4,5}}){_ENDED}"
    ),
)

_IBAN = re.compile(  # the country, two digits that check it, and up to 30 more, in fours or not
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
"""What a number must have that is of no range in use, for it to be one."""

_PASSES = 25
"""More than any text takes that was not made to: a row of which each hides the next."""


class Redactor(BaseModel):
    """Replaces what should not be remembered: `Redactor()(text)`.

    What has no known form is not found: a name, a postal address, a key of another provider, a
    password of which nothing says that it is one. What has the form is replaced, whatever it is.

    Attributes:
        emails: Replace e-mail addresses by "[email]".
        phones: Replace phone numbers by "[phone]" (extra `redaction`).
        cards: Replace payment card numbers by "[card]": 13 to 19 digits with a right check digit,
            of which the first two are 22 to 69, as card networks give them.
        keys: Replace by "[key]" the keys of OpenAI, Anthropic, AWS (their ids), GitHub, GitLab,
            Slack, Google, Stripe, npm, Hugging Face and SendGrid, JSON Web Tokens, private keys
            in PEM form, and what follows "Authorization: Bearer".
        ibans: Replace by "[iban]" the numbers of bank accounts that have a right check number.
        passwords: Replace by "[password]" what follows "password is", "PIN:", "pwd=" and the like,
            in some languages, but for words such as "wrong" and "required".
        region: The country of phone numbers without "+" or "00", as "DE"; any digits that are a
            number there count as one. None takes only what is punctuated as in North America:
            "(415) 555-2671" or "415-555-2671".

    Raises:
        MissingExtra: Phone numbers are to be replaced, and `phonenumbers` is not installed.
        ConfigError: The region is none that is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    emails: bool = True
    phones: bool = True
    cards: bool = True
    keys: bool = True
    ibans: bool = True
    passwords: bool = True
    region: str | None = None

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if not self.phones:
            return self
        try:
            from phonenumbers import SUPPORTED_REGIONS
        except ImportError:
            raise MissingExtra("Redacting phone numbers", "redaction") from None
        if self.region is not None and self.region not in SUPPORTED_REGIONS:
            raise ConfigError(
                f"{self.region!r} is no region of phone numbers. Give the two capital letters of a "
                'country, as "DE".'
            )
        return self

    def __call__(self, text: str) -> str:
        """The text without them; unchanged where it holds none, and when redacted before."""
        for _ in range(_PASSES):  # what was beside another may stand alone now
            if (done := self._once(text)) == text:
                break
            text = done
        return text

    def _once(self, text: str) -> str:
        if self.keys:
            text = _BEARER.sub(r"\1[key]", _KEYS.sub("[key]", text))
        if self.passwords:
            text = _PASSWORD.sub(r"\1[password]", text)
        if self.ibans:
            text = _IBAN.sub(_iban, text)
        if self.emails:
            text = _EMAIL.sub("[email]", text)
        if self.cards or self.phones:
            parts = _APART.split(text)
            parts[::2] = [self._without_numbers(part) for part in parts[::2]]
            text = "".join(parts)
        return text

    def _without_numbers(self, text: str) -> str:
        if self.cards:
            for pattern in _CARDS:
                text = pattern.sub(_card, text)
        return self._without_phones(text) if self.phones else text

    def _without_phones(self, text: str) -> str:
        text = _ABROAD.sub(_phone, _without(text, self.region))
        return text if self.region else _AMERICAN.sub("[phone]", text)


def _iban(found: re.Match[str]) -> str:
    """As ISO 13616 checks it: the first four moved to the end, letters as numbers, 1 modulo 97."""
    bare = re.sub(r"\s", "", found[0]).upper()
    number = "".join(str(int(char, 36)) for char in bare[4:] + bare[:4])
    return "[iban]" if 15 <= len(bare) <= 34 and int(number) % 97 == 1 else found[0]


def _card(found: re.Match[str]) -> str:
    digits = [int(digit) for digit in re.findall(r"\d", found[0])]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    is_card = 22 <= 10 * digits[0] + digits[1] <= 69
    return "[card]" if is_card and (sum(digits[::-2]) + sum(doubled)) % 10 == 0 else found[0]


def _without(text: str, region: str | None) -> str:
    """The text without the phone numbers in use that the library finds."""
    from phonenumbers import PhoneNumberMatcher

    if region is None and "+" not in text and "\uff0b" not in text:
        return text
    parts = []
    end = 0
    for found in PhoneNumberMatcher(text, region, max_tries=sys.maxsize):
        parts += [text[end : found.start], "[phone]"]
        end = found.end
    return "".join([*parts, text[end:]])


def _phone(found: re.Match[str]) -> str:
    """What it misses: after "00", with other numbers right behind, or of a range not in use."""
    from phonenumbers import NumberParseException, is_possible_number, is_valid_number, parse

    dialled = found[0].startswith("00")
    ends = [group.end() for group in re.finditer(r"\d+", found[0])]
    for passes, least in ((is_valid_number, 0), (is_possible_number, _LEAST_DIGITS)):
        if dialled and least:  # a code padded with zeros
            break
        for end in reversed(ends):
            number = f"+{found[0][2:end]}" if dialled else found[0][:end]
            if sum(map(str.isdigit, number)) < least:
                break
            try:
                if passes(parse(number)):
                    return f"[phone]{found[0][end:]}"
            except NumberParseException:  # too long or too short for any
                continue
    return found[0]
