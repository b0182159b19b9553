"""From the line of a value back to its record, as `KeyValues` would have kept it."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from typing import Any

from agent_memory.core.limits import text_of
from agent_memory.core.records import Record
from agent_memory.engine.transfer.snapshots.forms import MeaningForm, ValueForm
from agent_memory.engine.values.items import checked, id_of, own_root, owner_of
from agent_memory.errors import InvalidInput
from agent_memory.ltm_blocks.keyed_records import plain_json

_FLOAT = 4  # bytes


def value_of(form: ValueForm, session_id: str) -> Record:
    """The record of a value of a session's own.

    Raises:
        InvalidInput: `KeyValues` would not have kept it so.
    """
    namespace, key = checked(form.namespace), text_of("key", form.key)
    if (form.ttl is None) != (form.until is None):
        raise InvalidInput("its `ttl` and its `until` do not say the same.")
    metadata: dict[str, Any] = {
        "ns": list(namespace),
        "value": plain_json(_read(form.value), "The value"),
        "begun": form.begun.isoformat(),
    }
    if form.until is not None:
        metadata |= {"ttl": form.ttl, "until": form.until.isoformat()}
    if form.meaning is not None:
        metadata["vectors"] = _vectors(form.meaning)
    owner = owner_of(own_root(session_id), namespace)
    return Record(id_of(owner, key), owner, session_id, 0, 0, key, (), form.at, metadata)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("its `value` is no JSON.") from None


def _vectors(form: MeaningForm) -> list[Any]:
    import numpy as np

    try:
        raw = b64decode(form.vectors, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("its `vectors` are not base64.") from None
    if not raw or len(raw) % (_FLOAT * form.count):
        raise InvalidInput("its `vectors` are not as many as they say.")
    if not np.isfinite(np.frombuffer(raw, np.float32)).all():
        raise InvalidInput("its `vectors` are not numbers.")
    return [form.embedder, b64encode(raw).decode(), form.count]
