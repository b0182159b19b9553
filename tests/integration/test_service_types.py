"""Every route of the service with a value of each other JSON type in each of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from agent_memory.server.calls import OPERATIONS
from tests.integration.serving import BY_NAME, fill, sample, serving
from tests.kit import every_nth

VALUES: list[Any] = [None, True, 5, -1, 1.5, 10**30, "text", "", [], [[1]], {}, {"a": {"b": []}}]
ALL = [one.name for one in OPERATIONS]
GROUPS = [ALL[at::2] for at in range(2)]


def edited(value: Any) -> Iterator[Any]:
    """A value with one of each other type in the place of each of its parts."""
    yield from (one for one in VALUES if type(one) is not type(value) or one in ([], {}, ""))
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        for changed in edited(one):
            copy = deepcopy(value)
            copy[key] = changed
            yield copy


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_a_field_of_another_type_is_refused(tmp_path: Path, names: list[str]) -> None:
    """Fails if 500 for what was sent, or a call that does something else with it."""
    failed: list[Any] = []
    with serving(tmp_path) as service:
        fill(service)
        own = service.key("ana"), service.key("*", rights="admin")
        for name in names:
            for field in BY_NAME[name].form.model_fields:
                given = sample(service, name, "ana")
                for value in every_nth(edited(given.get(field)), 7):
                    if field in BY_NAME[name].in_path and not isinstance(value, str | int):
                        continue
                    key = own[not BY_NAME[name].of_user]
                    status = service.call(name, key, {**given, field: value}).status
                    if status >= 500 and status not in (501, 502):  # not configured, no model
                        failed.append((name, field, value, status))
    assert failed == []
