#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disturbs an elastic training at random, and judges each of its commits.

    elastic.py EVENTS [--folder FOLDER] [--seed N] [--build FOLDER] [--part N] [--slots N]
               [--pause S] [--picture FILE.svg]

elastic_train.py runs under halayrun, in parts of some events each; a part begins where the one
before it has ended. FOLDER keeps what has been done: the same command goes on from there. Exit
status 0: there was no hang; the training never began anew, since one process that has the state is
always left alone; parameters, momentum and place in the data were bit-identical on all ranks at
each commit; each commit's loss is that of the same steps made by one process, without Halay, from
the commit with which its ranks had met; no process, socket or shared memory was left.
A seed repeats what is tried, not the moments. The Python is that of the training: it needs torch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from chaos import in_shared_memory, leave

HERE = Path(__file__).resolve().parent
HANG_S = 60  # without a commit
# What is done to one process by a signal, or by an order that it obeys at its next step.
ONE = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "leave": signal.SIGTERM,
       "exit": "step exit", "raise": "step raise"}  # fmt: skip
EVENTS = (*ONE, "grow", "shrink", "two", "commit", "recovery", "init")


class Hang(Exception):
    """Nothing goes on."""


class Job:
    """A training under halayrun, and what its processes have logged."""

    def __init__(self, folder: Path, build: Path, slots: int) -> None:
        places = slots - 1
        self.folder, self.slots, self.places = folder, slots, places
        (folder / "tmp").mkdir(parents=True)
        self.known: dict[int, str] = {}  # when each process was started
        self.doomed: set[int] = set()
        self.said, self.placed = 0, places  # of halayrun's output; the places that it has said last
        self.newest = (0.0, 0)  # when somebody has logged last, and in which world
        self.hosts(places)
        self.mark = f"HLY_ELASTIC_MARK={os.getpid()}.{time.monotonic_ns()}"
        self.before = in_shared_memory()
        command = [str(build / "bin/halayrun"), "--min-np", "1", "--max-np", str(slots)]
        command += ["--blacklist-cooldown-range", "0.05", "0.2", "--elastic-timeout", "60"]
        command += ["--host-discovery-script", f"cat {shlex.quote(str(folder / 'hosts'))}"]
        command += [sys.executable, str(HERE / "elastic_train.py"), str(folder)]
        foreign = ("HALAY", "HOROVOD", "PMIX", "SLURM", "OMPI")
        env = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        env.update(HALAY_DEADLINE="5", HALAY_STOP_TIMEOUT="1", OMP_NUM_THREADS="1",
                   TMPDIR=str(folder / "tmp"), PYTHONPATH=str(HERE.parents[1] / "python"),
                   TORCHINDUCTOR_CACHE_DIR=str(folder.parent / "inductor"),
                   PYTHONPYCACHEPREFIX=str(folder.parent / "pycache"),
                   HALAY_LIBRARY=str(build / "lib/libhalay.so.0"))  # fmt: skip
        env.update([self.mark.split("=")])
        with open(folder / "output", "w") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env,
                start_new_session=True)  # fmt: skip

    def hosts(self, places: int) -> None:
        self.say(f"{places} places")
        self.places = places
        new = self.folder / "hosts.new"
        new.write_text(f"localhost:{places}\n")
        new.rename(self.folder / "hosts")

    def hear(self) -> None:
        """What halayrun says of places, and who is told to leave since there are fewer."""
        with open(self.folder / "output", "rb") as output:
            output.seek(self.said)
            text = output.read()
        text = text[: text.rfind(b"\n") + 1]
        self.said += len(text)
        for line in text.decode("utf-8", "replace").splitlines():
            if places := re.search(r"discovery script has places for (\d+) ", line):
                self.placed = int(places[1])
            if leaver := re.search(r"\(pid (\d+) on .*\) is told to leave", line):
                self.doomed.add(int(leaver[1]))

    def pids(self) -> set[int]:
        """Of the processes that halayrun has started, and that have not ended."""
        self.hear()
        parent = self.process.pid
        with contextlib.suppress(OSError):  # the kernel leaves some out while others end
            for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                if int(child) not in self.known and is_training(int(child)):
                    self.known[int(child)] = state_of(int(child))[1]
        for pid, begun in list(self.known.items()):
            if state_of(pid)[0] in "ZX" or state_of(pid)[1] != begun:
                del self.known[pid]
                self.doomed.discard(pid)
                (self.folder / f"order.{pid}").unlink(missing_ok=True)
        return set(self.known)

    def holders(self) -> set[int]:
        """That have met last, have the state, and to which nothing has been done."""
        lasts = {pid: last_line(self.folder / f"log.{pid}") for pid in self.pids()}
        self.newest = max([self.newest, *lasts.values()])
        return {pid for pid, (_, world) in lasts.items()
                if world == self.newest[1] and pid not in self.doomed}  # fmt: skip

    def commits(self) -> int:
        """Grows with each commit."""
        return sum(path.stat().st_size for path in self.folder.glob("log.*"))

    def imports(self) -> int:
        """Grows while a process imports: on a loaded machine it takes minutes until it can meet."""
        return sum(state_of(pid)[2] for pid in self.pids()
                   if not (self.folder / f"log.{pid}").exists())  # fmt: skip

    def until(self, done, seconds: float = HANG_S) -> None:
        """Waits; a Hang if for that long nobody commits or imports."""
        end, size, ticks = time.monotonic() + seconds, self.commits(), 0
        late = time.monotonic() + 5 * seconds
        while not done():
            if self.process.poll() is not None:
                raise Hang(f"the job has ended with status {self.process.returncode}")
            if (now := self.commits()) != size:
                end, size = time.monotonic() + seconds, now
            if time.monotonic() > end:
                if (now := self.imports()) == ticks:
                    raise Hang(f"no commit for {seconds} s")
                end, ticks = time.monotonic() + seconds / 4, now
            if time.monotonic() > late:
                raise Hang(
                    f"{len(self.holders())} processes of {self.places} after {5 * seconds} s"
                )
            time.sleep(0.02)

    def say(self, text: str) -> None:
        with open(self.folder / "events", "a") as events:
            events.write(f"{time.time():.3f} {text}\n")

    def stands(self) -> None:
        """Says where the processes are."""
        for pid in sorted(self.pids()):
            path = Path(f"/proc/{pid}/wchan")
            self.say(
                f"process {pid}: {state_of(pid)[0]} {path.read_text()} "
                f"{'doomed' * (pid in self.doomed)} {'holder' * (pid in self.holders())}"
            )

    def do(self, what: str, pid: int) -> None:
        how = ONE.get(what, what)
        self.doomed.add(pid)
        self.say(f"{what} to process {pid}")
        if isinstance(how, str):
            (self.folder / "new").write_text(how)
            (self.folder / "new").rename(self.folder / f"order.{pid}")
        else:
            with contextlib.suppress(ProcessLookupError):  # an earlier event has ended it
                os.kill(pid, how)

    def finish(self) -> None:
        """All is quiet; then the training ends."""
        self.until(lambda: len(self.holders()) == self.places)
        (self.folder / "over").touch()
        try:
            self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            raise Hang("it does not end") from None
        if self.process.returncode:
            raise Hang(f"the job has ended with status {self.process.returncode}")

    def left(self) -> list[str]:
        """What the job has left behind."""
        end = time.monotonic() + 10
        while True:
            found = [f"process {p}" for p in all_processes() if self.mark in environment_of(p)]
            found += [f"/dev/shm/{n}" for n in in_shared_memory() - self.before if not used(n)]
            found += [str(path) for path in (self.folder / "tmp").iterdir()]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in all_processes():
            if self.mark in environment_of(pid):
                os.kill(pid, signal.SIGKILL)


def all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def is_training(pid: int) -> bool:
    """Not halayrun itself, about to start something."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0] == os.fsencode(sys.executable) and b"elastic_train.py" in words[1]


def state_of(pid: int) -> tuple[str, str, int]:
    """What a process does (X: it is gone), when it was started, and its clock ticks."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", "", 0
    return words[0], words[19], int(words[11]) + int(words[12])


def last_line(path: Path) -> tuple[float, int]:
    """When a process has logged last, and in which world; -1: never."""
    try:
        lines = path.read_bytes()[-2000:].split(b"\n")
    except OSError:
        return 0.0, -1
    if len(lines) < 2:
        return 0.0, -1
    line = json.loads(lines[-2])
    return line["time"], line["world"]


def used(name: str) -> bool:
    """By a process that lives: it is of another job on this machine."""
    for pid in all_processes():
        try:
            if f"/dev/shm/{name}" in Path(f"/proc/{pid}/maps").read_text():
                return True
        except OSError:
            pass
    return not Path(f"/dev/shm/{name}").exists()


# ---------------------------------------------------------------- events


class Events:
    """Makes them."""

    def __init__(self, job: Job, seed: str, pause_s: float, start_s: float) -> None:
        self.job, self.random, self.pause_s = job, random.Random(seed), pause_s
        self.start_s = start_s  # that a process takes until it is a rank
        self.done: list[tuple[float, str]] = []

    def victims(self, count: int) -> list[int]:
        if self.job.places <= count:
            self.job.hosts(count + 1)
        found: set[int] = set()

        def enough() -> bool:
            found.clear()
            found.update(self.job.holders())
            return len(found) > count

        self.job.until(enough)
        return self.random.sample(sorted(found), count)

    def one(self) -> None:
        what = self.random.choice(EVENTS)
        if what in ("grow", "shrink"):
            places = self.job.places + (1 if what == "grow" else -1)
            if not 2 <= places <= self.job.slots:
                what = "shrink" if what == "grow" else "grow"
                places = self.job.places + (1 if what == "grow" else -1)
        time.sleep(self.random.expovariate(1 / self.pause_s))
        {"grow": lambda: self.job.hosts(places), "shrink": lambda: self.shrink(places)}.get(
            what, getattr(self, f"event_{what}", lambda: self.job.do(what, *self.victims(1)))
        )()
        self.done.append((time.time(), what))

    def shrink(self, places: int) -> None:
        # Who leaves may else be the last one that has the state.
        self.job.until(lambda: len(self.job.holders()) > 1)
        self.job.hosts(places)
        self.job.until(lambda: self.job.pids() and self.job.placed == places)

    def event_two(self) -> None:
        for victim in self.victims(2):
            self.job.do(self.random.choice(list(ONE)), victim)

    def event_commit(self) -> None:
        place = self.random.choice(["commit", "save"])
        how = self.random.choice(["kill", "exit", "raise", "stop"])
        self.job.do(f"{place} {how}", *self.victims(1))

    def event_recovery(self) -> None:
        """One ends, and while the others meet another does."""
        first, second = self.victims(2)
        place = self.random.choice(["meeting", "reset", "sync", "synced", ""])
        if place:
            self.job.do(f"{place} {self.random.choice(['kill', 'exit', 'stop'])}", second)
        self.job.do("kill", first)
        if not place:
            time.sleep(self.random.uniform(0, 0.1))
            self.job.do("kill", second)

    def event_init(self) -> None:
        """One that has just been started ends before it is a rank, or just behind that."""
        before = self.job.pids()
        self.job.do("kill", *self.victims(1))
        self.job.until(lambda: self.job.pids() - before)
        started = self.job.pids() - before
        time.sleep(self.random.uniform(0, 1.5 * self.start_s))
        self.job.until(lambda: self.job.holders() - started)
        self.job.do(self.random.choice(["kill", "leave"]), self.random.choice(sorted(started)))


# ---------------------------------------------------------------- the judge


class Judge:
    """Of what the processes of a part have logged."""

    def __init__(self, folder: Path) -> None:
        import elastic_train

        self.folder, self.train = folder, elastic_train
        self.data = elastic_train.pictures()
        self.model, self.optimizer = elastic_train.new_model()
        self.begin = [0, 0]
        if (folder / "begin.pt").exists():
            self.begin = elastic_train.load(folder / "begin.pt", self.model, self.optimizer)
        self.start = elastic_train.hash_of(self.model, self.optimizer, self.begin)
        self.worlds: dict[int, dict[int, list[dict]]] = {}
        for path in folder.glob("log.*"):
            for text in path.read_text().splitlines(keepends=True):
                if text.endswith("\n"):  # else its writer was killed
                    line = json.loads(text)
                    commits = self.worlds.setdefault(line["world"], {})
                    commits.setdefault(line["commit"], []).append(line)

    def deal(self, epoch: int, processed: int, size: int) -> list[list[int]]:
        """Each rank's samples, as ElasticSampler's documentation has it."""
        order = list(range(self.train.SAMPLES))
        random.Random(epoch).shuffle(order)
        left = order[processed:]
        each = -(-len(left) // size)
        return [[left[i % len(left)] for i in range(r, each * size, size)] for r in range(size)]

    def equal(self, lines: list[dict]) -> None:
        """All ranks say the same of a commit."""
        ranks = sorted(line["rank"] for line in lines)
        said = {(line["hash"], line["size"], tuple(line["place"]), line["steps"], line["loss"])
                for line in lines}  # fmt: skip
        if len(said) != 1 or len(set(ranks)) != len(ranks) or ranks[-1] >= lines[0]["size"]:
            raise AssertionError(f"ranks differ: {lines}")

    def replay(self, commits: dict[int, list[dict]]) -> None:
        """A world's steps by one process, from the state with which its ranks have met."""
        first = commits[0][0]
        path = self.folder / f"state-{first['hash']}.pt"
        if not path.exists():  # rank 0 was killed before; then nobody has gone on
            assert set(commits) == {0}, commits
            return
        place = self.train.load(path, self.model, self.optimizer)
        assert place == first["place"], first
        assert self.train.hash_of(self.model, self.optimizer, place) == first["hash"], first
        (epoch, processed), size, batch = place, first["size"], self.train.BATCH
        dealt, at, loss = self.deal(epoch, processed, size), 0, None
        for number in sorted(commits)[1:]:
            line = commits[number][0]
            for _ in range(line["steps"]):
                if at >= len(dealt[0]):
                    epoch, processed, at = epoch + 1, 0, 0
                    dealt = self.deal(epoch, 0, size)
                rows = [i for mine in dealt for i in mine[at : at + batch]]
                loss = self.step(rows)
                at, processed = at + batch, processed + batch * size
            if at >= len(dealt[0]) and line["place"][1] == 0:
                epoch, processed, at = epoch + 1, 0, 0
                dealt = self.deal(epoch, 0, size)
            assert line["place"] == [epoch, processed], (line, epoch, processed)
            assert loss is not None and abs(loss - line["loss"]) <= 1e-9 * abs(loss), (line, loss)

    def step(self, rows: list[int]) -> float:
        inputs, labels = (tensor[rows] for tensor in self.data.tensors)
        self.optimizer.zero_grad()
        loss = self.train.loss_of(self.model, inputs, labels)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def all(self) -> dict:
        """What was seen, or an AssertionError."""
        known = {self.start}
        for commits in self.worlds.values():
            known |= {line["hash"] for n in commits for line in commits[n] if n}
        curve = []
        begun = min(
            lines[0]["time"] for c in self.worlds.values() for n, lines in c.items() if n > 1
        )
        for commits in self.worlds.values():
            for number, lines in commits.items():
                self.equal(lines)
                line = lines[0]
                if number:
                    curve.append((line["time"], line["size"], line["loss"], line["place"][0]))
            first = commits[0][0]
            assert first["hash"] in known, f"no commit is what the ranks go on with: {first}"
            anew = first["hash"] == self.start and first["time"] > begun
            assert not anew, f"the state is lost, and some have had it: {first}"
            self.replay(commits)
        curve.sort()
        gaps = [b[0] - a[0] for a, b in zip(curve, curve[1:])]
        return {"worlds": len(self.worlds), "commits": len(curve), "gap_s": max(gaps),
                "curve": curve}  # fmt: skip


# ---------------------------------------------------------------- parts


def part(root: Path, number: int, events: int, options: argparse.Namespace) -> dict:
    folder = root / f"part-{number}"
    shutil.rmtree(folder, ignore_errors=True)  # one that was interrupted
    folder.mkdir()
    checkpoint = root / "checkpoint.pt"
    if checkpoint.exists():
        shutil.copy(checkpoint, folder / "checkpoint.pt")
        shutil.copy(checkpoint, folder / "begin.pt")
    begin = time.monotonic()
    job = Job(folder, options.build, options.slots)
    try:
        job.until(lambda: len(job.holders()) == job.places)
        made = Events(job, f"{options.seed}.{number}", options.pause, time.monotonic() - begin)
        while len(made.done) < events:
            made.one()
        job.finish()
        left = job.left()
        assert not left, f"left: {left}"
    except Hang:
        job.stands()
        raise
    finally:
        job.end()
    seen = Judge(folder).all()
    shutil.copy(folder / "checkpoint.pt", checkpoint)
    kinds = Counter(what for _, what in made.done)
    found = {"part": number, "seconds": time.monotonic() - begin, "kinds": kinds,
             "events": made.done, **seen}  # fmt: skip
    shutil.rmtree(folder)
    return found


def report(parts: list[dict]) -> None:
    kinds: Counter = Counter()
    for one in parts:
        kinds.update(one["kinds"])
    print("\n| events | parts | meetings | commits | longest gap, s | minutes |")
    print("|---|---|---|---|---|---|")
    sums = [sum(one[key] for one in parts) for key in ("worlds", "commits", "seconds")]
    print(f"| {sum(kinds.values())} | {len(parts)} | {sums[0]} | {sums[1]} | "
          f"{max(one['gap_s'] for one in parts):.1f} | {sums[2] / 60:.0f} |")  # fmt: skip
    print("\n| " + " | ".join(sorted(kinds)) + " |\n|" + "---|" * len(kinds))
    print("| " + " | ".join(str(kinds[k]) for k in sorted(kinds)) + " |", flush=True)


def draw(parts: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "halay", "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(9, 5))
    offset, curve, marks = 0.0, [], []
    for one in parts:
        zero = one["curve"][0][0]
        curve += [((t - zero + offset) / 60, n, loss) for t, n, loss, _ in one["curve"]]
        marks += [(t - zero + offset) / 60 for t, _ in one["events"]]
        offset += one["curve"][-1][0] - zero
    times, sizes, losses = zip(*curve)
    mean = [sum(losses[max(0, i - 40) : i + 1]) / len(losses[max(0, i - 40) : i + 1])
            for i in range(len(losses))]  # fmt: skip
    few = slice(None, None, max(1, len(times) // 2500))
    above.step(times, sizes, where="post", linewidth=0.5, color="#1f5fa8")
    above.plot(marks, [0.3] * len(marks), "|", markersize=5, markeredgewidth=0.4, color="#b5651d")
    above.set_ylabel("ranks (events below)")
    above.set_ylim(0, max(sizes) + 0.5)
    below.plot(times[few], losses[few], linewidth=0.3, color="#a9c3e0", label="of a commit")
    below.plot(times[few], mean[few], linewidth=1.2, color="#1f5fa8", label="mean of 40")
    below.set_yscale("log")
    below.set_ylabel("loss")
    below.set_xlabel("minutes")
    below.legend(frameon=False)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    above.set_title(f"{len(marks)} events in a training")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("events", type=int)
    parser.add_argument("--folder", type=Path, help="keeps what was done; else nothing is kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", type=Path, default=HERE.parents[1] / "build")
    parser.add_argument("--part", type=int, default=50, help="events in one job")
    parser.add_argument("--slots", type=int, default=4, help="the most ranks")
    parser.add_argument("--pause", type=float, default=0.4, help="mean seconds before an event")
    parser.add_argument("--picture", type=Path, help="draws it (needs matplotlib)")
    options = parser.parse_args()
    options.build = options.build.resolve()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    root = (options.folder or Path(tempfile.mkdtemp(prefix="hlyelastic."))).resolve()
    root.mkdir(exist_ok=True)
    path = root / "done.json"
    parts = json.loads(path.read_text()) if path.exists() else []
    try:
        while (done := sum(len(one["events"]) for one in parts)) < options.events:
            number = len(parts)
            parts.append(part(root, number, min(options.part, options.events - done), options))
            path.with_suffix(".new").write_text(json.dumps(parts))
            path.with_suffix(".new").rename(path)
            new = {k: v for k, v in parts[-1].items() if k not in ("events", "curve")}
            print(f"elastic: {json.dumps(new)}", flush=True)
    except (Hang, AssertionError) as failure:
        folder = root / f"part-{len(parts)}"
        print((folder / "output").read_text()[-20000:])
        print((folder / "events").read_text()[-3000:])
        print(f"elastic: WRONG after {done} events, see {folder}: {failure}", flush=True)
        return 1
    report(parts)
    if options.picture:
        draw(parts, options.picture)
    if not options.folder:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
