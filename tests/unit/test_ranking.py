"""Which turns bear on a question."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.ranking.bm25 import BM25
from agent_memory.ranking.dates import Date, dates
from agent_memory.ranking.surroundings import surrounded
from agent_memory.ranking.turns import Turn, Turns
from agent_memory.ranking.words import words

DAY = datetime(2023, 5, 8, tzinfo=UTC)
FILLER = "and so it went on for a good while with nothing of note that anybody would care to tell"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dogs were running, and ran!", ["dog", "run", "ran"]),
        ("Sarah's O\u2019Neill's", ["sarah", "o'neil"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße \uff21\uff22\uff11", ["strass", "ab1"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("木", ["木"]),
        ("я живу в Москве", ["я", "живу", "в", "москве"]),
        ("GPT4とClaude", ["gpt4", "と", "claud"]),
        ("the of and", []),
        ("", []),
        ("!?\x00\ud800", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    """Wrong: what people write in two ways is not found, or a script is not searched at all."""
    assert words(text) == expected


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    """Wrong: some text stops a search."""
    assert all(words(text))
    assert words(text) == words(text.upper().lower()) or not text.isascii()


def test_bm25_is_the_formula() -> None:
    """Wrong: rare words weigh no more than common ones, or long texts win by their length."""
    texts = [["a", "b"], ["a", "a", "c"], ["a", "d", "d", "d", "d", "d", "d"], []]
    scores = BM25(texts).scores(["a", "c", "c", "x"])
    mean = 3.0

    def part(count: int, length: int, holding: int) -> float:
        rarity = np.log(1 + (4 - holding + 0.5) / (holding + 0.5))
        return float(rarity * 1.9 * count / (count + 0.9 * (0.25 + 0.75 * length / mean)))

    expected = [part(1, 2, 3), part(2, 3, 3) + part(1, 3, 1), part(1, 7, 3), 0]
    assert scores == pytest.approx(expected, rel=1e-5)
    assert BM25([]).scores(["a"]).tolist() == []


def test_surroundings_stay_within_their_budget() -> None:
    """Wrong: a turn drowns in its neighbours, or words come out of order."""
    assert surrounded([["a", "b"], ["c"], ["d"], ["e", "f"]], 2) == ["a", "b", "c", "d", "e", "f"]
    long = [f"w{n}" for n in range(200)]
    assert surrounded([long, ["own"], long], 1) == [*long[-60:], "own", *long[:39]]
    assert surrounded([["x"], long, ["y"]], 1) == long
    assert surrounded([[], ["a"]], 1) == ["a"]


@given(st.lists(st.lists(st.integers(), max_size=150), min_size=1, max_size=5), st.data())
def test_surroundings_hold_the_turn(turns: list[list[int]], data: st.DataObject) -> None:
    """Wrong: something of the turn is missing, or too much of the others is there."""
    place = data.draw(st.integers(0, len(turns) - 1))
    found = surrounded(turns, place)
    own = turns[place]
    assert any(found[at : at + len(own)] == own for at in range(len(found) - len(own) + 1))
    assert len(found) <= max(100, len(own))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 8 May 2023", [Date(2023, 5, 8)]),
        ("May 8th, 2023?", [Date(2023, 5, 8)]),
        ("the 3rd of june", [Date(None, 6, 3)]),
        ("in December", [Date(None, 12, None)]),
        ("in May 2022 and in June", [Date(2022, 5, None), Date(None, 6, None)]),
        ("since 2023-05-08 or 2023-06", [Date(2023, 5, 8), Date(2023, 6, None)]),
        ("it may rain when they march", []),
        ("room 2023", []),
    ],
)
def test_dates(text: str, expected: list[Date]) -> None:
    """Wrong: a date in a question is not seen, or a word is taken for one."""
    assert dates(text) == expected


def test_a_date_holds_what_it_names() -> None:
    """Wrong: "in May" is taken for one day, or for any month."""
    assert Date(None, 5, None).holds(DAY)
    assert Date(2023, 5, 8).holds(DAY)
    assert not Date(2022, 5, None).holds(DAY)
    assert not Date(None, 5, 9).holds(DAY)


def turn(text: str, speaker: str = "Ann", at: datetime = DAY, *, is_user: bool = True) -> Turn:
    return Turn(speaker, text, at, is_user)


def test_nothing_that_bears_on_it_scores_nothing() -> None:
    """Wrong: a search always finds something."""
    turns = Turns([[turn("The cat sleeps."), turn("It rains.")]])
    assert turns.scores("volcano?").tolist() == [0, 0]
    assert turns.scores("").tolist() == [0, 0]
    assert Turns([]).scores("cat").tolist() == []


def test_an_answer_is_found_by_what_was_asked_before_it() -> None:
    """Wrong: a short answer, which repeats no word of its question, is never found."""
    said = [
        turn(f"What is your favourite dish? {FILLER}", "Ann"),
        turn(f"Lasagne, {FILLER}", "Ben"),
        *[turn(f"{FILLER} number {n}", "Ann") for n in range(5)],
    ]
    scores = Turns([said]).scores("What is Ben's favourite dish?")
    assert scores[1] > 0.5 > scores[2:].max()


def test_the_speaker_who_is_meant_comes_first() -> None:
    """Wrong: what another one said of the same thing wins."""
    said = [turn(f"My dog likes the lake, {FILLER}", name) for name in ("Ann", "Ben", "Cleo")]
    assert Turns([said]).scores("Where does Ben's dog like to go?").argmax() == 1
    own = [turn(said[0].text, role, is_user=role == "user") for role in ("bot", "user")]
    assert Turns([own]).scores("Where does my dog like to go?").argmax() == 1


def test_the_date_that_is_meant_comes_first() -> None:
    """Wrong: the same thing said in another month wins."""
    said = [
        turn(f"We went to the lake, {FILLER}", at=DAY.replace(month=month)) for month in (3, 7, 9)
    ]
    assert Turns([said]).scores("Who went to the lake in July?").argmax() == 1


def test_questions_and_short_turns_come_last() -> None:
    """Wrong: the question itself is the best answer to it."""
    answer = f"The lake is behind the wood, {FILLER}"
    said = [turn("Where is the lake?"), turn("Lake!"), turn(answer)]
    assert Turns([said]).scores("Where is the lake?").argmax() == 2


def test_conversations_are_apart() -> None:
    """Wrong: the last turn of one conversation is taken for the one before the next's first."""
    first, second = [turn(f"About volcanoes, {FILLER}")], [turn(f"About gardens, {FILLER}")]
    assert Turns([first, second]).scores("volcanoes")[1] == 0
    assert Turns([[*first, *second]]).scores("volcanoes")[1] > 0
