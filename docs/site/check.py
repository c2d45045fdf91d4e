# SPDX-License-Identifier: Apache-2.0
"""check.py FOLDER: looks at a site that was built. Each link and anchor leads somewhere, each page
can be reached from the contents, and nothing is loaded from another machine. Exit status 1 if not.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page names (ids), points to (links, those of the contents apart) and loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {name: value or "" for name, value in attrs}
        self.ids |= {have[name] for name in ("id", "name") if name in have}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        if LOADED.get(tag, "") in have and have.get("rel") != "canonical":
            self.loaded.append(have[LOADED[tag]])


def complaints(root: Path) -> list[str]:
    pages = {path: Page(path) for path in sorted(root.rglob("*.html"))}
    wrong, reached, todo = [], set(), [root / "index.html"]
    for path, page in pages.items():
        name = path.relative_to(root)
        wrong += [f"{name} loads {u}" for u in page.loaded if urlsplit(u).netloc]
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not to.is_file():
                wrong.append(f"{name} points to {link}, which is not there")
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].ids:
                wrong.append(f"{name} points to {link}, and there is no such anchor")
    while todo:
        path = todo.pop()
        if path in pages and path not in reached:
            reached.add(path)
            links = (urlsplit(link).path for link in pages[path].links)
            todo += [(path.parent / unquote(link)).resolve() for link in links if link]
    apart = {root / name for name in ("genindex.html", "search.html", "py-modindex.html")}
    wrong += [f"no page leads to {p.relative_to(root)}" for p in pages.keys() - reached - apart]
    return wrong


def main() -> int:
    root = Path(sys.argv[1]).resolve()
    wrong = complaints(root)
    count = len([*root.rglob("*.html")])
    print(*wrong, f"check.py: {count} pages, {len(wrong)} complaints", sep="\n")
    return int(bool(wrong) or count < 100)


if __name__ == "__main__":
    sys.exit(main())
