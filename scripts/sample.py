#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sample.py SHARE [--rest] NAME...: one in SHARE of the names of each group, or the others: what a
run of scripts/test takes of tests that differ little. SAMPLE, there the date by default, says
which; without it all are taken. A group is what stands before the first '-' or '['."""

import hashlib
import os
import re
import subprocess
import sys


def chosen(names, seed=None, share=3):
    """One name in so many of each group, rounded up, in the order of names."""
    seed = os.environ.get("SAMPLE") if seed is None else seed
    if not seed:
        return list(names)
    groups = {}
    for name in names:
        groups.setdefault(re.split("[-[]", name)[0], []).append(name)
    taken = set()
    for group in groups.values():
        group.sort(key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
        taken.update(group[: -(-len(group) // share)])
    return [name for name in names if name in taken]


def files(root, paths):
    """Of these: what the last twenty commits have changed, and a third of the rest."""
    git = ["git", "-c", "safe.directory=*", "diff", "--name-only", "HEAD~20"]
    got = subprocess.run(git, cwd=root, capture_output=True, text=True)
    if got.returncode:  # a clone that does not know so many
        return list(paths)
    recent = {root / name for name in got.stdout.splitlines()}
    some = set(chosen([f"-{path.relative_to(root)}" for path in paths]))
    return [p for p in paths if p in recent or f"-{p.relative_to(root)}" in some]


if __name__ == "__main__":
    share, words = int(sys.argv[1]), sys.argv[2:]
    rest = words[:1] == ["--rest"]
    words = words[1:] if rest else words
    taken = set(chosen(words, share=share))
    print(*(word for word in words if (word in taken) != rest), sep="\n")
