# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with other libraries share: interleaved rounds, of which the quiet ones count, quartiles and
tables. A plan of runs is {name: command}; a run writes its rows to args.out/rows.csv, or prints them. The name "halay"
is ours; so are those in args.shown, which are only shown, and, where args.same names a peer, "halay " and that name,
which is judged beside it; what args.limits names is no peer. What args.also and args.total yield follows the tables. Those, and a peer that is too slow for them, may have some
sizes only."""

import argparse
import csv
import datetime
import os
import platform
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import records
from neighbours import beside

ROOT = Path(__file__).resolve().parents[1]
PROCESSORS = len(os.sched_getaffinity(0))
SPLIT = 256 << 10
TRIES = 3  # of a peer's run: some crash now and then when they start
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def peers_of(args):
    return [] if args.variants == "none" else args.variants.split(",")


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


def ranges(args, collective):
    """Short calls and long ones apart: short runs find quiet moments."""
    if collective == "barrier":
        return [(args.min, args.min)]
    return [(low, high) for low, high in ((args.min, min(args.max, args.split)), (above(args), args.max)) if low <= high]


def above(args):
    """The first size that is more than args.split."""
    nbytes = max(args.min, 1)
    while nbytes <= args.split:
        nbytes *= args.factor
    return nbytes


def words(args, collective, low, high):
    """What halay-bench, mpi_bench and gloo_bench.py are told."""
    return [collective, "--min", low, "--max", high, "--factor", args.factor, "--seconds", args.seconds,
            "--csv", args.out / "rows.csv"]


def run(name, command, args):
    """(rows, cores that others took)"""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    written = args.out / "rows.csv"
    written.unlink(missing_ok=True)
    for _ in range(1 if name.startswith("halay") else TRIES):
        others, start = args.others(), time.monotonic()
        with beside(args.neighbours):
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, timeout=900)
        cores = (args.others() - others) / (time.monotonic() - start)
        if done.returncode == 0:
            break
    else:
        sys.exit(f"{args.prog}: {shlex.join(command)} failed with status {done.returncode}")
    rows = list(csv.DictReader((written.read_text() if written.exists() else done.stdout).splitlines()))
    if any(row["valid"] != "1" for row in rows) or not (rows or name in args.limits):
        sys.exit(f"{args.prog}: {name}: wrong data")
    return rows, max(cores, 0.0)


def run_quietly(name, command, args):
    """The first quiet run, or the quietest of --tries ones; how many were thrown away."""
    best = None
    for attempt in range(args.tries):
        rows, cores = run(name, command, args)
        if best is None or cores < best[1]:
            best = rows, cores
        if cores <= args.noise:
            break
        time.sleep(args.pause)
    return *best, attempt


def measure(args, collective, ranks):
    """Rounds of {variant: rows}, with the most that others took in one of their runs."""
    every = [(low, high, args.commands(args, collective, ranks, low, high)) for low, high in ranges(args, collective)]
    rounds, thrown, stopped = [], 0, {}
    for number in range(args.rounds):
        results, noise = defaultdict(list), 0.0
        for low, high, part in every:
            turn = number % max(len(part), 1)
            for name in list(part)[turn:] + list(part)[:turn]:
                if stopped.get(name, low) < low:
                    continue
                rows, cores, again = run_quietly(name, part[name], args)
                records.append(args, collective, ranks, number, name, rows, cores)
                if args.stops and name not in args.limits and rows and int(rows[-1]["bytes"]) * args.factor <= high:
                    stopped[name] = low
                results[name] += [dict(row, others=f"{cores:.3f}") for row in rows]
                noise, thrown = max(noise, cores), thrown + again
        rounds.append((noise, results))
        print(f"{args.prog}: {collective}, {ranks} ranks, round {number + 1} of {args.rounds}: others took {noise:.2f} "
              f"cores{'' if noise <= args.noise else ': too noisy'}", flush=True)
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


def collect(args, kept):
    """bytes -> variant -> (times, context switches), an entry a round"""
    found = defaultdict(lambda: defaultdict(lambda: ([], [])))
    for _, results in kept:
        for name, rows in results.items():
            for row in rows:
                times, switches = found[int(row["bytes"])][name]
                times.append(float(row[args.statistic + "_us"]))
                switches.append(float(row["switches"]))
    return dict(sorted(found.items()))


def compare(args, kept):
    """One row a size: quartiles of ours and of the best peer's, the ratio and what it means; and the same for
    args.same, on what it stands on. A peer that is too slow for a size in some rounds is not the best there."""
    for nbytes, found in collect(args, kept).items():
        times = {name: both[0] for name, both in found.items()}
        own = times.pop("halay", [])
        more = {name: statistics.median(times.pop(name, None) or [0]) or None for name in (*args.limits, *args.shown)}
        alike = times.pop(f"halay {args.same}", own)
        times = {name: theirs for name, theirs in times.items() if len(theirs) == len(own)}
        if not times or not own:
            continue
        best = min(times, key=lambda name: statistics.median(times[name]))
        ours, theirs = quartiles(own), quartiles(times[best])
        ratio, verdict = judge(ours, theirs)
        paired = quartiles([t / o for t, o in zip(times[best], own, strict=True)])
        same = judge(quartiles(alike), quartiles(times[args.same])) if args.same else (None, None)
        yield {"bytes": nbytes, "halay_q1": ours[0], "halay": ours[1], "halay_q3": ours[2], "peer_q1": theirs[0],
               "peer": theirs[1], "peer_q3": theirs[2], "best": best, "ratio": ratio, "verdict": verdict,
               "round_q1": paired[0], "round": paired[1], "round_q3": paired[2], **more,
               "same": statistics.median(alike) if args.same else None, "same_ratio": same[0], "same_verdict": same[1],
               "switches": statistics.median(found["halay"][1]), "peer_switches": statistics.median(found[best][1])}


def title(args, collective, ranks, note):
    return f"\n### {collective}, {ranks} ranks{args.where}\n\n{note[0].upper()}{note[1:]}.\n"


def markdown(args, collective, ranks, note, rows):
    shown = [name for name in (*args.shown, *args.limits) if any(r[name] for r in rows)]
    yield title(args, collective, ranks, note)
    head = ["bytes", "Halay µs (quartiles)", "best peer µs (quartiles)", "which", "ratio", "",
            *(word for name in shown for word in (f"{name} µs", "limit / Halay" if name in args.limits else "ratio")),
            *([f"both on {args.same}: µs", "ratio", ""] if args.same else []), "switches", "peer's"]
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' if name in ('which', '') else '---:' for name in head)}|"
    for r in rows:
        times = ["{:.4g} ({:.4g} to {:.4g})".format(r[k], r[k + "_q1"], r[k + "_q3"]) for k in ("halay", "peer")]
        words = [str(r["bytes"]), *times, r["best"], f"{r['ratio']:.2f}", r["verdict"]]
        for name in shown:
            over = (r[name] or 0) / r["halay"] if name in args.limits else r["peer"] / (r[name] or 1)
            words += [f"{r[name]:.4g}", f"{over:.2f}"] if r[name] else ["", ""]
        if args.same:
            words += [f"{r['same']:.4g}", f"{r['same_ratio']:.2f}", r["same_verdict"]]
        yield f"| {' | '.join(words)} | {r['switches']:.2f} | {r['peer_switches']:.2f} |"
    yield "\n" + summary(rows)


def summary(rows):
    where = {verdict: [str(r["bytes"]) for r in rows if r["verdict"] == verdict] for verdict in ("equal", "behind")}
    said = "; ".join(f"{verdict} at {len(sizes)}{': ' if sizes else ''}{', '.join(sizes)}"
                     for verdict, sizes in where.items())
    return (f"Ahead at {len(rows) - sum(map(len, where.values()))} of {len(rows)} sizes; {said}. Geometric mean of the "
            f"ratios {statistics.geometric_mean(r['ratio'] for r in rows):.2f}, least "
            f"{min(r['ratio'] for r in rows):.2f}.")


def variants(args, collective, ranks, note, kept):
    """The median of each variant at each size."""
    found = collect(args, kept)
    names = list(dict.fromkeys(name for by_name in found.values() for name in by_name))
    yield title(args, collective, ranks, note)
    yield f"| bytes | {' µs | '.join(names)} µs |"
    yield "|---:" * (len(names) + 1) + "|"
    for nbytes, by_name in found.items():
        yield " | ".join([f"| {nbytes}", *(f"{statistics.median(by_name[n][0]):.4g}" if n in by_name else ""
                                           for n in names)]) + " |"


def machine(args, load):
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    info = output(str(args.build / "bin/halay-info"), "--version")
    yield f"- {datetime.datetime.now():%Y-%m-%d %H:%M}, load {load:.1f} before; {args.statistic} of the calls"
    yield f"- {model}, {PROCESSORS} processors, {gib:.0f} GiB; Linux {platform.release()}"
    yield f"- {info} (commit {records.commit(args.build)}); {'; '.join(args.versions(args))}"
    if args.old:
        yield f"- halay-old: {output(str(args.old / 'bin/halay-info'), '--version')} (commit {records.commit(args.old)})"
    first = args.cases(args)[0][0]
    for collective, ranks in args.cases(args):
        for name, command in args.commands(args, collective, ranks, args.min, args.max).items() if collective == first else ():
            bare = (re.sub(r"(^|=)/(?:[^/\s]*/)*", r"\1", word) for word in command)  # without folders
            yield f"- {collective}, {ranks} ranks, {name}: `{shlex.join(bare)}`"


def debian_versions(_):
    ucx = output("ucx_info", "-v").split("\n")[0].removeprefix("# ")
    return [output("mpirun", "--version").split("\n")[0], ucx or "UCX as packaged"]


def write_csv(path, rows):
    if not rows:
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def all_cases(args):
    return [(collective, ranks) for collective in args.collectives for ranks in args.ranks]


def options(doc, variants):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where Halay was built (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--ranks", type=lambda t: [int(n) for n in t.split(",")], default=[2, 4], help="2,4")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--min", type=size, help="bytes (4)")
    parser.add_argument("--max", type=size, help="bytes (256M)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of timed calls a size (0.1)")
    parser.add_argument("--factor", type=int, help="from size to size (2)")
    parser.add_argument("--noise", type=float, default=0.15, help="cores that others may take (0.15)")
    parser.add_argument("--tries", type=int, default=3, help="so many tries for a quiet run (3)")
    parser.add_argument("--pause", type=float, help="seconds before the next try (2)")
    parser.add_argument("--statistic", choices=("avg", "median", "min"), default="avg", help="over calls (avg)")
    parser.add_argument("--variants", default=",".join(variants), help="peers; or none (%(default)s)")
    parser.add_argument("--old", type=Path, help="build folder of an older commit, which takes part as halay-old")
    parser.add_argument("--append", action="store_true", help="to the rounds that --out has")
    parser.set_defaults(prog=parser.prog, **DEFAULTS)
    return parser


# What a comparison may set otherwise in its args.
DEFAULTS = {"others": seconds_of_others, "same": None, "limits": (), "shown": (), "split": SPLIT, "stops": False,
            "markdown": markdown, "where": f" on {PROCESSORS} processors", "collectives": ["allreduce"],
            "cases": all_cases, "versions": debian_versions, "min": 4, "max": size("256M"), "factor": 2, "pause": 2,
            "old": None, "neighbours": 0, "also": [], "total": None, "mode": "one-node",
            "labels": lambda collective, variant, _: (collective, variant)}


def compile_bench(program, compiler, build, *libraries):
    """halay-bench over an MPI; where it is newer than what it is made of, and of the same build, it stays."""
    folder, lib = ROOT / "tools/halay-bench", (build / "lib").resolve()
    sources = [ROOT / "bench/mpi_bench.c", ROOT / "tools/common/size.c",
               *(folder / f"{name}.c" for name in ("main", "options", "data", "measure"))]
    if (program.exists() and program.stat().st_mtime > max(path.stat().st_mtime for path in sources)
            and bytes(lib) in program.read_bytes()):
        return
    subprocess.run([compiler, "-O2", "-std=gnu11", "-I", ROOT / "include", "-o", program, *sources, "-L", lib, "-lhalay",
                    f"-Wl,-rpath,{lib}", *libraries, "-lm"], check=True)


def prepare(args):
    """Makes the folder and builds the side of Debian's Open MPI, mpi_bench."""
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    if not peers_of(args):
        return
    if not output("mpicc", "--version"):
        sys.exit(f"{args.prog}: there is no mpicc (Debian: libopenmpi-dev, openmpi-bin)")
    compile_bench(args.out / "mpi_bench", "mpicc", args.build)


def read_rounds(path):
    """(collective, ranks) -> rounds, as runs.csv has them"""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found[row.pop("collective"), int(row.pop("ranks"))][row.pop("round")][row.pop("variant")].append(row)
    return {case: [(max(float(row["others"]) for rows in results.values() for row in rows), results)
                   for results in rounds.values()] for case, rounds in found.items()}


def write(args, head, every, thrown):
    """runs.csv, table.csv, table.md and variants.md, of the rounds of all cases."""
    raw, table, text, more, quiet = [], [], list(head), [], {}
    for (collective, ranks), rounds in every.items():
        kept, note = choose(args, rounds, thrown[collective, ranks])
        rows = list(compare(args, kept))
        if rows:
            text += args.markdown(args, collective, ranks, note, rows)
        for also in args.also:
            text += also(args, collective, ranks, note, kept)
        more += variants(args, collective, ranks, note, kept)
        quiet[collective, ranks] = kept
        case = {"collective": collective, "ranks": ranks}
        table += [{**case, **row} for row in rows]
        raw += [{**case, "round": number, "variant": name, **row, "kept": int(any(results is k for _, k in kept))}
                for number, (_, results) in enumerate(rounds) for name, rows_ in results.items() for row in rows_]
    text += args.total(args, quiet) if args.total else []
    write_csv(args.out / "runs.csv", raw)
    write_csv(args.out / "table.csv", table)
    (args.out / "table.md").write_text("\n".join(text) + "\n")
    (args.out / "variants.md").write_text("\n".join(more) + "\n")
    return text


def execute(args):
    """Measures all, writes runs.csv, table.csv, table.md and variants.md, prints the table."""
    load = os.getloadavg()[0]
    print(f"{args.prog}: load {load:.1f}", flush=True)
    head, every, thrown, text = list(machine(args, load)), {}, defaultdict(int), []
    if args.append and (args.out / "runs.csv").exists():
        every = read_rounds(args.out / "runs.csv")
    for case in args.cases(args):
        rounds, thrown[case] = measure(args, *case)
        every[case] = every.get(case, []) + rounds
        text = write(args, head, every, thrown)
    print("\n".join(text))
    print(f"{args.prog}: wrote {args.out}/runs.csv, table.csv, table.md and variants.md")
