# SPDX-License-Identifier: Apache-2.0
"""What a comparison prints below its tables: an older build of ours beside the new one (--old), and how a job fares
beside busy neighbours (--neighbours)."""

import statistics
import sys

import records
from interleave import collect, compare, output, quartiles, title
from neighbours import NICE

OLD = "halay-old"
LEAST = 0.85  # old time / new time: below it a size has become slower
WORST = 5  # our worst job / our median job
CLASSES = (("small", 4 << 10), ("middle", 1 << 20), ("large", 1 << 62))


def own_library(args, build):
    """A build that loads the library of another one would be compared with itself."""
    program = build / "bin/halay-bench"
    lines = [line.split() for line in output("ldd", program).splitlines()]
    found = next((words[2] for words in lines if words[0].startswith("libhalay.so") and len(words) > 2), None)
    if found is None:
        sys.exit(f"{args.prog}: {program} is not there, or finds no libhalay: is {build} a build folder of Halay?")
    if not found.startswith(f"{build}/"):
        sys.exit(f"{args.prog}: {program} loads {found}: build it where it is, and unset LD_LIBRARY_PATH")


def old_bench(args):
    """The new build's program over the old library: both are timed by the same code."""
    return ["env", f"LD_LIBRARY_PATH={args.old / 'lib'}", args.build / "bin/halay-bench"]


def prepare(args):
    """Looks at --old, and says what is to be printed."""
    args.also = [old_table] * bool(args.old) + [worst_jobs] * bool(args.neighbours)
    if not args.old:
        return
    args.build, args.old = args.build.resolve(), args.old.resolve()
    for build in args.build, args.old:
        own_library(args, build)
    args.shown, args.total = (*args.shown, OLD), old_total


def by_round(args, kept):
    """bytes -> (new's times, old's, old's over new's in each round)"""
    for nbytes, found in collect(args, kept).items():
        if found["halay"][0] and len(found["halay"][0]) == len(found[OLD][0]):
            new, old = found["halay"][0], found[OLD][0]
            yield nbytes, new, old, [o / n for o, n in zip(old, new)]


def slower(cells):
    """In words; of {what: ratio}."""
    found = [f"{what} ({ratio:.2f})" for what, ratio in cells.items() if ratio < LEAST]
    return f"Below {LEAST}: {', '.join(found) if found else 'none'}."


def old_table(args, collective, ranks, note, kept):
    if not (rows := list(by_round(args, kept))):
        return
    yield title(args, f"{collective}, old and new", ranks, note)
    yield "| bytes | new µs (quartiles) | old µs (quartiles) | old / new in a round (quartiles) |"
    yield "|---:|---:|---:|---:|"
    cells = {}
    for nbytes, new, old, ratios in rows:
        times = ["{1:.4g} ({0:.4g} to {2:.4g})".format(*quartiles(us)) for us in (new, old)]
        low, cells[nbytes], high = quartiles(ratios)
        yield f"| {nbytes} | {' | '.join(times)} | {cells[nbytes]:.2f} ({low:.2f} to {high:.2f}) |"
    yield (f"\nGeometric mean of old / new over {len(cells)} sizes {statistics.geometric_mean(cells.values()):.2f} (above 1 "
           f"the new build is faster). {slower(cells)}")


def old_total(args, every):
    """Over all cases: of {(collective, ranks): kept rounds}."""
    cells = {(collective, f"{collective}, {ranks} ranks, {nbytes} bytes"): statistics.median(ratios)
             for (collective, ranks), kept in every.items() for nbytes, _, _, ratios in by_round(args, kept)}
    if not cells:
        return
    yield f"\n### Old and new\n\n{records.commit(args.old)} is old, {records.commit(args.build)} is new. Old time / new time:\n"
    for name in dict.fromkeys(collective for collective, _ in cells):
        mean = statistics.geometric_mean(ratio for (collective, _), ratio in cells.items() if collective == name)
        yield f"- {name}: geometric mean {mean:.2f}"
    yield f"- all {len(cells)} cells: geometric mean {statistics.geometric_mean(cells.values()):.2f}"
    yield f"\n{slower({what: ratio for (_, what), ratio in cells.items()})}"


def class_means(rows):
    low = -1
    for name, high in CLASSES:
        ratios = [row["ratio"] for row in rows if low < row["bytes"] <= high]
        if ratios:
            yield f"{name} {statistics.geometric_mean(ratios):.2f} ({len(ratios)} sizes)"
        low = high


def worst_jobs(args, collective, ranks, note, kept):
    """For each variant the slowest job over the median one."""
    found = collect(args, kept)
    names = [name for name in dict.fromkeys(name for sizes in found.values() for name in sizes) if name not in args.limits]
    yield title(args, f"{collective}, worst job / median job", ranks, note)
    yield f"| bytes | {' | '.join(names)} |"
    yield "|---:" * (len(names) + 1) + "|"
    most = dict.fromkeys(names, (0.0, 0))
    for nbytes, sizes in found.items():
        over = {name: max(sizes[name][0]) / statistics.median(sizes[name][0]) for name in names if sizes[name][0]}
        most.update({name: max(most[name], (ratio, nbytes)) for name, ratio in over.items()})
        yield f"| {nbytes} | {' | '.join(f'{over[n]:.2f}' if n in over else '' for n in names)} |"
    said = ", ".join(f"{name} {ratio:.2f} (at {nbytes})" for name, (ratio, nbytes) in most.items())
    yield f"\nNeighbours: {args.neighbours}, nice {NICE}. Worst of all sizes: {said}."
    yield f"The bar, ours at most {WORST}: {'met' if most['halay'][0] <= WORST else 'not met'}."
    if rows := list(compare(args, kept)):
        yield f"Best peer's median job / ours, geometric mean: {', '.join(class_means(rows))}."
