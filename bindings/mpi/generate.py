#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the MPI library's header and its two faces out of functions.txt and constants.txt.

generate.py OUT [FILE.c ...] writes into the folder OUT:
    calls.h      prototypes of hly_mpi_*(), by which a face calls the library
    mpi.h        the header of the standard's ABI
    mpich/mpi.h  the same of MPICH's ABI, for tests of that library
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
TOOLS = (
    "enum",
    "cvar_handle",
    "pvar_handle",
    "pvar_session",
    "event_registration",
    "event_instance",
)

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
# Kinds of int with numbers that differ between the ABIs: classes of constants.txt.
NUMBERS = ["rank", "tag", "error", "keyval", "thread", "compare", "combiner", "topo", "split"]
NUMBERS += ["lock", "whence", "amode", "assert", "typeclass", "order"]
NUMBERS += ["verbosity", "bind", "scope", "pvarclass"]
for kind in NUMBERS:
    KINDS[kind] = ("int {}", None, "int {}")
    KINDS[kind + ">"] = KINDS[kind + "&"] = ("int *{}", None, "int *{}")
for kind in ("ranks", "distribs", "dargs", "weights"):
    KINDS[kind] = ("const int {}[]", None, "const int {}[]")
for kind in ("ranks", "weights", "integers"):
    KINDS[kind + ">"] = ("int {}[]", None, "int {}[]")
for kind, name in HANDLES.items():
    KINDS[kind] = (f"MPI_{name} {{}}", None, f"struct hly_mpi_{kind} *{{}}")
    KINDS[kind + ">"] = KINDS[kind + "&"] = (
        f"MPI_{name} *{{}}",
        None,
        f"struct hly_mpi_{kind} **{{}}",
    )
    KINDS[kind + "s"] = (f"const MPI_{name} {{}}[]", None, f"struct hly_mpi_{kind} *const {{}}[]")
    KINDS[kind + "s>"] = KINDS[kind + "s&"] = (
        f"MPI_{name} {{}}[]",
        None,
        f"struct hly_mpi_{kind} *{{}}[]",
    )
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

    def declared(self, large):
        return (self.types[1] if large and self.types[1] else self.types[0]).format(self.name)

    def core(self):
        return self.types[2].format(self.name)


class Function:
    """One of MPI_Name and MPI_Name_c (large)."""

    def __init__(self, name, params, result, large, dots):
        self.name, self.params, self.result = name, params, result
        self.large, self.dots = large, dots

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
    """What is the same already stays as old as it is, and nothing is built again."""
    if comment:
        text = (
            "/* SPDX-License-Identifier: Apache-2.0 */\n"
            f"/* {name} - {comment} Made by generate.py. */\n{text}"
        )
    path = os.path.join(folder, name)
    if os.path.exists(path):
        with open(path, encoding="ascii") as old:
            if old.read() == text:
                return
    with open(path, "w", encoding="ascii") as out:
        out.write(text)


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


NARROW = ("count", "intaint")  # int in MPI_Xxx, 64 bits in MPI_Xxx_c
COPIED = {"ranks": "rank", "distribs": "distribution", "dargs": "distribution"}


class Wrapper:
    """The text of one PMPI_Xxx(), by parts."""

    def __init__(self, function):
        self.f = function
        self.scalars, self.arrays, self.arguments, self.after, self.freed = [], [], [], [], []
        self.bad = False
        self.where = None  # how face_raise() finds the error handler
        self.names = {p.name: p for p in function.params}
        for p in function.params:
            self.add(p)

    def length(self, p):
        """The length of an array, before the call."""
        if p.length in ("in", "out"):
            comm = next(q.name for q in self.f.params if q.base == "comm")
            neighbours = "true" if "neighbor" in self.f.name.lower() else "false"
            return f"face_peers({comm}_, {neighbours}, {'true' if p.length == 'in' else 'false'})"
        if p.length == "outcount":
            return "incount"
        return "0" if p.length == "none" else p.length

    def add(self, p):
        n = p.name
        if p.base in HANDLES or (p.base.rstrip("s") in HANDLES and p.length):
            self.add_handles(p)
        elif p.base in ("status", "statuses"):
            self.add_status(p)
        elif p.base in COPIED:
            self.add_copied(p)
        elif p.base in [*NUMBERS, "ordering", "safety"]:
            self.add_number(p)
        elif p.kind == "int>" and not self.f.name.startswith(("T_", "Init")):
            self.bad = True
            self.scalars.append(f"if (!{n})\n        bad = -2;")
            self.arguments.append(n)
        elif p.mark and p.base in NARROW and not self.f.large:
            start = f"{n} ? *{n} : 0" if p.mark == "&" else "0"
            self.scalars.append(f"int64_t {n}_ = {start};")
            self.arguments.append(f"{n} ? &{n}_ : NULL")
            self.after.append(f"if ({n} && !rc)\n        *{n} = face_fit({n}_);")
        elif p.types[2].startswith("int64_t *") or p.types[2] == "int64_t {}[]":
            self.arguments.append(f"(int64_t *){n}")
        elif p.types[2].startswith("struct hly_mpi_ints"):
            wide = self.f.large or p.base in ("aints", "aintcs")
            self.arguments.append(f"(struct hly_mpi_ints){{{n}, {'true' if wide else 'false'}}}")
        elif p.base in ("in", "out"):
            self.arguments.append(f"in_buffer({n})")
        elif p.base.startswith("fn."):
            self.arguments.append(f"in_copy_fn({n})" if "opy" in p.base else f"(hly_mpi_fn *){n}")
        else:
            self.arguments.append(n)
            if p.base == "attribute":
                keyval = next(q.name for q in self.f.params if q.base == "keyval")
                self.after.append(
                    f"if (!rc && *flag) {{\n        out_attribute({keyval}, {n});\n    }}"
                )
            elif p.kind == "integers>":
                self.after.append(
                    f"if (!rc) {{\n        out_integers(datatype_, {n}, max_integers);\n    }}"
                )

    def add_handles(self, p):
        n, kind = p.name, p.base
        if p.length:
            self.add_handle_array(p)
            return
        struct = f"struct hly_mpi_{kind} *{n}_"
        if p.mark == ">":
            self.bad = True
            self.scalars.append(f"{struct} = NULL;")
            self.scalars.append(f"if (!{n})\n        bad = -2;")
            self.arguments.append(f"&{n}_")
            self.after.append(f"if (!rc)\n        *{n} = out_{kind}({n}_);")
            if self.f.name.startswith("T_"):  # there a result may be left out
                self.scalars.pop()
                self.after[-1] = f"if (!rc && {n})\n        *{n} = out_{kind}({n}_);"
            return
        self.bad = True
        if p.mark == "&":
            self.scalars.append(f"{struct} = NULL;")
            self.scalars.append(
                f"if ({n})\n        {n}_ = in_{kind}(*{n}, &bad);\n    else\n        bad = -2;"
            )
            self.arguments.append(f"&{n}_")
            self.after.append(f"if (!bad)\n        *{n} = out_{kind}({n}_);")
        else:
            self.scalars.append(f"{struct} = in_{kind}({n}, &bad);")
            self.arguments.append(f"{n}_")
        if kind in ("comm", "win", "file", "session") and not self.where:
            self.where = f"face_raise(HLY_MPI_{kind.upper()}, {n}_, rc)"
        elif kind == "request" and p.mark == "&":
            self.scalars.append(f"uint32_t where = face_where({n}_);")
            self.where = "face_raise_at(where, rc)"

    def add_handle_array(self, p):
        n, kind = p.name, p.base.rstrip("s")
        size = self.length(p)
        self.bad = True
        self.arrays.append(f"void *{n}_room[FACE_ROOM];")
        if p.kind == "types>":
            self.arrays.append(
                f"struct hly_mpi_type **{n}_ = face_types_out({size}, {n}_room, &bad);"
            )
            self.after.append(
                f"for (int64_t i = 0; !rc && {n}_ && i < {size}; i++)\n        if ({n}_[i])\n"
                f"            {n}[i] = out_type({n}_[i]);"
            )
        else:
            given = n
            if p.length == "out" and "sendbuf" in self.names:
                given = f"in_buffer(sendbuf) == MPI_IN_PLACE ? NULL : {n}"
            self.arrays.append(
                f"struct hly_mpi_{kind} **{n}_ = face_{kind}s({given}, {size}, {n}_room, &bad);"
            )
            if kind == "request":
                self.arrays.append(f"uint32_t where = face_where_first({n}_, {size});")
                self.where = "face_raise_at(where, rc)"
            if p.mark == "&":
                self.after.append(
                    f"for (int64_t i = 0; !bad && {n}_ && i < {size}; i++)\n"
                    f"        {n}[i] = out_request({n}_[i]);"
                )
        self.arguments.append(f"{n}_")
        self.freed.append(f"face_free({n}_, {n}_room);")

    def add_status(self, p):
        n = p.name
        if p.base == "statuses":
            self.bad = True
            self.arrays.append(f"struct hly_mpi_status {n}_room[FACE_ROOM], *{n}_ = NULL;")
            self.arrays.append(
                f"if ({n} != FACE_STATUS_IGNORE)\n"
                f"        {n}_ = face_array({self.length(p)}, sizeof *{n}_, {n}_room, &bad);"
            )
            self.arguments.append(f"{n}_")
            done = " && *outcount > 0" if p.length == "outcount" else ""
            done += " && *flag" if "flag" in self.names else ""
            count = "*outcount" if p.length == "outcount" else p.length
            self.after.append(
                f"if ({n}_ && (rc == MPI_ERR_IN_STATUS || (!rc{done})))\n"
                f"        face_statuses_out({n}, {n}_, {count}, rc != MPI_SUCCESS);"
            )
            self.freed.append(f"face_free({n}_, {n}_room);")
            return
        if p.mark == ">":
            empty = "MPI_ANY_SOURCE, MPI_ANY_TAG, 0, false, 0"
            self.scalars.append(f"struct hly_mpi_status {n}_ = {{{empty}}};")
            self.arguments.append(f"{n} == FACE_STATUS_IGNORE ? NULL : &{n}_")
            done = " && (rc || *flag)" if "flag" in self.names else ""
            self.after.append(
                f"if ({n} != FACE_STATUS_IGNORE && face_single_status_is_set(rc){done})\n"
                f"        out_status({n}, &{n}_);"
            )
            return
        self.bad = True
        self.scalars.append(f"struct hly_mpi_status {n}_ = {{0}};")
        self.scalars.append(
            f"if ({n} == NULL || {n} == FACE_STATUS_IGNORE)\n        bad = -3;\n    else\n"
            f"        in_status({n}, &{n}_);"
        )
        self.arguments.append(f"&{n}_")
        if p.mark == "&":
            self.after.append(
                f"if (!rc) {{\n        out_status({n}, &{n}_);\n"
                f"        {n}->MPI_ERROR = out_error({n}_.error);\n    }}"
            )

    def add_number(self, p):
        n, kind = p.name, p.base
        if not p.mark:
            self.arguments.append(f"in_{kind}({n})")
        elif p.mark == ">":
            self.arguments.append(f"(int *){n}" if kind == "ordering" else n)
            self.after.append(f"if ({n} && !rc)\n        *{n} = out_{kind}(*{n});")
        else:
            self.scalars.append(f"int {n}_ = {n} ? in_{kind}(*{n}) : 0;")
            self.arguments.append(f"{n} ? &{n}_ : NULL")
            self.after.append(f"if ({n} && !rc)\n        *{n} = out_{kind}({n}_);")

    def add_copied(self, p):
        n, convert = p.name, COPIED[p.base]
        if p.mark:
            self.arguments.append(n)
            self.after.append(
                f"for (int i = 0; {n} && !rc && i < {p.length}; i++)\n"
                f"        {n}[i] = out_{convert}({n}[i]);"
            )
            return
        self.bad = True
        self.arrays.append(f"int {n}_room[FACE_ROOM];")
        self.arrays.append(f"int *{n}_ = face_ints({n}, {p.length}, in_{convert}, {n}_room, &bad);")
        self.arguments.append(f"{n}_")
        self.freed.append(f"face_free({n}_, {n}_room);")

    def text(self, exists):
        f = self.f
        name = f.mpi()
        lines = ["int bad = 0;"] if self.bad else []
        if exists:
            lines += self.scalars + self.arrays
            call = f"{f.core()}({', '.join(self.arguments)})"
            if self.bad:
                call = f'LIKELY(!bad) ? {call} : face_bad("{name}", bad)'
            line = f"int rc = {call};"
            if f.name.startswith("T_"):
                lines.append(line)
            else:
                lines += [f'hly_mpi_called = "{name}";', line, "hly_mpi_called = NULL;"]
            lines += self.after + self.freed
        else:
            lines = ["static bool told;"]
            where = self.where or ""
            own = next((p for p in f.params if p.kind in ("comm", "win", "file", "session")), None)
            if own:
                n, kind = own.name, own.base
                lines.append("int bad = 0;")
                lines.append(f"struct hly_mpi_{kind} *{n}_ = in_{kind}({n}, &bad);")
            self.where = where if own else None
            lines.append(f'int rc = face_absent("{name}", &told);')
        if f.name.startswith("T_"):
            lines.append("return out_error(rc);")
        else:
            raised = self.where or "face_raise(HLY_MPI_COMM, NULL, rc)"
            lines.append(f"return LIKELY(!rc) ? MPI_SUCCESS : {raised};")
        return "    " + "\n    ".join(lines)


def declaration(f):
    """For wrappers.c, where functions of the program are of one type."""
    texts = []
    for p in f.params:
        texts.append(f"hly_mpi_fn *{p.name}" if p.base.startswith("fn.") else p.declared(f.large))
    return ", ".join(texts) or "void"


FIRST = {"Allreduce": "face_allreduce"}  # face.h


def wrappers(functions, defined):
    parts = ['\n#include "face.h"\n']
    for f in functions:
        if by_hand(f):
            continue
        name, arguments = f.mpi(), declaration(f)
        text = Wrapper(f).text(f.core() in defined)
        if f.name in FIRST:  # what is tried first, and the rest out of line, so it needs no frame
            names = ", ".join(p.name for p in f.params)
            parts.append(f"\nstatic FACE_REST int rest_{name}({arguments})\n{{\n{text}\n}}\n")
            text = "    int rc;\n"
            text += f"    return {FIRST[f.name]}({names}, &rc) ? rc : rest_{name}({names});"
        parts.append(
            f"\nFACE_API int P{name}({arguments});\n"
            f"int P{name}({arguments})\n{{\n{text}\n}}\n"
            f'FACE_API int {name}({arguments}) __attribute__((weak, alias("P{name}")));\n'
        )
    return "".join(parts)


def read_defined(files):
    """Names that the C files define: int hly_mpi_xxx( in column 0, and no prototype."""
    found = set()
    for file in files:
        with open(file, encoding="utf-8") as text:
            found.update(re.findall(r"^int (hly_mpi_\w+)\([^;{]*\)\s*\{", text.read(), flags=re.M))
    return found


def read_constants():
    """{class: [(name, value, MPICH's value or None, C type)]}"""
    classes, rows = {}, None
    with open(os.path.join(HERE, "constants.txt"), encoding="ascii") as lines:
        for line in lines:
            line = line.strip()
            if line.startswith("["):
                rows = classes.setdefault(line[1:-1], [])
            elif line and not line.startswith("#"):
                name, value, *rest = line.split(None, 3)
                other = rest[0] if rest and rest[0] != "-" else None
                rows.append((name, value, other, rest[1] if len(rest) > 1 else None))
    return classes


ENUMS = {"safety": "MPI_T_cb_safety", "ordering": "MPI_T_source_order"}


STATUS = "MPI_SOURCE MPI_TAG MPI_ERROR MPI_internal[5]"
MPICH_STATUS = "count_lo count_hi_and_cancelled MPI_SOURCE MPI_TAG MPI_ERROR"


def constant(kind, row, mpich):
    """Its value in C, or None."""
    name, value, other, ctype = row
    if mpich:
        value = "MPIR_Dup_fn" if name.endswith("DUP_FN") else other
    if kind in HANDLES:
        ctype = f"MPI_{HANDLES[kind]}"
    if value and ctype:
        return f"(({ctype}){value})"
    return f"({value})" if value and value.startswith("-") else value


def header(functions, classes, mpich):
    enums, constants, handles = [], [], []
    for kind, rows in classes.items():
        if kind in ENUMS:
            members = ",\n".join(f"    MPI_{row[0]} = {constant(kind, row, mpich)}" for row in rows)
            enums.append(f"typedef enum {ENUMS[kind]} {{\n{members}\n}} {ENUMS[kind]};\n")
            continue
        for row in rows:
            value = constant(kind, row, mpich)
            if kind == "alias":
                value = row[1]
            if value:
                constants.append(f"#define MPI_{row[0]:30} {value}")
        constants.append("")
    for name in sorted(HANDLES.values()):
        ctype = "int " if mpich and name != "File" else f"struct MPI_ABI_{name} *"
        handles.append(f"typedef {ctype}MPI_{name};")
    handles.append("")
    status = [f"    int {member};" for member in (MPICH_STATUS if mpich else STATUS).split()]
    prototypes = []
    for prefix in ("", "P"):
        prototypes += [f"{f.returns()} {prefix}{f.mpi()}({f.arguments()});" for f in functions]
        prototypes.append("")
    if mpich:
        prototypes.append("MPI_Copy_function MPIR_Dup_fn;\n")
    with open(os.path.join(HERE, "mpi.h.in"), encoding="ascii") as text:
        text = text.read()
    abi = "MPICH's ABI" if mpich else "the standard's ABI 1.0"
    for name, lines in (
        ("ABI", [abi]),
        ("HANDLES", handles),
        ("STATUS", status),
        ("ENUMS", enums),
        ("CONSTANTS", constants),
        ("FUNCTIONS", prototypes),
    ):
        text = text.replace(f"@{name}@", "\n".join(lines))
    return text


def numbers(classes):
    """Tables and functions that face_mpich.h uses."""
    parts, every = [], []
    for kind in HANDLES:
        rows = [(int(v, 16), int(m, 16)) for _, v, m, _ in classes[kind] if m]
        places = {(m & 0x7F) + (m >> 31 << 7): (m, v) for v, m in rows[1:]}  # the first is null
        every += [(v, m) for v, m in rows[1:]]
        parts.append(f"#define FACE_NULL_{kind} 0x{rows[0][1]:08x}u\n")
        items = [f"[0x{i:02x}] = {{0x{m:08x}u, 0x{v:03x}}}" for i, (m, v) in sorted(places.items())]
        items = ", ".join(items) or "{0, 0}"
        parts.append(f"static const struct face_number face_{kind}s_in[] = {{{items}}};\n")
    items = ", ".join(f"[0x{v:03x}] = 0x{m:08x}u" for v, m in sorted(every))
    parts.append(f"static const uint32_t face_numbers_out[HLY_MPI_NUMBERS] = {{{items}}};\n")
    for kind in [*NUMBERS, "safety", "ordering", "distribution"]:
        if kind in ("rank", "tag"):  # face_mpich.h has those
            continue
        rows = [(int(v, 0), int(m, 0)) for _, v, m, _ in classes[kind] if m]
        bits = kind in ("amode", "assert")
        for way, pairs in (("in", [(m, v) for v, m in rows]), ("out", rows)):
            if bits:
                body = "    return " + " | ".join(f"(n & {a} ? {b} : 0)" for a, b in pairs) + ";\n"
            else:
                cases = "".join(f"    case {a}:\n        return {b};\n" for a, b in pairs)
                other = f"    default:\n        return face_other_{way}_{kind}(n);\n"
                body = f"    switch (n) {{\n{cases}{other}    }}\n"
            parts.append(f"static inline int {way}_{kind}(int n)\n{{\n{body}}}\n")
    return "\n" + "\n".join(parts)


def main():
    folder = sys.argv[1]
    functions = read_functions()
    write(folder, "calls.h", "the functions of MPI, as core.h says.", calls(functions))
    classes = read_constants()
    write(folder, "numbers.inc", "face_mpich.h includes it.", numbers(classes))
    write(folder, "mpi.h", None, header(functions, classes, False))
    os.makedirs(os.path.join(folder, "mpich"), exist_ok=True)
    write(folder, "mpich/mpi.h", None, header(functions, classes, True))
    defined = read_defined(sys.argv[2:])
    write(folder, "wrappers.c", "what a program calls; face.h.", wrappers(functions, defined))


if __name__ == "__main__":
    main()
