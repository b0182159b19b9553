"""The contract suite on the example store on DuckDB, as the author of a store runs it."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from agent_memory.stores.base import Store
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.testing import StoreContract
from tests.contract.whole_deletion_contract import WholeDeletionContract

EXAMPLE = Path(__file__).parents[2] / "examples" / "duckdb_store.py"

spec = spec_from_file_location("duckdb_store", EXAMPLE)
assert spec.loader is not None
example = module_from_spec(spec)
spec.loader.exec_module(example)


class TestDuckDBStore(StoreContract, WholeDeletionContract):
    """The example keeps the contract."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = KernelStore(example.DuckDBKernel(str(tmp_path / "memory.duckdb")))
        yield store
        store.close()

    @pytest.fixture
    def elsewhere(self, tmp_path: Path, store: Store) -> Iterator[Store]:
        kernel = example.DuckDBKernel(str(tmp_path / "memory.duckdb"), "elsewhere")
        yield KernelStore(kernel)
        kernel.close()


def test_another_process_can_read_the_stored_messages(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.duckdb")
    write = (
        f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r})\n"
        "from duckdb_store import AgentMemory, DuckDBKernel, KernelStore\n"
        f"memory = AgentMemory(store=KernelStore(DuckDBKernel({path!r})), blocks=[])\n"
        "memory.update('monday', 'I moved to Lisbon.')\n"
        "import os; os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", write], check=False)
    assert done.returncode == 9
    store = KernelStore(example.DuckDBKernel(path))
    try:
        assert [entry.message.text() for entry in store.read("monday")] == ["I moved to Lisbon."]
    finally:
        store.close()


def test_the_duckdb_example_has_fewer_than_300_lines() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 300
