"""The tests of the engine that are run over the service too, by its client: `pytest --service`.

They are the modules of `tests/integration` that call a memory as users do. What looks inside one,
or is about what no wire carries, is named here, with the why.
"""

import sys

import pytest

_INSIDE = "it looks inside the memory, at its blocks, its store or its settings"
_WATCHED = "it stops the store in the middle of a call, and the client tries again"
_OPENED = "a handle is opened without asking; its first call says what is wrong"
_NOT_JSON = "a number that JSON does not have cannot be sent"

MODULES: dict[str, dict[str, str]] = {
    "engine": {},
    "explain": {},
    "listing": {},
    "resent": {},
    "search_filters": {},
    "surplus": {},
    "turns": {
        "test_a_failing_store_stores_all_or_nothing": _WATCHED,
        "test_a_turn_is_stored_although_the_window_moved_meanwhile": _INSIDE,
    },
    "values": {},
    "once": {"test_an_agent_whose_first_write_was_retried_is_redacted": _INSIDE},
    "notes": {
        "test_notes_relevant_to_the_question_are_recalled": _INSIDE,
        "test_notes_are_found_by_words_during_an_embedder_outage": _INSIDE,
        "test_deleted_texts_leave_the_cache": _INSIDE,
    },
    "working": {
        "test_only_contexts_of_the_session_show_its_scratchpad": _INSIDE,
        "test_the_value_changed_last_is_shown_first": _INSIDE,
        "test_a_model_reads_and_writes_the_scratchpad": _NOT_JSON,
        "test_a_settings_file_can_name_the_scratchpad_block": _OPENED,
    },
    "bound_sessions": {"test_an_owner_handle_checks_the_session_on_each_call": _OPENED},
}
"""The modules, and for each the tests that are left out, with the why."""


def chosen(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that are run over the service, and those that are not; from here on their modules
    open memories behind one."""
    kept, left = [], []
    for item in items:
        module = item.path.stem.removeprefix("test_")
        name = getattr(item, "originalname", item.name)
        wanted = module in MODULES and name not in MODULES[module]
        (kept if wanted else left).append(item)
    _replace()
    return kept, left


def _replace() -> None:
    from tests.integration.remotely import FACES

    for name, module in list(sys.modules.items()):
        if name.startswith("tests.integration.") and name != "tests.integration.remotely":
            for attribute, value in list(vars(module).items()):
                if isinstance(value, type) and value in FACES:
                    setattr(module, attribute, FACES[value])
