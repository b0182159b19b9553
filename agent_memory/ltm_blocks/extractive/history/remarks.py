"""What recalling adds to a fact's text, and taking it off again. Pure."""

from __future__ import annotations

import re

from agent_memory.ltm_blocks.extractive.history.fact import Fact

_NEVER = "said since never to have been so"
_NOT_THE_USERS = "not what the user says"

_REMARK = rf"{_NEVER}|{_NOT_THE_USERS}|until \d{{4}}-\d\d-\d\d|according to the \w+"
_REMARKS = re.compile(rf"(?:\s*\((?:{_REMARK})(?:; (?:{_REMARK}))*\))+\.?$")


def told(fact: Fact) -> str:
    """A fact as a model is to read it, with its end and whose word it is, where that matters."""
    remarks = []
    if fact.why == "contradicted":
        remarks.append(_NEVER)
    elif fact.why == "outranked":
        remarks.append(_NOT_THE_USERS)
    elif fact.valid_to is not None:
        remarks.append(f"until {fact.valid_to:%Y-%m-%d}")
    if fact.role != "user":
        remarks.append(f"according to the {fact.role}")
    return f"{fact.text} ({'; '.join(remarks)})" if remarks else fact.text


def unmarked(text: str) -> str:
    """A fact's text without the remarks that `told` adds, which who repeats it repeats too."""
    return _REMARKS.sub("", text) or text
