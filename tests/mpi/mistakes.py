#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mistakes.py PROGRAM --halayrun PATH [--mpich PREFIX] [--all] [--only NAME] [-v]: runs the wrong
programs of PROGRAM over Halay, and over MPICH beside it, and says what each has said. Exits with 1
if one hangs, crashes or is silent over Halay. Without --all those that end by a deadline are
sampled."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

LIMIT_S = 20
DEADLINE_S = 2


def start(command, env):
    """Its exit code (None: it was ended by the limit), its output, and the seconds it took."""
    begin = time.monotonic()
    with subprocess.Popen(command, env={**os.environ, **env}, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            text, code = process.communicate(timeout=LIMIT_S)[0], process.returncode
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                text = process.communicate(timeout=5)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                text = process.communicate()[0]
            code = None
    return code, text, time.monotonic() - begin


def cause(error):
    """Without the function and the class, which differ where ranks have made different calls."""
    error = re.sub(r"^.* cannot make its call \(.*?\): ", "", error)
    return re.sub(r"^MPI_ERR_\w+: MPI_\w+: ", "", error)


def judge(row, code, text):
    """named, notice, told, fine, not found, silent, hang, crash; wrong: it says another thing."""
    errors = re.findall(r"^(rank|process) (\d+): (MPI_ERR_\w+: .*)$", text, re.M)
    if code is None:
        return "hang"
    if row.ends != "d" and re.search(r"signal (6|7|8|11)\b|free\(\)|Assertion|corrupt", text):
        return "crash"
    if row.ends == "o" and code == 0:
        return "not found"
    if (row.ends in "ft") != (code == 0):
        return "wrong" if code else "silent"
    if row.says not in text:
        return "silent" if row.ends == "t" else "wrong"
    if row.ends in "aew" and not errors:
        return "wrong"
    if row.ends == "a" and (len({cause(what) for _, _, what in errors}) != 1
                            or len({rank for _, rank, _ in errors}) != int(row.ranks)):
        return "wrong"
    if row.ends == "w":
        return "notice" if re.search(r"waited for|for each other|in a circle", text) else "wrong"
    return {"f": "fine", "t": "told"}.get(row.ends, "named")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--halayrun", type=pathlib.Path, required=True)
    parser.add_argument("--mpich", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    listed = subprocess.run([args.program, "--list"], capture_output=True, text=True, check=True)
    row_type = collections.namedtuple("Row", "name ranks ends kind says")
    rows = [row_type(*line.split("\t")) for line in listed.stdout.splitlines()]
    rows = [row for row in rows if not args.only or row.name in args.only]
    found, failed = collections.Counter(), []

    def both(row):
        halay = start([args.halayrun, "-np", row.ranks, args.program, row.name],
                      {"HALAY_DEADLINE": str(DEADLINE_S), "HALAY_START_DEADLINE": "30"})
        other = args.mpich and start(
            [args.mpich / "bin/mpiexec", "-n", row.ranks, args.program, row.name],
            {"LD_LIBRARY_PATH": str(args.mpich / "lib")})
        return row, halay, other

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, (code, text, seconds), other in pool.map(both, rows):
            verdict = judge(row, code, text)
            found[verdict] += 1
            bad = verdict in ("hang", "silent", "crash", "wrong")
            failed += [row.name] * bad
            beside = other and ("hang" if other[0] is None else f"exit {other[0]}")
            if bad or args.v or other:
                print(f"{verdict:7} {row.name:32} {seconds:5.1f} s, exit {code}", beside or "")
            if bad or args.v:
                print("    " + "\n    ".join(text.splitlines()))
    print(len(rows), "mistakes:", ", ".join(f"{n} {what}" for what, n in found.most_common()))
    sys.exit(bool(failed))


main()
