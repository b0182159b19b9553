"""Run a benchmark: `python -m benchmarks QUESTION [PART] [OPTIONS]`."""

import sys
from importlib import import_module

import typer

PARTS = {
    "speed": "appends, gets, overflows and starts, against floors and peers",
    "speed stores": "appends and searches on several stores",
    "speed growth": "searches, disk and memory as messages grow",
    "speed hooks": "a coding agent's prompt hook",
    "speed frames": "frames of the package from a call to its SQL statement",
    "speed importing": "importing a large ChatGPT export",
    "recall": "evidence recall in LoCoMo's or BEAM's conversations",
    "recall paraphrases": "recall in other words; --fit prints numbers of relevance",
    "recall situations": "corrections, times, lists and other questions that people ask",
    "recall languages": "recall by words in ten languages",
    "recall intents": "fit what a message asks for",
    "recall projection": "make the projection of word pieces",
    "answers": "a model's answers from three kinds of context, judged by another model",
    "durability": "processes that are killed or write at the same time",
    "durability servers": "a database server that is killed under load",
    "durability soak": "hours of mixed calls",
    "durability operations": "sizes of a service over PostgreSQL, its backup and restore",
    "peers": "install the other memories that `speed` compares with",
    "first_hour": "from an empty virtualenv to a chat that remembers, against mem0 and Agents",
    "suites": "the frameworks' own tests with this package's classes",
}


def main() -> None:
    """Run the part that the first words name, or list all parts."""
    for words in (2, 1):
        part = " ".join(sys.argv[1 : 1 + words])
        if part in PARTS:
            del sys.argv[1 : 1 + words]
            module = import_module("benchmarks." + part.replace(" ", "."))
            if hasattr(module, "__path__"):
                module = import_module(f"{module.__name__}.__main__")
            app = module.main
            if not isinstance(app, typer.Typer):
                app = typer.Typer(add_completion=False)
                app.command()(module.main)
            app(prog_name=f"python -m benchmarks {part}")
    print(__doc__, *(f"  {part:22} {title}" for part, title in PARTS.items()), sep="\n")
    sys.exit(2 if sys.argv[1:2] not in ([], ["--help"]) else 0)


if __name__ == "__main__":
    main()
