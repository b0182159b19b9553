"""Compare logs with the calls that were acknowledged. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

LOST, DOUBLED, REORDERED, REVIVED = "lost", "doubled", "reordered", "revived"
UNFINISHED, ERROR = "unfinished", "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise (`kind`) in a session, and when it was first seen."""

    kind: str
    session_id: str
    detail: str
    during: str = field(default="at the end", compare=False)


@dataclass(frozen=True, slots=True)
class Op:
    """A call. Names other than update, pop, delete and delete_user change no log."""

    name: str
    session_id: str = ""
    texts: tuple[str, ...] = ()
    user_id: str | None = None
    count: int = 0
    role: str = "user"

    def on(self, log: Sequence[str]) -> list[str]:
        """Return the session's log after the call."""
        match self.name:
            case "update":
                return [*log, *self.texts]
            case "pop":
                return list(log[: max(0, len(log) - self.count)])
            case "delete":
                return []
        return list(log)


def compare(
    session_id: str,
    seen: Sequence[str],
    wanted: Sequence[str],
    optional: Collection[str] = frozenset(),
) -> list[Finding]:
    """Compare a log with the wanted texts; the `optional` ones may be missing."""
    there = Counter(seen)
    findings = [
        Finding(LOST, session_id, text)
        for text in wanted
        if text not in there and text not in optional
    ]
    findings += [Finding(DOUBLED, session_id, text) for text, n in there.items() if n > 1]
    findings += [Finding(REVIVED, session_id, text) for text in there if text not in set(wanted)]
    once = [text for text in there if text in set(wanted)]
    if once != [text for text in wanted if text in there]:
        findings.append(Finding(REORDERED, session_id, f"{once}"))
    return findings


@dataclass(slots=True)
class Shared:
    """Messages of one writer in a session of many writers."""

    begun: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)


class Ledger:
    """Expected logs of one writer, whose processes are killed at any moment.

    The writer makes one call at a time. A call that a kill interrupted may have taken effect: the
    next read of the session shows whether it has. `sessions` maps the writer's sessions to users.
    """

    def __init__(self, sessions: Mapping[str, str | None]) -> None:
        self.users = dict(sessions)
        self.logs: dict[str, list[str]] = {name: [] for name in sessions}
        self.shared: dict[str, Shared] = {}
        self.leaving: list[dict[str, list[str]]] = []
        self.findings: list[Finding] = []
        self.acknowledged = 0
        self._pending: Op | None = None

    @property
    def interrupted(self) -> Op | None:
        """The call that was interrupted by the kill."""
        return self._pending

    def begin(self, op: Op) -> None:
        """Note that a call begins."""
        self._pending = op
        if op.name == "update" and op.session_id not in self.logs:
            said = self.shared.setdefault(op.session_id, Shared())
            said.begun += op.texts
            said.unsure.update(op.texts)

    def done(self, op: Op, result: object) -> None:
        """Note a call's result: the log's end after an update, the messages taken by a pop."""
        self._pending = None
        if op.name == "update":
            self.acknowledged += len(op.texts)
        if op.name == "delete_user":
            self.logs |= {name: [] for name, user in self.users.items() if user == op.user_id}
        elif op.session_id in self.logs:
            before = self.logs[op.session_id]
            after = self.logs[op.session_id] = op.on(before)
            if op.name == "pop" and result != before[len(after) :]:
                told = f"pop took {result} for {before[len(after) :]}"
                self.findings.append(Finding(REORDERED, op.session_id, told))
            if op.name == "update" and result != len(after):
                told = f"update returned end {result} for {len(after)}"
                self.findings.append(Finding(REORDERED, op.session_id, told))
        elif op.name == "update":
            self.shared[op.session_id].unsure.difference_update(op.texts)

    def seen(self, session_id: str, texts: Sequence[str]) -> None:
        """Compare a session that has no call under way."""
        wanted, pending = self.logs[session_id], self._pending
        if pending and pending.session_id == session_id:
            self._pending = None
            if list(texts) == pending.on(wanted):
                wanted = list(texts)
        self.findings += compare(session_id, texts, wanted)
        self.logs[session_id] = list(texts)

    def leave(self, fresh: Mapping[str, str]) -> None:
        """Replace a user's sessions after its deletion was interrupted; `fresh` maps old to new.

        Any process may finish the deletion at any time.
        """
        self.leaving.append({name: self.logs.pop(name) for name in fresh})
        for old, new in fresh.items():
            self.users[new] = self.users.pop(old)
            self.logs[new] = []
        self._pending = None
