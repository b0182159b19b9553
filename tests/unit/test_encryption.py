"""Keys, and what is encrypted with them."""

import base64
import sys
from collections.abc import Callable

import pytest

from agent_memory.errors import ConfigError, MissingExtra, StoreUnavailable, Undecryptable
from agent_memory.stores.encrypted.keys import Key, Keys
from agent_memory.testing.contract import together

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
PLACE = ("message", "default", "s", 1, 0)
VARIABLE = "TEST_MEMORY_KEYS"


def encoded(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def test_encrypted_texts_can_be_decrypted_and_differ() -> None:
    """Wrong: a text is decrypted with changes, or nonces repeat, which exposes the key."""
    keys = Keys({"k": SECRET})
    for plain in (b"", b"said", "😀\x00".encode(), b"x" * 5_000_000):
        sealed = keys.current.encrypt(PLACE, plain)
        assert keys.decrypt(PLACE, sealed) == plain
        assert sealed.isascii()
    assert "said" not in keys.current.encrypt(PLACE, b"said")
    sealed = "sealed.1.k.a2PZEFQ+PNc4haQEXAZkCdKFz1QJwxw+L6YGPgiIbbg="
    assert Keys({"k": SECRET}).decrypt(PLACE, sealed) == b"kept"
    key = Key("k", SECRET)
    assert len({key.encrypt(PLACE, b"same") for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "place",
    [
        ("message", "default", "s", 2, 0),
        ("message", "default", "t", 1, 0),
        ("message", "other", "s", 1, 0),
        ("message", "default", "s", 1, 1),
        ("message", "default", "s", "1", 0),
        ("message", "default", "s", 1),
        ("system", "default", "s"),
    ],
)
def test_a_ciphertext_cannot_be_decrypted_at_another_place(place: tuple[object, ...]) -> None:
    """Wrong: encrypted records can be swapped or moved between sessions unnoticed."""
    keys = Keys({"k": SECRET})
    with pytest.raises(Undecryptable):
        keys.decrypt(place, keys.current.encrypt(PLACE, b"said"))


def test_every_change_of_a_ciphertext_is_detected() -> None:
    """Wrong: an altered record is decrypted to garbage."""
    keys = Keys({"k": SECRET, "l": SECRET})
    seals = (keys.current.encrypt(PLACE, b"said") for _ in range(10_000))
    sealed = next(one for one in seals if one.endswith("A="))  # its last bits carry no data
    for at, old in enumerate(sealed):
        for new in ("", "A" if old != "A" else "B", ".", "é", "=", old * 2):
            changed = sealed[:at] + new + sealed[at + 1 :]
            if changed != sealed:
                with pytest.raises(Undecryptable):
                    keys.decrypt(PLACE, changed)
    for text in ("", "sealed.1.", "sealed.1.k", "sealed.1.k.", "sealed.1.k.AAAA", sealed + "AAAA"):
        with pytest.raises(Undecryptable):
            keys.decrypt(PLACE, text)
    keys = Keys({"new": SECRET})
    old = Keys({"old": OTHER}).current.encrypt(PLACE, b"said")
    with pytest.raises(Undecryptable, match=r"Message 1 of session 's' .*'old'"):
        keys.decrypt(PLACE, old)
    with pytest.raises(Undecryptable, match=r"Message 1 of session 's' .*altered"):
        keys.decrypt(PLACE, Key("new", OTHER).encrypt(PLACE, b"said"))
    with pytest.raises(Undecryptable, match="plaintext=True"):
        keys.decrypt(PLACE, "said")


def test_keys_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the wrong key is used for writing, or URL-safe base64 is refused."""
    secret = b"\xfb\xff" * 16
    urlsafe = base64.urlsafe_b64encode(secret).decode()
    monkeypatch.setenv(VARIABLE, f" new:{urlsafe} ,old: {encoded(OTHER)}")
    keys = Keys.from_environment(VARIABLE)
    assert keys.current.id == "new"
    assert keys.decrypt(PLACE, Key("old", OTHER).encrypt(PLACE, b"said")) == b"said"
    assert keys.decrypt(PLACE, Key("new", secret).encrypt(PLACE, b"said")) == b"said"
    with pytest.raises(Undecryptable, match=f"among those in {VARIABLE}"):
        keys.decrypt(PLACE, Key("third", OTHER).encrypt(PLACE, b"said"))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "is not set"),
        ("  ", "is not set"),
        (encoded(SECRET), "Entry 1"),
        (f"k:{encoded(SECRET)},{encoded(OTHER)}", "Entry 2"),
        (f"k:{encoded(SECRET)},", "Entry 2"),
        (f"a b:{encoded(SECRET)}", "Entry 1"),
        (f"k:{encoded(SECRET)}!", "'k'.*base64"),
        (f"k:{encoded(SECRET[:16])}", "'k'.*16 bytes.*32"),
        ("k:", "'k'.*0 bytes"),
        (f"k:{encoded(SECRET)},k:{encoded(OTHER)}", "two keys with the id 'k'"),
    ],
)
def test_bad_key_is_hidden(monkeypatch: pytest.MonkeyPatch, value: str | None, told: str) -> None:
    """Wrong: an invalid variable fails only at the first message, or its error shows the key."""
    if value is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ConfigError, match=told) as caught:
        Keys.from_environment(VARIABLE)
    assert VARIABLE in str(caught.value)
    for secret in (encoded(SECRET), encoded(OTHER), encoded(SECRET[:16])):
        assert secret not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Keys({}), "needs a key"),
        (lambda: Keys(lambda _: SECRET), "`current`"),
        (lambda: Keys({"k": SECRET}, current="l"), "'l'"),
        (lambda: Keys({"a.b": SECRET}), "letters"),
        (lambda: Keys({"": SECRET}), "letters"),
        (lambda: Keys(lambda _: SECRET, current="a.b"), "letters"),
        (lambda: Keys({"k": SECRET[:16]}), "16 bytes"),
        (lambda: Keys({"k": encoded(SECRET)}), "is of type str"),  # type: ignore[dict-item]
        (lambda: Keys(lambda _: SECRET[1:], current="k"), "31 bytes"),
        (lambda: Keys(lambda _: None, current="k"), "'k'.*callable"),
    ],
)
def test_invalid_keys_are_refused(make: Callable[[], Keys], told: str) -> None:
    """Wrong: a weak key is accepted, or fails only at the first message."""
    with pytest.raises(ConfigError, match=told):
        make()


def test_no_representation_contains_a_secret() -> None:
    """Wrong: logging a store writes its keys to the log."""
    keys = Keys({"k": b"secret! " * 4})
    for text in (repr(keys), str(keys), repr(keys.current), f"{keys}"):
        assert "secret" not in text
        assert "k" in text


def test_a_key_function_is_called_once_for_each_key_id() -> None:
    """Wrong: each message calls the key service, or a concurrent thread gets no key."""
    asked: list[str] = []

    def ask(key_id: str) -> bytes | None:
        asked.append(key_id)
        return {"new": SECRET, "old": OTHER}.get(key_id)

    keys = Keys(ask, current="new")
    sealed = Key("old", OTHER).encrypt(PLACE, b"said")
    found: list[bytes] = []
    together([lambda: found.append(keys.decrypt(PLACE, sealed))] * 8)
    assert found == [b"said"] * 8
    assert asked == ["new", "old"]
    with pytest.raises(Undecryptable, match="'third'"):
        keys.decrypt(PLACE, Key("third", OTHER).encrypt(PLACE, b"said"))


def test_a_key_service_outage_raises_store_unavailable_and_is_retried() -> None:
    """Wrong: an outage of the key service raises a foreign error, or is never retried."""
    down = True

    def ask(key_id: str) -> bytes:
        if down and key_id == "old":
            raise TimeoutError("no answer")
        return OTHER

    keys = Keys(ask, current="new")
    sealed = Key("old", OTHER).encrypt(PLACE, b"said")
    with pytest.raises(StoreUnavailable, match=r"'old' \(TimeoutError\)"):
        keys.decrypt(PLACE, sealed)
    down = False
    assert keys.decrypt(PLACE, sealed) == b"said"


def test_a_key_can_be_rotated_without_a_restart() -> None:
    """Wrong: a new key needs a restart, or data under the old key is lost."""
    keys = Keys({"k1": SECRET})
    old = keys.current.encrypt(PLACE, b"said")
    keys.rotate("k2", OTHER)
    assert keys.current.id == "k2"
    new = keys.current.encrypt(PLACE, b"later")
    assert [keys.decrypt(PLACE, one) for one in (old, new)] == [b"said", b"later"]
    keys.rotate("k1")
    assert keys.current.id == "k1"
    keys.rotate("k2", OTHER)
    with pytest.raises(ConfigError, match="'k3'"):
        keys.rotate("k3")
    with pytest.raises(ConfigError, match="Another key has the id 'k1'"):
        keys.rotate("k1", OTHER)
    assert keys.current.id == "k2"


def test_a_missing_package_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a missing package raises an ImportError that does not name the extra."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match=r"agent-memory-log\[encryption\]"):
        Keys({"k": SECRET})
