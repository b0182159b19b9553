"""The ids of many records in little space."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

_DIGITS = 32
_BYTES = 16


class Names:
    """Ids in order. Those that the library makes, 32 hexadecimal digits, take 16 bytes each.

    Args:
        packed: (n, 16) uint8, where all of them are such.
        texts: Else the ids.
    """

    def __init__(self, packed: np.ndarray | None, texts: tuple[str, ...] = ()) -> None:
        self.packed = packed
        self.texts = texts

    @classmethod
    def of(cls, ids: Sequence[str]) -> Names:
        """Those of records."""
        joined = "".join(ids)
        if ids and {*map(len, ids)} == {_DIGITS} and joined.isascii():
            try:
                packed = bytes.fromhex(joined)
            except ValueError:
                packed = b""
            if packed.hex() == joined:
                return cls(np.frombuffer(packed, np.uint8).reshape(-1, _BYTES))
        return cls(None, tuple(ids))

    @classmethod
    def joined(cls, parts: Sequence[Names]) -> Names:
        """Several, one after the other."""
        packed = [part.packed for part in parts if part.packed is not None]
        if len(packed) == len(parts):
            return cls(np.concatenate(packed))
        return cls(None, tuple(name for part in parts for name in part.all()))

    def __len__(self) -> int:
        return len(self.texts) if self.packed is None else len(self.packed)

    def __getitem__(self, place: int) -> str:
        return self.texts[place] if self.packed is None else self.packed[place].tobytes().hex()

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        return sum(map(len, self.texts)) + 60 * len(self.texts) + _BYTES * len(self)

    def all(self) -> list[str]:
        """All of them."""
        return [self[place] for place in range(len(self))]

    def places(self, ids: Collection[str]) -> list[int]:
        """Where those of these ids are that are among them, in order."""
        if self.packed is None:
            return [place for place, name in enumerate(self.texts) if name in ids]
        ours = [name for name in ids if len(name) == _DIGITS]
        wanted = Names.of(ours)
        if wanted.packed is None:  # none, or some are no such ids
            return [p for p in range(len(self)) if self[p] in ids] if ours else []
        # a quick first look by 16 bits
        known = np.zeros(2**16, np.bool_)
        known[_beginnings(wanted.packed)] = True
        likely = np.flatnonzero(known[_beginnings(self.packed)]).tolist()
        return [place for place in likely if self[place] in ids]

    def only(self, keep: np.ndarray) -> Names:
        """Some of them."""
        if self.packed is not None:
            return Names(self.packed[keep])
        return Names(None, tuple(self.texts[place] for place in np.flatnonzero(keep).tolist()))


def _beginnings(packed: np.ndarray) -> np.ndarray:
    return np.asarray(packed[:, 0].astype(np.uint16) << 8 | packed[:, 1])
