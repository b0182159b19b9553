"""`agent-memory chat`: a conversation in the terminal that goes on where it stopped."""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from agent_memory.cli.common import (
    BudgetOption,
    ConfigOption,
    ModelOption,
    StoreOption,
    guarded,
    load_config,
    open_memory,
    out,
    plain,
)
from agent_memory.errors import AgentMemoryError, ModelRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rich.console import Console

    from agent_memory.core.records import Entry
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.core.turns import Turn
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.models.llm import LLM

_HELP = """\
/again         another answer to your last question, in the place of the old one
/undo          take your last question and its answer back
/context       what the model is sent: the window, recalls, and their tokens
/memory        what long-term memory holds
/memory WORDS  what it recalls for these words
/forget        delete this session, and all derived from it
/help          this list
/quit          leave; so do Ctrl-D and Ctrl-C"""


@guarded
def chat(
    session: Annotated[
        str, typer.Option("--session", metavar="ID", help="The conversation to go on with.")
    ] = "chat",
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="ID",
            help="Whose long-term memory; the user's sessions share it. Without one the session "
            "keeps its own.",
        ),
    ] = None,
    model: ModelOption = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="The system message.")
    ] = None,
    max_tokens: BudgetOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Chat with a model that remembers across runs."""
    settings = load_config(store, config, model=model, max_tokens=max_tokens)
    if settings.model is None:
        raise ModelRequired(
            "Chat needs a language model. Give one with --model, such as --model "
            "openai/gpt-4o-mini (its key in OPENAI_API_KEY), or set AGENT_MEMORY_MODEL."
        )
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.models.llm import LLM

    llm = LLM(
        settings.model,
        api_base=settings.api_base,
        api_key=settings.api_key,
        timeout=settings.model_timeout,
    )
    with suppress(ImportError):  # where there is one, it lets input() edit the line
        import_module("readline")
    with open_memory(settings, create=True) as memory:
        Talk(
            memory, llm, TokenCounter(settings.model, settings.tokenizer), session, user, system
        ).run()


class Talk:
    """One run of a chat.

    Args:
        memory: Where it is remembered.
        llm: Who answers.
        counter: The configured model's.
        session: The conversation.
        user: Whose long-term memory.
        system: The system message to set, or None.
    """

    def __init__(
        self,
        memory: AgentMemory,
        llm: LLM,
        counter: TokenCounter,
        session: str,
        user: str | None,
        system: str | None,
    ) -> None:
        self._memory = memory.session(session, user)
        self._engine = memory
        self._llm = llm
        self._counter = counter
        self._system = system
        self._console: Console = out()

    def run(self) -> None:
        """Talk until the user leaves."""
        self._greet()
        while True:
            try:
                typed = input("you> ").strip()  # of its own prompt readline knows the width
            except (EOFError, KeyboardInterrupt):
                self._console.print()
                return
            if typed == "/quit":
                return
            try:
                if typed.startswith("/"):
                    self._command(typed)
                elif typed:
                    begin = partial(self._memory.before_turn, typed)
                    self._try_turn(begin, "Nothing of this turn was stored.")
            except AgentMemoryError as error:
                self._say(str(error), "red")

    def _greet(self) -> None:
        head = self._memory.update([])  # appends nothing
        self._instruct()
        known = f"{head.end} messages so far" if head.end else "a new conversation"
        self._say(f"{self._memory.session_id}: {known}. /help lists the commands.", "dim")

    def _instruct(self) -> None:
        """Set the system message, where it is another one."""
        system = self._memory.update([]).system
        if self._system and (system is None or system.text() != self._system):
            self._memory.update({"role": "system", "content": self._system})

    def _try_turn(self, begin: Callable[[], Turn], else_: str) -> None:
        """Ask the model, and store question and answer together once the answer is there."""
        before = self._newest()
        try:
            turn = begin()
            for warning in turn.context.warnings:
                self._say(warning, "yellow")
            self._memory.after_turn(turn, self._stream(turn.messages))
        except AgentMemoryError as error:
            self._say(f"{error} {else_}", "red")
        except KeyboardInterrupt:  # it may have come after the turn was stored, while making room
            stored = self._newest() != before
            self._console.print()
            self._say(f"Stopped. {'The turn is stored.' if stored else else_}", "yellow")

    def _newest(self) -> list[Entry]:
        return self._memory.history(after=max(0, self._memory.update([]).end - 1))

    def _undo(self) -> None:
        from agent_memory.core.window import role_of

        entries = self._memory.history()
        asked = [entry for entry in entries if role_of(entry.message) == "user"]
        if not asked:
            self._say("There is no question to take back.")
            return
        self._memory.pop(entries[-1].seq - asked[-1].seq + 1)
        self._instruct()
        self._say(f"Taken back: {asked[-1].message.text()}")

    def _stream(self, messages: list[dict[str, Any]]) -> str:
        pieces: list[str] = []
        with closing(cast("Generator[str]", self._llm.stream(messages))) as stream:
            with self._console.status("…"):
                pieces.append(next(stream, ""))
            self._console.print("[bold cyan]assistant>[/] ", end="")
            self._put(pieces[0])
            for piece in stream:
                pieces.append(piece)
                self._put(piece)
        self._console.print()
        return "".join(pieces)

    def _put(self, piece: str) -> None:
        self._console.print(plain(piece), end="", markup=False, soft_wrap=True)

    def _command(self, typed: str) -> None:
        name, _, rest = typed.partition(" ")
        match name:
            case "/again":
                self._try_turn(self._memory.regenerate, "Nothing was changed.")
            case "/undo":
                self._undo()
            case "/context":
                self._context()
            case "/memory":
                self._recall(rest.strip())
            case "/forget":
                self._forget()
            case "/help":
                self._say(_HELP)
            case _:
                self._say(f"There is no {name}. /help lists the commands.", "yellow")

    def _context(self) -> None:
        from agent_memory.cli.view import context_table

        self._console.print(context_table(self._memory.get(), self._counter.chat))

    def _recall(self, words: str) -> None:
        from agent_memory.cli.view import grid, holdings, one_line, recalls_table, sources
        from agent_memory.core.records import Scope

        if words:
            found = self._memory.search(words)
            self._console.print(recalls_table(found) if found else "Nothing.")
            return
        head = self._memory.update([])
        scope = Scope(head.user_id or self._memory.user_id, self._memory.session_id)
        for name, block in self._engine.blocks.items():
            held = holdings(block, scope)
            if not held and not block.absorbs:  # files and skills are not listed here
                continue
            waiting = head.lag(name) if block.absorbs else 0
            self._say(f"{name}: {len(held)} records, {waiting} messages not absorbed yet", "bold")
            table = grid("text", "source", header=False)
            for recall in held:
                table.add_row(one_line(recall.text), sources(recall))
            if held:
                self._console.print(table)
        if not self._engine.blocks:
            self._say("No long-term blocks are configured.")

    def _forget(self) -> None:
        head = self._memory.update([])
        if typer.confirm(f"Delete {self._memory.session_id} and its {head.end} messages?"):
            self._memory.delete()
            self._instruct()
            self._say("Forgotten.")

    def _say(self, text: str, style: str = "") -> None:
        from agent_memory.cli.view import cell

        self._console.print(cell(text, style))
