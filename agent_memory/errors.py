"""The errors of this library.

    AgentMemoryError
    ├── InvalidInput               invalid input; nothing was stored
    │   ├── InvalidId              an empty or unusable session or user id
    │   ├── InvalidMessage         no role, an unknown role, or content that is not JSON
    │   ├── InvalidContext         a list of messages that a provider would refuse
    │   ├── MessageTooLarge        a message exceeds `max_message_bytes`
    │   ├── InvalidSnapshot        a file is not a snapshot, or is damaged or incomplete
    │   ├── SessionExists          a session with that id exists
    │   ├── Conflict               a key was used for other content, or `expected_end` differs
    │   │   └── VersionConflict    the item changed after the writer read it
    │   └── ToolRefused            a model called a tool with invalid arguments
    ├── AccessDenied               the caller may not read or change the data
    │   └── SessionOfAnotherUser   the session belongs to another user
    ├── ConfigError                the configuration cannot work
    │   ├── InvalidSetting         an unknown setting, or an invalid value
    │   ├── InvalidBudget          a budget that leaves no room
    │   ├── InvalidShares          parts of a budget that do not fit together
    │   ├── UnknownKind            no strategy or block of that kind
    │   ├── UnknownStore           a store URL with an unknown scheme
    │   ├── MissingExtra           an optional package is not installed
    │   └── DimensionMismatch      vectors of another dimension are already stored
    ├── StoreError                 the store failed
    │   ├── StoreUnavailable       the store cannot be reached or opened
    │   ├── SessionDeleting        the session is being deleted
    │   ├── LeaseLost              another worker has taken the session over
    │   ├── Damaged                one record cannot be read; other records can be read
    │   │   └── Undecryptable      data was altered, moved or not encrypted, or its key is missing
    │   └── SchemaTooNew           a newer release wrote the store
    ├── ModelError                 a language or embedding model failed
    │   ├── ModelRequired          no model is configured for work that needs one
    │   ├── SpendingLimitReached   a spending limit is reached
    │   ├── ModelUnavailable       the model is down, slow or rate limited; retry later
    │   │   └── ProcessEnds        the interpreter shuts down during the encoding of texts
    │   ├── ModelRefused           the model refused the request; a retry does not help
    │   │   ├── ContextTooLong     the request exceeds the model's context window
    │   │   └── ModelForbidden     a bad key, no permission, or an unknown model
    │   └── ModelOutputInvalid     the answer does not have the requested form
    ├── UnsupportedOperation       the object does not support the call
    └── MemoryClosed               the memory was closed

`InvalidInput` is also a `ValueError`. The other errors are not. If a validator raises one of them,
pydantic therefore passes it on unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_memory.core.damage import Damage


DISTRIBUTION = "agent-memory-log"
"""The name on package indexes. They refuse "agent-memory", because "agentmemory" is taken."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


class AgentMemoryError(Exception):
    """The base class of all errors of agent-memory."""


class InvalidInput(AgentMemoryError, ValueError):
    """The input is invalid. Nothing was stored."""


class InvalidId(InvalidInput):
    """A session or user id is empty, too long, or contains characters that stores do not accept."""


class InvalidMessage(InvalidInput):
    """A message has no role (and no `raw` item), an unknown role, or content that is not JSON."""


class InvalidContext(InvalidInput):
    """A list of messages breaks a rule of the provider for which it was made."""


class MessageTooLarge(InvalidInput):
    """A message exceeds `max_message_bytes`."""


class InvalidSnapshot(InvalidInput):
    """A file is not a session's snapshot, or is damaged or incomplete."""


class SessionExists(InvalidInput):
    """A session with that id exists. It was not changed."""


class Conflict(InvalidInput):
    """A key was used for other content, or the log does not end at `expected_end`."""


class VersionConflict(Conflict):
    """The item was changed or deleted after the writer read it. Nothing was written."""


class ToolRefused(InvalidInput):
    """A model called a tool with invalid arguments. The text tells the model what to do."""


class AccessDenied(AgentMemoryError):
    """The caller may not read or change the data."""


class SessionOfAnotherUser(AccessDenied):
    """The session belongs to another user. Its owner is the first user named for it."""


class ConfigError(AgentMemoryError):
    """The configuration cannot work."""


class InvalidSetting(ConfigError):
    """A setting is unknown, or has an invalid value."""


class InvalidBudget(ConfigError):
    """A token budget is not a positive number, or leaves no room for a message."""


class InvalidShares(ConfigError):
    """A share of the token budget is out of range, or parts of the budget do not fit together."""


class UnknownKind(ConfigError):
    """A kind of strategy or block is neither built in nor registered as an entry point."""


class UnknownStore(ConfigError):
    """A store URL has an unknown scheme."""


class MissingExtra(ConfigError):
    """An optional package is not installed. The text names the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional package. Install it with: {install_command(extra)}"
        )


class DimensionMismatch(ConfigError):
    """The stored vectors have another dimension or model than the embedder."""


class StoreError(AgentMemoryError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""


class SessionDeleting(StoreError):
    """The session is being deleted."""


class LeaseLost(StoreError):
    """This worker stalled, and another worker has taken the session over. The write was refused."""


class Damaged(StoreError):
    """One record cannot be read. Other records can be read.

    Attributes:
        damage: The record and its readable part, if known.
    """

    def __init__(self, message: str, damage: Damage | None = None) -> None:
        super().__init__(message)
        self.damage = damage


class Undecryptable(Damaged):
    """Stored data was altered, moved or never encrypted, or its key is missing."""


class SchemaTooNew(StoreError):
    """The store was written by a newer release of agent-memory."""


class ModelError(AgentMemoryError):
    """A language or embedding model failed."""


class ModelRequired(ModelError):
    """No language model is configured for work that needs one."""


class SpendingLimitReached(ModelError):
    """A spending limit is reached, or a call has no known price. The work stays pending.

    Attributes:
        seconds: Seconds until a retry may succeed.
    """

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class ModelUnavailable(ModelError):
    """The model is down, slow or rate limited. A later retry may succeed."""


class ProcessEnds(ModelUnavailable):
    """The local embedder stops because the interpreter shuts down. The next process continues."""


class ModelRefused(ModelError):
    """The model refused the request, for example because of a bad key. A retry does not help."""


class ContextTooLong(ModelRefused):
    """The request exceeds the model's context window."""


class ModelForbidden(ModelRefused):
    """The provider refused the key, the permission or the model's name."""


class ModelOutputInvalid(ModelError):
    """A model or an embedder did not answer in the requested form."""


class UnsupportedOperation(AgentMemoryError):
    """The object does not support the call."""


class MemoryClosed(AgentMemoryError):
    """The memory was closed. Open a new one."""
