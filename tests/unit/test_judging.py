"""What came out is held against the oracle as benchmarks/MODELS.md says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from benchmarks.judging import VIEWS, Context, Found, judge
from benchmarks.oracles import Sign, Told


def _sign(*keywords: str, evidence: tuple[int, ...] = (1,), date: str | None = None) -> Sign:
    return Sign(keywords=keywords, evidence=evidence, date=date, why="w")


def _told(facts: tuple[Sign, ...] = (), gone: tuple[Sign, ...] = ()) -> Told:
    said = [(str(n), {"role": "user" if n % 2 else "assistant"}) for n in range(1, 5)]
    questions = (("Which?", ("kiln",), frozenset({"1", "3"})),)
    return Told("t", {"s": said}, questions, facts=facts, gone=gone)


def _fact(text: str, *turns: str, begin: str | None = None, current: bool = True) -> Found:
    day = None if begin is None else datetime.fromisoformat(begin).replace(tzinfo=UTC)
    return Found(text, day, None, frozenset(turns or "1"), current)


def _shown(**texts: str) -> list[dict[str, Context]]:
    return [{view: Context(texts.get(view, ""), frozenset({"1"})) for view in VIEWS}]


@pytest.mark.parametrize(
    ("expected", "text", "begin", "verdict"),
    [
        ("2024-05-07", "Bought a kiln.", "2024-05-07", "date right"),
        ("2024-05", "Bought a kiln.", "2024-05-07", "date right"),
        ("2024-05-07", "Bought a kiln on 7 May 2024.", None, "date right"),
        ("2024-05-07", "Bought a kiln.", "2024-05-10", "date wrong"),
        ("2024-05-07", "Bought a kiln.", None, ""),
        ("none", "Bought a kiln.", "2024-05-10", "date invented"),
        ("none", "Bought a kiln in 2023.", None, "date invented"),
        ("none", "Bought a kiln.", None, ""),
    ],
)
def test_dates(expected: str, text: str, begin: str | None, verdict: str) -> None:
    """Wrong: a date that nobody said passes, or one in the text counts for none."""
    told = _told((_sign("kiln", date=expected),))
    counts = judge(told, [_fact(text, begin=begin)], _shown()).counts
    verdicts = {name for name in ("right", "wrong", "invented") if counts[f"date {name}"]}
    assert verdicts == ({verdict.removeprefix("date ")} if verdict else set())
    assert counts["dateless" if expected == "none" else "dated"] == 1


def test_a_last_day_is_the_day_before_the_end() -> None:
    """Wrong: "on 7 May" ends on the 8th, so that a right day counts as wrong."""
    end = datetime(2024, 5, 8, tzinfo=UTC)
    fact = Found("Bought a kiln.", None, end, frozenset("1"), True)
    told = _told((_sign("kiln", date="2024-05-07"),))
    assert judge(told, [fact], _shown()).counts["date right"] == 1


def test_what_is_superseded_is_gone_but_was_found() -> None:
    """Wrong: a former home that is kept as history counts as current, or as never found."""
    former = _sign("lives in Ghent")
    told = _told((former,), (former,))
    kept = judge(told, [_fact("Ines lives in Ghent.", current=False)], _shown()).counts
    stays = judge(told, [_fact("Ines lives in Ghent.")], _shown()).counts
    assert (kept["expected found"], kept["gone"], kept["gone there"]) == (1, 1, 0)
    assert (stays["expected found"], stays["gone"], stays["gone there"]) == (1, 1, 1)


def test_duplicates() -> None:
    """Wrong: news told twice in other words passes for two, or two facts of one message for one."""
    once = _told((_sign("kiln", evidence=(1, 3)),))
    again = _told((once.facts[0].model_copy(update={"again": True}),))
    words = [_fact("Lena owns a kiln.", "1"), _fact("A kiln of her own was delivered.", "3")]
    assert judge(again, words, _shown()).counts["duplicates"] == 1
    assert judge(once, words, _shown()).counts["duplicates"] == 0
    of_one = [_fact("Lena owns a kiln.", "1"), _fact("The kiln weighs 180 kilos.", "1")]
    assert judge(again, of_one, _shown()).counts["duplicates"] == 0
    alike = [_fact("Lena owns a big kiln.", "1"), _fact("Lena owns a kiln.", "3")]
    assert judge(_told(), alike, _shown()).counts["duplicates"] == 1
    former = [alike[0], _fact("Lena owns a kiln.", "3", current=False)]
    assert judge(_told(), former, _shown()).counts["duplicates"] == 0


def test_questions() -> None:
    """Wrong: what facts show counts for messages, or half of the evidence for all of it."""
    counts = judge(_told(), [], _shown(facts="[2024-05-07] The kiln.", both="Nothing.")).counts
    assert [counts[f"answered by {view}"] for view in (*VIEWS, "either")] == [1, 0, 0, 1]
    assert [counts[f"evidence in {view}"] for view in VIEWS] == [0, 0, 0]
    assert counts["evidence"] == 2


def test_only_facts_count_for_evidence_that_rest_on_it() -> None:
    """Wrong: the assistant's messages count as what no fact was found in."""
    told = _told((_sign("kiln", evidence=(3,)),))
    counts = judge(told, [_fact("Something.", "2", "3")], _shown()).counts
    assert (counts["evidence"], counts["evidence behind"]) == (2, 1)
