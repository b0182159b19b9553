"""Files and lines without an end, such as a device: each reader refuses them with an error."""

import io
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Deployment, operations
from agent_memory.cli import importing
from agent_memory.config import sources
from agent_memory.engine.transfer import snapshot
from agent_memory.errors import ConfigError, InvalidInput, InvalidSnapshot
from agent_memory.mcp.http import Tokens
from tests.kit import invoke

ENDLESS = Path("/dev/zero")
pytestmark = pytest.mark.skipif(not ENDLESS.exists(), reason="needs a device without an end")


def test_an_endless_settings_file_is_refused(tmp_path: Path) -> None:
    """Wrong: reading settings from an endless file uses up the memory."""
    for name in ("c.toml", "c.json", "c.yaml"):
        (tmp_path / name).symlink_to(ENDLESS)
        for read in (AgentMemoryConfig.from_file, Deployment.from_file):
            with pytest.raises(ConfigError, match="more than 16 MiB"):
                read(tmp_path / name)
    for name in ("c.toml", "c.json"):
        with pytest.raises(ConfigError, match="more than 16 MiB"):
            Tokens.read(tmp_path / name)
    assert sources.read_text(Path(__file__), "this").startswith('"""Files')


def test_an_endless_receipt_is_refused(tmp_path: Path) -> None:
    """Wrong: `verify` of an endless or missing file uses up the memory, or ends in a traceback."""
    store = f"sqlite:///{tmp_path / 'memory.db'}"
    AgentMemory(store=store).close()
    (tmp_path / "none").mkdir()
    for receipt in (ENDLESS, tmp_path / "none", tmp_path / "not there"):
        done = invoke(["verify", "--store", store, str(receipt)])
        assert done.exit_code == 1
        assert "Cannot read the receipt" in done.stderr


def test_an_endless_snapshot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: restoring an endless file uses up the memory, or a valid long line is refused."""
    whole = io.StringIO()
    with AgentMemory(store="memory://") as memory:
        memory.update("s", {"role": "user", "content": "a long message " * 10_000})
        memory.session("s").export(whole)
    text = whole.getvalue()
    (tmp_path / "s.jsonl").write_text(text, encoding="utf-8")
    with AgentMemory(store="memory://", max_message_bytes=1_000) as memory:
        for source in (ENDLESS, str(ENDLESS)):
            with pytest.raises(InvalidSnapshot, match="line 1: this is not the beginning"):
                operations.import_session(memory, source)
        with ENDLESS.open(encoding="utf-8") as file, pytest.raises(InvalidSnapshot, match="line 1"):
            operations.import_session(memory, file)
        monkeypatch.setattr(snapshot, "_LONGEST", 10_000)
        for source in (tmp_path / "s.jsonl", io.StringIO(text)):
            with pytest.raises(InvalidSnapshot, match="longer than 10,000"):
                operations.import_session(memory, source)
        assert memory.sessions() == []
    with AgentMemory(store="memory://") as memory:  # with a larger limit
        assert operations.import_session(memory, tmp_path / "s.jsonl").end == 1


def test_endless_conversations_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: importing an endless file or line uses up the memory."""
    with pytest.raises(InvalidInput, match="zero: not a regular file"):
        importing.read_lines(ENDLESS)
    file = tmp_path / "c.jsonl"
    file.write_text(f'{{"role": "user", "content": "{"x" * 99_000}"}}\n' * 2)
    assert len(importing.read_lines(file)) == 2
    monkeypatch.setattr(importing, "_LONGEST", 90_000)
    with pytest.raises(InvalidInput, match="line 1: longer than 90,000 bytes"):
        importing.read_lines(file)
