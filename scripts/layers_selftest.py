# SPDX-License-Identifier: Apache-2.0
"""check-layers --selftest: a small tree that keeps to the layers, then one breach at a time."""

import subprocess
import tempfile
from pathlib import Path

TREE = {
    "include/halay/halay.h": "#include <stddef.h>\n",
    **{f"include/halay/{name}.h": '#include "halay.h"\n' for name in ("plan", "transport")},
    "src/core.h": "#include <halay/transport.h>\n",
    "src/engine.c": '#include "core.h"\n#include "plan/prove.h"\nint string; /* not a ring */\n',
    "src/plan/prove.h": "#include <halay/plan.h>\n",
    "src/plan/ring.c": '#include "prove.h"\n',
    "src/device/kernels.h": "#include <halay/halay.h>\n",
    "src/device/host.c": '#include "device/kernels.h"\n',
    "src/training/trainer.h": "#include <halay/halay.h>\n",
    "src/training/trainer.c": '#include "trainer.h"\n',
    "transports/a/a.h": '#include "halay/transport.h"\n',
    "transports/a/a.c": '#include "a.h"\n#include "../common/meet.h"\n',
    "transports/common/meet.h": '#include "halay/transport.h"\n',
    "transports/b/b.h": "", "tools/t/t.h": "", "tools/common/size.h": "",
    "tools/t/t.c": '#include "t.h"\n#include "../common/size.h"\n#include <halay/plan.h>\n',
    "boot/common/claim.h": "#include <halay/halay.h>\n",
    "boot/a/a.c": '#include "../common/claim.h"\n',
    "pmix/boot.c": "#include <pmix.h>\n#include <halay/halay.h>\n"
    '#include "../boot/common/claim.h"\n',
    "examples/e.c": "#include <halay/halay.h>\n",
    "tests/unit/t.c": '#include "core.h"\n#include "../../transports/a/a.h"\n',
}
# Which file gets which line, and what has to be said of it.
BREACHES = [
    ("include/halay/halay.h", '#include "../../src/core.h"', "src/core.h"),
    ("src/core.h", '#include "training/trainer.h"', "src/training/trainer.h"),
    ("src/core.h", '#include "../transports/a/a.h"', "transports/a/a.h"),
    ("src/engine.c", "#include <pmix.h>", "only pmix/ may"),
    ("src/engine.c", "#  include <pmix_server.h>", "only pmix/ may"),
    ("src/engine.c", "int ring_next;", "names an algorithm: ring"),
    ("src/engine.c", 'char *a = "recursive";', "names an algorithm: recursive"),
    ("src/engine.c", "void circulant(void);", "names an algorithm: circulant"),
    ("src/plan/ring.c", '#include "core.h"', "src/core.h"),
    ("src/plan/ring.c", "#include <halay/transport.h>", "include/halay/transport.h"),
    ("src/device/host.c", '#include "core.h"', "src/core.h"),
    ("src/device/host.c", '#include "plan/prove.h"', "src/plan/prove.h"),
    ("src/training/trainer.c", '#include "../core.h"', "src/core.h"),
    ("src/training/trainer.c", '#include "core.h"', "in no folder that it may look in"),
    ("transports/a/a.c", '#include "../b/b.h"', "transports/b/b.h"),
    ("transports/a/a.c", '#include "../../src/core.h"', "src/core.h"),
    ("tools/t/t.c", '#include "../../transports/common/meet.h"', "transports/common/meet.h"),
    ("tools/t/t.c", '#include "../../src/plan/prove.h"', "src/plan/prove.h"),
    ("tools/t/t.c", "#include <halay/none.h>", "in no folder that it may look in"),
    ("pmix/boot.c", '#include "../src/core.h"', "src/core.h"),
    ("boot/a/a.c", '#include "../../src/core.h"', "src/core.h"),
    ("examples/e.c", '#include "../src/core.h"', "src/core.h"),
]
PLUGIN = "halay/halay-transport-a.so"
RIGHT = {"libhalay.so": "int halay_init;", PLUGIN: "int halay_transport_v4_a;"}
# What else a built library exports, and what has to be said of it.
LIBRARIES = [
    (PLUGIN, "int halay_transport_v4_a, hly_more;", "hly_more"),
    (PLUGIN, "static int nothing;", "exports []"),
    (PLUGIN, "int halay_transport_a;", "halay_transport_v<ABI>_a may be"),
    (PLUGIN, "int halay_transport_v4_a, halay_boot_v3_b;", "halay_boot_v3_b"),
    ("libhalay.so", "int halay_init, hly_engine_start;", "exports hly_engine_start"),
]


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
        wrong = expect("a tree that is right", check(root)[1], "")
        for path, line, text in BREACHES:
            (root / path).write_text(f"{TREE[path]}{line}\n")
            wrong += expect(f"{path}: {line}", check(root)[1], text)
            (root / path).write_text(TREE[path])
        for name, code, text in LIBRARIES:
            compile_library(root, name, code)
            wrong += expect(f"{name}: {code}", check(root)[1], text)
            compile_library(root, name, RIGHT[name])
    print(f"check-layers --selftest: {len(BREACHES + LIBRARIES)} breaches, {wrong} not found")
    return min(wrong, 1)
