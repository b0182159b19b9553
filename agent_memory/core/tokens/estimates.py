"""An estimate of a text's tokens that needs no vocabulary.

A lower-case letter of ASCII or a space counts 4/15, another character of ASCII 8/15, any further
character 8/15 for each byte of its UTF-8 but the first; the sum is rounded up.

What it promises: no byte-pair encoding of UTF-8, whatever its vocabulary, makes more than 15/4
times as many tokens. For a token is a byte at least, and each byte counts 4/15 at least: one of
ASCII as said, and of the n bytes of a longer character each 8/15 * (n - 1) / n, with n at least 2.
"""

from __future__ import annotations

import string

WORST = 15 / 4

_PLAIN = (string.ascii_lowercase + " ").encode()
_BEYOND_ASCII = bytes(range(128, 256))


class Estimate:
    """Stands where an encoding does.

    Attributes:
        name: Tells stored counts from those of other rules.
    """

    name = "estimate-1"

    @staticmethod
    def count(text: str) -> int:
        """About how many tokens a text has."""
        if text.isascii():
            ascii_only, further = text.encode(), 0
        else:
            encoded = text.encode("utf-8", "surrogatepass")
            ascii_only, further = encoded.translate(None, _BEYOND_ASCII), len(encoded) - len(text)
        length = len(ascii_only)
        rest = len(ascii_only.translate(None, _PLAIN))
        return (4 * (length + rest) + 8 * further + 14) // 15
