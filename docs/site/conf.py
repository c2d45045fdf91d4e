# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings, and what pages of this tree need to become pages of the site."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import stage

project = "Halay"
author = "the Halay authors"
version = re.findall(
    r'__version__ = "(.*)"', (stage.ROOT / "python/halay/_version.py").read_text()
)[0]
extensions = ["myst_parser"]
root_doc = "index"
include_patterns = [
    *("index.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("docs/**.md", "reference/**.rst", "tests/cluster/README.md"),
]
exclude_patterns = ["docs/site/**"]
smartquotes = False
nitpicky = False
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
myst_heading_slug_func = "anchors.slug"
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 80
html_theme = "furo"
html_title = f"Halay {version}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

# A link to a folder is one to its contents.
FOLDERS = {"man": "/reference/man/index.rst", "decisions": "/docs/decisions/README.md"}
SETTING = re.compile(r"^\*\*(HALAY_\w+)\*\*\n:   (.*?)(?=\n\n\S)", re.M | re.S)


def manual_page(name: str, text: str) -> str:
    """A page of docs/man gets a title; **name**(3) becomes a link."""
    pages = {re.sub(r"\W", "", n): page for n, page in stage.manual_pages().items()}

    def link(found: re.Match[str]) -> str:
        page = pages.get(re.sub(r"\W", "", found[1]))
        return f"[{found[0]}](/docs/man/{page}.md)" if page and page != name else found[0]

    def setting(found: re.Match[str]) -> str:
        body = re.sub(r"^    ", "", found[2], flags=re.M)
        return f"```{{envvar}} {found[1]}\n{body}\n```"

    if name == "halay.7":  # so that the search finds them as what they are
        text = re.sub(SETTING, setting, text)
    text = re.sub(r"^(#+ )", r"#\1", text, flags=re.M)
    text = re.sub(r"\*\*(halay[\w-]*)\*\*\(\d\)", link, text)
    title, section = name.rsplit(".", 1)
    return f"# {title}({section})\n\n{text}"


def read(app: Any, document: str, source: list[str]) -> None:
    folders = "|".join(FOLDERS)
    source[0] = re.sub(
        rf"\]\((?:[^)\s]*/)?({folders})/?\)", lambda m: f"]({FOLDERS[str(m[1])]})", source[0]
    )
    if re.match(r"docs/history/\d", document):
        # Their contents are the folder's README.md.
        source[0] = "---\norphan: true\n---\n\n" + source[0]
    if document.startswith("docs/decisions/"):  # the heading itself has this anchor: anchors.py
        source[0] = re.sub(r'^<a id="\d{4}"></a>\n', "", source[0], flags=re.M)
    if document.startswith("docs/man/"):
        source[0] = manual_page(document[len("docs/man/") :], source[0])


def setup(app: Any) -> None:
    app.connect("source-read", read)
