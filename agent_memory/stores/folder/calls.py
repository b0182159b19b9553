"""What surrounds the calls of a `FolderStore`: what others changed is read, and what a call did is
written."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from agent_memory.stores.folder.store import FolderStore

F = TypeVar("F", bound=Callable[..., Any])


def looking(call: F) -> F:
    """A call that reads: what others have changed is read first."""

    @wraps(call)
    def made(store: FolderStore, /, *args: Any, **kwargs: Any) -> Any:
        with store._fresh():
            store._refuse(args[0] if args else None)
            return call(store, *args, **kwargs)

    return cast("F", made)


def writing(kind: str) -> Callable[[F], F]:
    """A call that changes a session, or the records or vectors of a block: its first argument."""

    def made_of(call: F) -> F:
        @wraps(call)
        def made(store: FolderStore, /, *args: Any, **kwargs: Any) -> Any:
            with store._fresh():
                store._refuse(args[0] if args else None)
                try:
                    done = call(store, *args, **kwargs)
                    store._save(kind, args[0] if args else None)
                except BaseException:
                    store._seen.clear()  # what is remembered may be ahead of the files
                    raise
                return done

        return cast("F", made)

    return made_of
