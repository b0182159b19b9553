"""Skill files: parsed, refused by line, and written so that they are read unchanged."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.skills import BrokenSkill, Skill
from agent_memory.ltm_blocks.skills.files import checked, parse, render, rendered
from tests.kit import at_length

MOST = 100_000

TEXTS = st.text(max_size=40) | st.text(
    alphabet=" \n\t-:#'\"a|>&*!?[]{},\\\u2028\x85\r\ufeff\x00" + "1.", max_size=30
)
SPOKEN = TEXTS.filter(lambda text: bool(text.strip()))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS | st.dates()
EXTRA = st.dictionaries(
    TEXTS.filter(lambda key: key not in ("name", "description", "tags", "steps")),
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
SKILLS = st.builds(
    Skill,
    name=st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True).filter(
        lambda name: name not in ("con", "prn", "aux", "nul")
    ),
    description=SPOKEN,
    steps=st.lists(TEXTS, max_size=4).map(tuple),
    tags=st.lists(TEXTS, max_size=4).map(tuple),
    body=TEXTS,
    extra=EXTRA,
)
PIECES = st.lists(
    st.sampled_from(
        [
            *("---\n", "---", "name: a\n", "name: ", "description: b\n", "description: ", "x"),
            *("steps:\n", "steps: ", "tags: ", "- ", "- x\n", "1. ", "2. x\n", "  y\n", "? ", "="),
            *("[", "]", "{", "}", ":", ",", "#", "&a", "*a", "!", "!!int", "|", "|-\n", ">", "@"),
            *(" ", "\n", "\t", "\r", '"', "'", "%", "`", "\\ud800", "\\0", "...\n", "<<: "),
            *("2024-02-31", "0b_", "1:60:0.5", "\x00", "\ufeff", "\u2028", "\udcff"),
        ]
    ),
    max_size=25,
).map("".join)
FILES = st.binary(max_size=80) | st.one_of(
    PIECES, PIECES.map(lambda text: f"---\nname: a\ndescription: b\n{text}\n---\n")
).map(lambda text: text.encode("utf-8", "surrogateescape"))


def read(text: str) -> Skill:
    skill = parse(text.encode(), "file.md")
    assert isinstance(skill, Skill), skill
    return skill


@given(SKILLS)
def test_what_is_saved_is_read_as_the_same(skill: Skill) -> None:
    """Wrong: a text with a colon, a quote or another line end is refused, or comes back changed."""
    kept = checked(skill, MOST)
    assert parse(render(kept), "file.md") == kept
    assert checked(kept, MOST) == kept
    assert kept.description.split() == skill.description.replace("\r", "\n").split()
    assert kept.extra == skill.extra


@settings(max_examples=at_length(250))
@given(FILES)
def test_any_bytes_are_a_skill_or_are_broken_at_a_line(data: bytes) -> None:
    """Wrong: a file raises, or its error names a line that does not exist."""
    said = parse(data, "file.md")
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
    if isinstance(said, BrokenSkill):
        assert said.file == "file.md"
        assert 1 <= said.line <= lines
        assert said.problem
    else:
        assert parse(render(said), "file.md") == said


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "begin with a line ---"),
        ("# Deploy\n", 1, "begin with a line ---"),
        ("---\nname: a\ndescription: b\n", 1, "does not end"),
        ("---\n---\n", 1, "`name` is missing"),
        ("---\nname: a\n---\n", 1, "`description` is missing"),
        ("---\nname: a\ndescription:\n---\n", 3, "`description` is empty"),
        ("---\nname: [a]\ndescription: b\n---\n", 2, "`name` is not a text"),
        ("---\nname: a\n\ndescription: Use when: x\n---\n", 4, "mapping values are not allowed"),
        ('---\nname: a\ndescription: "b\ntags: []\n---\n', 5, "part that begins in line 3"),
        ("---\nname: a\n\tdescription: b\n---\n", 3, "character '\\t'"),
        ("---\nname: A b\ndescription: c\n---\n", 2, "`name` has to be up to 64"),
        ("---\nname: a/../b\ndescription: c\n---\n", 2, "`name` has to be up to 64"),
        ("---\nname: nul\ndescription: c\n---\n", 2, "a Windows device"),
        ("---\nname: a\ndescription: b\ntags: x, y\n---\n", 4, "`tags` is not a list"),
        ("---\nname: a\ndescription: b\nsteps:\n- x\n- Run: y\n---\n", 6, "This item of `steps`"),
        ("---\nname: a\ndescription: b\nname: c\n---\n", 4, "is repeated here"),
        ("---\n- a\n---\n", 2, "the form `name: value`"),
        ("---\nname: a\ndescription: b\n[c]: d\n---\n", 4, "This key is not a word"),
        ("---\nname: a\ndescription: b\nwhen: 2024-02-31\n---\n", 4, "Put it in quotes"),
        ("---\nname: a\ndescription: b\nwhen: 0b_\n---\n", 4, "Put it in quotes"),
        ("---\nname: a\ndescription: &b c\n---\n", 3, "& and *"),
        ("---\nname: a\ndescription: b\nx: *name\n---\n", 4, "& and *"),
        ("---\nname: a\ndescription: !!binary b\n---\n", 3, "Tags (!) are not"),
        ("---\nname: a\ndescription: b\nx: !!python/name:os.system y\n---\n", 4, "Tags (!)"),
        ('---\nname: a\ndescription: "\\ud800"\n---\n', 3, "surrogate"),
        ("---\nname: a\ndescription: b\x07\n---\n", 3, "a control character"),
        ('---\nname: a\ndescription: "b\u2028c\u0085d"\ntags: e: f\n---\n', 4, "mapping values"),
    ],
)
def test_a_broken_skill_names_the_line_and_the_problem(text: str, line: int, problem: str) -> None:
    """Wrong: the error names a wrong line, or does not say what is wrong."""
    broken = parse(text.encode(), "deploy.md")
    assert isinstance(broken, BrokenSkill)
    assert (broken.line, problem in broken.problem) == (line, True), broken
    assert str(broken).startswith(f"deploy.md, line {line}: ")


def test_hostile_skill_files_are_refused_with_a_line() -> None:
    """Wrong: another encoding, a YAML alias bomb or deep nesting raises or hangs."""
    broken = parse("---\r\nname: a\r\ndescription: caf\xe9\r\n---\r\n".encode("latin-1"), "file.md")
    assert isinstance(broken, BrokenSkill)
    assert (broken.line, "UTF-8" in broken.problem) == (3, True)
    assert isinstance(parse("---\nname: a\n".encode("utf-16"), "file.md"), BrokenSkill)
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    for text in (bomb, "x: " + "[" * 90_000, "x: " + "{a: " * 20_000, "- " * 40_000, "? " * 40_000):
        said = parse(f"---\nname: a\ndescription: b\n{text}\n---\n".encode(), "file.md")
        assert isinstance(said, BrokenSkill)
        assert said.line == 4


def test_a_skill_file_of_another_program_is_accepted() -> None:
    """Wrong: a SKILL.md of other programs is refused, or loses its licence."""
    text = """---
name: pdf-processing
description: Extract PDF text, fill forms, merge files. Use when handling PDFs.
license: Apache-2.0
metadata:
  author: example-org
  version: "1.0"
allowed-tools: Bash(git:*) Read
revision: 2
---

# PDF processing

Read the file first:

1. With pypdf.
2. With OCR.
"""
    skill = read(text)
    extra: dict[str, Any] = {
        "license": "Apache-2.0",
        "metadata": {"author": "example-org", "version": "1.0"},
        "allowed-tools": "Bash(git:*) Read",
        "revision": 2,
    }
    assert (skill.name, skill.extra, skill.steps) == ("pdf-processing", extra, ())
    assert skill.body.startswith("# PDF processing\n\nRead the file first:\n\n1. With pypdf.")
    again = read(render(replace(skill, steps=("Read it.",))).decode())
    assert (again.extra, again.body) == (skill.extra, skill.body)


def test_steps_tags_and_line_ends_of_plain_markdown_are_read() -> None:
    """Wrong: steps in plain Markdown are not recognized, or tags and line ends are changed."""
    skill = read(
        "---\nname: a\ndescription: b\n---\n\n# Deploy\n\n1. Run the tests\nand wait.\n\n"
        "2) Tag it:\n\n   ```sh\n   git tag\n     -v\n   ```\n   1. or ask\n\n10. Tell all.\n"
        "\n## Notes\n\n1. Not a step.\n"
    )
    assert skill.steps == (
        "Run the tests\nand wait.",
        "Tag it:\n\n```sh\ngit tag\n  -v\n```\n1. or ask",
        "Tell all.",
    )
    assert skill.body == "# Deploy\n\n## Notes\n\n1. Not a step."
    for steps, expected in (("steps: [x]", ("x",)), ("steps: []", ()), ("steps:", ())):
        skill = read(f"---\nname: a\ndescription: b\n{steps}\n---\n1. y\n")
        assert (skill.steps, skill.body) == (expected, "1. y")
    text = "---\nname: 007\ndescription: 1.0\ntags: [2024, no, ~, 2024-01-01]\n---\n"
    skill = read(text)
    assert (skill.name, skill.description) == ("007", "1.0")
    assert skill.tags == ("2024", "no", "~", "2024-01-01")
    text = "---\nname: a\ndescription: b\nsteps:\n- |\n  x\n  y\n---\n\nOne.\n\nTwo.\n"
    windows = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    assert parse(windows, "file.md") == parse(text.encode(), "file.md") == read(text)


@pytest.mark.parametrize(
    "name",
    [
        *("", "A", "a b", "../a", "a/b", "a\\b", ".a", "-a", "a.md", "\u00e9", "a" * 65, "con"),
        *("lpt1", "a\n", "/etc/passwd", "a\x00", "\u0430"),
    ],
)
def test_unsafe_skill_names_are_refused(name: str) -> None:
    """Wrong: a name is a path, a device, or equal to another one on some file system."""
    with pytest.raises(InvalidInput, match="is not a skill name"):
        checked(Skill(name, "b"), MOST)


@pytest.mark.parametrize(
    ("skill", "told_so"),
    [
        (Skill("a", " \n"), "description is missing"),
        (Skill("a", "\ud800"), "cannot be saved"),
        (Skill("a", "b", body="\ud800"), "cannot be saved"),
        (Skill("a", "b", extra={"name": "other"}), "cannot be saved"),
        (Skill("a", "b", extra={"x": object()}), "YAML cannot represent"),
        (Skill("a", "b", extra={"x": (1, 2)}), "cannot be saved"),
        (Skill("a", "b", steps="Run."), "a list of texts"),  # type: ignore[arg-type]
        (Skill("a", "b", tags="ops"), "a list of texts"),  # type: ignore[arg-type]
        (Skill("a", "b", tags=(1,)), "a list of texts"),  # type: ignore[arg-type]
        (Skill("a", "b", steps=(None,)), "a list of texts"),  # type: ignore[arg-type]
        (Skill("a", 1), "Give a text"),  # type: ignore[arg-type]
        (Skill("a", "b", body=2), "Give a text"),  # type: ignore[arg-type]
        (Skill("a", "b", body="x" * MOST), "the maximum is 100000"),
    ],
)
def test_a_skill_that_a_file_cannot_represent_is_refused(skill: Skill, told_so: str) -> None:
    """Wrong: a skill is saved that comes back changed or broken."""
    with pytest.raises(InvalidInput, match=told_so):
        checked(skill, MOST)


def test_a_skill_is_rendered_readably() -> None:
    """Wrong: a step of several lines is flattened, or looks like several steps."""
    skill = Skill(
        "a", "Es grünt.", ("One\n  two", "x: y"), ("t",), "Body.", {"on": date(2024, 1, 2)}
    )
    assert render(skill).decode() == (
        "---\nname: a\ndescription: Es grünt.\ntags:\n- t\nsteps:\n- |-\n  One\n    two\n- 'x: y'\n"
        "'on': 2024-01-02\n---\n\nBody.\n"
    )
    skill = Skill("a", "Do b.", ("One\ntwo", "three"), ("t",), "More.")
    assert rendered(skill) == "a: Do b.\n1. One\n   two\n2. three\n\nMore."
    assert rendered(Skill("a", "Do b.")) == "a: Do b."
