"""Make the projection of word pieces: `python -m benchmarks recall projection [TEXTS]`.

The local encoder returns 384 numbers for each word piece. The index stores 48, along the directions
in which word pieces of everyday talk differ most. These directions are the first right singular
vectors of word pieces from texts of this project and, if given, of a file with one text per line.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from agent_memory.models.embedders import local
from agent_memory.retrieval.vectors import TOKEN
from benchmarks.recall.paraphrases import FOREIGN

_ROOT = Path(__file__).parents[2]
_OUT = Path(local.__file__).with_name("minilm_projection.npy")
_MOST = 4_000
_SENTENCE = re.compile(r"[A-Z][\w', -]*( [\w',-]+){3,}[.!?]")


def texts() -> Iterator[str]:
    """Yield sentences from the string literals of tests, benchmarks and examples."""
    yield from FOREIGN
    for folder in ("tests", "benchmarks", "examples"):
        for file in sorted((_ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from filter(_SENTENCE.fullmatch, node.value.splitlines())


def main(file: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Write the projection into the package."""
    more = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    every = [text for text in dict.fromkeys([*more, *texts()]) if 20 < len(text) < 1_000][:_MOST]
    np.save(_OUT, np.eye(384, TOKEN, dtype=np.float16))  # `_Model` loads a projection
    model = local._Model(1)
    model._projection = np.eye(384, dtype=np.float32)
    pieces = np.concatenate([tokens for _, tokens, _ in model.read(every)]).astype(np.float32)
    singular = np.linalg.svd(pieces.T @ pieces)[0][:, :TOKEN]
    np.save(_OUT, singular.astype(np.float16))
    print(f"{len(every)} texts, {len(pieces)} pieces")
