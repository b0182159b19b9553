"""Where each setting of a store comes from: the file's top, the store's table, the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_memory.cli.config_mistakes import Path, place
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.config.sources import NESTED, PREFIX, from_environment, merged
from agent_memory.engine.deployment import STORES, store_prefix

_FIELD = re.compile(r'field "(\w+)"')


@dataclass(frozen=True, slots=True)
class Layers:
    """The settings of one store, by where they come from.

    Attributes:
        store: Its name; None in a file without a table of stores.
        top: What stands at the top of the file.
        own: What stands in the store's own table.
        everywhere: What the environment says for all stores.
        here: What it says for this one.
    """

    store: str | None
    top: Mapping[str, Any]
    own: Mapping[str, Any]
    everywhere: Mapping[str, Any]
    here: Mapping[str, Any]

    @classmethod
    def of(cls, store: str | None, top: Mapping[str, Any], own: Mapping[str, Any]) -> Layers:
        """The layers of a store of a file; the environment is read."""
        here = _environment(store_prefix(store)) if store is not None else {}
        return cls(store, top, own, _environment(PREFIX), here)

    def settings(self) -> dict[str, Any]:
        """All of it, as `Deployment.from_file` puts it together."""
        environment = merged(dict(self.everywhere), dict(self.here))
        return merged({**self.top, **self.own}, environment)

    def place(self, path: Path) -> str:
        """Where people find what stands at a path of the settings."""
        variable = place(path).replace(".", NESTED).upper()
        table = (STORES, self.store) if self.store is not None else ()
        layers: list[tuple[Mapping[str, Any], str]] = [
            (self.here, store_prefix(self.store or "") + variable),
            (self.everywhere, PREFIX + variable),
            (self.own, place((*table, *path))),
            (self.top, place(path)),
        ]
        for depth in (path, path[:1]):
            for layer, told in layers:
                if depth and _holds(layer, depth):
                    return told
        return place((*table, *path))


def _environment(prefix: str) -> dict[str, Any]:
    """What the environment says; a list or table that is not JSON is text, and so a mistake."""
    from pydantic_settings import SettingsError

    texts: dict[str, str] = {}
    while True:
        try:
            return {**from_environment(AgentMemoryConfig, prefix, texts), **texts}
        except SettingsError as error:
            field = _FIELD.search(str(error))
            assert field, "pydantic-settings names the field"
            texts[field[1]] = "not JSON"


def _holds(table: Any, path: Path) -> bool:
    for part in path:
        try:
            table = table[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True
