"""Which turns tell something, for one who asks. Pure.

A question that was asked before is nearest of all to the same question asked again, and so is the
answer that nobody knew. Neither tells anything, and both would hide what does.
"""

from __future__ import annotations

from functools import lru_cache

from agent_memory.core.asking import asks, ends_asking
from agent_memory.core.text import sentences
from agent_memory.retrieval.words import words, words_up_to

FULL = 12
"""Words of a turn that says enough to be an answer."""

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


@lru_cache(_MOST_KNOWN)
def only_asks(text: str) -> bool:
    """Whether a text is a question, and too short to tell something beside it."""
    return ends_asking(text) and words_up_to(FULL, text) < FULL


def asking(text: str) -> int:
    """How much of a text asks, of one that is too short to be an answer: percent of its words."""
    if not only_asks(text):
        return 0
    said = sentences(text)
    sizes = [len(one.split()) for one in said]
    return 100 * sum(n for n, one in zip(sizes, said, strict=True) if asks(one)) // sum(sizes)


def tells_nothing(
    asked: frozenset[str], languages: frozenset[str], text: str, is_user: bool
) -> bool:
    """Whether a turn only asks the same, or says that it is not known.

    Args:
        asked: The question's words, in its own languages.
        languages: These.
        text: What the turn says.
        is_user: Whether a user says it.
    """
    said = _said(text, languages)
    if not said or len(said) > 2 * FULL:
        return False
    if only_asks(text):
        return said <= asked
    if is_user:
        return False
    not_knowing = _said(_NOT_KNOWING_TEXT, languages)
    return not said.isdisjoint(not_knowing) and said - asked <= not_knowing


@lru_cache(_MOST_KNOWN)
def _said(text: str, languages: frozenset[str]) -> frozenset[str]:
    return frozenset(words(text, languages))
