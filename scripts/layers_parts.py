# SPDX-License-Identifier: Apache-2.0
"""Part of check-layers: pure parts, and headers of the core. A pure part has no clock, no
memory and no log of its own, so of the C library it uses little."""

import re
from pathlib import Path

from layers_symbols import object_symbols

HEADER_LINES, HEADER_FUNCTIONS = 300, 40
PURE = ("src/agree/", "src/waits/")  # folders
PURE_FILE = "boot/common/world."  # it may use PURE
TRAINING = "src/training/core/"  # it may use PURE, memory and what halay.h says of types
HEADERS = {f"<{name}.h>" for name in ("stdarg", "stdbool", "stddef", "stdint", "stdio", "string")}
# And what compilers add.
CALLS = re.compile(r"_*v?snprintf(_chk)?|_*(mem|str)\w+|__stack_chk_fail|__\w*san\w*|"
                   r"_GLOBAL_OFFSET_TABLE_")
MEMORY = re.compile(r"[cm]alloc|realloc|free|qsort|__assert_fail|__popcount\w+|"
                    r"halay_(type_(bytes|name)|op_name)")


def check_pure_include(path, line, target):
    may = HEADERS | ({"<assert.h>", "<stdlib.h>"} if path.startswith(TRAINING) else set())
    if path.startswith((*PURE, PURE_FILE, TRAINING)) and not target and line not in may:
        yield f"{path}: includes {line}: a pure part may include {', '.join(sorted(may))}"


def check_pure_objects(build):
    objects = {part: [o for o in sorted((build / "src").rglob("*.o"))
                      if Path(part).name in o.parts] for part in PURE}
    objects[PURE_FILE] = sorted((build / "boot").rglob(f"common/{Path(PURE_FILE).name}*.o"))
    objects[TRAINING] = sorted((build / "src").rglob("training/core/*.o"))
    pure = set()
    for part, files in objects.items():
        found = {o.name: object_symbols(o) for o in files}
        own = {symbol for defined, _ in found.values() for symbol in defined}
        pure |= own
        for name, (_, needs) in found.items():
            may = pure if part in (PURE_FILE, TRAINING) else own
            for symbol in sorted(s for s in needs - may if not CALLS.fullmatch(s) and not
                                 (part == TRAINING and MEMORY.fullmatch(s))):
                yield f"{part[:part.rindex('/')]}/{name[:-2]} uses {symbol}, and is a pure part"


def check_header(root, path):
    """A header of the core belongs to one part of it, so it is short."""
    lines = (root / path).read_text().splitlines()
    functions = sum(bool(re.match(r"[a-z].*\w\(", line)) for line in lines)
    if len(lines) > HEADER_LINES or functions > HEADER_FUNCTIONS:
        yield (f"{path}: {len(lines)} lines and {functions} functions: {HEADER_LINES} and "
               f"{HEADER_FUNCTIONS} at most")
