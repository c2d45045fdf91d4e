#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Part of check-format: no coinage of scripts/words.txt stands in a comment, a message, a docstring
or a page."""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
C = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*', re.S)
BLANKS = re.compile(r'\\n|"\s*"|\n\s*(?:\*(?=[ \n])|#(?= )|//(?= ))|\s')
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]*`|\]\([^)]*\)|^    .*$", re.M | re.S)


def read_rules(text):
    """[(pattern, plain form)]"""
    rules = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coinage, plain = line.split(" -> ")
            rules.append((re.compile(rf"(?<![\w-])(?:{coinage})(?![\w-])"), plain))
    return rules


def texts(name, text):
    """(offset, text) of what people read."""
    if name.endswith((".c", ".h", ".inc", ".cpp")):
        yield from ((m.start(), m[0]) for m in C.finditer(text))
    elif name.endswith(".md"):
        blanked = CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        yield from ((m.start(), m[0]) for m in re.finditer(r"(?:[^\n]+\n?)+", blanked))
    else:
        starts = [0, *(m.end() for m in re.finditer("\n", text))]
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield starts[token.start[0] - 1] + token.start[1], token.string


def hits(rules, name, text):
    """(line, what, plain form)"""
    for at, piece in texts(name, text):
        flat = BLANKS.sub(lambda m: " " * len(m[0]), piece)
        flat = re.sub(r"(?<=\S) +(?=\S)", lambda m: " " + "\0" * (len(m[0]) - 1), flat)
        kept = [i for i, c in enumerate(flat) if c != "\0"]
        line = "".join(flat[i] for i in kept)
        for pattern, plain in rules:
            for m in pattern.finditer(line):
                yield text.count("\n", 0, at + kept[m.start()]) + 1, m[0], plain


def files():
    command = ["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z", "*.[ch]", "*.inc"]
    listed = subprocess.check_output([*command, "*.cpp", "*.py", "*.md"], text=True)
    history = ("docs/decisions/", "docs/history/", "CHANGELOG.md", "tests/", "scripts/")
    return [name for name in listed.split("\0") if name and not name.startswith(history)]


def selftest(rules):
    """Each kind of text is read, and code is not."""
    found = [  # name, text, the lines with a coinage
        ("a.c", 'int till; /* by\n * turns */\nf("in "\n  "vain");', [1, 3]),
        ("a.py", '# till\ntill = "x"\n"""By\nturns."""\n', [1, 3]),
        ("a.md", "It is\ntold of\n\n```\ntill\n```\n`till` till\n", [1, 7]),
    ]
    for name, text, lines in found:
        seen = [n for n, _, _ in hits(rules, name, text)]
        assert seen == lines, (name, seen, lines)


def main():
    rules = read_rules((ROOT / "scripts/words.txt").read_text())
    selftest(rules)
    wrong = [f"{name}:{n}: '{what}': write {plain}" for name in files()
             for n, what, plain in hits(rules, name, (ROOT / name).read_text())]
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
