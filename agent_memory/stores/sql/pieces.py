"""Messages that exceed the database's limit for a statement are stored in pieces.

The pieces are documents. The line holds the number of the pieces and a digest of the whole
message, in JSON that no message has.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence

from agent_memory.stores.kernel.contract import Document, Line
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.dialects import DOCUMENTS

_PIECE = "piece"
_TRIES = 20
_OF_SESSION = "namespace = ? AND collection = 'piece' AND session = ?"


def in_pieces(lines: Sequence[Line], most: int | None) -> tuple[list[Document], Sequence[Line]]:
    """Return the pieces of lines that are too large, and all lines as they are to be written.

    Args:
        lines: The lines.
        most: The most characters of a text; None for any number.
    """
    if most is None:
        return [], lines
    pieces: list[Document] = []
    written: list[Line] = []
    for line in lines:
        if len(line.text) + len(line.body) > most:
            text = line.body or line.text
            parts = [text[at : at + most] for at in range(0, len(text), most)]
            pieces += [
                Document(
                    *(_PIECE, f"{line.seq}.{number}:{line.session}", "", line.session),
                    first=line.seq,
                    last=line.seq,
                    version=number,
                    body=part,
                )
                for number, part in enumerate(parts)
            ]
            mark = json.dumps([len(parts), _digest(text), not line.body])
            line = line._replace(text="", body=mark)
        written.append(line)
    return pieces, written


def whole(connection: SQLConnection, namespace: str, read: Callable[[], list[Line]]) -> list[Line]:
    """Return lines with the messages in pieces put together.

    Args:
        connection: The connection.
        namespace: The namespace of the sessions.
        read: Reads the lines. It is called again if a log changed meanwhile.
    """
    lines: list[Line] = []
    for _ in range(_TRIES):
        lines = read()
        large = [line for line in lines if line.body.startswith("[")]
        if not large:
            return lines
        texts = _texts(connection, namespace, large)
        complete = [_joined(line, texts) for line in lines]
        if not any(line.body.startswith("[") for line in complete):
            return complete
        lines = complete
    return lines  # some pieces are lost: their lines read as damaged


def drop_pieces(
    connection: SQLConnection, namespace: str, session: str, which: str, seq: int
) -> None:
    """Delete the pieces of a session's lines."""
    if connection.most_text is not None:
        text = f"DELETE FROM {DOCUMENTS} WHERE {_OF_SESSION} AND {which}"
        connection.run(text, [namespace, session, seq])


def _texts(
    connection: SQLConnection, namespace: str, large: Sequence[Line]
) -> dict[tuple[str, int], str]:
    texts: dict[tuple[str, int], str] = defaultdict(str)
    for session in {line.session for line in large}:
        seqs = sorted({line.seq for line in large if line.session == session})
        marks = ", ".join("?" * len(seqs))
        text = (
            f"SELECT first, body FROM {DOCUMENTS} WHERE {_OF_SESSION} AND first IN ({marks}) "
            "ORDER BY first, version"
        )
        for seq, body in connection.rows(text, [namespace, session, *seqs]):
            texts[session, seq] += body
    return texts


def _joined(line: Line, texts: dict[tuple[str, int], str]) -> Line:
    if not line.body.startswith("["):
        return line
    _, digest, is_plain = json.loads(line.body)
    text = texts[line.session, line.seq]
    if _digest(text) != digest:
        return line
    return line._replace(text=text, body="") if is_plain else line._replace(body=text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
