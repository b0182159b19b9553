"""What the page shows of values that are no texts, by its own functions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import agent_memory.server

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


def test_a_value_that_is_no_text_is_shown_as_json() -> None:
    """Wrong: "[object Object]", or a session that cannot be looked at for one call of a tool."""
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
