"""Stored text is shown as text, whatever it contains."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.integration.browsing import CHROMIUM, LACKING, MAIN, Page, browsing
from tests.integration.page_world import CLASSICS, attack, fill_hostile, hostile_model, paging

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=LACKING)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A user whose every text is an attack, including the user's name."""
    folder = tmp_path_factory.mktemp("page")
    world = paging(folder, hostile_model(), f"{attack(1)} summary", max_tokens=600)
    with world as (service, url), browsing(tmp_path_factory.mktemp("browser")) as browser:
        user = fill_hostile(service)
        found = Page(service, url, browser)
        found.sign_in("*", label=attack(2, "label"))
        yield found, user


def _at(user: str, *parts: str) -> str:
    return "#/u/" + "/".join(quote(one, safe="") for one in (user, *parts))


def test_every_view_shows_hostile_input_as_text(page: tuple[Page, str]) -> None:
    """Wrong: a stored text runs as a script, opens a dialog or loads something."""
    found, user = page
    browser = found.browser
    forgotten = {one.fact for one in found.service.memory.user(user).audit() if not one.text}
    facts = found.service.memory.user(user).facts(superseded=True)
    assert forgotten.isdisjoint(one.id for one in facts)
    paths = found.service.memory.user(user).files().paths()
    every = {
        ("sessions",): [f"{text} title" for text in CLASSICS],
        ("facts",): [one.text for one in facts] + [one.category for one in facts],
        ("audit",): [attack(6, "why"), *(one.text for one in facts)],
        ("notes",): [f"{text} note" for text in CLASSICS],
        ("files",): paths,
        ("file", paths[0]): ["file text"],
        ("skills",): [attack(1, "skill"), attack(2), attack(3), attack(4)],
        ("places",): [f"{text} seen" for text in CLASSICS],
        ("user",): [user],
    }
    words = ("says", "name", "tool", "call", "result", "part", "system", "title")
    for text in CLASSICS:
        session = f"{text} session"
        every["session", session] = [f"{text} {word}" for word in words]
        every["sent", session] = [f"{text} asked", f"{text} title"]
        every["sent", session, "2"] = [f"{text} asked", f"{text} system"]
    views = {_at(user, *parts): texts for parts, texts in every.items()}
    views |= {
        "#/service": [attack(5, "dead")],
        "#/users": [user],
        "#/choose": [user],
        _at(user, "session", attack(1, "none")): ["The data does not exist, or"],
        _at(user, "session", ".."): ["No address can name"],
    }
    for view, texts in views.items():
        browser.run(f"{MAIN}.replaceChildren()")
        browser.run(f"location.hash = {json.dumps(view)}")
        browser.until(f"{MAIN}.querySelector('h1, .problem') && !{MAIN}.hasAttribute('aria-busy')")
        shown = browser.run(f"{MAIN}.textContent")
        assert [text for text in texts if text not in shown] == [], view
        assert attack(2, "label") in browser.run("document.querySelector('header').textContent")
        _is_clean(found)


def test_the_security_policy_blocks_markup_and_other_hosts(page: tuple[Page, str]) -> None:
    """Wrong: the policy lets text become markup, or lets the page load from another host."""
    found, _ = page
    browser = found.browser
    for tag, props in (("a", {"href": "javascript:1"}), ("p", {"onclick": "window.hit = 21"})):
        made = f"({{ h }}) => h({json.dumps(tag)}, {json.dumps(props)})"
        thrown = f"import('./page/dom.js').then({made}).then(() => '', error => error.name)"
        assert browser.run(thrown) == "TypeError"
    refused = browser.run(
        "(() => { try { document.body.innerHTML = '<i>x</i>'; return false } "
        "catch (error) { return error instanceof TypeError } })()"
    )
    assert refused
    browser.run(
        "(() => { const made = document.createElement('img'); made.src = 'https://evil.invalid/x';"
        " document.body.append(made); made.remove() })()"
    )
    browser.until("true")
    told = [str(one["entry"]["text"]) for one in browser.of("Log.entryAdded")]
    assert any("Content Security Policy" in one for one in told)
    assert "csp" in [one.get("blockedReason") for one in browser.of("Network.loadingFailed")]


def _is_clean(found: Page) -> None:
    """Assert that nothing ran or was loaded, and that the page has only its own elements."""
    browser = found.browser
    assert browser.run("window.hit === undefined && document.documentElement.hit === undefined")
    foreign = (
        "script:not([src='page/app.js']), img, iframe, math, style, base, object, embed, b, i, "
        "meta[http-equiv], link:not([href^='page/']), [onerror], [onload], [onmouseover], "
        "[ontoggle], [srcdoc], [style], a:not([href^='#/'])"
    )
    assert browser.run(f"document.querySelectorAll({json.dumps(foreign)}).length") == 0
    assert [one for one in found.troubles() if "404" not in one] == []
