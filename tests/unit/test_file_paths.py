"""Which paths name a file under /memories, and which are refused."""

import os
import posixpath
import random
import re
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import ToolRefused
from agent_memory.ltm_blocks.files.commands import MAX_CHARS, MAX_DEPTH, checked_path
from tests.kit import at_length

SLASHES = (
    "\u2044\u2215\u2571\u27cb\u29f8\u29f6\u2afb\u2afd\uff0f\u31d3\u3033\u1735\u2041\U0001d23a\u2cc6"
)
BACKSLASHES = "\uff3c\ufe68\u2216\u27cd\u29f5\u29f9\u31d4\U0001d20f\U0001d23b\u2572\u244a"
DOTS = (
    "\u2024\u2025\u2026\uff0e\u3002\uff61\ufe52\xb7\u2022\u2219\u22c5\u0701\u0702\ua60e"
    "\U00010a50\U0001d16d\ua4f8\ua4fa"
)
UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u200b\u200c\u200d\u200e\u200f"
    "\u202a\u202d\u202e\u2060\u2066\u2069\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\U000e0041\U000e0101"
)
IGNORABLE = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)

TAKEN = [
    ("/memories", "/memories"),
    ("/memories/", "/memories"),
    ("/memories/notes.md", "/memories/notes.md"),
    ("/memories/work/2026/plan.txt", "/memories/work/2026/plan.txt"),
    ("/memories/work/", "/memories/work"),
    ("/memories/.hidden", "/memories/.hidden"),
    ("/memories/..rc", "/memories/..rc"),
    ("/memories/a..b", "/memories/a..b"),
    ("/memories/v1.", "/memories/v1."),
    ("/memories/my notes (1), #2 & 'x'.md", "/memories/my notes (1), #2 & 'x'.md"),
    ("/memories/caf\u00e9.md", "/memories/caf\u00e9.md"),
    ("/memories/cafe\u0301.md", "/memories/caf\u00e9.md"),
    ("/memories/заметки.md", "/memories/заметки.md"),
    ("/memories/ノート/日本語.txt", "/memories/ノート/日本語.txt"),
    ("/memories/ملاحظات.md", "/memories/ملاحظات.md"),
    ("/memories/नोट्स.md", "/memories/नोट्स.md"),
    ("/memories/" + "a" * 255, "/memories/" + "a" * 255),
    ("/memories" + "/a" * MAX_DEPTH, "/memories" + "/a" * MAX_DEPTH),
]

OUTSIDE = [
    "", "/", "memories/a", "./memories/a", "../memories", "/memorie", "/memoriesfoo",
    "/memoriesfoo.txt", "/memories.txt", "/memories-old/a", "/Memories/a", "/MEMORIES",
    " /memories", "//memories/a", "/etc/passwd", "/memories\\a", "/memories%2fa",
    "/memories\uff0fa", "/memories\u0338/a", "\ufeff/memories/a", "C:\\memories\\a",
    "file:///memories/a", "~/memories", "/mem\u200bories/a", "/\uff4demories/a",
]  # fmt: skip

CLIMBING = [
    "/memories/..", "/memories/../etc/passwd", "/memories/a/../../b", "/memories/a/../b",
    "/memories/a/..", "/memories/...", "/memories/.. /a", "/memories/. ./a", "/memories/ ../a",
]  # fmt: skip

ROUNDABOUT = [
    "/memories//a", "/memories//", "/memories/a//", "/memories/./a", "/memories/.", "/memories/a/.",
]  # fmt: skip

ODD = [
    "/memories/%2e%2e/a", "/memories/%2E%2e%2fa", "/memories/..%2fa", "/memories/%252e%252e%252fa",
    "/memories/%25252e%25252e/a", "/memories/..%c0%afa", "/memories/%c0%ae%c0%ae/a",
    "/memories/%e0%80%ae/a", "/memories/%u002e%u002e/a", "/memories/..%5ca", "/memories/100%",
    "/memories/..\\a", "/memories/a\\..\\..\\b", "/memories/\\\\host\\share",
    "/memories/a\0", "/memories/a\0.md", "/memories/a\n", "/memories/a\tb", "/memories/a\x7f",
    "/memories/a\x85b", "/memories/a\u2028b", "/memories/a\xa0b", "/memories/a\u3000b",
    "/memories/\ud800", "/memories/a\udc80", "/memories/\ue000", "/memories/\U0010ffff",
    "/memories/ a", "/memories/a ", "/memories/ ", "/memories/a /b", "/memories/\u0301a",
    "/memories/\u2488a", "/memories/\u00bd", "/memories/\u2100", "/memories/\u33c2",
    *(f"/memories/a{char}b" for char in SLASHES + BACKSLASHES + DOTS + UNSEEN),
    *(f"/memories/{char}{char}/b" for char in DOTS),
    "/memories/" + "a" * 256, "/memories/" + "é" * 128, "/memories/" + "a" * MAX_CHARS,
    "/memories" + "/a" * (MAX_DEPTH + 1), "/memories/" + "\u0958" * 990, "/memories/" + "/" * 5_000,
    "/memories" + ("/" + "e\u0301" * 60) * 10,
]  # fmt: skip


def form_of(path: str) -> str | None:
    try:
        return checked_path(path)
    except ToolRefused:
        return None


@pytest.mark.parametrize(("given", "form"), TAKEN)
def test_plain_paths_are_accepted(given: str, form: str) -> None:
    """Wrong: a plain name in some script is refused, or one file has two paths."""
    assert checked_path(given) == form


REFUSED = {
    r"^Path must start with /memories, got: ": OUTSIDE,
    r"^Path .* would escape /memories directory$": CLIMBING,
    r"^Path .* contains an empty part or a single dot": ROUNDABOUT,
    r"^Path ": ODD,
}


@pytest.mark.parametrize(
    ("path", "words"), [(path, words) for words, paths in REFUSED.items() for path in paths]
)
def test_invalid_paths_are_refused(path: str, words: str) -> None:
    """Wrong: a path leads out of /memories, or decodes, folds or looks like another one."""
    with pytest.raises(ToolRefused, match=words):
        checked_path(path)


def test_path_errors_match_the_sdk_and_repeat_no_odd_text() -> None:
    """Wrong: a refusal differs from the SDK's, or repeats unprintable or endless text."""
    for path, words in [
        ("/etc/passwd", "Path must start with /memories, got: /etc/passwd"),
        ("/memories/../x", "Path /memories/../x would escape /memories directory"),
    ]:
        with pytest.raises(ToolRefused) as refused:
            checked_path(path)
        assert str(refused.value) == words
    with pytest.raises(ToolRefused, match=r"/memories/a\\u202eb\\ud800 ") as refused:
        checked_path("/memories/a\u202eb\ud800")
    assert str(refused.value).isprintable()
    with pytest.raises(ToolRefused) as refused:
        checked_path("x" * 10**6)
    assert len(str(refused.value)) < 300


def test_invisible_characters_are_refused_in_paths() -> None:
    """Wrong: an invisible character is allowed."""
    allowed = 0
    for number in [*range(0x20000), *range(0xE0000, 0xE1000)]:
        char = chr(number)
        if char in "./" or form_of(f"/memories/a{char}b") is None:
            continue
        allowed += 1
        assert char.isprintable(), ascii(char)
        assert not IGNORABLE.match(char), ascii(char)
        assert not set(normalize("NFKC", char)) & set("./\\%"), ascii(char)
        assert char not in SLASHES + BACKSLASHES + DOTS
    assert allowed > 60_000


SEGMENTS = [
    "a", "b.md", "notes", ".hidden", "\u00e9", "e\u0301", "\u65e5\u672c", "my file", "x" * 80,
    "..rc", "a..b", "..", ".", "...", "....", ". .", ".. ", " ..", "..;", "..\0", "..a/..", "~",
    "$HOME", "*", "con", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "%25252e%25252e", "%c0%ae%c0%ae",
    "%e0%80%ae", "%u002e", "%2e%2e%2f", "..%2f", "..%252f", "..%c0%af", "..%5c", "..\\", "\\",
    "%00", "%0a", "%", "\uff0e\uff0e", "\u2025", "\u2026", "\u2024\u2024", "\u2024.",
    "\u3002\u3002", "\u2488", "\u33c2", "\u00bd", "\u2100", "\ua4f8\ua4f8", "\ua4fa", "", " ", "\t",
    "\n", "\r", "\0", "\u202e", "\u200b", "a\u200db", "\ufeff", "\ud800", "\udfff", "\u0338",
    "\u0301", "\U0001f4dd", "\ue000", "x" * 300, "etc", "passwd", "memories", "C:", "\u3164",
    "\ufe0f", "\ufb00", "\u2163", "\u2460", "\uff46\uff55\uff4c\uff4c",
]  # fmt: skip
SEPARATORS = ["/"] * 60 + [
    "//", "/./", "/../", "\\", "%2f", "%2F", "%252f", "%25252f", "%5c", "%c0%af", "%e0%80%af",
    "\uff0f", "\u2215", "\u2044", "\u29f8", "\uff3c", "\u29f5", "/\0/", "/\u200b", "\u200b/", "/ ",
    " /",
]  # fmt: skip
STARTS = ["/memories"] * 60 + [
    "", "/", "memories", "//memories", "/memoriesfoo", "/memories.txt", "/Memories", "/memories/..",
    "/memories\\", "/memories%2f", "\uff0fmemories", "/./memories", "/etc/../memories",
    "file:///memories", "/memories\0", " /memories", "~/memories", "C:/memories", "/memories\u200b",
]  # fmt: skip


def attack(dice: random.Random) -> str:
    """Return a path of good, bad and strange pieces. One in five has a replaced character."""
    text = dice.choice(STARTS)
    for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4, 20))):
        segments = SEGMENTS[: dice.choice((11, 11, len(SEGMENTS)))]
        text += dice.choice(SEPARATORS) + dice.choice(segments)
    if dice.random() < 0.1:
        text += dice.choice(SEPARATORS)
    if dice.random() < 0.2:
        place = dice.randrange(len(text) + 1)
        letter = chr(dice.randrange(dice.choice((0x80, 0x3000, 0x110000))))
        text = text[:place] + letter + text[place:]
    return text


def decode_path(path: str) -> str:
    """Return a path as a reader sees it that decodes and folds everything."""
    for _ in range(6):
        path = normalize("NFKC", unquote(path, errors="replace"))
        path = re.sub(f"[{SLASHES}{BACKSLASHES}\\\\]", "/", path)
        path = re.sub(f"[{DOTS}]", ".", IGNORABLE.sub("", path))
    return path


def check(path: str, form: str) -> None:
    assert checked_path(form) == form
    assert form == "/memories" or form.startswith("/memories/")
    assert form == posixpath.normpath(form) == normalize("NFC", posixpath.normpath(path))
    assert form.isprintable()
    seen = decode_path(form)
    assert posixpath.normpath(seen) == seen
    assert seen.count("/") == form.count("/")
    assert len(os.fsencode(form)) < 4_096


def test_no_random_path_leads_outside_memories(tmp_path: Path) -> None:
    """Wrong: one of 100,000 paths leads outside /memories or to another file, or is no refusal."""
    dice = random.Random(20_250_818)
    root = os.path.realpath(tmp_path)
    good = 0
    for _ in range(at_length(50_000)):
        path = attack(dice)
        form = form_of(path)
        if form is None:
            continue
        good += 1
        check(path, form)
        assert os.path.realpath(root + form) == root + form
        if good % 50 == 0:
            os.makedirs(root + form, exist_ok=True)  # the file system accepts it there
    assert os.listdir(root) == ["memories"]
    assert at_length(5_000) < good < at_length(25_000)


@given(st.text(max_size=40), st.lists(st.sampled_from(SEGMENTS), max_size=4))
def test_no_path_leaves_the_memory_folder(text: str, segments: list[str]) -> None:
    """Wrong: some text leads outside /memories, or raises something else than a refusal."""
    for path in (text, f"/memories/{text}", "/".join(("/memories", text, *segments))):
        form = form_of(path)
        if form is not None:
            check(path, form)
