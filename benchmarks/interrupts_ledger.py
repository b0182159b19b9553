"""What a session must show whose calls were interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def answer_to(text: str) -> str:
    """What a model answers."""
    return f"Noted: {text}"


class Said:
    """What was said in a session, and what was taken back."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, bool]] = []  # each with whether it was acknowledged
        self._turns: dict[str, str] = {}  # what was asked in one, and its answer
        self._gone = 0  # so many of them are gone for sure
        self._perhaps = 0  # and so many perhaps

    def note(self, call: str, text: str, whole: bool) -> None:
        """Note a call, and whether it ended before it was interrupted."""
        if call == "update":
            self._texts.append((text, whole))
        elif call in ("completion", "stream"):
            self._turns[text] = answer_to(text)
            self._texts += [(text, whole), (self._turns[text], whole)]
        elif call in ("delete", "pop"):
            self._perhaps = len(self._texts)
            if call == "delete" and whole:
                self._gone = self._perhaps

    def wrong(self, texts: Sequence[str]) -> Iterator[str]:
        """What is wrong with the texts of its log.

        What an interrupted call was to store is there once or not at all; what it was to take back
        is there or not.
        """
        order = {text: place for place, (text, _) in enumerate(self._texts)}
        places = [order.get(text, -1) for text in texts]
        if -1 in places:
            yield "something that nobody said"
        if places != sorted(set(places)):
            yield f"doubled or out of order: {places}"
        there = set(texts)
        half = [asked for asked, told in self._turns.items() if (asked in there) != (told in there)]
        if half:
            yield f"a turn that is there by half: {half}"
        if any(0 <= place < self._gone for place in places):
            yield "back after a deletion"
        kept = {place for place in range(self._perhaps, len(self._texts)) if self._texts[place][1]}
        if lost := kept - set(places):
            yield f"lost: {sorted(lost)}"
