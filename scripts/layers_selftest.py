# SPDX-License-Identifier: Apache-2.0
"""check-layers --selftest: a small tree that keeps to the layers, then one breach at a time
(layers_cases.py)."""

import subprocess
import tempfile
from pathlib import Path

from layers_cases import BREACHES, LIBRARIES, OBJECTS, RIGHT, TREE, UPWARD


def compile_object(root, name, code):
    target = root / f"build/src/CMakeFiles/halay_core.dir/{name}.c.o"
    source = root / f"src/{name}.c"
    for path in (target, source):
        path.parent.mkdir(parents=True, exist_ok=True)
    source.touch()
    subprocess.run(["cc", "-c", "-xc", "-", "-o", target], text=True, input=code, check=True)
    return target


def compile_library(root, name, code):
    target = root / "build/lib" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-xc", "-", "-o", target], text=True, input=code, check=True)


def expect(what, breaches, text):
    if (len(breaches) == 1 and text in breaches[0]) if text else not breaches:
        return 0
    print(f"check-layers --selftest: {what}: expected {text or 'nothing'!r}, got {breaches}")
    return 1


def main(check):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for path, text in TREE.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        subprocess.run("git init -q && git add .", shell=True, cwd=root, check=True)
        for name, code in RIGHT.items():
            compile_library(root, name, code)
        for name, code in OBJECTS.items():
            compile_object(root, name, code)
        wrong = expect("a tree that is right", check(root)[1], "")
        for path, line, text in BREACHES:
            (root / path).write_text(f"{TREE[path]}{line}\n")
            wrong += expect(f"{path}: {line}", check(root)[1], text)
            (root / path).write_text(TREE[path])
        for name, code, text in LIBRARIES:
            compile_library(root, name, code)
            wrong += expect(f"{name}: {code}", check(root)[1], text)
            compile_library(root, name, RIGHT[name])
        for name, code, text in UPWARD:
            target = compile_object(root, name, code)
            wrong += expect(f"{name}: {code}", check(root)[1], text)
            target.unlink()
            if name in OBJECTS:
                compile_object(root, name, OBJECTS[name])
    breaches = len(BREACHES) + len(LIBRARIES) + len(UPWARD)
    print(f"check-layers --selftest: {breaches} breaches, {wrong} not found")
    return min(wrong, 1)
