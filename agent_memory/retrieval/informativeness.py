"""Detection of messages that only ask, or only say "I don't know". Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from agent_memory.core.query_text import asks, ends_asking, words_asking
from agent_memory.core.text import sentences
from agent_memory.retrieval.words import words, words_up_to

FULL = 12
"""A message with at least this number of words is long enough to state something."""

_NOT_KNOWING_TEXT = """
know known sure sorry unfortunately afraid information info detail details idea clue access
remember recall tell told mention mentioned say said share shared find found memory record
records yet far anything nothing haven't hasn't don't doesn't didn't can't cannot couldn't
unable able ask asked answer question apologize apologies currently not provide provided
let want would could help unsure
weiß weiss leider keine kein nicht nichts ahnung tut mir leid das ich dir dazu noch du hast gesagt
erzählt
sais pas je ne désolé désolée aucune information ça me tu l'as dit sait encore
no lo sé se siento tengo información aún todavía me has dicho
não nao sei desculpe desculpa informação ainda eu disse infelizmente
non so mi dispiace ancora purtroppo lo hai detto informazioni
weet niet helaas sorry geen informatie verteld nog
bilmiyorum üzgünüm maalesef bilgim bilgi yok henüz söylemedin
tiedä valitettavasti anteeksi pahoillani kertonut vielä tietoa
vet inte tyvärr förlåt ved ikke desværre beklager dessverre
не знаю извини извините к сожалению пока нет информации я вам тебе
पता नहीं माफ़ माफ कीजिए जानता जानती जानकारी बताया अभी
لا أعرف أعلم آسف عذرا للأسف معلومات
我不知道 抱歉 对不起 很抱歉 不清楚
知りません 分かりません わかりません ごめんなさい すみません 申し訳ありません
모르겠습니다 모르겠어요 죄송합니다 미안해요
"""
_MOST_KNOWN = 4_000
_TAG = re.compile(
    r",\s*(?:can you believe (?:it|that)|you know|right|huh|eh|okay|ok|no|remember"
    r"|(?:is|are|was|were|do|does|did|has|have|wo|would|ca)n[’']t (?:it|that|they|we|i|you|s?he)"
    r"|oder|nicht wahr|verdad|n[’']est-ce pas|vero|né)\s*(?:\?+(?=\s|$)|$)",
    re.IGNORECASE,
)
"""A tag question: the text before it is a statement."""
_SAME = 0.6  # minimum share of a question's words in a clause that repeats the question


@lru_cache(_MOST_KNOWN)
def only_asks(text: str) -> bool:
    """Return whether a text is a question, and too short to state anything else."""
    return words_up_to(FULL, text) < FULL and ends_asking(_TAG.sub(".", text))


@lru_cache(_MOST_KNOWN)
def asking(text: str) -> int:
    """Return the percentage of a text's words that are in questions; 0 if not `only_asks(text)`."""
    if not only_asks(text):
        return 0
    parts = sentences(_TAG.sub(".", text))
    return 100 * sum(map(words_asking, parts)) // sum(len(part.split()) for part in parts)


def tells_nothing(
    query_words: frozenset[str], languages: frozenset[str], text: str, is_user: bool
) -> bool:
    """Return whether a message only repeats the question, or says that the answer is unknown.

    Args:
        query_words: The question's words, in its own languages.
        languages: The question's languages.
    """
    is_question = only_asks(text)
    if is_user and not is_question:  # the most common case
        return False
    text_words = words_in(text, languages)
    if not text_words or len(text_words) > 2 * FULL:
        return False
    if is_question:
        return text_words <= query_words
    not_knowing = words_in(_NOT_KNOWING_TEXT, languages)
    return not text_words.isdisjoint(not_knowing) and text_words - query_words <= not_knowing


@lru_cache(_MOST_KNOWN)
def repeats(query_words: frozenset[str], languages: frozenset[str], text: str) -> bool:
    """Return whether a message repeats the question, and its other clauses do not answer it.

    The other clauses count as an answer if they together contain half of the question's words.

    Args:
        query_words: The question's words, in its own languages.
        languages: The question's languages.
    """
    least = max(1.0, _SAME * len(query_words))
    if len(words_in(text, languages) & query_words) < least:  # the most common case
        return False
    clauses = [clause for part in sentences(text) for clause in part.rsplit(", ", 1)]
    same = [
        part
        for part in clauses
        if len(words_in(part, languages) & query_words) >= least and asks(part)
    ]
    if not same:
        return False
    others = frozenset().union(*(words_in(part, languages) for part in clauses if part not in same))
    return 2 * len(others & query_words) < len(query_words)


@lru_cache(_MOST_KNOWN)
def words_in(text: str, languages: frozenset[str]) -> frozenset[str]:
    return frozenset(words(text, languages))
