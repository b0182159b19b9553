"""Fit what a message asks for: `python -m benchmarks recall intents`.

`intents.json` has small talk, requests about the world, and messages about their user. Two logistic
regressions over the local encoder's vectors separate small talk from the rest, and the world from
the user. The test messages (`unrelated.json` and the pairs) are by other authors.
"""

import json
from pathlib import Path

import numpy as np

from agent_memory.models.embedders import local

_DATA = Path(__file__).with_name("intents.json")
_OUT = Path(local.__file__).with_name("minilm_intents.npy")
_PENALTY = 0.2


def main() -> None:
    """Write the weights into the package."""
    texts = json.loads(_DATA.read_text(encoding="utf-8"))
    embed = local.MiniLMEmbedder().embed
    chat, general, personal = (embed(texts[kind]) for kind in ("small talk", "general", "personal"))
    pairs = (chat, np.concatenate([general, personal])), (general, personal)
    np.save(_OUT, np.array([logistic(*pair, _PENALTY) for pair in pairs]).astype(np.float16))
    print(", ".join(f"{len(some)} {kind}" for kind, some in texts.items()))


def logistic(yes: np.ndarray, no: np.ndarray, penalty: float = 0.0) -> np.ndarray:
    """Return the weights that separate the rows `yes` from `no`, and the bias, by Newton's method.

    Both sides have equal weight. `penalty` is for the square of each weight.
    """
    rows = np.c_[np.concatenate([yes, no]), np.ones(len(yes) + len(no))]
    is_yes = np.repeat([1.0, 0.0], [len(yes), len(no)])
    share = len(rows) / 2 / np.where(is_yes, len(yes), len(no))
    least, weights = np.append(np.full(yes.shape[1], penalty), 1e-9), np.zeros(rows.shape[1])
    for _ in range(30):
        likely = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (share * (likely - is_yes)) + least * weights
        curve = (rows * (share * likely * (1 - likely))[:, None]).T @ rows + np.diag(least)
        weights -= np.linalg.solve(curve, slope)
    return weights
