"""The conversations with their oracles fit together, and keywords are found as one reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.oracles import TOLD, Told, read
from benchmarks.wording import dates, says

ALL = read(TOLD)


def _texts(told: Told) -> dict[str, str]:
    """Each message as a context shows it, with its day."""
    return {
        turn: f"[{message['created_at']:%Y-%m-%d}] {message['name']}: {message['content']}"
        for said in told.sessions.values()
        for turn, message in said
    }


def test_there_are_ten() -> None:
    """Wrong: a conversation is not read, or two have one name."""
    assert len({told.name for told in ALL}) == len(ALL) == 10


@pytest.mark.parametrize("told", ALL, ids=lambda told: told.name)
def test_a_conversation_fits_its_oracle(told: Told) -> None:
    """Wrong: a message number slipped, so that a right answer counts as wrong, or the other way."""
    texts = _texts(told)
    assert list(texts) == [str(number) for number in range(1, len(texts) + 1)]
    assert 20 <= len(texts) <= 60
    times = [message["created_at"] for said in told.sessions.values() for _, message in said]
    assert times == sorted(times)
    for sign in told.facts:
        assert sign.evidence
        assert told.of_user.issuperset(map(str, sign.evidence)), sign
    for sign in (*told.never, *told.gone):
        assert sign.why
        assert texts.keys() >= set(map(str, sign.evidence)), sign
    for question, answer, evidence in told.questions:
        shown = "\n".join(texts[turn] for turn in evidence)
        assert answer
        assert all(says(shown, keyword) for keyword in answer), question


@pytest.mark.parametrize("told", ALL, ids=lambda told: told.name)
def test_dates_are_of_their_time(told: Told) -> None:
    """Wrong: a date was mistyped: what is expected lies outside of what the conversation tells."""
    for sign in told.facts:
        if sign.date not in (None, "none"):
            assert "2011" <= str(sign.date)[:4] <= "2024", sign


@pytest.mark.parametrize(
    ("text", "keyword", "found"),
    [
        ("She moved on 7 May 2024.", "2024-05-07", True),
        ("She moved on May 7th, 2024.", "2024-05-07", True),
        ("Am 7. Mai 2024 zog sie um.", "2024-05-07", True),
        ("She moved in May 2024.", "2024-05", True),
        ("She moved on 2024-05-07.", "2024-05-07", True),
        ("She moved on 17 May 2024.", "2024-05-07", False),
        ("She moved in May 2024.", "in May", True),
        ("She moved in May 2024.", "in June", False),
        ("She has 12 mugs.", "12", True),
        ("She has 120 mugs.", "12", False),
        ("She has 212 mugs.", "12", False),
        ("Adopted a dog", "adopt", True),
        ("unadopted", "adopt", False),
        ("[2024-06-18] I moved last Saturday.", "2024-06-15|last saturday&2024-06-18", True),
        ("I moved last Saturday.", "2024-06-15|last saturday&2024-06-18", False),
    ],
)
def test_keywords(text: str, keyword: str, found: bool) -> None:
    """Wrong: an answer counts for a number within another, or not for a date written otherwise."""
    assert says(text, keyword) is found


def test_dates_in_a_text() -> None:
    """Wrong: an invented date goes unseen, or a house number passes for one."""
    assert dates("In May 2024, since 2019, until 2024-06-01, at 12345 Elm Street.") == [
        "2024-05",
        "2019",
        "2024-06-01",
    ]


def test_a_file_of_another_form_is_named(tmp_path: Path) -> None:
    """Wrong: a typing error in an oracle is a key that nobody reads."""
    file = tmp_path / "x.json"
    whole = json.loads((TOLD / "ines.json").read_text(encoding="utf-8"))
    file.write_text(json.dumps({**whole, "nevver": []}))
    with pytest.raises(ValueError, match="nevver"):
        read(file)
    whole["facts"][0]["date"] = "June"
    file.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match="date"):
        read(file)
