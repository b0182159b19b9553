"""What a configuration will do, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from agent_memory.cli.common import without_password

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.strategies.base import Absorb, Strategy

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def describe(config: AgentMemoryConfig) -> list[tuple[str, str]]:
    """Each part of a store, and what will become of it: one line of a table each."""
    told = [
        ("store", _store(config)),
        ("capacity", _capacity(config)),
        ("when full", when_full(config.strategy, config.model)),
        ("blocks", _listed([block_words(block) for block in config.all_blocks], "none")),
    ]
    if config.all_blocks:
        told.append(("absorbing", _absorbing(config.strategy.absorbs)))
    told += [
        ("embedder", _embedder(config.embedding)),
        ("model", _model(config)),
        ("retention", _retention(config.retention)),
        ("work", _work(config)),
        ("encryption", _encryption(config.encryption)),
    ]
    if config.shares:
        told.append(("shares", _shares(config)))
    return told


def when_full(strategy: Strategy, model: str | None) -> str:
    """The policy: what leaves a window that passes its capacity, and what stands in its place.

    Args:
        strategy: The strategy.
        model: The configured language model.
    """
    from agent_memory.strategies import Chain, FlushToLTM, Summarize, Trim

    match strategy:
        case Trim(by="importance"):
            leaves = "the older turns that say least leave"
            return f"{leaves}{_down_to(strategy.keep_tokens, strategy.keep_messages)}"
        case Trim():
            down = _down_to(strategy.keep_tokens, strategy.keep_messages)
            return f"the oldest turns leave{down}"
        case Summarize():
            writer = strategy.model or model
            by = f"by {writer}" if writer else "made locally, without a model,"
            return (
                f"the oldest turns leave{_down_to(None, strategy.keep_messages)}, and a summary of "
                f"{strategy.max_summary_tokens:,} tokens {by} stands for them"
            )
        case FlushToLTM():
            return (
                f"the oldest turns leave; the window has {strategy.max_stm_ratio:.0%} of the tokens"
            )
        case Chain():
            return "; ".join(when_full(member, model) for member in strategy.members)
    return f"a strategy of your own decides: {strategy.kind}"


def block_words(block: Block) -> str:
    """What a block remembers, with its name where that is not its kind."""
    name = "" if block.name == block.kind else f" ({block.name})"
    most = f", at most {block.max_tokens:,} tokens" if block.max_tokens else ""
    return f"{_remembers(block)}{name}{most}"


def _remembers(block: Block) -> str:
    from agent_memory import ltm_blocks as known

    match block:
        case known.StaticMemory():
            return _count(len(block.facts), "given fact")
        case known.ExtractiveMemory():
            return f"facts from what {_listed(block.roles)} messages say"
        case known.VectorMemory():
            place = f", kept in {without_password(block.store)}" if block.store else ""
            return f"messages found again by words and meaning{place}"
        case known.NoteMemory():
            return f"up to {_count(block.max_notes, 'note')} that a model writes"
        case known.WorkingMemory():
            return f"a scratchpad of {_count(block.max_keys, 'key')} a session"
        case known.SkillMemory():
            return f"skills in {block.folder}"
        case known.SpatialMemory():
            return f"what was seen where, in {block.dimensions} dimensions"
        case known.FileMemory():
            return f"up to {_count(block.max_files, 'file')} that a model writes"
    return f"a block of your own: {block.kind}"


def _store(config: AgentMemoryConfig) -> str:
    told = without_password(str(config.store))
    if told.startswith("memory:"):
        told += ", gone with the process"
    elif config.durability == "power":
        told += ", each update safe from power loss"
    if config.system_store is not None:
        told += f"; system messages in {without_password(str(config.system_store))}"
    return f"{told}; namespace {config.namespace}"


def _capacity(config: AgentMemoryConfig) -> str:
    told = f"{config.max_tokens:,} tokens"
    if config.max_messages is not None:
        told += f", and {config.max_messages:,} messages"
    if config.all_blocks:
        told += f"; recalls take at most {config.max_recall_tokens:,} of the tokens"
    return told


def _down_to(tokens: int | None, messages: int | None) -> str:
    bounds = [_count(tokens, "token")] if tokens else []
    bounds += [_count(messages, "message")] if messages else []
    return f", down to {_listed(bounds)}" if bounds else ""


def _absorbing(absorb: Absorb) -> str:
    if absorb == "overflow":
        return "blocks absorb what leaves the window"
    if absorb == "every_update":
        return "blocks absorb each message at once"
    return f"blocks absorb once {absorb:,} tokens wait"


def _embedder(name: str | None) -> str:
    if name is None:
        return "the local one, where it is installed"
    if name == "local":
        return "the local one"
    return f"{name}, {'run here' if name.startswith('fastembed/') else 'asked over the network'}"


def _model(config: AgentMemoryConfig) -> str:
    if config.model is None:
        return "none"
    return config.model + (f" at {without_password(config.api_base)}" if config.api_base else "")


def _retention(retention: timedelta | str) -> str:
    if retention == "forever":
        return "messages are kept for ever"
    after = "" if retention == "window" else f"{_long(retention)} after its time, "
    return f"a message goes {after}once it left the window and every block absorbed it"


def _work(config: AgentMemoryConfig) -> str:
    idle = _long(timedelta(minutes=config.idle_minutes)) if config.idle_minutes else ""
    if config.overflow_mode == "inline":
        return "updates make room before they return"
    told = f"room is made after updates, by {_count(config.background_threads, 'thread')} here"
    return f"{told}; a session silent for {idle} is absorbed wholly" if idle else told


def _encryption(variable: str | None) -> str:
    if variable is None:
        return "none"
    # what is no name may be a key
    return f"with the keys in {variable if variable.isidentifier() else '***'}"


def _shares(config: AgentMemoryConfig) -> str:
    return "; ".join(
        f"{space}: {_listed([f'{who} may {right}' for who, right in grants.items()], 'nobody')}"
        for space, grants in config.shares.items()
    )


def _long(time: timedelta | str) -> str:
    """A duration in its largest whole unit."""
    if isinstance(time, str):
        return time
    seconds = time.total_seconds()
    name, size = next((unit for unit in _UNITS if seconds % unit[1] == 0), _UNITS[-1])
    return _count(seconds / size, name)


def _count(number: float, what: str) -> str:
    return f"{number:,.10g} {what}" + ("" if number == 1 else "s")


def _listed(parts: Sequence[str], nothing: str = "") -> str:
    return ", ".join(parts) or nothing
