# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with other libraries share: interleaved rounds, of which the quiet ones count, quartiles and
tables. A plan of runs is {name: command}. The name "halay" is ours; so are "halay bound", which is only shown, and,
where args.same names a peer, "halay " and that name, which is judged beside it; what args.limits names is no peer,
and may have some sizes only. Where args.file is set, those of ours write args.out/halay.csv; all others print their
rows."""

import argparse
import csv
import datetime
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROCESSORS = len(os.sched_getaffinity(0))
SPLIT = 256 << 10
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else int(text)


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def seconds_of_others():
    """(what the machine was busy, what we and our children took), in seconds"""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return busy - sum(u.ru_utime + u.ru_stime for u in usage)


def seconds_outside(namespaces):
    """What the processes of other network namespaces than these have taken, with their children that have ended."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns/net") in namespaces or folder.name == str(os.getpid()):
                continue
            ticks += sum(int(n) for n in (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:15])
        except OSError:  # it has ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def ranges(args):
    """Short calls and long ones apart: short runs find quiet moments."""
    return [(low, high) for low, high in ((args.min, min(args.max, args.split)), (max(args.min, 2 * args.split), args.max))
            if low <= high]


def run(name, command, args):
    """(rows, cores that others took)"""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    others, start = args.others(), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=900)
    cores = (args.others() - others) / (time.monotonic() - start)
    if done.returncode:
        sys.exit(f"{args.prog}: {' '.join(command)} failed with status {done.returncode}")
    text = (args.out / "halay.csv").read_text() if args.file and name.startswith("halay") else done.stdout
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or any(row["valid"] != "1" for row in rows):
        sys.exit(f"{args.prog}: {name}: wrong data")
    return rows, max(cores, 0.0)


def run_quietly(name, command, args):
    """The first quiet run, or the quietest of --patience ones; how many were thrown away."""
    best = None
    for attempt in range(args.patience):
        rows, cores = run(name, command, args)
        if best is None or cores < best[1]:
            best = rows, cores
        if cores <= args.noise:
            break
        time.sleep(args.pause)
    return *best, attempt


def measure(args, ranks):
    """Rounds of {variant: rows}, with the most that others took in one of their runs."""
    every, rounds, thrown = [args.commands(args, ranks, *pair) for pair in ranges(args)], [], 0
    names = list(every[0])
    for number in range(args.rounds):
        results, noise = defaultdict(list), 0.0
        for part in every:
            for name in names[number % len(names):] + names[:number % len(names)]:
                rows, cores, again = run_quietly(name, part[name], args)
                results[name] += [dict(row, others=f"{cores:.3f}") for row in rows]
                noise, thrown = max(noise, cores), thrown + again
        rounds.append((noise, results))
        print(f"{args.prog}: {ranks} ranks, round {number + 1} of {args.rounds}: others took {noise:.2f} cores"
              f"{'' if noise <= args.noise else ': too noisy'}", flush=True)
    return rounds, thrown


def choose(args, rounds, thrown):
    """The quiet rounds; where those are few, all. And what to say about it."""
    quiet = [r for r in rounds if r[0] <= args.noise]
    again = f"; {thrown} noisier runs were thrown away and repeated" if thrown else ""
    if len(quiet) * 2 > len(rounds):
        return quiet, f"{len(quiet)} of {len(rounds)} rounds, in which others took at most {args.noise} cores{again}"
    noise = statistics.median(r[0] for r in rounds)
    return rounds, f"**noisy**: {len(rounds)} rounds, in whose worst run others took {noise:.2f} cores (median){again}"


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def judge(ours, theirs):
    """(ratio of the medians, what it means)"""
    ratio = theirs[1] / ours[1]
    behind = ratio < 0.97 and theirs[2] < ours[0]
    return ratio, "ahead" if ratio >= 1 else "behind" if behind else "equal"


def compare(args, kept):
    """One row a size: quartiles of ours and of the best peer's, the ratio and what it means; and the same for
    args.same, on what it stands on."""
    times, switches = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    for _, results in kept:
        for name, rows in results.items():
            for row in rows:
                times[int(row["bytes"])][name].append(float(row[args.statistic + "_us"]))
                if name == "halay":
                    switches[int(row["bytes"])].append(float(row["switches"]))
    for nbytes, by_name in sorted(times.items()):
        own = by_name.pop("halay")
        ours = quartiles(own)
        bound = by_name.pop("halay bound", None)
        limits = {name: statistics.median(by_name.pop(name, None) or [0]) or None for name in args.limits}
        alike = quartiles(by_name.pop(f"halay {args.same}")) if args.same else ours
        best = min(by_name, key=lambda name: statistics.median(by_name[name]))
        theirs = quartiles(by_name[best])
        ratio, verdict = judge(ours, theirs)
        paired = quartiles([t / o for t, o in zip(by_name[best], own, strict=True)])
        same = judge(alike, quartiles(by_name[args.same])) if args.same else (None, None)
        yield {"bytes": nbytes, "halay_q1": ours[0], "halay": ours[1], "halay_q3": ours[2], "peer_q1": theirs[0],
               "peer": theirs[1], "peer_q3": theirs[2], "best": best, "ratio": ratio, "verdict": verdict,
               "round_q1": paired[0], "round": paired[1], "round_q3": paired[2], **limits,
               "same": alike[1] if args.same else None, "same_ratio": same[0], "same_verdict": same[1],
               "bound": statistics.median(bound) if bound else None, "switches": statistics.median(switches[nbytes])}


def markdown(args, ranks, note, rows):
    also = f" both on {args.same}: µs | ratio | |" if args.same else " bound µs | ratio |"
    yield f"\n### {ranks} ranks{args.where}\n\n{note[0].upper()}{note[1:]}.\n"
    yield f"| bytes | Halay µs (quartiles) | best peer µs (quartiles) | which | ratio | |{also} switches |"
    yield "|---:|---:|---:|---|---:|---|---:|---:|" + ("---|" if args.same else "") + "---:|"
    for r in rows:
        ours, theirs = ("{:.4g} ({:.4g} to {:.4g})".format(r[k], r[k + "_q1"], r[k + "_q3"])
                        for k in ("halay", "peer"))
        more = f"{r['bound']:.4g} | {r['peer'] / r['bound']:.2f}" if r["bound"] else "|"
        if args.same:
            more = f"{r['same']:.4g} | {r['same_ratio']:.2f} | {r['same_verdict']}"
        yield (f"| {r['bytes']} | {ours} | {theirs} | {r['best']} | {r['ratio']:.2f} | {r['verdict']} | {more} "
               f"| {r['switches']:.2f} |")


def machine(args, load):
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    info = output(str(args.build / "bin/halay-info"), "--version")
    commit = output("git", "-c", "safe.directory=*", "log", "-1", "--format=%h")
    dirty = "+" if output("git", "-c", "safe.directory=*", "status", "--porcelain", "--", "src", "transports") else ""
    ucx = output("ucx_info", "-v").split("\n")[0].removeprefix("# ")
    yield f"- {datetime.datetime.now():%Y-%m-%d %H:%M}, load {load:.1f} before; {args.statistic} of the calls"
    yield f"- {model}, {PROCESSORS} processors, {gib:.0f} GiB; Linux {platform.release()}"
    yield f"- {info} (commit {commit}{dirty}); {output('mpirun', '--version').split(chr(10))[0]}; {ucx or 'UCX as packaged'}"
    for ranks in args.ranks:
        for name, command in args.commands(args, ranks, args.min, args.max).items():
            yield f"- {ranks} ranks, {name}: `{shlex.join(Path(w).name if w.startswith('/') else w for w in command)}`"


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def options(doc, variants):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where Halay was built (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--ranks", type=lambda t: [int(n) for n in t.split(",")], default=[2, 4], help="2,4")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--min", type=size, default=4, help="bytes (4)")
    parser.add_argument("--max", type=size, default=size("256M"), help="bytes (256M)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of timed calls a size (0.1)")
    parser.add_argument("--noise", type=float, default=0.15, help="cores that others may take (0.15)")
    parser.add_argument("--patience", type=int, default=3, help="so many tries for a quiet run (3)")
    parser.add_argument("--pause", type=float, default=2, help="seconds before the next try (2)")
    parser.add_argument("--statistic", choices=("avg", "median", "min"), default="avg", help="over calls (avg)")
    parser.add_argument("--variants", default=",".join(variants), help="peers (%(default)s)")
    parser.set_defaults(prog=parser.prog, others=seconds_of_others, same=None, limits=(), file=True, split=SPLIT,
                        markdown=markdown, where=f" on {PROCESSORS} processors")
    return parser


def prepare(args):
    """Makes the folder and builds Open MPI's side of the comparison."""
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    if not output("mpicc", "--version"):
        sys.exit(f"{args.prog}: there is no mpicc (Debian: libopenmpi-dev, openmpi-bin)")
    subprocess.run(["mpicc", "-O2", "-std=gnu11", "-o", str(args.out / "mpi_allreduce"),
                    str(ROOT / "bench/mpi_allreduce.c")], check=True)


def execute(args):
    """Measures all, writes runs.csv, table.csv and table.md, prints the last."""
    load = os.getloadavg()[0]
    print(f"{args.prog}: load {load:.1f}", flush=True)
    raw, table, text = [], [], list(machine(args, load))
    for ranks in args.ranks:
        rounds, thrown = measure(args, ranks)
        kept, note = choose(args, rounds, thrown)
        rows = list(compare(args, kept))
        text += args.markdown(args, ranks, note, rows)
        table += [{"ranks": ranks, **row} for row in rows]
        raw += [{"ranks": ranks, "round": number, "kept": int(any(results is k for _, k in kept)),
                 "variant": name, **row} for number, (_, results) in enumerate(rounds)
                for name, rows_ in results.items() for row in rows_]
        write_csv(args.out / "runs.csv", raw)
        write_csv(args.out / "table.csv", table)
        (args.out / "table.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))
    print(f"{args.prog}: wrote {args.out}/runs.csv, table.csv and table.md")
