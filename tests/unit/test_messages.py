"""`Message` returns what it was given, and explains what it refuses."""

import json
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone
from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.formats.exact import read, written
from agent_memory.core.formats.registry import RESPONSES, _formats, form_of
from agent_memory.core.messages import ROLES, Message
from agent_memory.errors import InvalidInput, InvalidMessage
from tests.histories import histories, raw_items
from tests.kit import assistant, user

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
U = user("hi")


class Dumped:
    """An object like those of litellm and openai, as far as `Message.of` uses it."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def model_dump(self) -> Any:
        return self.fields


@given(histories())
def test_a_message_gives_back_what_it_took(messages: list[dict[str, Any]]) -> None:
    """Wrong: a field is lost, added, renamed or changed on its way in, out, or through a store."""
    for given_message in messages:
        message = Message.of(given_message)
        assert message.to_dict() == given_message
        again = Message.from_json(message.to_json(), message.created_at)
        assert again == message
        assert again.to_dict() == given_message
        assert Message.of(Dumped(given_message)).to_dict() == given_message
        assert Message.of(message) is message


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["text", "of", "to_dict", "to_json", "is_system", "model_dump", "self", "cls", "x-y", ""]


@given(st.sampled_from(ROLES), st.text())
def test_a_plain_message_is_a_role_and_a_text(role: str, text: str) -> None:
    """Wrong: a store gets text that its database cannot hold, or loses a field."""
    message = Message(role=role, content=text, created_at=NOW)
    assert message.plain is None  # its time was given explicitly
    message = Message(role=role, content=text)
    if "\0" in text or text != text.encode(errors="ignore").decode():
        assert message.plain is None
        return
    assert message.plain == text
    again = Message.of_plain(role, text, message.created_at)
    assert (again, again.to_json()) == (message, message.to_json())
    assert Message(role=role, content=text, name="ana").plain is None
    assert Message(role=role, content=text, more=1).plain is None


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, min_size=1))
def test_unknown_fields_survive_whatever_their_names(extras: dict[str, Any]) -> None:
    """Wrong: a provider field named like a method is lost, or shadows the method."""
    message = Message.of({**U, **extras})
    assert message.to_dict() == {**U, **extras}
    assert Message.from_json(message.to_json(), NOW).to_dict() == {**U, **extras}
    assert message.text() == "hi"
    assert not message.is_system


def test_metadata_and_timestamps_are_not_sent_to_providers() -> None:
    """Wrong: metadata or times are sent to a provider, which may refuse them."""
    message = Message.of({**U, "name": None, "metadata": {"n": 1}, "created_at": NOW, "seed": 7})
    assert message.to_openai() == {**U, "name": None, "seed": 7}
    assert Message.of(assistant(None)).to_openai() == assistant(None)
    own = Message.of({**U, "created_at": "2024-03-01T12:00:00+02:00"})
    assert own.created_at == datetime(2024, 3, 1, 10, tzinfo=UTC)
    assert own.to_dict()["created_at"] == "2024-03-01T12:00:00+02:00"
    assert Message.from_json(own.to_json(), NOW).created_at == own.created_at

    assert Message.of({**U, "created_at": None}).to_dict() == U
    assert Message.of({**U, "created_at": datetime(2024, 1, 1)}).created_at.tzinfo is UTC

    stored = Message.from_json(Message.of(U).to_json(), NOW)
    assert stored.created_at == NOW
    assert stored.to_dict() == U


@pytest.mark.parametrize("key", ["create_time", "timestamp"])
@pytest.mark.parametrize(
    ("said", "at"),
    [
        (1715000000.5, datetime(2024, 5, 6, 12, 53, 20, 500_000, tzinfo=UTC)),
        (1715000000500, datetime(2024, 5, 6, 12, 53, 20, 500_000, tzinfo=UTC)),
        ("1715000000", datetime(2024, 5, 6, 12, 53, 20, tzinfo=UTC)),
        ("2024-05-06T14:53:20+02:00", datetime(2024, 5, 6, 12, 53, 20, tzinfo=UTC)),
        ("2024-05-06", datetime(2024, 5, 6, tzinfo=UTC)),
    ],
)
def test_a_timestamp_field_sets_the_creation_time(key: str, said: Any, at: datetime) -> None:
    """Wrong: an old message gets today's date, or its time is changed, lost, or sent."""
    message = Message.of({**U, key: said})
    assert message.created_at == at
    assert message.to_dict() == {**U, key: said}
    assert message.to_openai() == U
    again = Message.from_json(message.to_json(), message.created_at)
    assert (again.created_at, again.to_dict()) == (at, {**U, key: said})
    own = Message.of({**U, key: said, "created_at": NOW})
    assert own.created_at == NOW
    assert Message.of({**U, key: said, "created_at": None}).created_at == at


NO_TIMES = (None, True, 12.5, "00:01:23", "12", "-12", "soon", "0001-01-01T00:00+05:00", 1e300, [1])


@pytest.mark.parametrize("said", NO_TIMES)
def test_an_invalid_timestamp_is_stored_as_an_ordinary_field(said: Any) -> None:
    """Wrong: an offset in a recording dates a message to 1970, or the message is refused."""
    before = datetime.now(UTC)
    message = Message.of({**U, "timestamp": said})
    assert message.created_at >= before
    assert message.to_dict() == {**U, "timestamp": said}


def test_a_completion_is_converted_to_its_first_choice() -> None:
    """Wrong: a completion object is not accepted as a message."""
    answer = assistant("hello")
    completion = {"id": "1", "choices": [{"index": 0, "message": answer}]}
    assert Message.of(Dumped(completion)).to_dict() == answer


ITEMS = (
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
     "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
)  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1741476542.0, "status": "completed",
    "error": None, "metadata": None, "output": [*ITEMS], "usage": {"total_tokens": 3},
}  # fmt: skip


@pytest.mark.parametrize("form", [dict, Dumped])
def test_a_response_of_the_responses_api_becomes_its_items(form: Any) -> None:
    """Wrong: a response object of OpenAI's client is refused, or loses items."""
    found = Message.all_of(form(RESPONSE))
    assert [message.raw for message in found] == [*ITEMS]
    assert {message.format for message in found} == {"openai.responses"}
    assert {message.created_at.year for message in found} == {2025}
    assert [message.text() for message in found] == ["", "Hello."]
    assert [message.to_dict() for message in Message.all_of(U)] == [U]
    (alone,) = Message.all_of(form({**RESPONSE, "output": [ITEMS[1]]}))
    assert Message.of(form({**RESPONSE, "output": [ITEMS[1]]})).raw == alone.raw


def test_an_item_has_no_fields_that_the_client_did_not_set() -> None:
    """Wrong: an item is sent back with fields that the API never returned, and refuses."""
    from openai.types.responses import Response

    given = Response.construct(**RESPONSE)
    assert [message.raw for message in Message.all_of(given)] == [*ITEMS]


@pytest.mark.parametrize("output", [[], [3], [*ITEMS]])
def test_a_response_without_one_message_raises_a_clear_error(output: list[Any]) -> None:
    """Wrong: the error does not mention the Responses API."""
    with pytest.raises(InvalidMessage, match="response of the Responses API"):
        Message.of({**RESPONSE, "output": output})


NAMELESS = "has no `role`"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, NAMELESS),
        ({"content": "hi"}, NAMELESS),
        ({"role": None, "content": "hi"}, NAMELESS),
        ({"choices": []}, NAMELESS),
        ({"choices": ["text"]}, NAMELESS),
        ({"choices": [{"message": "text"}]}, NAMELESS),
        ({"role": "robot", "content": "hi"}, "Unknown role 'robot'"),
        ({"role": ""}, "Unknown role ''"),
        ({"role": 3}, "`role` must be text"),
        ({"raw": {"kind": "mystery"}}, "needs its `format`"),
        ({"raw": "text", "format": "x"}, "`raw` must be a mapping"),
        ({"role": "user", "text": "hi"}, "The message has no `content`"),
        ({**U, "content": 3}, "`content` is of type int"),
        ({**U, "content": b"bytes"}, "`content` is of type bytes"),
        ({**U, "content": ("a", "b")}, "`content` is of type tuple"),
        ({**U, "content": {"type": "text"}}, "`content` is of type dict"),
        ({**U, "content": [{1, 2}]}, "holds a set"),
        ({**U, "content": [OrderedDict(a=1)]}, "holds a OrderedDict"),
        ({**U, "score": float("nan")}, "holds a float"),
        ({**U, "score": float("inf")}, "holds a float"),
        ({**U, "seen": NOW}, "holds a datetime"),
        ({**U, "map": {1: "a"}}, "holds a dict"),
        ({**U, "n": 10**5000}, "holds a int"),
        ({**U, "x": {"k": ["\ud83d\ude00"]}}, "split into two surrogates"),
        ({**U, "x": {"\ud83d\ude00": 1}}, "split into two surrogates"),
        ({**U, "tool_calls": {"id": "a"}}, "`tool_calls` must be a"),
        ({**U, "tool_calls": ["a"]}, "`tool_calls.0` must be a mapping"),
        ({**U, "metadata": "note"}, "`metadata` must be a mapping"),
        ({**U, "created_at": "soon"}, "`created_at` must be a"),
        ({**U, "created_at": "0001-01-01T00:00:00+05:00"}, "years 1 to 9999"),
        ({**U, 3: "x"}, "keys must be strings"),
        (None, "cannot be of type NoneType"),
        (["role", "user"], "cannot be of type list"),
        (Dumped("text"), "cannot be of type Dumped"),
        (iter([]), "as a list, such as list"),
        (Dumped({"content": "hi"}), NAMELESS),
    ],
)
def test_an_invalid_message_raises_a_clear_error(value: object, sentence: str) -> None:
    """Wrong: invalid input is stored, silently changed, or raises a foreign error."""
    with pytest.raises(InvalidMessage, match=sentence.replace("(", r"\(")):
        Message.of(value)


@pytest.mark.parametrize("where", ["x", "metadata", "content"])
def test_nesting_that_is_too_deep_is_refused(where: str) -> None:
    """Wrong: nesting too deep for the store or the encoder is accepted, and fails later."""

    def nested(depth: int) -> Any:
        value: Any = []
        for _ in range(depth):
            value = [value]
        return {"a": value} if where == "metadata" else value

    fine = {**U, where: nested(90)}
    assert Message.from_json(Message.of(fine).to_json(), NOW).to_dict() == fine
    for depth in (110, 300, 5000):
        with pytest.raises(InvalidMessage):
            Message.of({**U, where: nested(depth)})


def test_a_message_is_immutable_and_invalid_input_is_a_value_error() -> None:
    """Wrong: invalid input raises no ValueError, or a message can be changed."""
    assert issubclass(InvalidInput, ValueError)
    for fields, sentence in ({"role": "robot"}, "Unknown role"), ({**U, "content": 3}, "type int"):
        for make in (Message.of, lambda fields: Message(**fields)):
            with pytest.raises(InvalidMessage, match=sentence):
                make(fields)
    with pytest.raises(ValueError, match="frozen"):
        Message.of(U).content = "other"


@given(raw_items())
def test_a_raw_item_stays_verbatim_beside_its_view(item: dict[str, Any]) -> None:
    """Wrong: a raw item is rewritten into the chat form it is shown in."""
    message = Message.of(item)
    assert message.raw == item["raw"]
    assert message.role is None
    assert message.views() == form_of(item["format"]).to_chat(item["raw"])


def test_items_of_the_responses_api_are_shown_as_chat_messages() -> None:
    """Wrong: items of the Responses API cannot be shown to a chat model."""

    def shown(raw: dict[str, Any]) -> list[dict[str, Any]]:
        return [*form_of(RESPONSES).to_chat(raw)]

    assert shown({"type": "reasoning", "summary": []}) == []
    assert shown({"role": "model", "content": "of another API"}) == []
    assert shown({"role": "user", "parts": ["gemini"]}) == []
    output = {"type": "function_call_output", "call_id": "a", "output": [{"n": "é"}]}
    assert shown(output) == [{"role": "tool", "tool_call_id": "a", "content": '[{"n": "é"}]'}]
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x.org/a.png", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "refusal", "refusal": "no"},
        "bare",
    ]
    assert shown({"type": "message", "role": "user", "content": parts}) == [
        user(
            [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}},
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
                },
                {"type": "text", "text": "no"},
                {"type": "text", "text": "bare"},
            ]
        )
    ]


def test_system_messages_and_time_zones_are_recognized() -> None:
    """Wrong: a raw developer message is cut away with the turns."""
    assert Message.of({"role": "developer", "content": "x"}).is_system
    raw = {"type": "message", "role": "developer", "content": "x"}
    assert Message.of({"raw": raw, "format": "openai.responses"}).is_system
    assert not Message.of({"raw": {**raw, "role": "user"}, "format": "openai.responses"}).is_system
    zone = timezone(timedelta(hours=9))
    message = Message.of({**U, "created_at": datetime(2026, 1, 1, 8, tzinfo=zone)})
    assert message.created_at == datetime(2025, 12, 31, 23, tzinfo=UTC)


@given(
    st.fixed_dictionaries(
        {"role": st.sampled_from(ROLES)},
        optional={
            "content": st.none() | st.text(max_size=5) | st.just([{"type": "text", "text": "a"}]),
            "name": st.none() | st.just("Ann"),
            "tool_calls": st.none() | st.just([{"id": "1", "function": {"name": "f"}}]),
            "tool_call_id": st.none() | st.just("1"),
            "created_at": st.just("2026-01-02T03:04:05Z"),
            "metadata": st.just({"mine": 1}),
            "refusal": st.none() | st.just("no"),
        },
    )
)
def test_a_view_is_what_was_given_for_a_model(fields: dict[str, Any]) -> None:
    """Wrong: the fast path to a view drops or adds a field."""
    ours = ("created_at", "metadata")
    wanted = {key: value for key, value in fields.items() if key not in ours}
    assert Message(**fields).views() == [wanted]


@pytest.mark.parametrize(
    "value", [5, True, "text", [], [[1]], {"a": 1}, [{"type": "text", "text": 5}]]
)
@pytest.mark.parametrize("name", sorted(_formats()))
def test_a_raw_item_that_its_format_cannot_show_is_refused(name: str, value: object) -> None:
    """Wrong: an item with a field of another type is stored, and no context can be built."""
    said: dict[str, Any] = {"type": "human", "role": "user", "content": "hi"}
    items = [
        {**said, "content": value},
        {**said, "blocks": value, "parts": value, "contents": value, "tool_calls": value},
        {"role": value, "type": value, "kind": value, "content": "hi"},
        {"type": "ai", "data": {"content": value, "tool_calls": value, "name": value}},
        {"type": "function_call", "name": value, "arguments": value, "call_id": value},
    ]
    for item in items:
        try:
            message = Message(raw=item, format=name)
        except InvalidMessage as error:
            assert f"does not have the format '{name}'" in str(error)  # noqa: PT017
            continue
        for view in message.views():
            assert isinstance(view["content"], str | list | None)
            Message(**view).text()


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.binary(),
    st.text(), st.just("\u0001exact"), st.just("\ud800"),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda some: st.one_of(
        st.lists(some, max_size=4),
        st.lists(some, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.binary()), some, max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_values_survive_json(value: Any) -> None:
    """Wrong: a value comes back changed, or cannot be written as JSON."""
    assert read(json.loads(json.dumps(written(value), allow_nan=False))) == value


def test_special_values_can_be_written() -> None:
    """Wrong: infinity or NaN makes a write fail."""
    for value in (float("inf"), float("-inf"), {1: {2: b""}}, ["\u0001exact", "int", "z"]):
        assert read(written(value)) == value
    assert repr(read(written(-0.0))) == "-0.0"
    assert isnan(read(written(float("nan"))))
    assert read(written(object))
