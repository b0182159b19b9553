"""Detection of small talk: a message that only thanks, greets or nods needs no recall. Pure."""

from __future__ import annotations

import re

from agent_memory.core.common_words import LATIN, OTHERS
from agent_memory.core.text import STOP_WORDS, WORD, unaccented

_LONGEST = 120  # characters

_WORDS_TEXT = """
ok okay okey oki k kk kay yes yep yeah yup ya no nope nah sure cool nice great good fine perfect
awesome amazing brilliant excellent wonderful lovely super fantastic thanks thank thankyou thx ty
cheers ta please pls hi hello hey hiya howdy greetings bye goodbye cya ciao welcome sorry oops
wow whoa haha hahaha hehe lol lmao rofl xd d p hm hmm hmmm mhm huh oh ooh ah aha aw yay hooray
hurray congrats congratulations right exactly agreed understood gotcha noted alright absolutely
definitely indeed correct true continue proceed morning evening night afternoon really seriously
interesting continues bravo cute sweet neat yikes ugh meh whatever np yw gg brb omg
ja nein doch danke dankeschon bitte bitteschon hallo servus moin gruss tschuss tschues tschau gut
super toll prima klasse genau okey stimmt alles klar schon naja achso aha vielen lieben morgen
tag abend nacht weiter entschuldigung
oui non merci bonjour bonsoir salut coucou bisous adieu parfait genial bien super daccord voila
desole continuez continue
si gracias hola adios chao vale bueno buenos buenas claro perfecto genial bien perdon sigue
continua
sim nao obrigado obrigada oi ola tchau bom boa otimo perfeito legal desculpe valeu
grazie prego buongiorno buonasera buonanotte arrivederci bene benissimo perfetto certo scusa
bedankt dankje dank hoi doei goed prima graag
dzieki dziekuje prosze czesc hej dobra dobrze tak nie pa super swietnie
tack tackar hej hejda bra takk tak mange
tesekkurler tesekkur ederim sagol merhaba selam evet hayir tamam guzel harika
спасибо спс привет здравствуй здравствуите пока да нет хорошо отлично ладно понятно ясно ок океи
круто супер пожалуиста класс угу ага дякую привіт так ні
شكرا مرحبا اهلا نعم لا حسنا تمام ممتاز جيد عفوا وداعا سلام
धन्यवाद शुक्रिया नमस्ते हाँ नहीं ठीक अच्छा
kiitos kiitti hei moi terve joo kylla ei hyva selva
terima kasih makasih sama selamat halo baik
cam xin chao
ευχαριστω γεια καλημερα καλησπερα καληνυχτα ναι οχι ενταξει ωραια
multumesc mersi salut buna bine da nu perfect
koszonom koszi szia sziasztok igen nem rendben
dekuji diky ahoj ano ne dobre
متشکرم ممنون مرسی سلام بله نه خوب
"""
_WORDS = frozenset(_WORDS_TEXT.split())

_FILLERS_TEXT = """
that's thats it's its all today tonight tomorrow later soon now day week weekend again much lot
lots so very too bit one two moment second sec minute helpful help useful everything there here
mate man dude guys folks bro buddy friend dear everyone then well just got get see meet talk
speak chat go keep going on off back take care rest sleep have had sounds looks seems works work
makes sense appreciate appreciated love loved loves like idea wait hold try mind never problem
worries worry matter course said done next think know let
sehr viel viele dir ihnen euch dann das ist war ich bis bald spater schonen guten gute fur die
hilfe
beaucoup tres bien toi vous a bientot demain bonne journee soiree nuit plus tard tout de la le
pour
muchas mucho muy hasta luego manana pronto dias tardes noches por todo el la que
muito muita ate logo amanha dia tarde noite por tudo
mille molto a presto domani
большое вам тебе за помощь до свидания завтра доброе утро добрыи день вечер спокоинои ночи
جزيلا لك على كل
बहुत बहुत है जी आपका
cok gunaydin iyi geceler aksamlar gunler
paljon oikein hyvaa yota huomenta paivaa paivanjatkoa
sa mycket god natt morgon tak
banyak pagi siang malam
on ban nhieu
πολυ σας
mult foarte seara ziua noaptea
szepen nagyon jo reggelt napot estet ejszakat
moc dobry den vecer noc
خیلی از شما
hilfreich nett parfait gentil amable gentile c'est
"""
_FILLERS = frozenset(_FILLERS_TEXT.split())

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

_SAY_NOTHING = STOP_WORDS.union(
    unaccented(word)
    for table in (LATIN, OTHERS)
    for kinds in table.values()
    for word in " ".join(kinds).split()
)

_ASKS_TEXT = "what what's when where which who whom whose how why"
_ASKS = frozenset(_ASKS_TEXT.split())

_UNSPACED = re.compile(
    "(?:谢谢|多谢|感谢|不客气|你好|您好|早上好|晚上好|晚安|再见|拜拜|好的?|是的?|对|嗯+|哈+|可以|没事|没问题|继续|明白了?|知道了?"
    "|你|您|了|啊|呢|吧|呀|们|大家"
    "|ありがとう|ございま(?:す|した)|どうも|こんにちは|こんばんは|おはよう|おやすみ(?:なさい)?"
    "|さようなら|またね|また明日|はい|いいえ|うん|了解(?:です|しました)?|わかりました"
    "|すみません|お願いします|大丈夫(?:です)?|です|ね|よ|笑|w+"
    "|감사합니다|고마워요?|고맙습니다|안녕(?:하세요|히 ?가세요)?"
    "|네+|예|아니요|응|좋아요?|알겠습니다|괜찮아요?|ㅋ+|ㅎ+)+"
)


def is_courtesy(text: str) -> bool:
    """Return whether a text is only thanks, greetings, nods and symbols."""
    if len(text) > _LONGEST:
        return False
    folded = unaccented(text.casefold().replace("\u2019", "'"))
    words = WORD.findall(folded)
    if not words:
        return True
    if len(words) == 1 and words[0] in _SAY_NOTHING:  # "What?": the window holds the reference
        return True
    if all(map(_UNSPACED.fullmatch, words)):
        return True
    rest = WORD.findall(_PHRASES.sub(" ", folded))
    if len(rest) == len(words) and _WORDS.isdisjoint(words):
        return False
    if not _ASKS.isdisjoint(rest):  # "Thanks! What have I to do today?"
        return False
    return all(word in _WORDS or word in _FILLERS or word in STOP_WORDS for word in rest)
