#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disturbs jobs at random, and judges what their ranks say.

    chaos.py SECONDS [--build FOLDER] [--seed N] [--only FAULT,...] [--python PYTHON]

Each job runs chaos_rank (or chaos_train.py) on some ranks, in one place: this machine over shared
memory, or over TCP, or three nodes of veth-nodes over TCP. While it runs one fault of FAULTS
happens. The referee knows what must be said: by whom, about whom, by when; and that nothing is
left. A line a job, and at the end a table: verdicts right, wrong, late, hangs, leaks, and the time
to a verdict. Exit status 0: nothing was wrong. A seed repeats the faults, not the moments.
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
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODES = HERE.parent / "cluster" / "veth-nodes"
DEADLINE_S = 3.0
ALLOWED_S = {"kill": 1.0, "stop": DEADLINE_S + 2.5, "cut": DEADLINE_S + 2.5}
SLACK_S = 2.0  # of a loaded machine
LIFE_S = 4.0
TOLD = re.compile(r"^chaos: rank (-?\d+): told (-?\d+) after (\d+) ms: (.*)$", re.M)
WELL = re.compile(r"^chaos: rank (\d+): well, (\d+) calls$", re.M)


@dataclass
class Job:
    place: str
    nranks: int
    train: bool
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    mark: str = ""

    def text(self) -> str:
        return "".join(f.read_text(errors="replace") for f in sorted(self.folder.glob("out*")))

    def errors(self) -> str:
        return "".join(f.read_text(errors="replace") for f in sorted(self.folder.glob("err*")))


def pids_of(mark: str) -> dict[int, int]:
    """Rank: pid, of the live processes of the job that are ranks."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            variables = Path(entry.path, "environ").read_bytes().split(b"\0")
            command = Path(entry.path, "cmdline").read_bytes().split(b"\0")
            state = Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if f"CHAOS={mark}".encode() not in variables or state == "Z":
            continue
        if not any(c.endswith((b"/chaos_rank", b"/chaos_train.py")) for c in command[:2]):
            continue
        for name in (b"PMIX_RANK=", b"RANK="):
            for v in variables:
                if v.startswith(name) and int(v[len(name) :]) not in found:
                    found[int(v[len(name) :])] = int(entry.name)
    return found


def everyone_of(mark: str) -> list[int]:
    found = []
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and f"CHAOS={mark}".encode() in Path(
                entry.path, "environ"
            ).read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def go_on(mark: str) -> None:
    """All of the job's processes: what entered a node's name spaces stops itself with its child."""
    for pid in everyone_of(mark):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


class Referee:
    def __init__(self, options: argparse.Namespace) -> None:
        self.build: Path = options.build
        self.python: str = options.python
        self.random = random.Random(options.seed)
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[float]] = {}
        self.bed = Path(tempfile.mkdtemp(prefix="hlychaos.", dir="/tmp"))
        self.bed.chmod(0o755)
        self.nodes = False
        self.environment = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("HALAY", "PMIX", "SLURM", "OMPI", "UCX"))
        }
        self.environment |= {"HALAY_TESTBED": str(self.bed / "bed"), "OMP_NUM_THREADS": "1"}

    def veth(self, *arguments: str) -> bool:
        done = subprocess.run(
            [NODES, *arguments], env=self.environment, capture_output=True, check=False
        )
        return done.returncode == 0

    # ------------------------------------------------------------------ jobs

    def command(self, job: Job, seed: int) -> list[str]:
        seconds = str(LIFE_S)
        if job.train:
            return [self.python, str(HERE / "chaos_train.py"), seconds, str(seed)]
        return [str(self.build / "bin" / "chaos_rank"), seconds, str(seed)]

    def start(self, place: str, nranks: int, train: bool) -> Job:
        job = Job(place, nranks, train, Path(tempfile.mkdtemp(dir=self.bed)))
        job.mark = f"{os.getpid()}.{self.random.randrange(1 << 30)}"
        (job.folder / "tmp").mkdir()
        env = self.environment | {
            "CHAOS": job.mark,
            "HALAY_DEADLINE": str(DEADLINE_S),
            "TMPDIR": str(job.folder / "tmp"),
            "PYTHONPATH": str(HERE.parents[1] / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HALAY_LIBRARY": str(self.build / "lib" / "libhalay.so.0"),
        }
        command = self.command(job, self.random.randrange(1 << 30))
        if place == "nodes":
            port = str(20000 + self.random.randrange(10000))
            for rank in range(nranks):
                variables = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(nranks),
                    "LOCAL_RANK": str(rank // 3),
                    "LOCAL_WORLD_SIZE": str((nranks + 2 - rank % 3) // 3),
                    "GROUP_RANK": str(rank % 3),
                    "MASTER_ADDR": "10.78.0.1",
                    "MASTER_PORT": port,
                }
                run = [str(NODES), "exec", str(rank % 3 + 1), "--", *command]
                self.launch(job, run, env | variables, str(rank))
        else:
            if place == "tcp":
                env["HALAY_TRANSPORT"] = "tcp"
            halayrun = [str(self.build / "bin" / "halayrun"), "-np", str(nranks)]
            self.launch(job, [*halayrun, *command], env, "")
        return job

    def launch(self, job: Job, command: list[str], env: dict[str, str], name: str) -> None:
        with (
            open(job.folder / f"out{name}", "wb") as out,
            open(job.folder / f"err{name}", "wb") as err,
        ):
            job.processes.append(
                subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            )

    def begun(self, job: Job) -> bool:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if job.text().count(": begins") == job.nranks:
                return True
            time.sleep(0.02)
        return False

    def wait(self, job: Job, seconds: float) -> bool:
        """False: some process is still there."""
        end = time.monotonic() + seconds
        for process in job.processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    # ------------------------------------------------------------------ verdicts

    def told_of(self, job: Job, culprits: set[int], kind: str, at: float) -> str:
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
        texts = {re.sub(r" \[seen by.*", "", told[r][1]) for r in survivors}
        if len(texts) > 1:
            return f"wrong: {len(texts)} texts: {' | '.join(sorted(texts))}"
        self.times.setdefault(kind, []).append(self.heard_s - at)
        if self.heard_s - at > ALLOWED_S[kind] + SLACK_S:
            return f"late: {self.heard_s - at:.2f} s"
        return "right"

    def all_well(self, job: Job) -> str:
        well = {int(m[0]) for m in WELL.findall(job.text())}
        if well == set(range(job.nranks)):
            return "right"
        told = TOLD.search(job.text())
        why = told[0] if told else job.errors()[-300:]
        return f"wrong: {job.nranks - len(well)} ranks were not well: {why}"

    def hear(self, job: Job, ntold: int, seconds: float) -> bool:
        """Until so many ranks were told: notes when."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(TOLD.findall(job.text())) >= ntold:
                self.heard_s = time.monotonic()
                return True
            if all(p.poll() is not None for p in job.processes):
                break
            time.sleep(0.005)
        self.heard_s = time.monotonic()
        return False

    # ------------------------------------------------------------------ faults

    def none(self, job: Job) -> str:
        return self.all_well(job) if self.wait(job, 60) else "hang"

    def kill(self, job: Job, many: int = 1) -> str:
        pids = pids_of(job.mark)
        culprits = set(self.random.sample(range(job.nranks), many))
        at = time.monotonic()
        for rank in culprits:
            if rank not in pids:
                return "void: it has ended before"
            os.kill(pids[rank], signal.SIGKILL)
        self.hear(job, job.nranks - many, 30)
        if not self.wait(job, 30):
            return "hang"
        if job.place != "nodes" and "killed by signal 9" not in job.errors():
            return f"wrong: halayrun does not say who was killed: {job.errors()[-200:]}"
        return self.told_of(job, culprits, "kill", at)

    def kill_two(self, job: Job) -> str:
        return self.kill(job, 2) if job.nranks > 2 else self.kill(job)

    def stop(self, job: Job) -> str:
        pids, culprit = pids_of(job.mark), self.random.randrange(job.nranks)
        if culprit not in pids:
            return "void: it has ended before"
        at = time.monotonic()
        os.kill(pids[culprit], signal.SIGSTOP)
        self.hear(job, job.nranks - 1, 40)
        result = self.told_of(job, {culprit}, "stop", at)
        os.kill(pids[culprit], signal.SIGKILL)
        go_on(job.mark)
        return result if self.wait(job, 30) else "hang"

    def pause(self, job: Job) -> str:
        """Several ranks, one after the other, for less than the deadline."""
        for _ in range(3):
            pids = pids_of(job.mark)
            if not pids:
                break
            pid = self.random.choice(sorted(pids.values()))
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.random.uniform(0.01, 0.6))
                go_on(job.mark)
            except ProcessLookupError:
                break
            time.sleep(self.random.uniform(0, 0.3))
        return self.all_well(job) if self.wait(job, 60) else "hang"

    def cut(self, job: Job) -> str:
        """A node's link is gone: the others name a rank of it; its ranks name others."""
        node = self.random.randrange(3)
        at = time.monotonic()
        self.veth("cut", str(node + 1), "--silent")
        self.hear(job, job.nranks, 40)
        gone = self.wait(job, 30)
        self.veth("join", str(node + 1))
        if not gone:
            return "hang"
        told = {int(m[0]): m[3] for m in TOLD.findall(job.text())}
        if len(told) != job.nranks:
            return f"wrong: told were {sorted(told)}"
        away = {r for r in range(job.nranks) if r % 3 == node}
        for side in (away, set(range(job.nranks)) - away):
            others = set(range(job.nranks)) - side
            for rank in side:
                if not others & {int(n) for n in re.findall(r"\brank (\d+)\b", told[rank])}:
                    return f"wrong: rank {rank} was told: {told[rank]}"
        self.times.setdefault("cut", []).append(self.heard_s - at)
        return (
            "right"
            if self.heard_s - at < ALLOWED_S["cut"] + SLACK_S
            else f"late: {self.heard_s - at:.2f}"
        )

    def blip(self, job: Job) -> str:
        node = str(self.random.randrange(3) + 1)
        self.veth("cut", node, "--silent")
        time.sleep(self.random.uniform(0.05, 0.8))
        self.veth("join", node)
        return self.all_well(job) if self.wait(job, 60) else "hang"

    def loss(self, job: Job) -> str:
        node = str(self.random.randrange(3) + 1)
        self.veth("loss", node, str(self.random.choice([1, 3])))
        done = self.wait(job, 60)
        self.veth("loss", node, "0")
        return self.all_well(job) if done else "hang"

    def slow(self, job: Job) -> str:
        node = str(self.random.randrange(3) + 1)
        self.veth("shape", node, self.random.choice(["20mbit", "100mbit"]), "128kb", "20ms")
        done = self.wait(job, 90)
        self.veth("shape", node, "off")
        return self.all_well(job) if done else "hang"

    # ------------------------------------------------------------------ all of it

    def left(self, job: Job, before: set[str]) -> list[str]:
        end = time.monotonic() + 3
        while time.monotonic() < end and everyone_of(job.mark):
            time.sleep(0.05)
        found = [f"process {pid}" for pid in everyone_of(job.mark)]
        temporary = (job.folder / "tmp").iterdir()
        found += [str(p) for p in temporary if "torchinductor" not in p.name]
        return found + [f"/dev/shm/{n}" for n in set(os.listdir("/dev/shm")) - before]

    def one(self, fault: str, place: str, train: bool) -> str:
        before = set(os.listdir("/dev/shm"))
        nranks = self.random.choice([2, 3] if train else [2, 3, 4, 6])
        if place == "nodes":
            nranks = max(3, nranks)
        job = self.start(place, nranks, train)
        result = "void: it did not begin"
        if self.begun(job):
            time.sleep(self.random.uniform(0, 0.5 * LIFE_S))
            run: Callable[[Job], str] = getattr(self, fault)
            result = run(job)
        elif fault == "none":
            result = f"wrong: it did not begin: {job.errors()[-300:]}"
        for pid in everyone_of(job.mark) if result.startswith(("hang", "void")) else []:
            os.kill(pid, signal.SIGKILL)
        self.wait(job, 10)
        left = self.left(job, before)
        if left:
            result += f"; LEFT {left}"
        print(
            f"chaos: {place:5} {nranks} {'train' if train else 'C':5} {fault:8} {result}",
            flush=True,
        )
        self.counts["leak"] += bool(left)
        self.counts[result.split(":")[0].split(";")[0]] += 1
        if not result.startswith("right"):
            print(
                "".join(f"    {line}\n" for line in (job.text() + job.errors()).splitlines()[-30:])
            )
        return result

    def report(self) -> bool:
        print("\n| right | wrong | late | hangs | leaks | void |\n|---|---|---|---|---|---|")
        names = ("right", "wrong", "late", "hang", "leak", "void")
        print("| " + " | ".join(str(self.counts[n]) for n in names) + " |")
        print("\n| fault | verdicts | median s | worst s |\n|---|---|---|---|")
        for fault, times in sorted(self.times.items()):
            print(f"| {fault} | {len(times)} | {statistics.median(times):.2f} | {max(times):.2f} |")
        return not any(self.counts[n] for n in ("wrong", "late", "hang", "leak"))


FAULTS = {
    "local": ("none", "kill", "kill_two", "stop", "pause"),
    "tcp": ("none", "kill", "kill_two", "stop", "pause"),
    "nodes": ("none", "kill", "stop", "pause", "cut", "blip", "loss", "slow"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--build", type=Path, default=HERE.parents[1] / "build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--python", default="", help="one that has torch: trainings, too")
    options = parser.parse_args()
    options.build = options.build.resolve()
    referee = Referee(options)
    only = set(options.only.split(",")) - {""}
    places = ["local", "tcp"]
    if referee.veth("check") and referee.veth("up", "3", "--share", str(referee.bed)):
        places.append("nodes")
    else:
        print("chaos: no nodes here: veth-nodes check says why")
    try:
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            place = referee.random.choice(places)
            faults = [f for f in FAULTS[place] if not only or f in only]
            if faults:
                train = bool(options.python) and referee.random.random() < 0.25
                referee.one(referee.random.choice(faults), place, train)
    finally:
        if "nodes" in places:
            referee.veth("down")
        subprocess.run(["rm", "-rf", "--one-file-system", str(referee.bed)], check=False)
    return 0 if referee.report() else 1


if __name__ == "__main__":
    sys.exit(main())
