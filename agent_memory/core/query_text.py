"""The query text of a message: the question, without small talk. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from agent_memory.core.messages import Message
from agent_memory.core.shapes import role_of
from agent_memory.core.text import (
    LIST_KINDS,
    SENTENCE,
    STOP_WORDS,
    WORD,
    names,
    sentences,
    terms,
    unaccented,
    word_count,
    word_lists,
)

MOST = 2_000
"""The most characters of a query text."""

_END = MOST // 2
# If no end of a text has a short paragraph, this many characters of each end are searched for
# questions.
_LINE = 200
_TAIL = 40
_MOST_CACHED = 4_000
_MOST_QUESTIONS = 100
_BREAK = "\n\n"

_MOST_JOINED = 3  # a follow-up question, and the questions before it
_LONGEST_FOLLOW_UP = 16  # words
_CONTINUES = re.compile(
    r"^\W*(?:and|but|or|(?:what|how) about|und|aber|et|mais|y|pero|e|mas|ma|maar|och|og|ale)\b"
    r"|\b(?:which|this|that|the|another|other|next|last|first|second|new|old) ones?\b(?! of)",
    re.IGNORECASE,
)
_PRONOUN = re.compile(
    r"\b(?:he|him|his|she|hers?|it|its|they|them|theirs?|th(?:at|is|ese|ose)(?=\W*$))\b",
    re.IGNORECASE,
)
_NOUN = re.compile(r"\b(?:my|our|the|an?)\b", re.IGNORECASE)

_ENDS_WITH_QUESTION = re.compile("[?\u061f\uff1f\u037e\u055e\u1367]\\s*\\Z|[か吗呢까][。.]?\\s*\\Z")
_ASKS = re.compile(f"[?\u061f\uff1f\u037e\u055e\u1367]|{_ENDS_WITH_QUESTION.pattern}")

_AUXILIARY = "is|are|was|were|am|do|does|did|can|could|should|would|will|has|have|had|might|must"
_PERSON = "i|you|he|she|we|they|any(?:one|body)?|some(?:one|body)"
_THING = "it|there|this|that|the|an?|my|our|your"
_OPENS_QUESTION = re.compile(
    r"(?:^|[,;.!\u2013\u2014-]\s+)\W*"
    r"(?:(?:ok(?:ay)?|so|and|but|also|hey|hi|h?m+|um+|well|wait|btw|by the way|anyway|again|now"
    r"|then|sorry|quick|random|q|question|remind me|tell me)\b[\s,:;-]*)*"
    rf"(?:(?:what|how|which|where|when|who|why)\s(?:{_AUXILIARY})\b"
    r"|(?:what|where|who|how|when|why)['\u2019]?s\b|how to\b"
    rf"|(?:what|which|whose|how)\s(?!(?:{_PERSON}|{_THING}|his|her|their)\b)"
    rf"(?:[\w'\u2019-]+\s){{1,4}}?(?:{_AUXILIARY})\b"
    rf"|(?:{_AUXILIARY})\s(?:{_PERSON})\b|(?:is|are|does|can|will|should) (?:{_THING})\b)",
    re.IGNORECASE,
)
"""Matches a question in English without a question mark, as people write in chats."""

_REQUESTS = re.compile(
    r"^\W*(?:(?:and|now|ok(?:ay)?|please)\b[\s,]*)*"
    r"(?:(?:find|give|help|plan|show|teach|tell) me|compare|convert|describe|explain|generate"
    r"|proofread|recommend|suggest|summari[sz]e|translate|(?:re)?write"
    r"|schreib|erkläre?|gib mir|explique|écris|traduis|donne-moi|escribe|traduce|scrivi|dammi)\b"
    r"(?!.*\b(?:(?<!like )I|my|our|we)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches a request for a text that says nothing about the user: "Give me three riddles"."""

_SAYS = (
    "say|said|tell|told|suggest|recommend|propose|advi[sc]e|mention|explain|g[ia]ve|write|wrote|call"
    "|answer|c[oa]me up|describe|list|point|warn|show"
)
_ADVICE = (
    "advice|answer|explanation|fix|idea|opinion|proposal|reply|solution|suggestion|tip|trick"
    "|recommendation"
)
_ASSISTANT = re.compile(
    rf"\b(?:did|had|have|what|which|that|as|when) you\b.{{0,20}}\b(?:{_SAYS})"
    rf"|\byour (?:\w+ )?(?:{_ADVICE})|\b(?:{_ADVICE}) (?:that )?you\b"
    rf"|(?<!can )(?<!could )(?<!will )(?<!would )\byou (?:once )?(?:{_SAYS})\w*\b"
    r".*\b(?:once|before|earlier|last|me|why|how)\b"
    r"|\bhow did (?:we|i) (?:fix|get|resolve|solve)\b"
    r"|\b(?:what|which|how|where|when|why|who)\b(?!.*\bI\b.*\byou\b)[^.?!]{0,40}"
    r"\b(?:was|were|did)\b[^.?!]{0,40}\byou \w"
    r"|\bhast du\b|\bhaben sie\b|\b(?:as|avez)[ -](?:tu|vous)\b"
    r"|\bhas (?:dicho|sugerido|recomendado)\b|\b(?:sugeriste|dijiste|recomendaste)\b"
    r"|\bhai (?:detto|suggerito|consigliato)\b",
    re.IGNORECASE,
)
_U = re.compile(r"\bu\b")  # "what did u say", as people write in chats
_ALL = re.compile(
    r"\b(?:everything|how (?:many|often)|what all|in total|all ?together|so far"
    r"|every(?! (?:time|(?:\w+s|mon|fri|satur|sun|)day|night|week|month|year|morning|evening)))\b"
    r"|\b(?:all|each|list|any) (?:\w+ )?(?:of |the |my |our )|\bwhat (?:all )?have (?:i|we)\b"
    r"|\b(?:which|what) (?:\w+ ){0,2}(?!(?:hour|day|time|date)s)\w+[^\Wus]s "
    r"(?:did|do|have|has|had|are|were|am|can)\b"
    r"|\b(?:alles|alle|allen|wie (?:viele|oft)|welche|tout ce|tous|toutes|combien|todo lo|todos"
    r"|todas|cu[aá]nt[ao]s|tutto|tutti|tutte|quant[ei]|quais|quantas|quantos)\b",
    re.IGNORECASE,
)


_ABOUT_USER = re.compile(
    r"\b(?:what (?:all )?(?:do|can|did) you|(?:everything|anything|all(?: that)?) you) (?:still )?"
    r"(?:know|remember|recall)(?: about (?:me|us))?\W*$"
    r"|\bwhat have (?:i|we) told you(?: about (?:me|myself|us|ourselves))?(?: so far)?\W*$"
    r"|\bwas weißt du (?:(?:alles )?über (?:mich|uns)|alles)\W*$"
    r"|\bque sais-tu (?:de|sur) (?:moi|nous)\W*$|\bqué sabes (?:de|sobre) (?:mí|nosotros)\W*$",
    re.IGNORECASE,
)
"""Matches "What do you know about me?", but not "What do you know about cats?"."""


@lru_cache(_MOST_CACHED)  # each query checks the same recalled texts
def asks(text: str) -> bool:
    return _ASKS.search(text) is not None or _OPENS_QUESTION.search(text) is not None


def count_question_words(sentence: str) -> float:
    """Count the words of the question in a sentence: in "I moved, where is it?", the last three."""
    opened = _OPENS_QUESTION.search(sentence)
    if opened is None:
        return word_count(sentence) if _ASKS.search(sentence) else 0
    return word_count(sentence[opened.start() :].strip(" ,;:"))


def ends_with_question(text: str) -> bool:
    """Return whether a text ends with a question: by a mark, a particle, or the order of words."""
    if _ENDS_WITH_QUESTION.search(text[-_TAIL:]) is not None:
        return True
    return any(_OPENS_QUESTION.search(last) for last in sentences(text)[-1:])


@lru_cache(_MOST_CACHED)
def requests(text: str) -> bool:
    """Return whether a text requests a text, and says nothing about the user."""
    return _REQUESTS.search(text) is not None


@lru_cache(_MOST_QUESTIONS)  # each query checks its question several times
def asks_assistant(text: str) -> bool:
    """Return whether a text asks what the assistant said before."""
    return _ASSISTANT.search(_U.sub("you", text)) is not None


@lru_cache(_MOST_QUESTIONS)
def asks_for_all(text: str) -> bool:
    """Return whether a text asks for all things of a kind, or for an amount."""
    return _ALL.search(text) is not None


def asks_about_user(text: str) -> bool:
    """Return whether a text asks for everything that the memory knows about its user."""
    return _ABOUT_USER.search(text) is not None


def query_message(message: Message) -> Message:
    """Return the message with its query text alone.

    Thanks and greetings are left out, as in "Thank you! Which size was it?". A message of more than
    2,000 characters is often a question with a document, which would distort the search. Only its
    first and last paragraph are used, if they have up to 1,000 characters. If neither paragraph is
    short enough, only the questions at both ends are used.
    """
    text = message.text().strip()
    query = query_text(text)
    if query == text:
        return message
    return Message(role=role_of(message), content=query, created_at=message.created_at)


def with_earlier(message: Message, earlier: Iterable[Message]) -> Message:
    """Return a follow-up question ("And when does it expire?") with up to two messages before it.

    Other messages are returned unchanged. `earlier` has the user's earlier messages, newest first.
    """
    texts = [query_text(message.text())]
    for other in earlier:
        if len(texts) == _MOST_JOINED or not _is_follow_up(texts[-1]):
            break
        text = query_text(other.text())
        if len(text) > _LINE:  # a document, which would distort the search
            break
        if text not in texts and not is_small_talk(text):
            texts.append(text)
    if len(texts) == 1:
        return message
    joined = " ".join(reversed(texts))
    return Message(role=role_of(message), content=joined, created_at=message.created_at)


def _is_follow_up(text: str) -> bool:
    """Return whether a short question refers to an earlier one.

    Such a question begins with "and", has a pronoun but no noun before it, or has at most one word
    that is not a stop word ("Of what and how much?").
    """
    if word_count(text) > _LONGEST_FOLLOW_UP or not asks(text):
        return False
    if _CONTINUES.search(text) is not None or word_count(" ".join(terms(text))) <= 1:
        return True
    pronoun = _PRONOUN.search(text)
    before = text[: pronoun.start()] if pronoun else ""
    return pronoun is not None and not names(before) and _NOUN.search(before) is None


def query_text(text: str) -> str:
    """Return the query text of a text; see `query_message`."""
    text = text.strip()
    if len(text) > MOST:
        text = _at_the_ends(text)
    every = sentences(text)
    relevant = [sentence for sentence in every if not is_small_talk(sentence)]
    return " ".join(relevant) if 0 < len(relevant) < len(every) else text


def _at_the_ends(text: str) -> str:
    first, begin_break, _ = text[: _END + 1].partition(_BREAK)
    _, end_break, last = text[-_END - 1 :].rpartition(_BREAK)
    ends = [end for end, is_paragraph in ((first, begin_break), (last, end_break)) if is_paragraph]
    return "\n".join(ends or _sentences(text))


def _sentences(text: str) -> list[str]:
    """Return the questions at both ends of a text, or the ends if there is no question."""
    begin, end = text[:_LINE], text[-_LINE:]
    breaks = [match.end() for match in SENTENCE.finditer(begin)]
    first = next((match.end() for match in SENTENCE.finditer(end)), 0)
    ends = [begin[: breaks[-1]] if breaks else begin, end[first:]]
    every = [sentence for end in ends for sentence in sentences(end)]
    return [sentence for sentence in every if asks(sentence)] or ends


_LONGEST = 120  # characters

_WORDS = frozenset(word_lists()["small talk words"])
_FILLERS = frozenset(word_lists()["small talk fillers"])

_PHRASES = re.compile(
    r"\b(?:never ?mind|no (?:problem|worries|rush|need)|go (?:on|ahead)|carry on|got it|i see"
    r"|sounds good|makes sense|that'?s (?:it|all|right|great|good|fine|true|enough)"
    r"|(?:please )?try again|(?:one|just a|wait a) (?:moment|second|sec|minute)|hold on"
    r"|(?:see|talk to|speak to|catch) (?:you|ya|u)|that (?:was|is) (?:very |really |so )?helpful"
    r"|how are (?:you|things)|how(?:'s| is) it going|what'?s up|take care|of course|my pleasure"
    r"|wie geht'?s|alles klar|mach weiter|bis (?:bald|spater|morgen|dann)|kein problem"
    r"|auf wiedersehen|ca va|a (?:bientot|demain|plus)|d'accord|s'il (?:te|vous) plait|de rien"
    r"|que tal|como estas|hasta (?:luego|manana|pronto)|de nada|por favor|no hay problema"
    r"|tudo bem|ate (?:logo|amanha)|di niente|va bene|come stai|tot (?:ziens|morgen)"
    r"|do widzenia|до свидания|не за что|как дела|مع السلامة)\b"
)

_EMPTY_WORDS = STOP_WORDS.union(
    unaccented(word)
    for section, words in word_lists().items()
    if section.endswith(LIST_KINDS)
    for word in words
)

_QUESTION_WORDS = {"what", "what's", "when", "where", "which", "who", "whom", "whose", "how", "why"}

_UNSPACED = re.compile(
    "(?:谢谢|多谢|感谢|不客气|你好|您好|早上好|晚上好|晚安|再见|拜拜|好的?|是的?|对|嗯+|哈+|可以|没事|没问题|继续|明白了?|知道了?"
    "|你|您|了|啊|呢|吧|呀|们|大家"
    "|ありがとう|ございま(?:す|した)|どうも|こんにちは|こんばんは|おはよう|おやすみ(?:なさい)?"
    "|さようなら|またね|また明日|はい|いいえ|うん|了解(?:です|しました)?|わかりました"
    "|すみません|お願いします|大丈夫(?:です)?|です|ね|よ|笑|w+"
    "|감사합니다|고마워요?|고맙습니다|안녕(?:하세요|히 ?가세요)?"
    "|네+|예|아니요|응|좋아요?|알겠습니다|괜찮아요?|ㅋ+|ㅎ+)+"
)


def is_small_talk(text: str) -> bool:
    """Return whether a text is only small talk: thanks, greetings, "OK", symbols."""
    if len(text) > _LONGEST:
        return False
    folded = unaccented(text.casefold().replace("\u2019", "'"))
    words = WORD.findall(folded)
    if not words:
        return True
    if len(words) == 1 and words[0] in _EMPTY_WORDS:  # such as "What?", which refers to the window
        return True
    if all(map(_UNSPACED.fullmatch, words)):
        return True
    rest = WORD.findall(_PHRASES.sub(" ", folded))
    if len(rest) == len(words) and _WORDS.isdisjoint(words):
        return False
    if not _QUESTION_WORDS.isdisjoint(rest):  # "Thanks! What have I to do today?"
        return False
    return all(word in _WORDS or word in _FILLERS or word in STOP_WORDS for word in rest)
