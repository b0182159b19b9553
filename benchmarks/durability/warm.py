"""Imported by the fork server, so that slow imports and first calls run once for all processes."""

from tempfile import TemporaryDirectory

from agent_memory.testing import FakeLLM
from benchmarks.durability import child, races  # noqa: F401 - loaded for the children
from benchmarks.durability.site import Site, finder

with FakeLLM(finder()) as _model, TemporaryDirectory() as _folder:
    _site = Site(f"sqlite:///{_folder}/warm.db", "warm", _model.api_base)
    _store = _site.store()
    with _site.memory(_store) as _memory:
        _memory.update("s", {"role": "user", "content": "Hello."})
        _memory.flush("s")
        _memory.get("s")
        _memory.delete("s")
    _store.close()
