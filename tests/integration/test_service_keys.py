"""The service's keys, how they are stored and issued, and JWTs."""

import re
import signal
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from agent_memory import AgentMemory, InvalidInput
from agent_memory.errors import StoreUnavailable
from agent_memory.server.credentials import Tokens
from agent_memory.server.keys import KeyRing
from agent_memory.stores import MemoryStore
from tests.integration.serving import Service, fill, serving
from tests.kit import invoke
from tests.servers.http import Handler, HTTPServer

ISSUER, AUDIENCE = "https://login.example", "memory"


def test_only_the_hash_of_a_key_is_stored() -> None:
    """Wrong: the store, or a repr, has a usable key, or a read-only store refuses keys."""
    store = MemoryStore()
    token, key = KeyRing(store).create("phone", ["ana"], ["read"])
    kept = repr(list(store.all_records()))
    secret = token.removeprefix(f"{key.prefix}_")
    assert token.startswith(f"{key.prefix}_")
    assert len(secret) == 43
    for told in (kept, repr(key), repr(KeyRing(store).all()), repr(vars(KeyRing(store)))):
        assert secret not in told
    store.put_records = Mock(side_effect=StoreUnavailable("read-only"))  # type: ignore[method-assign]
    assert KeyRing(store).key_of(token)


def test_an_invalid_key_cannot_be_created() -> None:
    """Wrong: a key is created without users or rights, with invalid ones, or already expired."""
    ring = KeyRing(MemoryStore())
    bad: list[tuple[Any, ...]] = [
        ("", ["ana"], ["read"], None), ("x" * 201, ["ana"], ["read"], None),
        ("x", [], ["read"], None), ("x", [""], ["read"], None), ("x", ["a*b"], ["read"], None),
        ("x", ["\x1eshare"], ["read"], None), ("x", ["ana"], [], None),
        ("x", ["ana"], ["root"], None), ("x", ["team-*"], ["admin"], None),
        ("x", ["ana"], ["read"], timedelta()),
    ]  # fmt: skip
    for label, users, rights, ttl in bad:
        with pytest.raises(InvalidInput):
            ring.create(label, users, rights, ttl=ttl)
    assert ring.all() == []
    with pytest.raises(InvalidInput, match="keys list"):
        ring.revoke("am_000000000000")


def test_the_commands_work_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a key of the command line does not work, is shown again, or works once revoked."""
    monkeypatch.setenv("COLUMNS", "300")
    store = ["--store", f"sqlite:///{tmp_path}/m.db"]
    given = ["--label", "phone", "--users", "ana, team-*", "--rights", "read,write"]
    made = invoke(["keys", "create", *given, "--expires", "30d", *store])
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    assert re.fullmatch(r"am_[0-9a-f]{12}_\S{43}", token)
    listed = invoke(["keys", "list", *store]).stdout
    assert token not in listed
    for told in (token[:15], "phone", "ana, team-*", "read, write", "valid until", "never"):
        assert told in listed
    with AgentMemory(store=store[1], blocks=[]) as memory:
        assert KeyRing(memory.components.store).key_of(token) is not None
        assert invoke(["keys", "revoke", token[:15], *store]).exit_code == 0
        assert KeyRing(memory.components.store).key_of(token) is None
    assert "revoked" in invoke(["keys", "list", *store]).stdout
    for wrong in (["revoke", "am_0"], ["create", *given, "--expires", "soon"]):
        done = invoke(["keys", *wrong, *store])
        assert done.exit_code == 1
        assert done.stderr.startswith("error: ")
        assert token not in done.output


def test_a_key_is_revoked_by_prefix_or_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a narrow terminal breaks a prefix in two, or a whole key is refused and repeated."""
    monkeypatch.setenv("COLUMNS", "60")
    store = ["--store", f"sqlite:///{tmp_path}/m.db"]
    given = ["--label", "the phone of the user", "--users", "ana"]
    token = invoke(["keys", "create", *given, *store]).stdout.strip()
    assert token[:15] in invoke(["keys", "list", *store]).stdout
    unknown = invoke(["keys", "revoke", token.replace("am_", "am_x"), *store])
    assert unknown.exit_code == 1
    assert token[16:] not in unknown.output
    assert invoke(["keys", "revoke", token, *store]).exit_code == 0


def test_serving_encrypted_data_needs_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: `serve` starts without the keys, or a revoked API key needs a retired key for ever."""
    old, new = f"k:{b64encode(bytes(32)).decode()}", f"n:{b64encode(bytes(31) + b'n').decode()}"
    monkeypatch.setenv("K", old)
    store = ["--store", f"sqlite:///{tmp_path}/m.db"]
    monkeypatch.setenv("AGENT_MEMORY_ENCRYPTION", "K")
    given = ["--label", "phone", "--users", "ana"]
    token = invoke(["keys", "create", *given, *store]).stdout.strip()
    monkeypatch.delenv("AGENT_MEMORY_ENCRYPTION")
    for command in (["keys", "list"], ["keys", "revoke", token], ["serve", "--port", "0"]):
        done = invoke([*command, *store])
        assert done.exit_code == 1
        assert "Give the memory its keys" in done.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setenv("AGENT_MEMORY_ENCRYPTION", "K")
    with AgentMemory(f"sqlite:///{tmp_path}/m.db") as memory:
        assert KeyRing(memory.components.store).key_of(token)  # stores when the key was used
    for keys, command in (old, "revoke"), (f"{new},{old}", "revoke"), (new, "list"):
        monkeypatch.setenv("K", keys)
        done = invoke(["keys", command, *[token] * (command == "revoke"), *store])
        assert done.exit_code == 0, done.stderr


def test_no_key_is_created_in_a_store_in_memory() -> None:
    """Wrong: a useless key is printed."""
    made = invoke(["keys", "create", "--label", "x", "--users", "ana", "--store", "memory://"])
    assert made.exit_code == 1
    assert "memory://" in made.stderr


@contextmanager
def publishing(
    keys: list[dict[str, Any]], until: threading.Event | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL where an issuer publishes its keys, and the requests to it."""
    asked: list[str] = []

    class Keys(Handler):
        def respond(self) -> None:
            asked.append(self.path)
            if until is not None:
                until.wait(60)
            self.send(302 if self.path == "/elsewhere" else 200, {"keys": keys}, Location="/keys")

    server = HTTPServer(Keys, None)
    try:
        yield server.url, asked
    finally:
        server.stop()


RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
EC = ec.generate_private_key(ec.SECP256R1())


def published() -> list[dict[str, Any]]:
    """Return an issuer's published keys, one of them publicly known."""
    rsa_key = jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True)
    ec_key = jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key(), as_dict=True)
    secret = urlsafe_b64encode(b"secret-" * 5).decode().rstrip("=")
    shared = {"kty": "oct", "k": secret, "alg": "HS256"}
    return [{**rsa_key, "kid": "r"}, {**ec_key, "kid": "e"}, {**shared, "kid": "h"}]


def token(key: Any = RSA, kid: str | None = "r", alg: str = "RS256", **claims: Any) -> str:
    """Return a JWT. A claim that is None is left out."""
    now = int(time.time())
    given = {"sub": "ana", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 300, **claims}
    told = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(told, key, algorithm=alg, headers={} if kid is None else {"kid": kid})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Service, list[str]]]:
    with publishing(published()) as (url, asked):
        rights = ["read", "write"]
        tokens = Tokens(f"{url}/keys", ISSUER, AUDIENCE, "sub", rights)
        with serving(tmp_path, tokens=tokens) as service:
            fill(service)
            yield service, asked


def test_a_jwt_gives_access_only_to_its_user(service: tuple[Service, list[str]]) -> None:
    """Wrong: a valid JWT is refused, gives access to another user, or has too many rights."""
    serving, asked = service
    for good in (token(), token(EC, "e", "ES256"), token(aud=[AUDIENCE, "other"])):
        [session] = serving.call("list_sessions", good).json["sessions"]
        assert session["id"] == "s-ana"
        assert serving.call("list_sessions", good, user="ben").problem == "not-found"
        assert serving.call("delete_user", good).problem == "forbidden"
        assert serving.call("read_stats", good).problem == "forbidden"
    assert asked == ["/keys"]
    assert serving.call("list_sessions", serving.key("ben")).status == 200


def test_invalid_jwts_are_rejected(service: tuple[Service, list[str]]) -> None:
    """Wrong: a JWT is accepted that is expired, from another issuer or for another audience,
    wrongly signed, or without a user. Also wrong: each of them fetches the issuer's keys."""
    serving, asked = service
    now = int(time.time())
    symmetric = "secret-" * 5
    unsigned = jwt.encode({"sub": "ana"}, "", algorithm="none")
    bad = [
        token(OTHER), token(kid="unknown"), token(kid=None), token(kid="e"),
        token(symmetric, "h", "HS256"), token(symmetric, "r", "HS256"), token(exp=now - 3_600),
        token(exp=None), token(nbf=now + 3_600), token(iss="https://evil.example"), token(iss=None),
        token(aud="other"), token(aud=None), token(sub=None), token(sub=""), token(sub="*"),
        token(sub="team-*"), token(sub="\x1eshare-ana"), token()[:-4], unsigned, "a.b.c", "x",
    ]  # fmt: skip
    assert {serving.call("list_sessions", one).status for one in bad} == {401}
    assert len(asked) <= 2


def test_an_unavailable_issuer_does_not_affect_api_keys(tmp_path: Path) -> None:
    """Wrong: a redirect to other keys is followed."""
    with publishing(published()) as (url, asked):
        tokens = Tokens(f"{url}/elsewhere", ISSUER, AUDIENCE, "sub", ["read"])
        with serving(tmp_path, tokens=tokens) as service:
            for _ in range(3):
                assert service.call("list_sessions", token()).problem == "unavailable"
            assert service.call("list_sessions", service.key("ana")).status == 200
    assert asked == ["/elsewhere"]
