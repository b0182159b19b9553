"""A login of its own: it signs JWTs, and publishes the half of its key that anybody may have."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

NAME, AUDIENCE, RIGHTS = "https://login.example", "memory", "read,write,delete"

_KID = "one"
_VALID_SECONDS = 7 * 24 * 3600


class Issuer:
    """Signs JWTs, the good ones and the bad.

    Args:
        url: Where its keys are.
        key: Its key.
    """

    def __init__(self, url: str, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._other = ec.generate_private_key(ec.SECP256R1())
        self.options = ("--jwks", url, "--issuer", NAME, "--audience", AUDIENCE)

    def good(self, user_id: str) -> str:
        """A token of a user."""
        return self._signed({"sub": user_id})

    def bad(self, user_id: str) -> dict[str, str]:
        """Tokens that look like a user's and open nothing, by what is wrong with them."""
        now = int(time.time())
        good = self.good(user_id)
        return {
            "JWT that is over": self._signed({"sub": user_id, "exp": now - 3_600}),
            "JWT for another service": self._signed({"sub": user_id, "aud": "other"}),
            "JWT of another issuer": self._signed({"sub": user_id, "iss": "https://evil.example"}),
            "JWT signed by another": self._signed({"sub": user_id}, self._other),
            "JWT for everybody": self._signed({"sub": "*"}),
            "JWT without a signature": jwt.encode(self._claims({"sub": user_id}), "", "none"),
            "JWT cut short": good[:-4],
        }

    def _claims(self, given: dict[str, Any]) -> dict[str, Any]:
        over = int(time.time()) + _VALID_SECONDS
        return {"iss": NAME, "aud": AUDIENCE, "exp": over, **given}

    def _signed(self, claims: dict[str, Any], key: Any = None) -> str:
        given = self._claims(claims)
        return jwt.encode(given, key or self._key, "ES256", headers={"kid": _KID})


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer whose keys can be fetched meanwhile."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    body = json.dumps({"keys": [{**public, "kid": _KID}]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Issuer(f"http://127.0.0.1:{server.server_port}/keys", key)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
