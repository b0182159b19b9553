"""Requests that have nothing to do with any conversation of the data, and small talk.

A memory has nothing to add to them, and should recall nothing.
"""

import json
from pathlib import Path

_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

FOREIGN: tuple[str, ...] = tuple(_DATA["foreign"])
SMALL_TALK: tuple[str, ...] = tuple(_DATA["small_talk"])
