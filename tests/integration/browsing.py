"""A real browser for tests: Chromium without a window, driven by its DevTools protocol over a pipe.

No driver, no port, no package: messages are JSON objects, each with a NUL behind it, on the file
descriptors 3 and 4 of the browser.
"""

import base64
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from time import monotonic
from typing import Any

from tests.integration.serving import Service

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
LACKING = (
    "the page was not tried in a browser: no Chromium is on the PATH. "
    "apt-get install chromium, or the like"
)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--no-first-run", "--disable-background-networking"),
    *("--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--disable-component-update"),
    *("--disable-sync", "--disable-default-apps", "--disable-extensions", "--hide-scrollbars"),
    *("--force-color-profile=srgb", "--remote-debugging-pipe"),
)
MAIN = "document.querySelector('main')"
_SECONDS = 180.0  # limit for a browser that hangs
_ALL = "read write delete admin"
_START = """
import os, sys
read, write = int(sys.argv[1]), int(sys.argv[2])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_HIGH = 20  # above 3 and 4, which the browser uses

Event = dict[str, Any]


class Left(AssertionError):
    """The page that ran the code was left: another one is loading or loaded."""


class Browser:
    """A browser with one page open, and its messages in order in `events`."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._coming = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[Event] = []

    def send(self, method: str, **params: Any) -> Any:
        """Send a command to the browser, and return its result."""
        self._number += 1
        asked: Event = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == asked["id"]:
                if re.search("navigated|context", told.get("error", {}).get("message", "")):
                    raise Left(method, told["error"])
                assert "error" not in told, (method, told["error"])
                return told["result"]
            self.events.append(told)

    def begin(self) -> None:
        """Open a page, and subscribe to its events."""
        page = self.send("Target.createTarget", url="about:blank")["targetId"]
        given = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = given["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def run(self, code: str) -> Any:
        """Return the value of an expression on the page. A promise is awaited."""
        how = {"awaitPromise": True, "returnByValue": True}
        given = self.send("Runtime.evaluate", expression=code, **how)
        assert "exceptionDetails" not in given, given["exceptionDetails"]
        return given["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until an expression on the page is true, also across a navigation."""
        end = monotonic() + _SECONDS
        while monotonic() < end:
            with suppress(Left):
                if self.run(f"new Promise(done => setTimeout(() => done(Boolean({code})), 20))"):
                    return
        raise AssertionError(f"never on the page: {code}\n{self.text()}")

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def reload(self) -> None:
        """Reload the page, and wait until it is complete."""
        with suppress(Left):
            self.run("new Promise(() => location.reload())")  # never resolves
        self.until("document.readyState === 'complete'")

    def go(self, view: str, has: str) -> None:
        """Open a view of the page, and wait until its heading contains this text."""
        self.run(f"location.hash = {json.dumps(view)}")
        self.until(
            f"document.querySelector('main h1')?.textContent.includes({json.dumps(has)}) && "
            "!document.querySelector('main').hasAttribute('aria-busy')"
        )

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def press(self, key: str, shift: bool = False) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        more = {"text": "\r"} if key == "Enter" else {}
        told = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown", modifiers=8 * shift, **told, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", modifiers=8 * shift, **told)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def click(self, text: str, within: str = "body") -> None:
        """Press the button, or follow the link, with this text."""
        self.run(
            f"[...document.querySelector({json.dumps(within)}).querySelectorAll('button, a')]"
            f".filter(one => one.textContent === {json.dumps(text)})[0].click()"
        )

    def choose(self, element: str, *, keys: bool) -> None:
        """Press the element that an expression returns, by keyboard or mouse."""
        if keys:
            for _ in range(self.run("document.querySelectorAll('*').length")):
                if self.run(f"document.activeElement === ({element})"):
                    return self.press("Enter")
                self.press("Tab")
            raise AssertionError(f"no tab reaches {element}")
        self.run(f"({element}).scrollIntoView({{block: 'center'}})")
        box = f"({element}).getBoundingClientRect()"
        x, y = self.run(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        return None

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Set the size of the page, and its colour scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        given = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(given["data"]))

    def of(self, method: str) -> Iterator[Event]:
        self.run("0")  # earlier events have arrived by then
        return (one["params"] for one in self.events if one.get("method") == method)

    def _next(self) -> Event:
        end = monotonic() + _SECONDS
        while b"\0" not in self._coming:
            left = end - monotonic()
            assert left > 0, "the browser does not answer"
            if select([self._read], [], [], left)[0]:
                part = os.read(self._read, 1 << 20)
                assert part, "the browser is gone"
                self._coming += part
        line, _, self._coming = self._coming.partition(b"\0")
        return json.loads(line)


class Page:
    """The page of a service in a browser."""

    def __init__(self, service: Service, url: str, browser: Browser) -> None:
        self.service, self.url, self.browser = service, url, browser

    def sign_in(self, *users: str, rights: str = _ALL, label: str = "support desk") -> str:
        """Sign in anew, and return the key."""
        key = self.service.ring.create(label, users, rights.split())[0]
        self.browser.look(1600)
        self.browser.open(self.url)
        self.browser.run("sessionStorage.clear()")
        self.browser.open("about:blank")
        self.browser.open(self.url)
        self.browser.until("document.querySelector('.sign-in input') === document.activeElement")
        self.browser.type(key)
        self.browser.press("Enter")
        self.browser.until("document.querySelector('header.bar')")
        return key

    def troubles(self) -> list[str]:
        """Return the browser's warnings and errors, and requests to other servers."""
        told = [str(one["entry"]["text"]) for one in self.browser.of("Log.entryAdded")
                if one["entry"]["level"] in ("warning", "error")]  # fmt: skip
        told += [str(one) for one in self.browser.of("Runtime.exceptionThrown")]
        told += [str(one) for one in self.browser.of("Page.javascriptDialogOpening")]
        for one in self.browser.of("Network.requestWillBeSent"):
            asked = one["request"]["url"]
            if not asked.startswith((self.url, "about:blank", f"blob:{self.url}")):
                told.append(asked)
        self.browser.events.clear()
        return told


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile in this folder."""
    assert CHROMIUM is not None, LACKING
    theirs_read, ours_write = _pipe()
    ours_read, theirs_write = _pipe()
    given = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs_read), str(theirs_write), *given],
            pass_fds=(theirs_read, theirs_write),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(theirs_read), os.close(theirs_write)
    browser = Browser(ours_read, ours_write)
    try:
        browser.begin()
        yield browser
    finally:
        _end(process, lambda: browser.send("Browser.close"))
        os.close(ours_read), os.close(ours_write)


def _end(process: subprocess.Popen[bytes], close: Callable[[], Any]) -> None:
    try:
        close()
        process.wait(30)
    except (AssertionError, OSError, subprocess.TimeoutExpired):
        os.killpg(process.pid, 9)  # with its children
        process.wait()


def _pipe() -> Sequence[int]:
    made = []
    for one in os.pipe():
        made.append(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _HIGH))
        os.close(one)
    return made
