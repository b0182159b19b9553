"""With `redact`, no part of a memory contains secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, FlushToLTM, Redactor, Summarize, VectorMemory, WorkingMemory
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks import FileMemory, NoteMemory, SpatialMemory

IBAN, PASSWORD, MAIL = "DE89 3704 0044 0532 0130 00", "hunter2!x", "ana@example.org"
SAID = f"My account is {IBAN}, my password is {PASSWORD}, write to {MAIL}."
TOLD = "My account is [iban], my password is [password], write to [email]."
SECRETS = (IBAN, PASSWORD, MAIL, "0532 0130")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Pay to DE89370400440532013000 now", "Pay to [iban] now"),
        ("gb82 west 1234 5698 7654 32.", "[iban]."),
        ("DE88 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00"),  # wrong check digits
        ("The password is swordfish.", "The password is [password]."),
        ("password: 'two words'; ok", "password: [password]; ok"),
        ("My PIN is 4711, remember", "My PIN is [password], remember"),
        ("Mein Passwort lautet Geheim12.", "Mein Passwort lautet [password]."),
        ("my password is: hunter2", "my password is: [password]"),
        ('{"password": "a1b2c3"}', '{"password": [password]}'),
        ("Das Passwort ist Geheim9", "Das Passwort ist [password]"),
        ("The password is wrong.", "The password is wrong."),
        ("A password is required here", "A password is required here"),
        ("pins and needles", "pins and needles"),
    ],
)
def test_account_numbers_and_passwords_are_redacted(said: str, told: str) -> None:
    """Wrong: an account or a password is stored, or a sentence about passwords is changed."""
    redact = Redactor(phones=False, cards=False)
    assert redact(said) == told
    assert redact(told) == told
    assert Redactor(phones=False, cards=False, ibans=False, passwords=False)(said) == said


def everywhere(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())


def test_no_part_of_the_memory_stores_a_secret(tmp_path: Path) -> None:
    """Wrong: a part of the memory stores a text that should be redacted."""
    blocks = [VectorMemory(), NoteMemory(), FileMemory(), WorkingMemory(), SpatialMemory()]
    fields: dict[str, Any] = {"redact": Redactor(phones=False), "max_tokens": 600}
    strategy = FlushToLTM(blocks=blocks, absorb="every_update", max_turns=3)
    call = {"id": "c", "type": "function",
            "function": {"name": "pay", "arguments": json.dumps({"to": IBAN, "n": 3})}}  # fmt: skip
    with AgentMemory(f"sqlite:///{tmp_path}/m.db", overflow=strategy, **fields) as memory:
        session = memory.session("s", "ana")
        session.update({"role": "user", "content": SAID, "metadata": {"from": MAIL, "n": 1}})
        session.update({"role": "user", "content": [{"type": "text", "text": SAID}]})
        result = {"role": "tool", "tool_call_id": "c", "content": json.dumps({"mail": MAIL})}
        session.update([{"role": "assistant", "content": None, "tool_calls": [call]}, result])
        session.update({"type": "message", "role": "user",
                        "content": [{"type": "input_text", "text": SAID}]})  # fmt: skip
        session.edit(lambda log: [*log, {"role": "assistant", "content": SAID}])
        memory.remember(SAID, user_id="ana")
        memory.remember(SAID, user_id="ana")
        owner = session.owner()
        reply = owner.files().create("/memories/a.md", SAID)
        owner.files().write("/memories/b.md", SAID)
        session.working().set("who", {"mail": [MAIL], "n": 4})
        owner.spatial().observe(SAID, (1.0, 2.0))
        memory.flush()

        log = [entry.message for entry in memory.history("s")]
        assert log[0].content == TOLD
        assert log[0].metadata == {"from": "[email]", "n": 1, "redacted": ["content", "metadata"]}
        arguments = (log[2].tool_calls or [])[0]["function"]["arguments"]
        assert json.loads(arguments) == {"to": "[iban]", "n": 3}
        assert log[2].metadata["redacted"] == ["tool_calls"]
        assert json.loads(str(log[3].content)) == {"mail": "[email]"}
        assert len(owner.notes().all()) == 1
        assert reply.splitlines()[1].endswith("replaced before saving.")
        assert owner.files().read("/memories/b.md") == TOLD
        assert session.working().get("who") == {"mail": ["[email]"], "n": 4}
        shown = str(session.get("What is my account?").to_messages())
        assert not [one for one in SECRETS if one in shown]
    kept = everywhere(tmp_path)
    assert b"[iban]" in kept
    assert not [one for one in SECRETS if one.encode() in kept]


def test_a_message_without_secrets_is_stored_unchanged() -> None:
    """Wrong: redaction changes a message that contains no secret."""
    plain = {"role": "user", "content": "Hello.", "name": "ana", "custom": {"b": 1, "a": [2.5]}}
    with AgentMemory("memory://", blocks=[], redact=Redactor(phones=False)) as memory:
        memory.update("s", plain, key="k")
        memory.update("s", plain, key="k")
        (entry,) = memory.history("s")
        assert entry.message.to_dict() == plain


def test_an_edit_redacts_messages_stored_before_redaction(tmp_path: Path) -> None:
    """Wrong: an edit that returns the same messages leaves them unredacted in the log."""
    store = f"{tmp_path}/m.db"
    with AgentMemory(store, blocks=[]) as memory:
        memory.update("s", [{"role": "user", "content": text} for text in ("Hello.", SAID)])
    with AgentMemory(store, blocks=[], redact=Redactor(phones=False)) as memory:
        head = memory.edit("s", lambda log: [entry.message for entry in log])
        assert [entry.message.content for entry in memory.history("s")] == ["Hello.", TOLD]
        again = memory.edit("s", lambda log: [entry.message for entry in log])
        assert again == head  # nothing was left to redact


def test_a_retry_of_a_redacted_message_is_recognized() -> None:
    """Wrong: a retry of a redacted message is stored twice or refused."""
    with AgentMemory("memory://", blocks=[], redact=Redactor(phones=False)) as memory:
        for _ in range(2):
            memory.update("s", {"role": "user", "content": SAID}, key="k")
            memory.update("s", {"role": "user", "content": SAID, "id": "m-1"})
        assert len(memory.history("s")) == 2


def test_a_custom_redactor_also_applies_to_summaries(tmp_path: Path) -> None:
    """Wrong: a custom redactor is refused, or a summary contains text that it removed."""
    fields: dict[str, Any] = {"overflow": Summarize(max_summary_tokens=60, max_turns=2)}
    fields["redact"] = lambda text: text.replace("Ana Nin", "[name]")
    with AgentMemory(f"sqlite:///{tmp_path}/m.db", blocks=[], **fields) as memory:
        for i in range(12):
            memory.update("s", {"role": "user", "content": f"Ana Nin asks {i}, code QX-{i}."})
        head = memory.head("s")
        assert head.summary is not None
    assert b"Ana Nin" not in everywhere(tmp_path)


def test_the_prompt_log_cannot_be_combined_with_redaction() -> None:
    """Wrong: `keep_contexts` is accepted with `redact`, and stores the original question."""
    with pytest.raises(ConfigError, match="keep_contexts"):
        AgentMemory("memory://", redact=Redactor(phones=False), keep_contexts=True)
