"""Starting the page with three commands in an empty folder, and behind a proxy."""

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.integration.browsing import CHROMIUM, LACKING, MAIN, Page, browsing
from tests.integration.fact_model import Model
from tests.integration.page_world import paging
from tests.integration.serving import listening
from tests.integration.test_service_process import COMMAND, run
from tests.kit import piped

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=LACKING)


def test_three_commands(tmp_path: Path) -> None:
    """Wrong: after three commands in an empty folder the page does not show the stored message."""
    folder = tmp_path / "empty"
    (tmp_path / "browser").mkdir()
    folder.mkdir()
    with (tmp_path / "log").open("wb") as log:
        service = piped(*COMMAND, "serve", "--port", "0", stdin=None, stderr=log, cwd=folder)
    try:
        line = service.stdout.readline()
        assert "its page at http" in line, (tmp_path / "log").read_text()
        url = line.partition("its page at ")[2].split()[0].rstrip(".")
        given = ["--label", "me", "--users", "ana", "--rights", "read,write,delete"]
        key = run(folder, "keys", "create", *given).stdout.strip()
        said = {"messages": [{"role": "user", "content": "I moved to Lisbon."}]}
        asked = Request(f"{url}v1/sessions/first/messages", json.dumps(said).encode())
        asked.add_header("Authorization", f"Bearer {key}")
        with urlopen(asked) as answer:
            assert answer.status == 200
        with browsing(tmp_path / "browser") as browser:
            browser.open(url)
            browser.until("document.querySelector('.sign-in input') === document.activeElement")
            browser.type(key)
            browser.press("Enter")
            browser.until(f"{MAIN}.querySelector('a')?.textContent === 'first'")
            browser.click("first")
            browser.until(f"{MAIN}.textContent.includes('I moved to Lisbon.')")
    finally:
        service.terminate()
        service.wait(60)
        service.stdout.close()


def test_below_a_path_of_a_proxy(tmp_path: Path) -> None:
    """Wrong: behind a proxy the page requests files or calls at the root of the host."""
    (tmp_path / "browser").mkdir()
    with paging(tmp_path, Model()) as (service, _):
        service.memory.update("first", {"role": "user", "content": "hello"}, user_id="ana")

        async def proxy(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            path = bytes(scope.get("raw_path", b"/memory/"))
            assert path.startswith(b"/memory/")
            await service.app({**scope, "raw_path": path.removeprefix(b"/memory")}, receive, send)

        with listening(proxy) as url, browsing(tmp_path / "browser") as browser:
            page = Page(service, f"{url}/memory/", browser)
            page.sign_in("ana", rights="read")
            browser.until(f"{MAIN}.querySelector('a')?.textContent === 'first'")
            assert page.troubles() == []
