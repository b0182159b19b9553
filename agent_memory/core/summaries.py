"""Extractive summaries, their section with the user's messages, and importance of turns. Pure."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from agent_memory.core.records import Entry
from agent_memory.core.shapes import role_of
from agent_memory.core.text import codes, identifiers, names, sentences, terms
from agent_memory.core.transcript import Count, clip, full_text, speaker
from agent_memory.core.window import turns

_LONGEST = 60
"""An answer of more than 60 words is no refusal."""
_NOTHING = re.compile(
    r"none|n/?a|nil|null|nothing|empty|unknown|keine?|nichts|aucune?|rien|ning[uú]n[oa]?|nada"
    r"|(there (is|was) )?(no|nothing)( (new|further|more))?( (to|summary|messages?|information|"
    r"content|updates?|changes?|conversation|provided|available|given|yet|was|is|needed|needs|be|"
    r"summari[sz]ed?|report|add))*",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"(i('m| am) (very |so )?sorry|sorry|apologies|my apologies|i apologi[sz]e|unfortunately"
    r"|i (can't|cannot|can not|won't|could not|couldn't|am unable|'m unable)|i'm (unable|not able)"
    r"|as an ai|es tut mir leid|d[ée]sol[ée]e?|lo siento)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[\s#*_>-]*\w+( \w+){0,2}\s*[*_]*:[\s*_]*")
_FRAME = " \t\n\r.,;:!?-\u2013\u2014*_#>\"'`()[]{}<>/\u2026"


def is_no_summary(answer: str) -> bool:
    """Return whether an answer is empty, says "none", or refuses."""
    text = answer.replace("\u2019", "'")
    lines = [_LABEL.sub("", line, count=1).strip(_FRAME) for line in text.splitlines()]
    if all(not line or _NOTHING.fullmatch(line) for line in lines):
        return True
    plain = text.strip(_FRAME)
    return len(plain.split()) <= _LONGEST and _REFUSAL.match(plain) is not None


_NAME_WEIGHT = 2.0
_IDENTIFIER_WEIGHT = 3.0
_LEAST_TOKENS = 5
"""Sentences of fewer than 5 tokens, such as "Lovely.", are left out."""
_SENTENCE_CHARS = 400
_PIECES = textwrap.TextWrapper(
    _SENTENCE_CHARS,
    expand_tabs=False,
    replace_whitespace=False,
    break_long_words=False,
    break_on_hyphens=False,
)
_TRIES = 4
HEADINGS = ("Open", "People", "Earlier")
"""The headings of a summary, the most important first."""
_HEADING = re.compile(
    rf"[\s#*_-]*(?P<name>{'|'.join(HEADINGS)})[\s*_]*(?::[\s*_]*(?P<rest>.*))?", re.IGNORECASE
)
_HEADING_TOKENS = 4


def extract(previous: str, entries: Sequence[Entry], count: Count, limit: int) -> str:
    """Return the sentences that add the most words, names and identifiers per token, in order."""
    before = [
        f"{text[: len(text) - len(text.lstrip())]}{sentence}"  # indented as before
        for text in previous.splitlines()
        for sentence in sentences(text)
        if not _bare(sentence) and sentence != WORDS_HEADING
    ]
    lines = list(dict.fromkeys([*before, *_lines(entries, count)]))
    signals = [_signals(text) for text in lines]
    frequency = Counter(signal for each in signals for signal in each)
    covered: set[str] = set()
    costs = [count(text) + 1 for text in lines]
    chosen: set[int] = set()
    room = limit
    while True:
        best, gain = -1, 0.0
        for i, each in enumerate(signals):
            if i in chosen or costs[i] > room:
                continue
            fresh = sum(w * frequency[s] ** 0.5 for s, w in each.items() if s not in covered)
            if fresh / (costs[i] + 5) > gain:
                best, gain = i, fresh / (costs[i] + 5)
        if best < 0:
            break
        chosen.add(best)
        covered |= signals[best].keys()
        room -= costs[best]
    if not chosen and lines:
        # All lines are too long: take the beginning of the most important line.
        chosen.add(max(range(len(lines)), key=lambda i: sum(signals[i].values()) / (costs[i] + 5)))
    return clip("\n".join(lines[i] for i in sorted(chosen)), count, limit)


def keep_codes(summary: str, sources: Sequence[str], count: Count, limit: int) -> str:
    """Return the summary within `limit` tokens. Add codes of `sources` that the summary lacks.

    The codes take at most a quarter of `limit`. Codes of the last sources have priority. A summary
    that is too long is shortened.
    """
    wanted = dict.fromkeys(code for text in reversed(sources) for code in codes(text))
    room = limit
    for _ in range(_TRIES):
        shortened = shorten(summary, count, room)
        # The note must include the codes that were lost by shortening.
        note = _note(shortened, wanted, count, limit // 4)
        if count(shortened + note) <= limit:
            return shortened + note
        room = min(room, limit - count(note)) - 2
    return shorten(summary, count, limit)


def shorten(summary: str, count: Count, limit: int) -> str:
    """Return the summary within `limit` tokens, without its least important sentences.

    The oldest sentences under "Earlier" are dropped first, then the least important ones under
    "People", and last the least important ones under "Open".
    """
    if count(summary) <= limit:
        return summary
    *better, least = HEADINGS
    sections = _sections(summary)
    while (lines := sections.get(least)) and count(_joined(sections)) > limit:
        rest = " ".join(sentences(lines[0])[1:])
        sections[least] = [rest, *lines[1:]] if rest else lines[1:]
    for name in reversed(better):
        if count(_joined(sections)) > limit and (lines := sections.pop(name, None)):
            room = limit - count(_joined(sections)) - _HEADING_TOKENS
            if room >= _LEAST_TOKENS:
                sections[name] = extract("\n".join(lines), (), count, room).splitlines()
    shortened = _joined(sections)
    if shortened and count(shortened) <= limit:
        return shortened
    return extract(summary, (), count, limit)


def _bare(text: str) -> bool:
    heading = _HEADING.fullmatch(text)
    return heading is not None and not heading["rest"]


def _sections(summary: str) -> dict[str, list[str]]:
    """Return a summary's lines by heading. Lines before the first heading have the heading ""."""
    sections: dict[str, list[str]] = {"": []}
    current = ""
    for text in summary.splitlines():
        heading = _HEADING.fullmatch(text)
        if heading:
            current, text = heading["name"].capitalize(), heading["rest"] or ""
        if text.strip():
            sections.setdefault(current, []).append(text.rstrip())
    return sections


def _joined(sections: Mapping[str, Sequence[str]]) -> str:
    lines: list[str] = []
    for name in ("", *HEADINGS):
        lines_below = sections.get(name, ())
        lines += [f"{name}:", *lines_below] if name and lines_below else lines_below
    return "\n".join(lines)


def _note(summary: str, wanted: Iterable[str], count: Count, limit: int) -> str:
    included = set(identifiers(summary))
    note = ""
    for code in wanted:
        longer = f"{note}; {code}" if note else f"\nVerbatim: {code}"
        if code not in included and count(longer) <= limit:
            note = longer
    return note


def _lines(entries: Sequence[Entry], count: Count) -> list[str]:
    return [
        f"{speaker(entry.message)}: {piece}"
        for entry in entries
        for sentence in sentences(full_text(entry.message))
        for piece in _PIECES.wrap(sentence)
        if count(piece) >= _LEAST_TOKENS
    ]


def _signals(text: str) -> dict[str, float]:
    weights = dict.fromkeys(terms(text), 1.0)
    weights |= dict.fromkeys(names(text), _NAME_WEIGHT)
    weights |= dict.fromkeys(identifiers(text), _IDENTIFIER_WEIGHT)
    return weights


_USER_FACTOR = 1.5


def importance(turn: Sequence[Entry]) -> float:
    """Return the importance of a turn per token."""
    score = 0.0
    for entry in turn:
        text = full_text(entry.message)
        weight = _USER_FACTOR if role_of(entry.message) == "user" else 1.0
        named = 3 * len(identifiers(text)) + 2 * len(names(text))
        score += weight * (named + 0.2 * len(set(terms(text))))
    return score / (sum(entry.tokens for entry in turn) + 10)


def most_important(
    entries: Sequence[Entry], tokens: int, messages: int | None = None
) -> tuple[int, ...]:
    """Return the seqs of the most important whole turns that fit the bounds together, in order.

    Turns that do not begin with a user message are skipped: a window must not begin with them.
    """
    opened = [turn for turn in turns(entries) if role_of(turn[0].message) == "user"]
    chosen: list[int] = []
    for turn in sorted(opened, key=importance, reverse=True):
        cost = sum(entry.tokens for entry in turn)
        if cost <= tokens and (messages is None or len(turn) <= messages):
            chosen += (entry.seq for entry in turn)
            tokens -= cost
            messages = None if messages is None else messages - len(turn)
    return tuple(sorted(chosen))


WORDS_HEADING = "The user's words, verbatim, by message number:"
_WORDS_ITEM = re.compile(r"- \[(\d+)\] ")
_STANDING_WORDS = re.compile(
    r"\b(never|always|must(n't)?|do not|don't|from now on|no matter|under no circumstances"
    r"|make sure|only (use|ever)|unless|without (asking|my)|ask (me )?(first|before)|by default"
    r"|nie(mals)?|immer|ab jetzt|jamais|toujours|nunca|siempre)\b",
    re.IGNORECASE,
)
_MESSAGE_SHARE = 4
"""A user's message takes at most 1/4 of the section's tokens."""


def split_words(text: str) -> tuple[str, dict[int, str]]:
    """Split a summary into its text, and the user's messages by seq."""
    lines = text.split("\n")
    if WORDS_HEADING not in lines:
        return text, {}
    # the last occurrence is the heading, because the lines of messages are indented
    place = len(lines) - 1 - lines[::-1].index(WORDS_HEADING)
    words: dict[int, str] = {}
    seq = 0
    for line in lines[place + 1 :]:
        if match := _WORDS_ITEM.match(line):
            seq = int(match[1])
            words[seq] = line[match.end() :]
        elif seq:
            words[seq] += f"\n{line.removeprefix('  ')}"
    return "\n".join(lines[:place]).rstrip(), words


def with_words(summary: str, section: str) -> str:
    return f"{summary}\n\n{section}" if summary and section else summary or section


def words_section(words: Mapping[int, str], count: Count, room: int) -> str:
    """Return the section of the user's messages within `room` tokens. Empty if none fits.

    Messages with standing instructions ("always", "never") have priority, then the newest ones.
    """
    left = room - count(WORDS_HEADING) - 1
    chosen: dict[int, str] = {}
    order = sorted(words, key=lambda seq: (_STANDING_WORDS.search(words[seq]) is None, -seq))
    for seq in order:
        text = words[seq].strip()
        if left <= 0:
            break
        short = clip(text, count, room // _MESSAGE_SHARE)
        indented = short.replace("\n", "\n  ") + ("..." if short != text else "")
        item = f"- [{seq}] {indented}"
        cost = count(item) + 1
        if short and cost <= left:
            chosen[seq], left = item, left - cost
    return "\n".join([WORDS_HEADING, *(chosen[seq] for seq in sorted(chosen))]) if chosen else ""
