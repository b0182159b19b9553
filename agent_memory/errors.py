"""Every error this library raises on purpose.

    AgentMemoryError
    ├── InvalidInput               refused at the door; nothing was stored
    │   ├── InvalidId              an empty or unusable session or user id
    │   ├── InvalidMessage         no role and no raw, an unknown role, or not JSON
    │   ├── InvalidContext         a list of messages that a provider would refuse
    │   ├── MessageTooLarge        it has more bytes than a message may have
    │   ├── InvalidSnapshot        a session's snapshot is damaged, cut short, or none
    │   ├── SessionExists          a session of that id is there already
    │   ├── Conflict               a key was used for other content, or the log ends elsewhere
    │   │   └── VersionConflict    it was changed since the writer read it
    │   └── ToolRefused            a model asked a tool for what it cannot do
    ├── AccessDenied               the caller may not see this
    │   └── SessionOfAnotherUser   the session belongs to the user first named for it
    ├── ConfigError                the configuration cannot work
    │   ├── InvalidSetting         an unknown setting, or a value that it cannot have
    │   ├── InvalidBudget          a budget that leaves no room
    │   ├── InvalidShares          shares of the budget that pass 1
    │   ├── UnknownKind            no strategy or block of that kind
    │   ├── UnknownStore           a store URL whose scheme nobody serves
    │   ├── MissingExtra           an optional package is not installed
    │   └── DimensionMismatch      vectors of another dimension are already stored
    ├── StoreError                 the store failed
    │   ├── StoreUnavailable       it cannot be reached or opened
    │   ├── SessionDeleting        a deletion of the session has begun and is not finished
    │   ├── LeaseLost              another worker took the session over; nothing was written
    │   ├── Damaged                one record is not what was written; all others can be used
    │   │   └── Undecryptable      altered, moved or never encrypted, or its key is not given
    │   └── SchemaTooNew           it was written by a newer release
    ├── ModelError                 a language or embedding model failed
    │   ├── ModelRequired          the work needs a model and none is configured
    │   ├── SpendingLimitReached   memory may ask no model any more today
    │   ├── ModelUnavailable       it is down, slow or rate limited; a later try may succeed
    │   ├── ModelRefused           it refused the request; trying again will not help
    │   │   ├── ContextTooLong     the request passes the model's context window
    │   │   └── ModelForbidden     a bad key, no permission, or no such model
    │   └── ModelOutputInvalid     it answered, but not in the form that was asked for
    ├── UnsupportedOperation       this object cannot do that
    └── MemoryClosed               the memory was closed

Bad input is a ValueError too. No other error is: raised inside a pydantic validator they reach the
caller as they are, instead of being folded into a ValidationError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_memory.core.damage import Damage


DISTRIBUTION = "agent-memory-log"
"""The name on package indexes. They refuse "agent-memory", since "agentmemory" is taken."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class AgentMemoryError(Exception):
    """Root of every error raised on purpose by agent-memory."""


class InvalidInput(AgentMemoryError, ValueError):
    """The input was refused at the door; nothing was stored."""


class InvalidId(InvalidInput):
    """A session or user id is empty, too long, or holds characters that stores cannot keep."""


class InvalidMessage(InvalidInput):
    """A message has no role and no raw form, an unknown role, or content that is not JSON."""


class InvalidContext(InvalidInput):
    """A list of messages breaks a rule of the provider that it is made for."""


class MessageTooLarge(InvalidInput):
    """A message has more bytes than `max_message_bytes` lets one have."""


class InvalidSnapshot(InvalidInput):
    """A session's snapshot is damaged, cut short, or none; the sentence names the line."""


class SessionExists(InvalidInput):
    """A session of that id is there already; it was left as it is."""


class Conflict(InvalidInput):
    """A key was used for other content, or the log does not end where it was expected to."""


class VersionConflict(Conflict):
    """It was changed, or deleted, since the writer read it; nothing was changed."""


class ToolRefused(InvalidInput):
    """A model asked a tool for what it cannot do; the sentence is for the model to act on."""


class AccessDenied(AgentMemoryError):
    """The caller may not see or change this."""


class SessionOfAnotherUser(AccessDenied):
    """The session belongs to the user who was first named for it."""


class ConfigError(AgentMemoryError):
    """The configuration cannot work."""


class InvalidSetting(ConfigError):
    """A setting is unknown, or has a value that it cannot have."""


class InvalidBudget(ConfigError):
    """A token budget is negative or leaves no room for a message."""


class InvalidShares(ConfigError):
    """Shares of the token budget that are not above 0, or that pass 1."""


class UnknownKind(ConfigError):
    """No strategy or block of that kind is built in or registered as an entry point."""


class UnknownStore(ConfigError):
    """The scheme of a store URL is not one that agent-memory can open."""


class MissingExtra(ConfigError):
    """An optional package is not installed; the message names the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional package. Install it with: {install_command(extra)}"
        )


class DimensionMismatch(ConfigError):
    """The stored vectors are of another dimension or model than the embedder's."""


class StoreError(AgentMemoryError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""


class SessionDeleting(StoreError):
    """A deletion of the session has begun and is not finished."""


class LeaseLost(StoreError):
    """A worker stalled, and another took its session over; what it was to write was refused."""


class Damaged(StoreError):
    """One record is not what was written there; all others can be used.

    Attributes:
        damage: Which record, and what can be read of it, where that is known.
    """

    def __init__(self, told: str, damage: Damage | None = None) -> None:
        super().__init__(told)
        self.damage = damage


class Undecryptable(Damaged):
    """Stored data was altered, moved or never encrypted, or its key is missing."""


class SchemaTooNew(StoreError):
    """The store was written by a newer release of agent-memory."""


class ModelError(AgentMemoryError):
    """A language or embedding model failed."""


class ModelRequired(ModelError):
    """The work needs a language model and none is configured."""


class SpendingLimitReached(ModelError):
    """A spending limit lets no model be asked now; what was to be done waits, and nothing is lost.

    Attributes:
        seconds: When it is worth another try.
    """

    def __init__(self, told: str, seconds: float = 0.0) -> None:
        super().__init__(told)
        self.seconds = seconds


class ModelUnavailable(ModelError):
    """The model is down, slow or rate limited; a later try may succeed."""


class ModelRefused(ModelError):
    """The model refused the request (bad key, bad request); trying again will not help."""


class ContextTooLong(ModelRefused):
    """The request passes the model's context window."""


class ModelForbidden(ModelRefused):
    """The provider refused the key, the permission or the model's name, whatever is asked of it."""


class ModelOutputInvalid(ModelError):
    """The model answered, but not in the form that was asked for, twice."""


class UnsupportedOperation(AgentMemoryError):
    """This object cannot do that."""


class MemoryClosed(AgentMemoryError):
    """The memory was closed; open a new one."""
