#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mistakes.py PROGRAM HALAYRUN [--mpich PREFIX] [--all] [--only NAME] [-v]: runs the wrong programs
of PROGRAM over Halay, and over MPICH beside it, and says how each has ended. Exits with 1 if one
hangs, crashes, is silent or says another thing over Halay. Without --all it leaves out most of
those that end by a deadline."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

LIMIT_S = "20"
WAITS = 8  # without --all
ENV = {"HALAY_DEADLINE": "2", "HALAY_START_DEADLINE": "30"}
CRASH = r"signal (6|7|8|11)\b|SIGNAL: \w+ .*\((6|7|8|11)\)|free\(\)|Assertion|SIGSEGV|corrupt"


def start(command, env):
    """What it has said, and its exit code; 124: it was ended by the limit."""
    ran = subprocess.run(["timeout", "-k", "5", LIMIT_S, *command], env={**os.environ, **env},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return ran.stdout.decode(errors="replace"), ran.returncode


def cause(error):
    """Without the function and the class, which differ where ranks have made different calls."""
    error = re.sub(r"^.* cannot make its call \(.*?\): ", "", error)
    return re.sub(r"^MPI_ERR_\w+: MPI_\w+: ", "", error)


def judge(row, text, code):
    """How it has ended over Halay. wrong: it has said another thing than it should."""
    errors = re.findall(r"^(?:rank|process) (\d+): (MPI_ERR_\w+: .*)$", text, re.M)
    good = row.ends in "fto"
    if code == 124 or (row.ends != "d" and re.search(CRASH, text)):
        return "hang" if code == 124 else "crash"
    if good != (code == 0) or row.says not in text:
        return "wrong" if code else "silent"
    if row.ends in "aew" and not errors:
        return "wrong"
    if row.ends == "a" and (len({cause(what) for _, what in errors}) != 1
                            or len({rank for rank, _ in errors}) != int(row.ranks)):
        return "wrong"
    if row.ends == "w":
        return "notice" if re.search("waited for|for each other|in a circle", text) else "wrong"
    return {"f": "right", "t": "told", "o": "not found"}.get(row.ends, "named")


def judge_other(row, text, code):
    if code == 124 or (row.ends != "d" and re.search(CRASH, text)):
        return "hang" if code == 124 else "crash"
    return "error" if code else "right" if row.ends == "f" else "silent"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("halayrun", type=pathlib.Path)
    parser.add_argument("--mpich", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    listed = subprocess.run([args.program, "--list"], capture_output=True, text=True, check=True)
    row_type = collections.namedtuple("Row", "name ranks ends kind says")
    rows = [row_type(*line.split("\t")) for line in listed.stdout.splitlines()]
    waits = [row for row in rows if row.ends == "w"]
    left_out = [] if args.all or args.only else waits[WAITS:]
    rows = [row for row in rows if row not in left_out and (not args.only or row.name in args.only)]
    table, failed = collections.defaultdict(collections.Counter), 0

    def both(row):
        halay = start([args.halayrun, "-np", row.ranks, args.program, row.name], ENV)
        other = args.mpich and start(
            [args.mpich / "bin/mpiexec", "-n", row.ranks, args.program, row.name],
            {"LD_LIBRARY_PATH": str(args.mpich / "lib")})
        return row, halay, other

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, (text, code), other in pool.map(both, rows):
            verdict, beside = judge(row, text, code), judge_other(row, *other) if other else ""
            bad = verdict in ("hang", "silent", "crash", "wrong")
            failed += bad
            table[row.kind].update(["Halay: " + verdict] + ["MPICH: " + beside] * bool(other))
            if bad or args.v or other:
                print(f"{verdict:9} {row.name:34} {code} {beside}", flush=True)
            if bad or args.v:
                print("    " + text.strip().replace("\n", "\n    "), flush=True)
    for kind, found in [*table.items(), ("all", sum(table.values(), collections.Counter()))]:
        print(f"{kind:20}", ", ".join(f"{what} {n}" for what, n in sorted(found.items()) if n))
    print(f"{len(rows)} mistakes, {failed} failed, {len(left_out)} left out")
    sys.exit(failed > 0 or not rows)


main()
