"""The site made of these pages: `make docs`. Pages are Markdown, as forges show it."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copyfile
from typing import Any

project = "agent-memory"
extensions = ["myst_parser"]
root_doc = "README"
myst_heading_anchors = 4
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "240px", "fixed_sidebar": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = "agent-memory"
html_show_copyright = False
html_show_sourcelink = False

_GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w/-]+)\.md\)")
_OUTSIDE = re.compile(r"\]\((\.\./[\w/.-]+\.md)\)")


def navigation(text: str) -> str:
    """An index page's links as the site's navigation, one part for each of its headings."""
    title, *groups = _GROUP.split(text)
    parts = [("", title), *zip(groups[::2], groups[1::2], strict=True)]
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {name}", "", *pages, "```"])
        for name, body in parts
        if (pages := list(dict.fromkeys(_PAGE.findall(body))))
    ]
    return "\n\n".join([text, *trees]).replace(":caption: \n", "")


def _read(app: Any, page: str, source: list[str]) -> None:
    if "/" not in page:  # a page of the repository that is none of the site's can be downloaded
        source[0] = _OUTSIDE.sub(r"](path:\1)", source[0])
    if Path(page).name == "README":
        source[0] = navigation(source[0])


def _name_front_page(app: Any, error: Exception | None) -> None:
    """Forges call a folder's front page README, web servers call it index."""
    if error is None and app.builder.format == "html":
        copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("build-finished", _name_front_page)
