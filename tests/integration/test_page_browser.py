"""The page in a real browser, also after three commands in an empty folder."""

import json
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.integration.browsing import CHROMIUM, LACKING, MAIN, Page, browsing
from tests.integration.fact_model import Model, dated
from tests.integration.page_world import fill, model_of_a_year, paging
from tests.integration.serving import listening
from tests.integration.test_service_process import COMMAND, run
from tests.kit import piped

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=LACKING)

VIEWS = {
    "choose": ("#/choose", "Choose a user"),
    "log": ("#/u/ana/session/moving-house", "Moving house"),
    "sent-turns": ("#/u/ana/sent/moving-house", "Moving house"),
    "sent": ("#/u/ana/sent/where-1/1", "where-1"),
    "file": ("#/u/ana/file/%2Fmemories%2Fmoving%2Fplan.md", "plan.md"),
    "user": ("#/u/ana/user", "ana"),
    **{name: (f"#/{name}", name.title()) for name in ("service", "users")},
    **{
        name: (f"#/u/ana/{name}", name.title())
        for name in ("sessions", "search", "facts", "audit", "notes", "files", "skills", "places")
    },
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A year of two users. The last tests of the file delete some of it."""
    folder = tmp_path_factory.mktemp("page")
    world = paging(folder, model_of_a_year(), max_tokens=700)
    with world as (service, url), browsing(tmp_path_factory.mktemp("browser")) as browser:
        fill(service)
        yield Page(service, url, browser)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("PAGE_PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_user_can_sign_in_and_out(page: Page) -> None:
    """Wrong: an invalid key signs in, fails without a message, or data stays after signing out."""
    browser = page.browser
    page.sign_in("ana", rights="read")
    browser.until(f"{MAIN}.innerText.includes('Moving house')")
    assert "#/u/ana/sessions" in browser.run("location.href")
    kept = browser.run("JSON.stringify([document.cookie, {...localStorage}, location.href])")
    assert "am_" not in kept
    browser.reload()
    browser.until(f"{MAIN}?.innerText.includes('Moving house')")
    assert page.troubles() == []
    browser.click("Sign out")
    browser.until("document.querySelector('.sign-in')")
    assert "Moving house" not in browser.text()
    assert browser.run("sessionStorage.length") == 0
    browser.type("am_000000000000_" + "x" * 43)
    browser.press("Enter")
    browser.until("document.querySelector('.problem')")
    assert "a valid key" in browser.text()
    assert browser.run("sessionStorage.length") == 0


def test_revoking_a_key_signs_the_user_out(page: Page) -> None:
    """Wrong: after its key was revoked the page still shows data, or hangs."""
    key = page.sign_in("ana", rights="read")
    page.browser.go("#/u/ana/facts", "Facts")
    page.service.ring.revoke(key[:15])
    page.browser.run("location.hash = '#/u/ana/notes'")
    page.browser.until("document.querySelector('.sign-in')")
    assert "not valid" in page.browser.text()


@pytest.mark.parametrize("name", VIEWS)
def test_each_view_renders_without_errors(page: Page, pictures: Path, name: str) -> None:
    """Wrong: a view fails, calls another host, violates the policy, or is wider than a phone."""
    browser, (view, has) = page.browser, VIEWS[name]
    if browser.run("sessionStorage.length") != 1 or "support desk" not in browser.text():
        page.sign_in("*")
    page.troubles()
    browser.go(view, has)
    if name == "search":
        browser.run(f"{MAIN}.querySelector('input').value = 'Where does Ana live?'")
        browser.click("Look")
        browser.until("document.querySelector('.beside')")
    for width in (360, 1600):
        for dark in (False, True):
            browser.look(width, dark=dark)
            assert browser.run("document.documentElement.scrollWidth") <= width
            browser.picture(pictures / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    assert browser.run("document.querySelectorAll('main h1').length") == 1
    assert browser.run("document.querySelectorAll('.problem').length") == 0
    assert has in browser.run("document.title")
    unnamed = (
        "[...document.querySelectorAll('button, a, input, textarea, table, svg, section')]"
        ".filter(one => !(one.textContent.trim() || one.getAttribute('aria-label') || "
        "one.labels?.length || one.querySelector?.('caption'))).length"
    )
    assert browser.run(unnamed) == 0
    assert page.troubles() == []


@pytest.mark.parametrize("keys", [False, True], ids=["mouse", "keyboard"])
@pytest.mark.parametrize("width", [360, 1600])
def test_a_recalled_fact_can_be_traced_and_deleted(page: Page, width: int, keys: bool) -> None:
    """Wrong: a source is not shown, or deletion takes six clicks, a mouse or a wide screen."""
    browser, memory, user = page.browser, page.service.memory, f"eve-{width}-{keys}"
    memory.update("lunch", dated("I am allergic to peanuts.", "2026-03-12T08:30"), user_id=user)
    memory.flush("lunch")
    page.sign_in(user, rights="read delete")
    browser.look(width)
    clicks = 0

    def choose(text: str, within: str = "body", has: str = "") -> None:
        nonlocal clicks
        found = f"""[...document.querySelectorAll({json.dumps(within)})]
            .filter(one => one.innerText.includes({json.dumps(has)}))
            .flatMap(one => [...one.querySelectorAll('button, a')])
            .find(one => one.textContent === {json.dumps(text)})"""
        browser.until(found)
        browser.choose(found, keys=keys)
        clicks += 1

    def look() -> str:
        choose("Search", "nav")
        browser.until("document.activeElement.type === 'search'")
        browser.type("What am I allergic to?")
        choose("Look")
        browser.until("document.querySelector('.recall')")
        return str(browser.run(f"{MAIN}.innerText"))

    told = look()
    assert "Is allergic to peanuts." in told
    assert "I am allergic to peanuts." in told
    assert "lunch #1" in told
    choose("Forget", ".recall", has="Is allergic to peanuts.")
    choose("Forget it", "dialog")
    browser.until(f"!document.querySelector('dialog') && {MAIN}.querySelector('.recall') "
                  f"&& !{MAIN}.innerText.includes('Is allergic')")  # fmt: skip
    assert (clicks, memory.user(user).facts()) == (4, [])

    browser.go("#/u/" + user + "/sessions", "Sessions")
    clicks = 0
    look()
    choose("lunch #1", ".recall")
    browser.until("document.getElementById('here')?.innerText.includes('peanuts')")
    choose("Delete", "main")
    choose("Delete it", "dialog")
    browser.until("document.querySelector('.receipt')")
    assert clicks == 5
    assert memory.search("What am I allergic to?", user_id=user) == []
    assert page.troubles() == []


def test_a_read_only_key_shows_no_buttons(page: Page) -> None:
    """Wrong: a key without the right to change data sees a button for it."""
    for rights, few in (("read", True), ("read delete", False)):
        page.sign_in("*", rights=rights)
        found = 0
        for view, has in VIEWS.values():
            if view not in ("#/service", "#/users"):
                page.browser.go(view, has)
                found += page.browser.run("document.querySelectorAll('.act').length")
        assert (found == 0) == few
        assert "Service" not in page.browser.run("document.querySelector('nav').innerText")


def test_the_page_works_by_keyboard(page: Page) -> None:
    """Wrong: an element needs a mouse, or the focus is invisible or lost after a dialog."""
    browser = page.browser
    page.sign_in("*")
    browser.go("#/u/ana/notes", "Notes")
    focus = "document.activeElement"
    assert browser.run(f"{focus}.tagName") == "H1"
    every = "document.querySelectorAll('a[href], button, input, [tabindex=\"0\"]').length"
    reached = set()
    for _ in range(browser.run(every) + 2):
        browser.press("Tab")
        reached.add(browser.run(f"{focus}.textContent || {focus}.getAttribute('aria-label')"))
        if browser.run(f"{focus} !== document.body"):
            assert browser.run(f"getComputedStyle({focus}).outlineStyle") != "none"
    assert {"Skip to the content", "Facts", "Sign out", "Delete"} <= reached
    browser.run("document.querySelector('.skip').focus()")
    browser.press("Enter")
    assert browser.run(f"{focus}.id") == "main"
    assert browser.run("location.hash") == "#/u/ana/notes"
    browser.run("document.querySelector('main .act').focus()")
    browser.press("Enter")
    browser.until("document.querySelector('dialog[open]')")
    for _ in range(4):
        browser.press("Tab")
        assert browser.run(f"{focus} === document.body || !!{focus}.closest('dialog')")
    browser.press("Escape")
    browser.until("!document.querySelector('dialog')")
    assert browser.run(f"{focus}.textContent") == "Delete"
    browser.press("Enter")
    browser.until("document.querySelector('dialog[open]')")
    browser.go("#/u/ana/places", "Places")  # like a user who goes back
    assert browser.run("document.querySelector('dialog') === null")
    assert len(page.service.memory.user("ana").notes().all()) == 2


def test_a_user_deletion_shows_a_preview_and_a_receipt(page: Page, pictures: Path) -> None:
    """Wrong: one click deletes a user, or a confirmed deletion does nothing."""
    browser, memory = page.browser, page.service.memory
    page.sign_in("*")
    browser.go("#/users", "Users")
    assert "ben" in browser.run(f"{MAIN}.innerText")
    browser.go("#/u/ben/user", "ben")
    browser.click("Delete everything")
    browser.until("document.querySelector('dialog[open]')")
    assert "Sessions\n2" in browser.run("document.querySelector('dialog').innerText")
    go = "document.querySelector('dialog button[type=submit]')"
    browser.type("be")
    assert browser.run(f"{go}.disabled")
    browser.picture(pictures / "deletion.png")
    assert len(memory.user("ben").sessions()) == 2
    browser.type("n")
    browser.press("Enter")
    browser.until("document.querySelector('.receipt')")
    browser.picture(pictures / "receipt.png")
    told = browser.run("document.querySelector('.receipt').innerText")
    assert "ben" in told
    assert "done" in told
    assert memory.user("ben").sessions() == []
    browser.go("#/users", "Users")
    assert "ben" not in browser.run(f"{MAIN}.innerText")
    assert memory.user("ana").sessions() != []


def test_three_commands_start_a_working_service(tmp_path: Path) -> None:
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


def test_the_page_works_below_a_path_of_a_proxy(tmp_path: Path) -> None:
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
