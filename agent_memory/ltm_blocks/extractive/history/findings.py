"""Facts that a model found: validation against the messages, and conversion to claims. Pure."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent_memory.core.text import identifiers, names, word_lists
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Kind, Relation, covers
from agent_memory.ltm_blocks.extractive.history.periods import (
    Period,
    Precision,
    day_of,
    meant,
    parse,
    precision_of,
)
from agent_memory.ltm_blocks.extractive.history.sources import SourceMessage
from agent_memory.ltm_blocks.registry import Tombstone
from agent_memory.retrieval.words import words


@dataclass(frozen=True, slots=True)
class Candidate:
    """One finding: a fact as the model stated it, with or without a profile."""

    text: str
    subject: str
    category: str
    number: int  # of the message in the prompt
    quote: str
    since: str | None
    until: str | None
    confidence: float
    field: str | None = None
    value: Any = None
    alone: bool = False  # whether the profile's field has one value at a time
    corrects: bool = False  # whether the field's former value was never true
    fits: bool = True  # whether the profile accepts the value
    kind: Kind = ""
    when: str | None = None  # the words for the time; None if the prompt does not ask for them
    relation: Relation | Literal[""] = ""  # to the facts in `related`
    related: tuple[str, ...] = ()  # ids of known facts


_REACTS = re.compile(
    r"\b(?:agrees?d?|appreciates?d?|thanks|thanked|thankful|grateful|glad|happy|pleased|excited"
    r"|proud|impressed|amazed|inspired|sorry|touched|delighted|thrilled|honored|admires?|supports?"
    r"|congratulated?s?|wishes|hopes|feels|felt|finds|thinks|believes|says|said|enjoys|enjoyed"
    r"|values|looks? forward|encourages?|offers?|greets?)\b"
)
_GENERAL = frozenset(words(" ".join(word_lists()["chatter"])))


def is_chatter(finding: Candidate, shown: Sequence[SourceMessage]) -> bool:
    """Return whether a finding only expresses a reaction, such as thanks.

    Such a finding has only general words, no number, and no name except names of speakers.
    Plans, and findings that relate to known facts, are never chatter.
    """
    text = finding.text
    if finding.kind == "plan" or finding.relation or not _REACTS.search(text.casefold()):
        return False
    speakers = frozenset(word for source in shown for word in words(source.who))
    if identifiers(text) or any(not speakers.issuperset(words(name)) for name in names(text)):
        return False
    return speakers.union(_GENERAL).issuperset(words(text))


_LEAST = 6  # minimum letters and digits of a code; a shorter number may be written in several ways
_MOST_QUOTED = 500  # maximum words of a quote
_WORD = re.compile(r"[^\W_]+")
_MARKS = re.compile(r"[\W_]+")
_DATE = re.compile(
    r"(?<![\w-])(?:\d{4}-\d{2}(?:-\d{2}(?:T[\d:.]+Z?)?)?|(?:19|20)\d{2}-(?:19|20)\d{2}"
    r"|\d{1,2}([./])\d{1,2}\1\d{2,4})(?![\w-])"
)
_GROUPS = re.compile(r"\d+(?:[ ().-]{1,2}\d+)+")  # phone, account and card numbers
_OWNER = frozenset({"user"})  # facts say "user", messages do not


@dataclass(frozen=True, slots=True)
class Grounded:
    """The place in a message that a finding quotes."""

    source: SourceMessage
    quote: str
    span: tuple[int, int]  # start and end of the quote in the message's text
    role: str  # the role that stated the content; see `grounded`


def grounded(
    number: int,
    quote: str,
    text: str,
    shown: Sequence[SourceMessage],
    weights: Mapping[str, int] | None = None,
    claims: Sequence[Claim] = (),
) -> Grounded | str:
    """Return the source of a finding, or the reason why it is refused.

    If a name, a code or the whole content occurs only in texts of a role of less weight than the
    quoted message, that role counts: a user who says "yes" to a text did not state its content. The
    reasons: there is no "message" of this number, it lacks the "quote", or a code is "invented": it
    is in no message, and in no claim of a fact in the prompt, which are `claims`.
    """
    source = next((message for message in shown if message.number == number), None)
    if source is None:
        return "message"
    place = find(quote, source.text)
    if place is None:
        return "quote"
    role = _origin(source, text, shown, weights or {}, claims)
    if role is None:
        return "invented"
    return Grounded(source, source.text[slice(*place)], place, role)


def find(quote: str, text: str) -> tuple[int, int] | None:
    """Return the start and end of a quote in a text; None if the text does not contain it.

    A second search ignores case, blanks and punctuation, because models change these.
    """
    for form in dict.fromkeys((quote, html.unescape(quote))):
        wanted = " ".join(form.split())
        at = text.find(wanted) if wanted else -1
        if at >= 0:
            return at, at + len(wanted)
    loose = _WORD.findall(html.unescape(quote))
    if not 0 < len(loose) <= _MOST_QUOTED:
        return None
    pattern = r"[\W_]*?".join(map(re.escape, loose))
    match = re.search(rf"(?<![^\W_]){pattern}(?![^\W_])", text, re.IGNORECASE)
    return match.span() if match else None


def _origin(
    source: SourceMessage,
    text: str,
    shown: Sequence[SourceMessage],
    weights: Mapping[str, int],
    claims: Sequence[Claim],
) -> str | None:
    """Return the role that stated a finding; None if it contains a code that nobody said."""

    ranked: list[SourceMessage | Claim] = [*shown, *claims]
    ranked.sort(key=lambda item: -weights.get(item.role, 0))

    def speaker(name: str) -> str:
        spelt = _spelt(name)
        found = (item.role for item in ranked if spelt.search(item.text.casefold()))
        return next(found, source.role)

    roles = [source.role]
    for code in _codes(text):
        bare = _bare(code)
        if not (holders := [item.role for item in ranked if bare in _bare(item.text)]):
            return None
        roles.append(holders[0])
    for name in names(text):
        if speaker(name) != source.role:  # its words may come from several texts
            parts = (part for part in name.split() if not _TIME.fullmatch(part.casefold()))
            roles += map(speaker, parts)
    content = frozenset(words(text)) - _OWNER
    if not content.intersection(words(source.text)):
        bags = [(item.role, frozenset(words(item.text))) for item in ranked]
        for word in content:
            roles += [role for role, bag in bags if word in bag][:1]
    return min(roles, key=lambda role: weights.get(role, 0))


def _codes(text: str) -> Collection[str]:
    """Return the codes in a text: numbers, addresses and the like, without dates."""
    bare = _DATE.sub(" ", text)
    grouped = [code for code in _GROUPS.findall(bare) if len(_bare(code)) > _LEAST]
    return [*grouped, *(code for code in identifiers(bare) if len(_bare(code)) >= _LEAST)]


def _bare(text: str) -> str:
    return _MARKS.sub("", text.casefold())


def _spelt(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a name at the start of a word only: no "Rome" in "from email"."""
    letters = r"[\W_]*".join(map(re.escape, _bare(name)))
    return re.compile(rf"(?<![^\W_]){letters}")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which findings are accepted."""

    weights: Mapping[str, int]  # the weight of each role
    categories: Collection[str]  # accepted categories; empty for all
    refused: Collection[str]  # refused categories
    least: float  # minimum confidence
    model: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A claim without links to older facts. The other fields come from its `Candidate`."""

    claim: Claim
    corrects: bool
    relation: Relation | Literal[""] = ""
    related: tuple[str, ...] = ()


def drafts(
    findings: Sequence[Candidate],
    shown: Sequence[SourceMessage],
    forgotten: Collection[Tombstone],
    rules: Rules,
    id_of: Callable[[SourceMessage, Candidate], str],
    claims: Sequence[Claim] = (),
) -> tuple[list[Draft], Counter[str]]:
    """Return the accepted findings in message order, and the numbers of refusals by reason.

    `claims` are the claims of the facts in the prompt.
    """
    refused: Counter[str] = Counter()
    by_id: dict[str, Draft] = {}
    for place, finding in enumerate(findings):
        grounding = _judged(finding, shown, rules, claims)
        if isinstance(grounding, str):
            refused[grounding] += 1
            continue
        period = times(finding, grounding.source, shown, claims)
        draft = _draft(finding, grounding, period, id_of(grounding.source, finding), rules, place)
        if any(covers(tombstone, draft.claim) for tombstone in forgotten):
            refused["forgotten"] += 1
            continue
        by_id.setdefault(draft.claim.id, draft)
    return sorted(by_id.values(), key=lambda draft: draft.claim.seq), refused


def _judged(
    finding: Candidate, shown: Sequence[SourceMessage], rules: Rules, claims: Sequence[Claim]
) -> Grounded | str:
    if not finding.fits:
        return "value"
    is_listed = not rules.categories or finding.category in rules.categories
    if finding.field is None and (finding.category in rules.refused or not is_listed):
        return "category"
    if finding.confidence < rules.least:
        return "confidence"
    grounding = grounded(finding.number, finding.quote, finding.text, shown, rules.weights, claims)
    if isinstance(grounding, Grounded) and finding.field is None and is_chatter(finding, shown):
        return "chatter"
    return grounding


def _draft(
    finding: Candidate, grounding: Grounded, period: Times, name: str, rules: Rules, place: int
) -> Draft:
    entry = grounding.source.entry
    begin, end, when, precision = period
    claim = Claim(
        id=name, fact=name, text=finding.text, subject=finding.subject, category=finding.category,
        confidence=finding.confidence, role=grounding.role, valid_from=begin, valid_to=end,
        recorded_at=entry.local_time, session_id=entry.session_id, seq=entry.seq,
        quote=grounding.quote, span=grounding.span, model=rules.model, prompt=rules.prompt,
        place=place, field=finding.field, value=finding.value, alone=finding.alone,
        kind=finding.kind, when=when, precision=precision,
    )  # fmt: skip
    return Draft(claim, finding.corrects, finding.relation, finding.related)


_VAGUE = re.compile(
    r"\b(?:few|couple|several|some|recent(?:ly)?|lately|soon|while|ages|once|some ?day|one day"
    r"|these days|nowadays|in the past|long|in the future|eventually|later|before)\b"
)
_TIME = re.compile(
    r"\b(?:(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)|\d{1,2}[./-]\d{1,2}|ago|last|next|since|yesterday"
    r"|today|tonight|tomorrow|this|(?:week|month|year|day)(?:s|end|ends)?|morning|evening"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|jan(?:uary)?|feb(?:ruary)?|march|april|may|june"
    r"|july|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b"
)
_TODAY = re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening)|just|now|earlier)\b")

Times = tuple[datetime | None, datetime | None, str, Precision]


def times(
    finding: Candidate,
    source: SourceMessage,
    shown: Sequence[SourceMessage],
    claims: Sequence[Claim] = (),
) -> Times:
    """Return a finding's start, exclusive end, words for the time, and precision of the start.

    The words may be in any message of `shown`. If the start or the end is known, they are empty. If
    the finding's `when` is None, its dates are unchanged. The calendar meaning of the words
    overrides the model's dates, and vague words remove them. If the words are in no message, the
    dates count only if the source names a time, or if a related fact has the same start. An event
    has both start and end, or neither. Invalid dates are ignored, and so is an end before a start.
    """
    first, last = parse(finding.since), parse(finding.until)
    words = finding.when
    if words is not None:
        sources = (source, *shown) if words.strip() else ()
        holder = next((message for message in sources if find(words, message.text)), None)
        spoken = meant(words, holder.entry.local_time) if holder is not None else None
        undated = first is last is None and not (spoken is not None and spoken.is_beginning)
        if undated and finding.kind == "state":
            spoken = None  # another time, as in "last week the doctor found that I am healthy"
        if spoken is not None:
            goes_on = spoken.is_beginning or finding.kind in ("state", "")
            first, last = spoken.period, last if goes_on else spoken.period
        elif _VAGUE.search(words.casefold()) if holder is not None else not _dates(source, first):
            starts = {claim.valid_from for claim in claims if claim.fact in finding.related}
            if first is None or first[0] not in starts:
                first = last = None
        words = words if holder is not None and first is last is None else ""
    if finding.kind == "event":
        first, last = first or last, last or first
    begin, end = (first[0] if first else None), (last[1] if last else None)
    if begin is not None and end is not None and end <= begin:
        end = first[1] if finding.kind == "event" and first else None
    return begin, end, words or "", precision_of(first) if first else "year"


def _dates(source: SourceMessage, first: Period | None) -> bool:
    """Return whether a message names a time, such as "last week".

    If `first` is the day of the message, only words such as "today" count.
    """
    text = source.text.casefold()
    if first is not None and first[0] == day_of(source.entry.local_time):
        return bool(_TODAY.search(text))
    return bool(_TIME.search(text))
