"""The service's calls that the page makes, and values that are not texts."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent_memory.server
from agent_memory import operations
from tests.integration.page_world import fill, model_of_a_year, paging
from tests.integration.serving import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A year of two users. The calls of these tests change none of it."""
    with paging(tmp_path_factory.mktemp("page"), model_of_a_year(), max_tokens=700) as (made, _):
        fill(made)
        yield made


def test_read_me_describes_the_credential(service: Service) -> None:
    """Wrong: a credential's own description is incomplete, or shows other users."""
    token, key = service.ring.create("<b>desk", ["ana", "team-*"], ["delete"])
    told = service.call("read_me", token).json
    blocks = ("vector", "extractive", "notes", "files", "skills", "spatial")
    assert told == {
        "name": key.prefix,
        "label": "<b>desk",
        "users": ["ana", "team-*"],
        "rights": ["delete"],
        "blocks": {name: name for name in blocks},
        "keeps_contexts": True,
    }
    assert service.call("read_me", token, user="ana").problem == "invalid-request"


def test_read_window_returns_the_window_of_the_context(service: Service) -> None:
    """Wrong: the page shows another start of the window than the context has."""
    key, memory = service.key("ana", rights="read"), service.memory
    told = service.call("read_window", key, {"session_id": "moving-house"}).json
    head = memory.head("moving-house", user_id="ana")
    assert (told["start"], told["end"], told["expired"]) == (head.start, 21, 0)
    assert 0 < told["start"] < 21
    assert told["summary"]["text"] == head.summary.text
    assert told["system"]["content"].startswith("You are the assistant")
    assert (told["tokens"], told["max_tokens"]) == (head.window_tokens, 700)
    assert told["lag"] == {"vector": 0, "extractive": 0}
    other = service.call("read_window", service.key("ben"), {"session_id": "moving-house"})
    assert other.problem == "not-found"


def test_explain_previews_the_prompt_without_logging_it(service: Service) -> None:
    """Wrong: a preview is stored in the prompt log, or differs from the real prompt."""
    key, memory = service.key("ana", rights="read"), service.memory
    before = memory.contexts("where-1", user_id="ana")
    asked = {"question": "Which city do I live in?", "session_id": "where-1"}
    told = service.call("explain", key, asked).json
    assert memory.contexts("where-1", user_id="ana") == before
    turn = memory.before_turn("where-1", asked["question"], user_id="ana")
    assert told["messages"] == turn.messages
    assert (told["tokens"], told["max_tokens"]) == (turn.context.tokens, 700)
    lisbon = next(one for one in told["recalls"] if one["text"] == "Lives in Lisbon.")
    assert set(lisbon["signals"]) >= {"relevance", "recency"}
    assert sum(lisbon["signals"].values()) == pytest.approx(lisbon["score"])
    assert lisbon["tokens"] > 0


def test_list_facts_includes_superseded_facts_on_request(service: Service) -> None:
    """Wrong: superseded facts are missing from the history, or are listed among current facts."""
    key = service.key("ana", rights="read")
    holds = {one["text"] for one in service.call("list_facts", key).json["facts"]}
    assert "Lives in Lisbon." in holds
    assert "Lives in Porto." not in holds
    every = service.call("list_facts", key, {"superseded": True}).json["facts"]
    by_text = {one["text"]: one for one in every}
    porto = by_text["Lives in Porto."]
    assert porto["superseded_by"] == by_text["Lives in Lisbon."]["id"]
    assert (porto["why"], by_text["Has a dog named Rex."]["why"]) == ("updated", "contradicted")
    assert holds < set(by_text)


def test_list_users_returns_every_user_with_data(service: Service) -> None:
    """Wrong: a user with sessions or notes is missing, or a shared namespace is listed."""
    service.memory.share("team").grant("ana", "write")
    service.memory.user("cy").notes().add("Cy likes tea.")
    service.memory.user("dan").values().put(("a", "b"), "key", 1)
    service.memory.share("team").agent("ana").update("t", {"role": "user", "content": "hello"})
    admin = service.key("*", rights="admin")
    told = service.call("list_users", admin).json
    assert [one["id"] for one in told["users"]] == ["ana", "ben", "cy", "dan"]
    assert [told["total"], *(one["sessions"] for one in told["users"][1:])] == [4, 2, 0, 0]
    sizes = [len(service.memory.history(one)) for one in ("ben-1", "ben-scan")]
    assert told["users"][1]["messages"] == sum(sizes)
    page = service.call("list_users", admin, {"limit": 1}).json
    assert [one["id"] for one in page["users"]] == ["ana"]
    rest = service.call("list_users", admin, {"after": page["next"]}).json
    assert [one["id"] for one in rest["users"]] == ["ben", "cy", "dan"]
    for user_id in ("cy", "dan"):
        service.memory.delete_user(user_id)
    assert [user.user_id for user in operations.users(service.memory)] == ["ana", "ben"]
    service.memory.share("team").delete()


def test_read_spending_reports_usage_by_purpose(service: Service) -> None:
    """Wrong: the spending report lacks a purpose, or its counts are empty."""
    admin = service.key("*", rights="admin")
    assert service.ask("GET", "/metrics", admin).status == 200  # adds the counts of this process
    told = service.call("read_spending", admin).json
    assert set(told["purposes"]) >= {"extraction", "summary"}
    assert told["purposes"]["extraction"]["calls"] > 0
    assert told["today"] is None  # no limit is set
    assert 0 < told["cacheable_tokens"] <= told["prompt_tokens"]
    assert told["recalls"] > 0


PAGE = Path(agent_memory.server.__file__).parent / "page"
SCRIPT = """
class Made {
  constructor() { this.told = []; }
  setAttribute() {}
  append(...parts) { this.told.push(...parts); }
  get text() { return this.told.map((one) => (one instanceof Made ? one.text : one)).join(" "); }
}
globalThis.Node = Made;
globalThis.document = {
  createElement: () => new Made(),
};
const { message } = await import(process.argv[1]);
for (const given of [{ x: 1 }, { toString: 1 }, [1, { a: null }], 5, null, true]) {
  const call = { function: { name: given, arguments: given }, type: given };
  console.log(message({ role: given, name: given, tool_calls: [call] }).text);
}
"""


def test_a_value_other_than_text_is_shown_as_json() -> None:
    """Wrong: a value is shown as "[object Object]", or a tool call makes its session fail."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("the page's functions were not tried: there is no Node.js on the PATH")
    done = subprocess.run(
        [node, "--input-type=module", "-e", SCRIPT, (PAGE / "messages.js").as_uri()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[object Object]" not in done.stdout
    assert '"toString": 1' in done.stdout
