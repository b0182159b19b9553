"""Addresses, phone, card and account numbers, passwords and keys taken out of a text."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from agent_memory.errors import ConfigError, MissingExtra

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
        from agent_memory.core import personal  # its patterns take long to be made

        if self.keys:
            text = personal.without_keys(text)
        if self.passwords:
            text = personal.without_passwords(text)
        if self.ibans:
            text = personal.without_ibans(text)
        if self.emails:
            text = personal.without_emails(text)
        if self.cards or self.phones:
            text = personal.without_numbers(
                text, cards=self.cards, phones=self.phones, region=self.region
            )
        return text
