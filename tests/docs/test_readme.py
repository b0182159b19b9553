"""README, CONTRIBUTING and docs/ are correct: code, links, paths and the tests that they name."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from inspect import getmembers, isfunction
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter
from typer.core import TyperGroup

from agent_memory import AgentMemory, AgentMemoryConfig
from agent_memory.core.plugins import BUILT_IN, find_kind
from tests.kit import command_line

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALL_PAGES = [
    *PAGES,
    ROOT / "AGENTS.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "benchmarks").glob("*.md")),
]

_COMMENT = re.compile(r"<!-- (not run|file): (.+) -->")
_LINK = re.compile(r"\]\(([^)#\s]+)")


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page: its language, lines, first line number and comment."""

    language: str
    lines: tuple[str, ...]
    line: int
    comment: tuple[str, str] | None


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def snippets(page: Path) -> list[Snippet]:
    found: list[Snippet] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        comment = _COMMENT.fullmatch(lines[start - 1])
        body = tuple(lines[start + 1 : number])
        language = lines[start].removeprefix("```")
        given = (comment[1], comment[2]) if comment else None
        found.append(Snippet(language, body, start + 1, given))
        start = None
    assert start is None, f"{named(page)}: a block is not closed"
    return found


def as_python(snippet: Snippet) -> list[str]:
    """Return the snippet as Python with as many lines, so that tracebacks match the page."""
    if snippet.comment and snippet.comment[0] == "not run":
        return []
    if snippet.language == "python":
        return list(snippet.lines)
    text = "\n".join(snippet.lines)
    if snippet.comment:
        return [f"__import__('pathlib').Path({snippet.comment[1]!r}).write_text({text!r})"]
    if snippet.language == "sh" and all(line.startswith("export ") for line in snippet.lines):
        pairs = (shlex.split(line)[1].split("=", 1) for line in snippet.lines)
        return [f"__import__('os').environ[{name!r}] = {value!r}" for name, value in pairs]
    return []


def script(page: Path) -> str:
    """Return the page as a program, with empty lines for text."""
    lines: list[str] = []
    for snippet in snippets(page):
        lines += [""] * (snippet.line - len(lines)) + as_python(snippet)
    return "\n".join(lines) + "\n"


def run(program: str, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / name
    file.write_text(program, encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_MEMORY_")}
    env["AGENT_MEMORY_RECALL_TIMEOUT"] = "60"  # a busy machine
    command = [sys.executable, file.name]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("page", [page for page in PAGES if script(page).strip()], ids=named)
def test_code_runs(page: Path, tmp_path: Path) -> None:
    """Wrong: a reader who runs the page's code in order gets an error."""
    done = run(script(page), page.stem + "_page.py", tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    """Wrong: the example prints something else than the README shows."""
    first = {one.language: "\n".join(one.lines) for one in reversed(snippets(PAGES[0]))}
    done = run(first["python"], "readme_example.py", tmp_path)
    printed, shown = (
        re.sub(r"\d{4}-\d\d-\d\d", "", text)
        for text in (ast.literal_eval(done.stdout)[0]["content"], first["text"])
    )
    assert printed == shown


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_code_that_is_not_run_compiles(page: Path) -> None:
    """Wrong: code that is not run here is no valid Python."""
    for snippet in snippets(page):
        if snippet.language == "python":
            compile("\n".join(snippet.lines), f"{named(page)}:{snippet.line}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_settings_parse(page: Path) -> None:
    """Wrong: a block of TOML, YAML or JSON is not valid."""
    parse = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
    for snippet in snippets(page):
        if snippet.language in parse:
            assert parse[snippet.language]("\n".join(snippet.lines))


def test_a_failing_code_block_fails_its_page(tmp_path: Path) -> None:
    """Wrong: a failing block is skipped, so every page passes."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nfirst = 1\n```\n\n```python\nassert first == 2\n```\n")
    done = run(script(page), "page.py", tmp_path)
    assert done.returncode == 1
    assert "line 8" in done.stderr


@pytest.mark.parametrize("page", ALL_PAGES, ids=named)
def test_links_resolve(page: Path) -> None:
    """Wrong: a link leads to a missing file."""
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "fewest"), [("docs/glossary", 20), ("docs/architecture", 30), ("CONTRIBUTING", 16)]
)
def test_the_paths_below_the_package_exist(page: str, fewest: int) -> None:
    """Wrong: a page names a file that has moved."""
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    paths = re.findall(r"`(?!.*/NAME)((?:agent_memory/|tests/)?[a-z_]+/[\w/.]*)`", text)
    assert len(paths) >= fewest
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "agent_memory" / path).exists(), path


def test_the_glossary_is_short() -> None:
    """Wrong: the glossary has more than twenty terms."""
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("| --- |")[-1]
    assert len(rows.strip().splitlines()) <= 20


def test_the_pages_are_short() -> None:
    """Wrong: the README and the pages of docs/ have more than 45,000 words."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 45_000


def commands() -> list[str]:
    """Return every command of the command line, including those of groups."""
    top = command_line()
    assert isinstance(top, TyperGroup)
    found: list[str] = []
    for name, command in top.commands.items():
        inner = command.commands if isinstance(command, TyperGroup) else {"": command}
        found += [f"{name} {sub}".strip() for sub in inner]
    return found


def test_the_reference_names_exactly_the_existing_commands() -> None:
    """Wrong: the reference lacks a command, or names one that does not exist."""
    page = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    told = re.findall(r"^## agent-memory ([a-z]+(?: [A-Za-z]+)?)$", page, re.MULTILINE)
    assert sorted(told) == sorted(commands())


def test_readme_is_short() -> None:
    """Wrong: the README has more than 900 words."""
    assert len(README.split()) <= 900


def test_the_index_names_every_page() -> None:
    """Wrong: a page is not linked from the index."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {target for target in _LINK.findall(index) if "/" not in target} == pages


@pytest.mark.parametrize("page", ALL_PAGES, ids=named)
def test_commands_exist(page: Path) -> None:
    """Wrong: a page names a command that does not exist."""
    known = {command.split()[0] for command in commands()}
    text = page.read_text(encoding="utf-8")
    typed = re.findall(r"(?:`|bin/)agent-memory ([a-z]+)", text)
    assert set(typed) <= known


def test_every_call_is_in_the_reference() -> None:
    """Wrong: the reference lacks a public method, or names one that does not exist."""
    page = (REFERENCE / "memory.md").read_text(encoding="utf-8")
    told = re.findall(r"^### AgentMemory\.([a-z_]+)$", page, re.MULTILINE)
    calls = [name for name, _ in getmembers(AgentMemory, isfunction) if name[0] != "_"]
    assert set(calls) <= set(told)
    assert all(hasattr(AgentMemory, name) for name in told)


def test_every_field_is_documented() -> None:
    """Wrong: docs/configuration.md lacks a setting, or has another default."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for name, field in AgentMemoryConfig.model_fields.items():
        row = re.search(rf"^\| `{name}` \| `(.+?)` \|", page, re.MULTILINE)
        assert row, name
        given = TypeAdapter(field.annotation).validate_python(ast.literal_eval(row[1]))
        assert given == field.default, name
    shared = "".join(re.findall(r"^Common fields .+?$\n\n", page, re.MULTILINE | re.DOTALL))
    for group, kinds in BUILT_IN.items():
        for kind in kinds:
            row = re.search(rf"^\| `{kind}` \|.*$", page, re.MULTILINE)
            assert row, kind
            blocks = group.endswith("ltm_blocks")
            common = {"kind", "name", "max_tokens", "store"} if blocks else {"kind"}
            for name in set(find_kind(group, kind).model_fields) - common:
                assert f"`{name}`" in row[0] + shared, f"{kind}.{name}"


PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def test_every_promise_names_a_test() -> None:
    """Wrong: a promise in docs/guarantees.md names no test."""
    promises = PAGE.split("\n### ")[1:]
    assert len(promises) > 60
    for promise in promises:
        assert re.search(r"^Tests: `", promise, re.MULTILINE), promise[:80]
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_named_by_a_promise_exists(file: str, name: str) -> None:
    """Wrong: a test that a promise names was renamed or removed."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *(async )?def {name}\(|^{name}\b", text, re.MULTILINE)


FEATURES = re.findall(
    r"`((?:\w+/)+\w+\.py)(?: -k (\w+|\"[^\"]+\"))?`",
    (ROOT / "docs" / "features.md").read_text(encoding="utf-8"),
)


def test_every_feature_names_a_test() -> None:
    """Wrong: a row in docs/features.md names no test."""
    page = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    assert all(".py" in row or row.startswith("| need") for row in rows)
    assert len(FEATURES) > 25


@pytest.mark.parametrize(("file", "words"), FEATURES)
def test_a_test_named_by_a_feature_exists(file: str, words: str) -> None:
    """Wrong: the command in a row runs no test."""
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    named = re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)
    for word in words.strip('"').split(" or ") if words else ["test"]:
        assert any(word in name for name in named) or word in text, word
