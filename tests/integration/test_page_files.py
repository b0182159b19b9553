"""The page's files: served without a key, confined by headers, and safe from markup in texts."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent_memory
from agent_memory.server.static import POLICY
from tests.integration.serving import Service, serving

FOLDER = Path(agent_memory.__file__).parent / "server" / "page"
MODULES = sorted(FOLDER.glob("*.js"))
STYLE = (FOLDER / "page.css").read_text(encoding="utf-8")
SINKS = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "srcdoc", "DOMParser"),
    *("setHTML", "createContextualFragment", "eval(", "Function(", "setTimeout('", 'setTimeout("'),
    *("setAttribute('on", 'setAttribute("on', "javascript:", "document.cookie", "localStorage"),
    *("window.open", "importScripts", "style=", "postMessage"),
)
"""What makes markup or code of a text, or hands the key on."""

PAIRS = [
    *(("ink", one) for one in ("ground", "raised", "sunk", "wash", "warn-wash")),
    *(("soft", one) for one in ("ground", "raised", "sunk", "wash")),
    *(("accent", one) for one in ("ground", "raised", "wash")),
    *((one, f"{one}-wash") for one in ("good", "warn", "bad")),
    *((one, "raised") for one in ("user", "assistant", "tool", "system", "bad", "warn")),
    ("on-accent", "accent"),
]
"""Texts, and what they stand on."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service")) as service:
        yield service


def test_the_page_needs_no_key_and_has_security_headers(service: Service) -> None:
    """Wrong: the sign-in page needs a credential, or lacks its security headers."""
    types = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    paths = {f"/page/{one.name}": one for one in FOLDER.iterdir() if one.suffix in types}
    for path, file in {"/": FOLDER / "index.html", **paths}.items():
        answer = service.ask("GET", path, None)
        assert (answer.status, answer.body) == (200, file.read_bytes())
        kind = types.get(file.suffix, "text/html")
        assert answer.headers["content-type"].split(";")[0] == kind
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in answer.headers
    for one in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"):
        assert one in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_a_browser_revalidates_and_loads_only_changed_files(service: Service) -> None:
    """Wrong: browsers show the old page after an update, or load unchanged files again."""
    first = service.ask("GET", "/page/app.js", None)
    assert first.headers["cache-control"] == "no-cache"
    again = service.ask("GET", "/page/app.js", None, If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    other = service.ask("GET", "/page/app.js", None, If_None_Match='"other"')
    assert (other.status, other.body) == (200, first.body)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/"), ("GET", "/page/"), ("GET", "/page/none.js"), ("GET", "/page/../keys.py"),
     ("GET", "/page/%2e%2e/keys.py"), ("GET", "/page/index.html"), ("GET", "//page/app.js")],
)  # fmt: skip
def test_paths_outside_the_folder_are_not_served(service: Service, method: str, path: str) -> None:
    """Wrong: a path serves files outside the page's folder."""
    assert service.ask(method, path, None).problem == "no-such-call"


@pytest.mark.parametrize("module", MODULES, ids=lambda one: one.name)
def test_no_text_can_become_markup(module: Path) -> None:
    """Wrong: a module passes text to a function that parses markup or runs code."""
    code = module.read_text(encoding="utf-8")
    assert [one for one in SINKS if one in code] == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", code)


def test_the_page_has_no_inline_code_and_no_unused_module() -> None:
    """Wrong: the page has inline code or styles, which its policy refuses."""
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", text)
    for path in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert path.startswith("page/")
        assert (FOLDER.parent / path).is_file()
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    asked = {"app.js"}
    for module in MODULES:
        for name in re.findall(r'from "\./([^"]+)"', module.read_text(encoding="utf-8")):
            assert (FOLDER / name).is_file(), (module.name, name)
            asked.add(name)
    assert asked == {one.name for one in MODULES}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_colours_have_enough_contrast(scheme: str) -> None:
    """Wrong: a text has less contrast than WCAG's 4.5 to 1, in light or in dark mode."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    told = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light + (dark * (scheme == "dark"))))
    weak = {pair: round(_contrast(*(told[one] for one in pair)), 2) for pair in PAIRS}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


def _contrast(one: str, other: str) -> float:
    bright, dull = sorted(map(_luminance, (one, other)), reverse=True)
    return (bright + 0.05) / (dull + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
