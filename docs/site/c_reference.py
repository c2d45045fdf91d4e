# SPDX-License-Identifier: Apache-2.0
"""The C reference: a page for each header, of its comments and declarations in their order.

What is read is C as clang-format leaves it here: comments of declarations begin at the line's
first column, a group of declarations belongs to the comment above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FUNCTION = re.compile(r"^HALAY_API\s+(.*?);", re.M | re.S)
TYPE = re.compile(r"^typedef [^;{]*?\(?\*?(halay_\w+)\)?(?:\([^;{]*\))?;|^\} (halay_\w+);", re.M)
ENUM = re.compile(r"^enum (halay_\w+) \{", re.M)
MACRO = re.compile(r"^#define (HALAY_\w+)", re.M)
SKIPPED = re.compile(
    r"^/\* SPDX[^\n]*\n|^#(?:ifndef|ifdef|endif|else|if|include)\b[^\n]*\n"
    r'|^extern "C" \{\n|^\}\n(?=#endif)|^#define HALAY_\w+_H\n|^#define HALAY_API\b[^\n]*\n',
    re.M,
)
COLUMNS = re.compile(r"^ {4,}\S|\S {2,}[^\s.]", re.M)  # three blanks continue an item of a list
RULER = re.compile(r"^/\* -{5,} (.*?) \*/$")


def escaped(text: str) -> str:
    """Words of a comment as reStructuredText; functions become references."""
    text = re.sub(r"([\\*`|])", r"\\\1", text)
    text = re.sub(r"(\w)_(?=\W|$)", r"\1\\_", text)
    return linked(re.sub(r"\b(halay_\w+)\(\)", r":c:func:`\1`", text))


def linked(text: str) -> str:
    """Names of pages ("docs/ray.md") become links."""
    return re.sub(r"(?<!`)\bdocs/([a-z][\w-]*)\.md", r":doc:`/docs/\1`", text)


def words(comment: str) -> str:
    """A comment without its stars. Where blanks make columns it stays as it is; lines that begin
    with a dash are a list."""
    lines = [
        re.sub(r"^ ?\*(?: |$)", "", line).rstrip() for line in comment.strip()[2:-2].split("\n")
    ]
    text = "\n".join(lines).strip()
    if COLUMNS.search(text):
        return "::\n\n" + indented(text)
    out, listed = [], False
    for line in text.split("\n"):
        bullet = line.lstrip().startswith("- ")
        listed = bool(line.strip()) and (bullet or listed)
        if bullet:
            out.append("")
        out.append(("  " if listed and not bullet else "") + escaped(line.strip()))
    return "\n".join(out).strip()


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """("comment" or "code", text) in order; comments are those at the first column."""
    at = 0
    for found in re.finditer(r"^/\*.*?\*/[ ]*\n", text, re.M | re.S):
        if text[at : found.start()].strip():
            yield "code", text[at : found.start()]
        if text[at : found.start()].count("{") == text[at : found.start()].count("}"):
            yield "comment", found[0]
        at = found.end()
    if text[at:].strip():
        yield "code", text[at:]


def indented(text: str) -> str:
    return "\n".join("   " + line if line else "" for line in text.split("\n"))


def directive(kind: str, signatures: list[str], body: str) -> str:
    lines = [f".. c:{kind}:: {signatures[0]}"]
    lines += [" " * (len(kind) + 9) + signature for signature in signatures[1:]]
    return "\n".join(lines) + "\n\n" + indented(body) + "\n\n"


def one_line(signature: str) -> str:
    signature = re.sub(r"/\*.*?\*/", "", signature, flags=re.S)
    return re.sub(r"\s+", " ", signature).strip()


def declarations(comment: str, code: str, pages: dict[str, str]) -> Iterator[str]:
    """A comment, and what it is about."""
    functions = [one_line(found) for found in FUNCTION.findall(code)]
    rest = FUNCTION.sub("", code).strip("\n")
    names = [a or b for a, b in TYPE.findall(rest)] + ENUM.findall(rest)
    macros = MACRO.findall(rest)
    if functions:
        named = [re.search(r"(halay_\w+)\(", f) for f in functions]
        manual = sorted({pages[n[1]] for n in named if n and n[1] in pages})
        see = ", ".join(f":doc:`{page.rsplit('.', 1)[0]} </docs/man/{page}>`" for page in manual)
        yield directive("function", functions, comment + (f"\n\nManual page: {see}" if see else ""))
        comment = ""
    if not rest.strip():
        return
    block = ".. code-block:: c\n\n" + indented(re.sub(r"\n{3,}", "\n\n", rest)) + "\n"
    body = (comment + "\n\n" if comment else "") + block
    if names:
        yield directive("type", names, body)
    elif macros:
        yield directive("macro", macros, body)
    else:
        yield body + "\n"


def page(header: Path, pages: dict[str, str]) -> str:
    """A header as reStructuredText. pages: exported name -> file of docs/man without .md."""
    text = header.read_text()
    while SKIPPED.search(text):
        text = SKIPPED.sub("", text)
    title = f"halay/{header.name}"
    out, above, first = [f"{title}\n{'=' * len(title)}\n\n"], "", True
    for kind, piece in pieces(text):
        ruler = RULER.match(piece.strip())
        if ruler:
            out.append(f"{above}\n\n{ruler[1]}\n{'-' * len(ruler[1])}\n\n")
            above = ""
        elif kind == "comment":
            out.append(above + "\n\n")
            above = words(piece)
            if first:
                above = re.sub(r"^\S+\.h - (\w)", lambda m: m[1].upper(), above)
                out.append(above + "\n\n")
                above, first = "", False
        else:
            for number, group in enumerate(groups(piece)):
                out.extend(declarations("" if number else above, group, pages))
            above = ""
    return "".join([*out, above, "\n"])


def groups(code: str) -> list[str]:
    """Declarations that an empty line parts, outside of braces."""
    found, depth, group = [], 0, ""
    for line in code.split("\n"):
        if not line.strip() and depth == 0:
            found.append(group)
            group = ""
            continue
        depth += line.count("{") - line.count("}")
        group += line + "\n"
    return [group for group in [*found, group] if group.strip()]
