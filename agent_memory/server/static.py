"""The page for people: its files, which hold no data, and the headers that confine it.

The page is a client of /v1 like any other. Its files are the same for everybody, and need no
credential; what it shows comes from calls that do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from agent_memory.server.answers import Headers

_FOLDER = "page"
_FIRST = "index.html"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # what takes markup throws: no text can become any
        "trusted-types 'none'",
    ]
)
"""What the page may do: load its own files, ask its own server, and nothing else."""

_ALWAYS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page.

    Attributes:
        body: What it says.
        media_type: Its type.
        tag: Its ETag.
    """

    body: bytes
    media_type: str
    tag: str

    def answer(self, headers: Headers) -> tuple[int, bytes, Headers]:
        """What is answered to a request with these headers: 304 to who has it already."""
        known = {value for name, value in headers if name == b"if-none-match"}
        same = self.tag.encode() in known
        body = b"" if same else self.body
        told = {**_ALWAYS, "content-type": self.media_type, "etag": self.tag}
        if not same:
            told["content-length"] = str(len(body))
        return 304 if same else 200, body, [(k.encode(), v.encode()) for k, v in told.items()]


def page_files() -> Mapping[bytes, File]:
    """The files of the page, by their paths; the first of them is at / too."""
    found: dict[bytes, File] = {}
    for one in files("agent_memory.server").joinpath(_FOLDER).iterdir():
        body = one.read_bytes()
        kind = one.name.rpartition(".")[2]
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        found[f"/{_FOLDER}/{one.name}".encode()] = File(body, _TYPES[kind], tag)
    found[b"/"] = found.pop(f"/{_FOLDER}/{_FIRST}".encode())
    return found
