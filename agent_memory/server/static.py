"""The files of the web page, and their security headers.

The files contain no data and need no credential. The page gets its data by authenticated calls of
/v1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_FOLDER = Path(__file__).parent / "page"
_FIRST = "index.html"
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
        "require-trusted-types-for 'script'",  # no script can turn text into HTML
        "trusted-types 'none'",
    ]
)
"""The Content-Security-Policy: the page may load and call only its own server."""

_ALWAYS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file. `index.html` is only available at /."""
        if path == _FIRST:
            raise HTTPException(404)
        return await super().get_response(path, scope)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_ALWAYS)
        return response


class _First(_Files):
    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["method"] != "GET":
            raise HTTPException(404)
        return await StaticFiles.get_response(self, _FIRST, scope)


def page_routes() -> list[BaseRoute]:
    return [Route("/", _First(directory=_FOLDER)), Mount("/page", _Files(directory=_FOLDER))]
