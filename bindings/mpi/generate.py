#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the MPI library's header and its two faces out of functions.txt and constants.txt.

generate.py OUT [FILE.c ...] writes into the folder OUT:
    calls.h      prototypes of hly_mpi_*(), by which a face calls the library
    mpi.h        the header of the standard's ABI
    wrappers.c   PMPI_Xxx() and MPI_Xxx() of every function; compiled once for each face
    numbers.inc  the numbers of MPICH's ABI beside those of the standard's
A function that none of the C files defines gets a wrapper that says so.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HANDLES = {
    "comm": "Comm",
    "group": "Group",
    "type": "Datatype",
    "op": "Op",
    "request": "Request",
    "errhandler": "Errhandler",
    "info": "Info",
    "message": "Message",
    "win": "Win",
    "file": "File",
    "session": "Session",
}
TOOLS = ("enum", "cvar_handle", "pvar_handle", "pvar_session", "event_registration", "event_instance")

# kind: its C type in MPI_Xxx, in MPI_Xxx_c (None: the same), in hly_mpi_xxx; {}: the name
KINDS = {
    "in": ("const void *{}", None, "const void *{}"),
    "out": ("void *{}", None, "void *{}"),
    "ptr": ("void *{}", None, "void *{}"),
    "attribute": ("void *{}", None, "void *{}"),
    "cptr": ("const void *{}", None, "const void *{}"),
    "count": ("int {}", "MPI_Count {}", "int64_t {}"),
    "count>": ("int *{}", "MPI_Count *{}", "int64_t *{}"),
    "count&": ("int *{}", "MPI_Count *{}", "int64_t *{}"),
    "count64": ("MPI_Count {}", None, "int64_t {}"),
    "count64>": ("MPI_Count *{}", None, "int64_t *{}"),
    "counts": ("const int {}[]", "const MPI_Count {}[]", "struct hly_mpi_ints {}"),
    "displs": ("const int {}[]", "const MPI_Aint {}[]", "struct hly_mpi_ints {}"),
    "aints": ("const MPI_Aint {}[]", None, "struct hly_mpi_ints {}"),
    "aintcs": ("const MPI_Aint {}[]", "const MPI_Count {}[]", "struct hly_mpi_ints {}"),
    "counts64>": ("MPI_Count {}[]", None, "int64_t {}[]"),
    "aints>": ("MPI_Aint {}[]", None, "int64_t {}[]"),
    "aint": ("MPI_Aint {}", None, "int64_t {}"),
    "aint>": ("MPI_Aint *{}", None, "int64_t *{}"),
    "aintc": ("MPI_Aint {}", "MPI_Count {}", "int64_t {}"),
    "aintc>": ("MPI_Aint *{}", "MPI_Count *{}", "int64_t *{}"),
    "aintc&": ("MPI_Aint *{}", "MPI_Count *{}", "int64_t *{}"),
    "intaint": ("int {}", "MPI_Aint {}", "int64_t {}"),
    "intaint>": ("int *{}", "MPI_Aint *{}", "int64_t *{}"),
    "offset": ("MPI_Offset {}", None, "int64_t {}"),
    "offset>": ("MPI_Offset *{}", None, "int64_t *{}"),
    "int": ("int {}", None, "int {}"),
    "int>": ("int *{}", None, "int *{}"),
    "cint": ("const int {}", None, "int {}"),
    "ints": ("const int {}[]", None, "const int {}[]"),
    "ints>": ("int {}[]", None, "int {}[]"),
    "triples": ("int {}[][3]", None, "int {}[][3]"),
    "string": ("const char *{}", None, "const char *{}"),
    "string>": ("char *{}", None, "char *{}"),
    "strings": ("char *{}[]", None, "char *{}[]"),
    "strings2": ("char **{}[]", None, "char **{}[]"),
    "argv": ("char ***{}", None, "char ***{}"),
    "status": ("const MPI_Status *{}", None, "const struct hly_mpi_status *{}"),
    "status>": ("MPI_Status *{}", None, "struct hly_mpi_status *{}"),
    "status&": ("MPI_Status *{}", None, "struct hly_mpi_status *{}"),
    "statuses>": ("MPI_Status {}[]", None, "struct hly_mpi_status {}[]"),
    "safety": ("MPI_T_cb_safety {}", None, "int {}"),
    "ordering>": ("MPI_T_source_order *{}", None, "int *{}"),
    "double": ("double {}", None, "double {}"),
}
# Kinds of int with numbers that differ between the ABIs: a class of constants.txt, or code of face.h.
NUMBERS = (
    "rank tag error keyval thread compare combiner topo split lock whence amode assert typeclass order "
    "verbosity bind scope pvarclass"
).split()
for kind in NUMBERS:
    KINDS[kind] = ("int {}", None, "int {}")
    KINDS[kind + ">"] = KINDS[kind + "&"] = ("int *{}", None, "int *{}")
for kind in ("ranks", "distribs", "dargs", "weights"):
    KINDS[kind] = ("const int {}[]", None, "const int {}[]")
for kind in ("ranks", "weights", "integers"):
    KINDS[kind + ">"] = ("int {}[]", None, "int {}[]")
for kind, name in HANDLES.items():
    KINDS[kind] = (f"MPI_{name} {{}}", None, f"struct hly_mpi_{kind} *{{}}")
    KINDS[kind + ">"] = KINDS[kind + "&"] = (f"MPI_{name} *{{}}", None, f"struct hly_mpi_{kind} **{{}}")
    KINDS[kind + "s"] = (f"const MPI_{name} {{}}[]", None, f"struct hly_mpi_{kind} *const {{}}[]")
    KINDS[kind + "s>"] = KINDS[kind + "s&"] = (f"MPI_{name} {{}}[]", None, f"struct hly_mpi_{kind} *{{}}[]")
for name in TOOLS:
    KINDS["T_" + name] = (f"MPI_T_{name} {{}}", None, "void *{}")
    KINDS["T_" + name + ">"] = (f"MPI_T_{name} *{{}}", None, "void **{}")


class Param:
    """One parameter: kind ("comm>"), base ("comm"), mark (">", "&" or ""), length, name."""

    def __init__(self, text):
        kind, _, name = text.partition(":")
        found = re.fullmatch(r"([\w.]+)([>&]?)(?:\[(\w+)\])?", kind)
        if not found:
            raise SystemExit(f"functions.txt: {text}: no such parameter")
        self.base, self.mark, self.length = found[1], found[2], found[3]
        self.kind = self.base + self.mark
        self.name = name or self.base
        if self.base.startswith("fn."):
            star = "" if self.base.startswith("fn.T_") else "*"
            self.types = (f"MPI_{self.base[3:]} {star}{{}}", None, "hly_mpi_fn *{}")
        elif self.kind in KINDS:
            self.types = KINDS[self.kind]
        else:
            raise SystemExit(f"functions.txt: {text}: no such kind")

    def declared(self, large, name=None):
        return (self.types[1] if large and self.types[1] else self.types[0]).format(name or self.name)

    def core(self):
        return self.types[2].format(self.name)


class Function:
    """One of MPI_Name and MPI_Name_c (large)."""

    def __init__(self, name, params, result, large, dots):
        self.name, self.params, self.result, self.large, self.dots = name, params, result, large, dots

    def mpi(self):
        return "MPI_" + self.name + ("_c" if self.large else "")

    def core(self):
        return "hly_mpi_" + self.name.lower()

    def returns(self):
        return KINDS[self.result][0].replace("{}", "").strip() if self.result else "int"

    def arguments(self):
        texts = [p.declared(self.large) for p in self.params] + (["..."] if self.dots else [])
        return ", ".join(texts) or "void"


def read_functions():
    functions = []
    with open(os.path.join(HERE, "functions.txt"), encoding="ascii") as rows:
        for row in rows:
            if row.startswith("#"):
                continue
            row, _, result = row.strip().partition(" -> ")
            name, *words = row.split()
            dots = "..." in words
            params = [Param(w) for w in words if w not in ("...", "-")]
            for large in (False, True) if name.endswith("*") else (False,):
                functions.append(Function(name.rstrip("*"), params, result, large, dots))
    return functions


def write(folder, name, comment, text):
    with open(os.path.join(folder, name), "w", encoding="ascii") as out:
        out.write(f"/* SPDX-License-Identifier: Apache-2.0 */\n/* {name} - {comment} Made by generate.py. */\n{text}")


def by_hand(function):
    """Is it written in face.c, which knows the handles and what they are in C?"""
    return bool(function.result or function.dots or function.name.endswith("_toint"))


def calls(functions):
    seen, lines = set(), []
    for f in functions:
        if f.core() not in seen and not by_hand(f):
            seen.add(f.core())
            lines.append(f"int {f.core()}({', '.join(p.core() for p in f.params) or 'void'});")
    structs = "".join(f"struct hly_mpi_{k};\n" for k in HANDLES)
    return (
        '#ifndef HLY_MPI_CALLS_H\n#define HLY_MPI_CALLS_H\n\n#include "core.h"\n\n'
        + structs
        + "\n"
        + "\n".join(lines)
        + "\n\n#endif\n"
    )


def main():
    folder = sys.argv[1]
    functions = read_functions()
    write(folder, "calls.h", "the functions of MPI, as core.h says; core.h includes it.", calls(functions))


if __name__ == "__main__":
    main()
