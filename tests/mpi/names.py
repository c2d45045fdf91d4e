#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares names, constants and prototypes of the MPI libraries with what they stand for.

names.py --header MPI_H [--abi LIB] [--mpich LIB] [REFERENCE]

Always: both libraries export both names of all 664 functions, and numbers.h has the values of the
header. REFERENCE is the folder with MPICH's mpi_abi.h and mpi.h, of version 5 or newer. Without it
that part is skipped, with the reason.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bindings/mpi")
FUNCTIONS = 664
# The standard has int in MPI_Psend_init, and a large form; MPICH 5 has MPI_Count, and none.
MPICH_DIFFERS = {"MPI_Psend_init", "MPI_Precv_init"}
MPICH_LACKS = {"MPI_Psend_init_c", "MPI_Precv_init_c"}
failures = []


def fail(text):
    failures.append(text)
    print(text)


def read(path):
    with open(path, encoding="utf-8") as text:
        return re.sub(r"/\*.*?\*/", " ", text.read(), flags=re.S)


def prototypes(path):
    """{name: (result, types)}: with T x[] as T *x, and without names."""
    found = {}
    pattern = r"^ *(int|double|MPI_\w+)\s+(MPI_\w+)\s*\(([^()]*)\)[^;{]*;"
    for result, name, words in re.findall(pattern, read(path), re.M):
        types = []
        for word in words.split(","):
            pointers = "*" * word.count("[")
            word = re.sub(r"\[\d*\]", "", word).strip()
            if word not in ("void", "..."):
                word = re.sub(r"\w+$", "", word)
            types.append(re.sub(r"\s+", "", word + pointers))
        found[name] = (result, types)
    return found


def exported(library):
    lines = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def values(include, header, names):
    """What a C compiler says that these constants are; those that there are not are left out."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "c.c"), os.path.join(folder, "c")
        names = list(names)
        while True:
            with open(source, "w", encoding="ascii") as out:
                out.write(f"#include <stdio.h>\n#include <{header}>\nint main(void)\n{{\n")
                out.writelines(f'    printf("{n} %lld\\n", (long long)({n}));\n' for n in names)
                out.write("}\n")
            build = ["cc", "-w", "-I", include, source, "-o", program]
            build.append("-Wl,--unresolved-symbols=ignore-all")
            english = dict(os.environ, LC_ALL="C")
            run = subprocess.run(build, capture_output=True, text=True, env=english, check=False)
            if run.returncode == 0:
                break
            missing = set(re.findall(r"'(MPI_\w+)' undeclared", run.stderr))
            if not missing:
                sys.exit(run.stderr)
            names = [n for n in names if n not in missing]
        lines = subprocess.check_output([program], text=True).splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}


def check_library(library, names, more):
    has = exported(library)
    want = {prefix + name for name in names for prefix in ("", "P")}
    for name in sorted(want - has):
        fail(f"{library}: {name} is missing")
    if not more:
        for name in sorted(has - want):
            fail(f"{library}: exports {name}")


def check_numbers(header):
    pattern = r"^\s*(?:#define )?(MPI_[A-Z]\w+)\s*=?\s+\S.*?,?$"
    ours = re.findall(pattern, read(os.path.join(SOURCE, "numbers.h")), flags=re.M)
    theirs = values(os.path.dirname(header), os.path.basename(header), ours)
    here = values(SOURCE, "numbers.h", ours)
    for name in ours:
        if here.get(name) != theirs.get(name):
            fail(f"numbers.h: {name} is {here.get(name)}, in mpi.h {theirs.get(name)}")


def constants():
    """{MPI_NAME: MPICH's value} of constants.txt."""
    found = {}
    for line in read(os.path.join(SOURCE, "constants.txt")).splitlines():
        words = line.split()
        if len(words) >= 3 and not line.startswith(("#", "[")) and words[2] != "-":
            found["MPI_" + words[0]] = int(words[2], 0)
    return found


def check_reference(header, library, reference):
    ours, theirs = prototypes(header), prototypes(os.path.join(reference, "mpi_abi.h"))
    for name in sorted(set(ours) - set(theirs) - MPICH_LACKS):
        fail(f"{name} is not in {reference}/mpi_abi.h")
    for name, prototype in sorted(theirs.items()):
        if name not in ours:
            fail(f"{name} of {reference}/mpi_abi.h is missing")
        elif prototype != ours[name] and name not in MPICH_DIFFERS:
            fail(f"{name}: {ours[name]}, in mpi_abi.h {prototype}")

    pattern = r"^#define\s+(MPI_[A-Z]\w*)\s+\S|^\s+(MPI_[A-Z]\w*)\s*="
    names = {a or b for a, b in re.findall(pattern, read(header), flags=re.M)}
    here = values(os.path.dirname(header), "mpi.h", names)
    there = values(reference, "mpi_abi.h", names)
    for name in sorted(names):
        if here.get(name) != there.get(name):
            fail(f"{name} is {here.get(name)}, in mpi_abi.h {there.get(name)}")

    mpich = constants()
    there = values(reference, "mpi.h", mpich)
    data = {"MPI_UNWEIGHTED", "MPI_WEIGHTS_EMPTY", "MPI_T_PVAR_ALL_HANDLES"}  # variables there
    for name, value in sorted(mpich.items()):
        if name not in data and (value - there.get(name, 0)) % (1 << 32):
            fail(f"constants.txt: {name} is {value} in MPICH's ABI, in its mpi.h {there.get(name)}")
    if library:
        proto = prototypes(os.path.join(reference, "mpi_proto.h"))
        for name in sorted(set(proto) - exported(library) - {"MPI_DUP_FN"}):  # that is a macro
            fail(f"{library}: {name} of {reference}/mpi_proto.h is missing")
        for name, prototype in sorted(proto.items()):
            if name in ours and prototype != ours[name] and name not in MPICH_DIFFERS:
                fail(f"{name}: {ours[name]}, in mpi_proto.h {prototype}")


def main():
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--header", required=True)
    parser.add_argument("--abi")
    parser.add_argument("--mpich")
    parser.add_argument("reference", nargs="?")
    arguments = parser.parse_args()

    names = prototypes(arguments.header)
    if len(names) != FUNCTIONS:
        fail(f"{arguments.header}: {len(names)} functions, the standard has {FUNCTIONS}")
    if arguments.abi:
        check_library(arguments.abi, names, False)
    if arguments.mpich:
        check_library(arguments.mpich, names, True)
    check_numbers(arguments.header)
    if arguments.reference and os.path.exists(os.path.join(arguments.reference, "mpi_abi.h")):
        check_reference(arguments.header, arguments.mpich, arguments.reference)
    elif not failures:
        where = f"in {arguments.reference}" if arguments.reference else "was named"
        print(f"skipped: no mpi_abi.h of MPICH {where}")
        sys.exit(77)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
