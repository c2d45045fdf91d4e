# SPDX-License-Identifier: Apache-2.0
"""stage.py FOLDER: makes what Sphinx reads there: a copy of the tree, since pages link to sources
too; README.md with the navigation as its first page; the reference of C and Python."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import c_reference
import python_reference

ROOT = Path(__file__).resolve().parents[2]
UNUSED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "dist", "*.egg-info")


def manual_pages() -> dict[str, str]:
    """Exported name, or tool -> its page in docs/man, without .md."""
    found = {}
    for path in sorted((ROOT / "docs/man").glob("*.md")):
        line = re.match(r"# NAME\n\n(.*?) - ", path.read_text())
        assert line, f"{path} has no NAME"
        found.update(dict.fromkeys(line[1].split(", "), path.name[:-3]))
    return found


def contents(title: str, text: str, names: list[str]) -> str:
    tree = "".join(f"   {name}\n" for name in names)
    return f"{title}\n{'=' * len(title)}\n\n{text}\n\n.. toctree::\n   :maxdepth: 1\n\n{tree}"


def main() -> None:
    stage = Path(sys.argv[1])
    for path in ROOT.iterdir():
        if path.name.startswith((".", "build")):
            continue
        if path.is_dir():
            shutil.copytree(path, stage / path.name, ignore=UNUSED)
        else:
            shutil.copy(path, stage)
    navigation = "\n".join(
        line
        for line in (ROOT / "docs/site/navigation.md").read_text().split("\n")
        if not line.endswith("*") or [*stage.glob(line)]
    )
    (stage / "index.md").write_text((ROOT / "README.md").read_text() + "\n" + navigation)
    pages = manual_pages()
    headers = sorted((ROOT / "include/halay").glob("*.h"))
    first = ("halay", "types", "collectives", "request", "training")
    headers.sort(key=lambda path: first.index(path.stem) if path.stem in first else len(first))
    for name in ("c", "python", "man"):
        (stage / "reference" / name).mkdir(parents=True)
    for header in headers:
        (stage / f"reference/c/{header.stem}.rst").write_text(c_reference.page(header, pages))
    (stage / "reference/c/index.rst").write_text(
        contents(
            "C reference",
            "Made from the headers. Programs need ``halay/halay.h`` alone; the others are "
            "for training engines, and for those who add a part.",
            [p.stem for p in headers],
        )
    )
    names = python_reference.write(ROOT / "python", stage / "reference/python")
    (stage / "reference/python/index.rst").write_text(
        contents("Python reference", "Made from the docstrings.", names)
    )
    (stage / "reference/man/index.rst").write_text(
        contents(
            "Manual pages",
            "The same pages that ``man`` shows where Halay is installed.",
            [f"/docs/man/{path.name[:-3]}" for path in sorted((ROOT / "docs/man").glob("*.md"))],
        )
    )


if __name__ == "__main__":
    main()
