#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disturbs jobs at random, and judges what their ranks say.

    chaos.py SECONDS [--bed BED,...] [--build FOLDER] [--seed N] [--only FAULT,...]
             [--deadline S] [--python PYTHON] [--verbose]

Each job runs chaos_rank (or chaos_train.py) on some ranks, in one place of a bed (chaos_beds.py):

    node    this machine, over shared memory or over TCP
    nodes   three name spaces, over TCP
    slurm   a Slurm cluster of three nodes: srun, or halayrun in a script for sbatch
    rdma    two emulated machines with Soft-RoCE

While it runs one fault of FAULTS happens. The referee knows what must be said: by whom, about
whom, by when; and that nothing is left. A line a job, and at the end a table: verdicts right,
wrong, late, hangs, leaks, and the time to a verdict. Exit status 0: nothing was wrong. A seed
repeats the faults, not the moments.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaos_beds import BEDS, BEGINS, HERE, Bed, Job

ALLOWED_S = {"kill": 1.0, "fill": 1.0}  # the others have until the deadline and this:
AFTER_S = 2.5
TOLD = re.compile(r"^chaos: rank (-?\d+): told (-?\d+) after (\d+) ms: (.*)$", re.M)
WELL = re.compile(r"^chaos: rank (\d+): well, (\d+) calls$", re.M)

# What happens in which place: to a rank, to a link.
RANK = ("stop", "pause", "fill")
LINK = ("cut", "blip", "loss", "slow", "delay")
FAULTS = {
    "local": ("none", "kill", "kill_two", *RANK),
    "tcp": ("none", "kill", "kill_two", *RANK),
    "nodes": ("none", "kill", *RANK, *LINK, "crash"),
    "srun": ("none", "kill", "kill_two", *RANK, *LINK, "crash", "slurmd", "stepd"),
    "sbatch": ("none", "kill", *RANK, "slurmd"),
    "rdma": ("none", "kill", *RANK, "cut", "blip", "loss", "delay"),
}


class Referee:
    def __init__(self, options: argparse.Namespace) -> None:
        self.build: Path = options.build
        self.python: str = options.python
        self.verbose: bool = options.verbose
        self.random = random.Random(options.seed)
        self.only = set(options.only.split(",")) - {""}
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="hlychaos.", dir="/tmp"))
        self.folder.chmod(0o755)
        foreign = ("HALAY", "PMIX", "SLURM", "OMPI", "UCX")
        env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        env["OMP_NUM_THREADS"] = "1"
        self.beds: list[Bed] = []
        for name in options.bed.split(","):
            (self.folder / name).mkdir()
            self.beds.append(BEDS[name](self.folder / name, env, self.build))
            self.beds[-1].deadline_s = options.deadline or self.beds[-1].deadline_s

    # ------------------------------------------------------------------ jobs

    def command(self, train: bool, life_s: float) -> list[str]:
        program = [str(self.build / "bin" / "chaos_rank")]
        if train:
            program = [self.python, str(HERE / "chaos_train.py")]
        return [*program, str(life_s), str(self.random.randrange(1 << 30))]

    def start(self, bed: Bed, fault: str, place: str, train: bool) -> Job:
        nranks = self.random.choice([n for n in bed.sizes if not train or n < 4])
        # What is slow by itself must not be ended by the deadline.
        deadline_s = bed.deadline_s * (3 if fault in ("loss", "slow", "delay") else 1)
        job = bed.new_job(place, nranks, train, deadline_s)
        job.mark = f"{os.getpid()}.{self.random.randrange(1 << 30)}"
        bed.start(job, self.command(train, bed.life_s), 20000 + self.random.randrange(10000))
        return job

    def begun(self, job: Job) -> bool:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if len(BEGINS.findall(job.text())) == job.nranks:
                return True
            time.sleep(0.02)
        return False

    # ------------------------------------------------------------------ verdicts

    def told_of(self, bed: Bed, job: Job, culprits: set[int], kind: str, at: float) -> str:
        """All ranks but the culprits were told, of one of them, in time; with one text if it was
        the deadline's."""
        told = {int(m[0]): (int(m[2]), m[3]) for m in TOLD.findall(job.text())}
        survivors = set(range(job.nranks)) - culprits
        if survivors <= {int(m[0]) for m in WELL.findall(job.text())}:
            return "void: it had ended before"
        if set(told) - culprits != survivors:
            return f"wrong: told were {sorted(told)}, not {sorted(survivors)}"
        named = {
            rank: {int(n) for n in re.findall(r"\brank (\d+)\b", told[rank][1])}
            for rank in survivors
        }
        strayed = [r for r in survivors if not named[r] & culprits]
        if strayed:
            return f"wrong: rank {strayed[0]} was told of others: {told[strayed[0]][1]}"
        # In a training each tensor is a call, and ranks may wait for different ones.
        texts = {re.sub(r"^tensor '.*?': | \[seen by.*", "", told[r][1]) for r in survivors}
        if len(texts) > 1:
            return f"wrong: {len(texts)} texts: {' | '.join(sorted(texts))}"
        return self.in_time(bed, job, kind, at)

    def all_well(self, job: Job) -> str:
        well = {int(m[0]) for m in WELL.findall(job.text())}
        if well == set(range(job.nranks)):
            return "right"
        told = TOLD.search(job.text())
        why = told[0] if told else job.errors()[-300:]
        return f"wrong: {job.nranks - len(well)} ranks were not well: {why}"

    def hear(self, bed: Bed, job: Job, ntold: int, seconds: float) -> None:
        """Until so many ranks were told, or the job is over: notes when."""
        end = time.monotonic() + seconds
        for i in range(1 << 30):
            self.heard_s = time.monotonic()
            over = i % 64 == 63 and not bed.runs(job)
            if over or self.heard_s > end or len(TOLD.findall(job.text())) >= ntold:
                return
            time.sleep(0.005)

    def in_time(self, bed: Bed, job: Job, kind: str, at: float) -> str:
        took = self.heard_s - at
        self.times.setdefault(f"{kind} ({job.place})", []).append(took)
        allowed = ALLOWED_S.get(kind, job.deadline_s + AFTER_S)
        return ("right" if took < allowed + bed.slack_s else "late") + f": after {took:.2f} s"

    def sides(self, job: Job, sides: list[set[int]]) -> str:
        """Each rank of these sides was told of one that is on another; "": so it was."""
        told = {int(m[0]): m[3] for m in TOLD.findall(job.text())}
        if set().union(*sides) <= {int(m[0]) for m in WELL.findall(job.text())}:
            return "void: it had ended before"
        for side in sides:
            for rank in sorted(side):
                if rank not in told:
                    return f"wrong: rank {rank} was not told, but {sorted(told)}"
                named = {int(n) for n in re.findall(r"\brank (\d+)\b", told[rank])}
                if not named - side:
                    return f"wrong: rank {rank} was told: {told[rank]}"
        return ""

    # ------------------------------------------------------------------ faults

    def over_well(self, bed: Bed, job: Job, seconds: float = 60) -> str:
        return self.all_well(job) if bed.wait(job, seconds) else "hang"

    def none(self, bed: Bed, job: Job) -> str:
        return self.over_well(bed, job)

    def died(self, bed: Bed, job: Job, culprits: set[int], kind: str, at: float) -> str:
        self.hear(bed, job, job.nranks - len(culprits), 40)
        if not bed.wait(job, 40):
            return "hang"
        if not re.search(bed.names_signal, job.errors()):
            return f"wrong: the launcher does not say who was killed: {job.errors()[-200:]}"
        return self.told_of(bed, job, culprits, kind, at)

    def kill(self, bed: Bed, job: Job, many: int = 1) -> str:
        pids = bed.ranks(job)
        culprits = set(self.random.sample(range(job.nranks), many))
        if not culprits <= set(pids):
            return "void: it has ended before"
        at = min(bed.signal(job, rank, pids[rank], signal.SIGKILL) for rank in culprits)
        return self.died(bed, job, culprits, "kill", at)

    def kill_two(self, bed: Bed, job: Job) -> str:
        return self.kill(bed, job, 2 if job.nranks > 2 else 1)

    def fill(self, bed: Bed, job: Job) -> str:
        """A rank takes memory until the kernel kills it."""
        pids, culprit = bed.ranks(job), self.random.randrange(job.nranks)
        if culprit not in pids:
            return "void: it has ended before"
        at = bed.fill(job, culprit, pids[culprit])
        return self.died(bed, job, {culprit}, "fill", at) if at else "void: no control groups"

    def stop(self, bed: Bed, job: Job) -> str:
        pids, culprit = bed.ranks(job), self.random.randrange(job.nranks)
        if culprit not in pids:
            return "void: it has ended before"
        at = bed.signal(job, culprit, pids[culprit], signal.SIGSTOP)
        self.hear(bed, job, job.nranks - 1, job.deadline_s + 40)
        result = self.told_of(bed, job, {culprit}, "stop", at)
        bed.signal(job, culprit, pids[culprit], signal.SIGKILL)
        bed.go_on(job)
        return result if bed.wait(job, 30) else "hang"

    def pause(self, bed: Bed, job: Job) -> str:
        """Several ranks, one after the other, for less than the deadline."""
        for _ in range(3):
            pids = bed.ranks(job)
            if not pids:
                break
            rank = self.random.choice(sorted(pids))
            try:
                bed.signal(job, rank, pids[rank], signal.SIGSTOP)
                time.sleep(self.random.uniform(0.01, 0.6))
                bed.go_on(job)
            except ProcessLookupError:
                break
            time.sleep(self.random.uniform(0, 0.3))
        return self.over_well(bed, job)

    def away(self, bed: Bed, job: Job) -> tuple[int, list[set[int]]]:
        """A node, its ranks, and the others."""
        node, at = self.random.choice(bed.nodes), job.nodes()
        return node, [
            {r for r in at if at[r] == node},
            {r for r in at if at[r] != node},
        ]

    def cut(self, bed: Bed, job: Job) -> str:
        """A node's link is gone: the others name a rank of it; its ranks name others."""
        node, sides = self.away(bed, job)
        at = time.monotonic()
        bed.disturb(node, self.random.choice(["cut", "drop"]))
        self.hear(bed, job, job.nranks, job.deadline_s + 40)
        result = self.sides(job, sides)
        still = [n for n in bed.nodes if result and not bed.answers(n)]
        bed.disturb(node, "join")
        if not bed.wait(job, 30):
            return "hang"
        if still:
            return f"void: node {still[0]} did nothing at all; {result}"
        return result or self.in_time(bed, job, "cut", at)

    def crash(self, bed: Bed, job: Job) -> str:
        """A node loses its power: the others name a rank of it."""
        node, sides = self.away(bed, job)
        at = time.monotonic()
        bed.disturb(node, "crash")
        self.hear(bed, job, len(sides[1]), job.deadline_s + 40)
        result = self.sides(job, sides[1:])
        done = bed.wait(job, 30)
        bed.disturb(node, "boot")
        return (result or self.in_time(bed, job, "crash", at)) if done else "hang"

    def slurmd(self, bed: Bed, job: Job) -> str:
        """A node's daemon dies, and comes back: that is nothing to the job."""
        node = self.random.choice(bed.nodes)
        bed.disturb(node, "slurmd", "kill")
        time.sleep(self.random.uniform(0.1, 3))
        bed.disturb(node, "slurmd", "start")
        return self.over_well(bed, job)

    def stepd(self, bed: Bed, job: Job) -> str:
        """Who started the ranks of a node dies: they are not looked after, and live on."""
        bed.disturb(self.random.choice(bed.nodes), "stepd")
        return self.over_well(bed, job)

    def blip(self, bed: Bed, job: Job) -> str:
        node, at = self.random.choice(bed.nodes), time.monotonic()
        bed.disturb(node, "drop")
        time.sleep(self.random.uniform(0.05, 0.8))
        bed.disturb(node, "join")
        away_s = time.monotonic() - at  # longer than meant where the bed is slow
        result = self.over_well(bed, job)
        if result == "right" or away_s < job.deadline_s / 2:
            return result
        return f"void: the link was away for {away_s:.1f} s; {result}"

    def hampered(self, bed: Bed, job: Job, what: str, values: list[str], none: str) -> str:
        """A node's link is worse than it was, until the job is over."""
        node = self.random.choice(bed.nodes)
        bed.disturb(node, what, self.random.choice(values))
        result = self.over_well(bed, job, 90)
        bed.disturb(node, what, none)
        return result

    def loss(self, bed: Bed, job: Job) -> str:
        return self.hampered(bed, job, "loss", ["1", "3"], "0")

    def delay(self, bed: Bed, job: Job) -> str:
        return self.hampered(bed, job, "delay", ["2", "20"], "0")

    def slow(self, bed: Bed, job: Job) -> str:
        return self.hampered(bed, job, "slow", ["20mbit", "100mbit"], "off")

    # ------------------------------------------------------------------ all of it

    def choose(self) -> tuple[Bed, str, str] | None:
        bed = self.random.choice(self.beds)
        place = self.random.choice(bed.places)
        faults = [f for f in FAULTS[place] if not self.only or f in self.only]
        faults = [f for f in faults if f != "delay" or bed.delays]
        return (bed, place, self.random.choice(faults)) if faults else None

    def judged(self, bed: Bed, job: Job, fault: str) -> str:
        if self.begun(job):
            time.sleep(self.random.uniform(0, 0.5 * bed.life_s))
            run: Callable[[Bed, Job], str] = getattr(self, fault)
            return run(bed, job)
        if fault == "none":
            return f"wrong: it did not begin: {job.errors()[-300:]}"
        return "void: it did not begin"

    def one(self, bed: Bed, place: str, fault: str) -> str:
        before = in_shared_memory()
        train = bool(self.python) and bed.trains and self.random.random() < 0.25
        job = self.start(bed, fault, place, train)
        try:
            result = self.judged(bed, job, fault)
        except BaseException:
            bed.end(job)
            job.end_launchers()
            raise
        if result.startswith(("hang", "void")):
            bed.end(job)
        bed.wait(job, 10)
        job.end_launchers()
        left = bed.left(job) + [f"/dev/shm/{n}" for n in in_shared_memory() - before]
        if left:
            result += f"; LEFT {left}"
        kind = "train" if train else "C"
        print(f"chaos: {place:6} {job.nranks} {kind:5} {fault:8} {result}", flush=True)
        self.counts["leak"] += bool(left)
        self.counts[result.split(":")[0].split(";")[0]] += 1
        if self.verbose or not result.startswith("right"):
            said = [line for line in job.errors().splitlines() if " info " not in line]
            lines = job.text().splitlines() + said[-30:]
            print("".join(f"    {line}\n" for line in lines), flush=True)
        return result

    def run(self, seconds: float) -> None:
        up: list[Bed] = []
        try:
            for bed in self.beds:
                if bed.up():
                    up.append(bed)
                else:
                    print(f"chaos: no {bed.places[0]} here: {bed.script} check says why")
            self.beds = up
            end = time.monotonic() + seconds
            while up and time.monotonic() < end:
                chosen = self.choose()
                if chosen:
                    self.one(*chosen)
        finally:
            for bed in up:
                bed.down()
            command = ["rm", "-rf", "--one-file-system", str(self.folder)]
            subprocess.run(command, check=False)

    def report(self) -> bool:
        print("\n| right | wrong | late | hangs | leaks | void |\n|---|---|---|---|---|---|")
        names = ("right", "wrong", "late", "hang", "leak", "void")
        print("| " + " | ".join(str(self.counts[n]) for n in names) + " |")
        print("\n| fault | verdicts | median s | worst s |\n|---|---|---|---|")
        for fault, times in sorted(self.times.items()):
            print(f"| {fault} | {len(times)} | {statistics.median(times):.2f} | {max(times):.2f} |")
        return not any(self.counts[n] for n in ("wrong", "late", "hang", "leak"))


def in_shared_memory() -> set[str]:
    """Files that a job could have left; Open MPI's and Python's are of others on this machine."""
    return {n for n in os.listdir("/dev/shm") if not n.startswith(("sm_segment.", "sem.mp-"))}


def leave(*_: object) -> None:
    """Job and beds are ended on the way out, which a second signal must not end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(130)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--bed", default="node,nodes", help="some of " + ", ".join(BEDS))
    parser.add_argument("--build", type=Path, default=HERE.parents[1] / "build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--deadline", type=float, default=0, help="seconds; else the bed's")
    parser.add_argument("--verbose", action="store_true", help="what all jobs have said")
    parser.add_argument("--python", default="", help="one that has torch: trainings, too")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if unknown := set(options.bed.split(",")) - set(BEDS):
        parser.error(f"there is no bed {', '.join(sorted(unknown))}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    referee = Referee(options)
    try:
        referee.run(options.seconds)
    finally:
        good = referee.report()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
