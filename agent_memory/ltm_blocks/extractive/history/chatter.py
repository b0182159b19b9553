"""Whether a finding is only a mood or a courtesy. Pure.

Half of what models find in friendly talk is such: "is glad", "appreciates the support". They leave
it out when told to, mostly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_memory.core.text import identifiers, names
from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.sources import Said
from agent_memory.retrieval.words import words

_REACTS = re.compile(
    r"\b(?:agrees?d?|appreciates?d?|thanks|thanked|thankful|grateful|glad|happy|pleased|excited"
    r"|proud|impressed|amazed|inspired|sorry|touched|delighted|thrilled|honored|admires?|supports?"
    r"|congratulated?s?|wishes|hopes|feels|felt|finds|thinks|believes|says|said|enjoys|enjoyed"
    r"|values|looks? forward|encourages?|offers?|greets?)\b"
)
_GENERAL = frozenset(words(
    "agrees appreciates appreciated thanks thanked thankful grateful glad happy pleased excited "
    "proud impressed amazed inspired sorry touched delighted thrilled honored admires support "
    "congratulates wishes hopes feels felt finds thinks believes says enjoys enjoyed values look "
    "forward encourages offers greets user assistant other others person people friend friends "
    "someone everyone family conversation talk talking chat chatting message messages word words "
    "thing things something anything everything life day time moment news story idea journey "
    "experience kindness kind encouragement help advice understanding love lovely great good nice "
    "amazing awesome wonderful beautiful important relaxing relaxed fun cool inspiring positive "
    "strong better best well much very really so more always never also hear hearing see seeing "
    "know knowing share sharing make making get getting give giving way lot key be being"
))  # fmt: skip


def is_chatter(one: Candidate, shown: Sequence[Said]) -> bool:
    """Whether a finding says nothing but how somebody takes something: no name beside the
    speakers', no number, no time, no thing.

    Args:
        one: The finding.
        shown: The messages, whose speakers are no news.
    """
    text = one.text
    if one.kind == "plan" or one.relation or not _REACTS.search(text.casefold()):
        return False
    speakers = frozenset(word for said in shown for word in words(said.who))
    if identifiers(text) or any(not speakers.issuperset(words(name)) for name in names(text)):
        return False
    return speakers.union(_GENERAL).issuperset(words(text))
