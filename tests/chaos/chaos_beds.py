# SPDX-License-Identifier: Apache-2.0
"""Where chaos.py runs jobs: this machine, nodes of veth-nodes, a Slurm cluster, machines with RDMA.

A bed starts jobs, finds and signals their ranks, disturbs its nodes, and sees what a job has left.
It judges nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "cluster"
BEGINS = re.compile(r"^chaos: rank (\d+): begins on \S*?(\d*)$", re.M)
FILL_MIB = 64  # that a rank may have when it fills its memory


@dataclass
class Job:
    place: str
    nranks: int
    train: bool
    folder: Path
    deadline_s: float
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    mark: str = ""

    def text(self) -> str:
        return "".join(f.read_text(errors="replace") for f in sorted(self.folder.glob("out*")))

    def errors(self) -> str:
        return "".join(f.read_text(errors="replace") for f in sorted(self.folder.glob("err*")))

    def nodes(self) -> dict[int, int]:
        """Rank: the number in its host's name."""
        return {int(m[0]): int(m[1] or 0) for m in BEGINS.findall(self.text())}

    def launch(self, command: list[str], env: dict[str, str], name: str) -> None:
        with (
            open(self.folder / f"out{name}", "wb") as out,
            open(self.folder / f"err{name}", "wb") as err,
        ):
            self.processes.append(
                subprocess.Popen(
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            )

    def end_launchers(self) -> None:
        """Those that still wait, when the ranks have gone."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def marked(mark: str) -> dict[int, tuple[list[bytes], list[bytes]]]:
    """Live processes of a job, on this machine and in its name spaces: variables and command."""
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
        if f"CHAOS={mark}".encode() in variables and state != "Z":
            found[int(entry.name)] = (variables, command)
    return found


def signal_all(job: Job, number: int) -> None:
    """To all processes of a job."""
    for pid in marked(job.mark):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def variables_of(
    rank: int, ranks: list[int], nnodes: int, address: str, port: int
) -> dict[str, str]:
    """Of a job without a launcher, dealt out to nodes."""
    mine = [r for r in ranks if r % nnodes == rank % nnodes]
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(ranks)),
        "LOCAL_RANK": str(mine.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(mine)),
        "GROUP_RANK": str(rank % nnodes),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def netem(what: str, value: str) -> str:
    """Of tc qdisc: a delay of so many ms, a loss of so many percent, or none. The delay is the same
    for all packets: else netem puts them out of order, of which RDMA's go-back-N makes a loss."""
    if value == "0":
        return "del dev eth0 root"
    return f"replace dev eth0 root netem {what} {value}{'ms' if what == 'delay' else '%'}"


class Bed:
    """Jobs on this machine: over shared memory, or over TCP."""

    places: tuple[str, ...] = ("local", "tcp")
    sizes: tuple[int, ...] = (2, 3, 4, 6)
    trains = True
    deadline_s = 3.0
    life_s = 4.0
    slack_s = 2.0  # of a loaded machine
    names_signal = "killed by signal 9"  # what the launcher says of a rank that was
    nodes: tuple[int, ...] = ()
    script: Path | None = None
    delays = False  # its nodes' links can be slow without being narrow: the kernel has netem

    def __init__(self, folder: Path, env: dict[str, str], build: Path) -> None:
        self.folder, self.build = folder, build
        self.env = env | {"HALAY_TESTBED": str(folder / "bed")}

    def tell(self, *arguments: str) -> bool:
        """A command of the bed's script."""
        done = subprocess.run(
            [str(self.script), *arguments], env=self.env, capture_output=True, check=False
        )
        return done.returncode == 0

    def up(self) -> bool:
        return True

    def down(self) -> None:
        pass

    def new_job(self, place: str, nranks: int, train: bool, deadline_s: float) -> Job:
        job = Job(place, nranks, train, Path(tempfile.mkdtemp(dir=self.folder)), deadline_s)
        (job.folder / "tmp").mkdir()
        return job

    def job_env(self, job: Job) -> dict[str, str]:
        return self.env | {
            "CHAOS": job.mark,
            "HALAY_DEADLINE": str(job.deadline_s),
            "TMPDIR": str(job.folder / "tmp"),
            "PYTHONPATH": str(HERE.parents[1] / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HALAY_LIBRARY": str(self.build / "lib" / "libhalay.so.0"),
        }

    def start(self, job: Job, command: list[str], port: int) -> None:
        env = self.job_env(job)
        if job.place == "tcp":
            env["HALAY_TRANSPORT"] = "tcp"
        halayrun = [str(self.build / "bin" / "halayrun"), "-np", str(job.nranks)]
        job.launch([*halayrun, *command], env, "")

    def ranks(self, job: Job) -> dict[int, int]:
        """Rank: pid, of those that live."""
        found: dict[int, int] = {}
        for pid, (variables, command) in marked(job.mark).items():
            if not any(c.endswith((b"/chaos_rank", b"/chaos_train.py")) for c in command[:2]):
                continue
            for name in (b"PMIX_RANK=", b"RANK="):
                for v in variables:
                    if v.startswith(name):
                        found.setdefault(int(v[len(name) :]), pid)
        return found

    def signal(self, job: Job, rank: int, pid: int, number: int) -> float:
        """When it was sent."""
        at = time.monotonic()
        os.kill(pid, number)
        return at

    def go_on(self, job: Job) -> None:
        """All of the job's processes: what entered a node's name spaces stops with its child."""
        signal_all(job, signal.SIGCONT)

    def disturb(self, node: int, what: str, value: str = "") -> None:
        """A node: cut, drop (cut, and the link looks fine), join, loss, delay, slow, crash, boot,
        slurmd, stepd, where the bed has it."""
        raise NotImplementedError(what)

    def answers(self, node: int) -> bool:
        """A node runs programs, as its ranks."""
        return True

    def runs(self, job: Job) -> bool:
        return any(p.poll() is None for p in job.processes)

    def wait(self, job: Job, seconds: float) -> bool:
        """False: some process is still there."""
        end = time.monotonic() + seconds
        while self.runs(job) and time.monotonic() < end:
            time.sleep(0.02)
        return not self.runs(job)

    def end(self, job: Job) -> None:
        """Whatever is left of it."""
        signal_all(job, signal.SIGKILL)

    def left(self, job: Job) -> list[str]:
        end = time.monotonic() + 3
        while time.monotonic() < end and marked(job.mark):
            time.sleep(0.05)
        found = [f"process {pid}" for pid in marked(job.mark)]
        temporary = (job.folder / "tmp").iterdir()
        return found + [str(p) for p in temporary if "torchinductor" not in p.name]

    # ------------------------------------------------------------------ memory

    def group(self, job: Job) -> Path:
        """A control group of its own that gives FILL_MIB and no swap: version 1, or 2."""
        old = Path("/sys/fs/cgroup/memory")
        group = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"hlychaos.{job.mark}"
        group.mkdir()
        most = "memory.limit_in_bytes" if old.is_dir() else "memory.max"
        (group / most).write_text(str(FILL_MIB << 20))
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            if (group / swap).exists():
                (group / swap).write_text(str(FILL_MIB << 20 if old.is_dir() else 0))
        return group

    def fill(self, job: Job, rank: int, pid: int) -> float:
        """The rank takes memory until the kernel kills it: when that was, or 0: it cannot be."""
        try:
            group = self.group(job)
        except OSError:
            return 0.0
        try:
            (group / "cgroup.procs").write_text(str(pid))
            os.kill(pid, signal.SIGUSR1)
            end = time.monotonic() + 20
            while pid in marked(job.mark) and time.monotonic() < end:
                time.sleep(0.005)
            return time.monotonic()
        finally:
            for _ in range(100):  # until the kernel has put the process away
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


class Nodes(Bed):
    """Three name spaces, over TCP; the ranks' variables say where they are."""

    places: tuple[str, ...] = ("nodes",)
    sizes = (3, 4, 6)
    names_signal = ""
    nodes = (1, 2, 3)
    script = SCRIPTS / "veth-nodes"
    size: tuple[str, ...] = ("3",)

    def up(self) -> bool:
        up = self.tell("check") and self.tell("up", *self.size, *self.shares())
        netem = (
            "tc qdisc add dev eth0 root netem delay 1ms && tc qdisc del dev eth0 root && echo so"
        )
        self.delays = up and self.on(1, netem) == "so\n"
        return up

    def shares(self) -> list[str]:
        seen = (self.folder, HERE.parents[1], self.build)
        return [word for folder in seen for word in ("--share", str(folder))]

    def down(self) -> None:
        self.tell("down")

    def start(self, job: Job, command: list[str], port: int) -> None:
        for rank in range(job.nranks):
            run = [str(self.script), "exec", str(rank % 3 + 1), "--", *command]
            its = variables_of(rank, list(range(job.nranks)), 3, "10.78.0.1", port)
            job.launch(run, self.job_env(job) | its, str(rank))

    def on(self, node: int, command: str) -> str:
        run = [str(self.script), "exec", str(node), "--", "bash", "-c", command]
        return subprocess.run(run, env=self.env, capture_output=True, check=False).stdout.decode()

    def disturb(self, node: int, what: str, value: str = "") -> None:
        if what == "delay":
            self.on(node, f"tc qdisc {netem('delay', value)}")
            return
        shape = [] if value == "off" else ["128kb", "20ms"]
        words = {
            "drop": ["cut", str(node), "--silent"],
            "slow": ["shape", str(node), value, *shape],
            "boot": ["up", *self.size, *self.shares()],
        }
        self.tell(*words.get(what, [what, str(node), *([value] if value else [])]))
        if what == "boot":  # with another hardware address, which the others' tables lack
            for each in self.nodes:
                self.on(each, "ip neigh flush all")

    def left(self, job: Job) -> list[str]:
        found = super().left(job)
        for node in self.nodes:
            found += [f"node {node}: /dev/shm/{n}" for n in self.on(node, "ls -A /dev/shm").split()]
        return found


class Slurm(Nodes):
    """A Slurm cluster of three nodes: srun with PMIx, and halayrun in a script for sbatch."""

    places: tuple[str, ...] = ("srun", "sbatch")
    names_signal = r"tasks? [\d,-]+: Killed"
    script = SCRIPTS / "slurm-cluster"
    size = ("--nodes", "3", "--cpus", "4", "--slurmd-timeout", "60")

    def start(self, job: Job, command: list[str], port: int) -> None:
        env = self.job_env(job) | {
            "SLURM_STDOUTMODE": str(job.folder / "out.%t"),  # written by the node itself
            "SLURM_STDERRMODE": str(job.folder / "err.%t"),
            "SLURM_DISTRIBUTION": "cyclic",
        }
        name, size = f"--job-name={job.mark}", ["-N3", f"-n{job.nranks}"]
        login = [str(self.script), "run", "--"]
        if job.place == "srun":
            job.launch([*login, "srun", name, "--mpi=pmix", *size, *command], env, ".srun")
            return
        words = [str(self.build / "bin" / "halayrun"), "-np", str(job.nranks), *command]
        (job.folder / "job.sh").write_text(f"#!/bin/bash\nexec {shlex.join(words)}\n")
        files = [f"--output={job.folder}/out.batch", f"--error={job.folder}/err.batch"]
        batch = ["sbatch", "--no-requeue", name, *size, *files, str(job.folder / "job.sh")]
        job.launch([*login, *batch], env, ".sbatch")

    def on(self, node: int, command: str) -> str:
        run = [str(self.script), "node", str(node), "--", "bash", "-c", command]
        return subprocess.run(run, env=self.env, capture_output=True, check=False).stdout.decode()

    def disturb(self, node: int, what: str, value: str = "") -> None:
        link = {"cut": "down", "drop": "drop", "join": "up"}
        if what in link:
            self.tell("partition", str(node), link[what])
        elif what == "boot":
            self.tell("boot", str(node))
        elif what == "stepd":
            self.on(node, "pkill -KILL -x slurmstepd")
        else:
            super().disturb(node, what, value)

    def runs(self, job: Job) -> bool:
        """Of srun and of Slurm's own there may still be some: they are not the job."""
        return bool(self.ranks(job))

    def wait(self, job: Job, seconds: float) -> bool:
        done = super().wait(job, seconds)
        end = time.monotonic() + 5
        while done and marked(job.mark) and time.monotonic() < end:
            time.sleep(0.05)
        if marked(job.mark):  # srun waits for a node that is lost
            self.tell("run", "--", "scancel", "--quiet", f"--name={job.mark}")
        return done


class Machines(Bed):
    """Two emulated machines with Soft-RoCE: verbs between them."""

    places: tuple[str, ...] = ("rdma",)
    delays = True
    sizes = (2, 2, 3, 4)
    trains = False  # torch takes minutes to be loaded there
    deadline_s = 10.0
    life_s = 10.0
    slack_s = 4.0
    names_signal = ""
    nodes = (0, 1)
    script = SCRIPTS / "rdma-nodes"
    seconds = 3600.0  # that they may live

    def up(self) -> bool:
        self.control = self.folder / "machines"
        if not self.tell("check"):
            return False
        shares = [word for f in (HERE.parents[1], self.build) for word in ("--share", str(f))]
        lives = 'until [ -e "$NODE_DIR/over" ]; do sleep 0.5; done'
        run = [str(self.script), "run", "--raw", "--timeout", str(int(self.seconds)), *shares]
        run += ["--control", str(self.control), "--", "bash", "-c", lives]
        self.machines = subprocess.Popen(run, env=self.env, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not all((self.control / "ctl" / f"start.{n}").exists() for n in self.nodes):
            if self.machines.poll() is not None or time.monotonic() > end:
                self.machines.terminate()
                return False
            time.sleep(0.1)
        group = "mkdir /tmp/cgroup && mount -t cgroup2 none /tmp/cgroup"
        for node in self.nodes:
            self.on(node, f"{group} && echo +memory >/tmp/cgroup/cgroup.subtree_control")
        return True

    def down(self) -> None:
        if self.machines.poll() is None:
            (self.control / "ctl" / "shared" / "over").touch()
        try:
            self.machines.wait(30)
        except subprocess.TimeoutExpired:
            self.machines.terminate()
            self.machines.wait()

    def on(self, node: int, command: str) -> str:
        run = [str(self.control / "ctl" / "rsh"), f"node{node}", command]
        return subprocess.run(run, env=self.env, capture_output=True, check=False).stdout.decode()

    def answers(self, node: int) -> bool:
        """Not while the machine stands still, as it may beside others' load."""
        run = [str(self.control / "ctl" / "rsh"), f"node{node}", "true"]
        try:
            return subprocess.run(run, env=self.env, check=False, timeout=10).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def new_job(self, place: str, nranks: int, train: bool, deadline_s: float) -> Job:
        shared = self.control / "ctl" / "shared"
        return Job(place, nranks, train, Path(tempfile.mkdtemp(dir=shared)), deadline_s)

    def start(self, job: Job, command: list[str], port: int) -> None:
        there = f"/run/halay/shared/{job.folder.name}"
        env = {"CHAOS": job.mark, "HALAY_DEADLINE": str(job.deadline_s), "HALAY_DEBUG": "info"}
        env["TMPDIR"] = f"/tmp/{job.folder.name}"
        for node in self.nodes:
            script = f"mkdir {env['TMPDIR']}\n"
            for rank in range(node, job.nranks, 2):
                its = env | variables_of(rank, list(range(job.nranks)), 2, "10.79.0.1", port)
                words = ["env", *(f"{k}={v}" for k, v in its.items()), *command]
                script += f"{shlex.join(words)} >{there}/out{rank} 2>{there}/err{rank} &\n"
                script += f"echo $! >{there}/pid{rank}\n"
            # a pid is a number as soon as its file has a line
            rsh = [str(self.control / "ctl" / "rsh"), f"node{node}", script + "wait"]
            job.launch(rsh, self.env, f".rsh{node}")

    def ranks(self, job: Job) -> dict[int, int]:
        if not self.runs(job):
            return {}
        files = {int(f.name[3:]): f.read_text() for f in job.folder.glob("pid*")}
        return {rank: int(text) for rank, text in files.items() if text.endswith("\n")}

    def signal(self, job: Job, rank: int, pid: int, number: int) -> float:
        self.on(rank % 2, f"kill -{number} {pid}; : >/run/halay/shared/{job.folder.name}/at")
        sent = (job.folder / "at").stat().st_mtime  # this machine's clock, whose file it is
        return sent - time.time() + time.monotonic()

    def go_on(self, job: Job) -> None:
        for rank, pid in self.ranks(job).items():
            self.signal(job, rank, pid, signal.SIGCONT)

    def end(self, job: Job) -> None:
        for rank, pid in self.ranks(job).items():
            self.signal(job, rank, pid, signal.SIGKILL)

    def left(self, job: Job) -> list[str]:
        found = []
        for node in self.nodes:
            look = f"ls -A /dev/shm /tmp/{job.folder.name} | grep -v :; pgrep -a chaos_rank"
            found += [f"node {node}: {line}" for line in self.on(node, look).splitlines() if line]
        return found

    def disturb(self, node: int, what: str, value: str = "") -> None:
        if what == "cut":
            self.on(node, "ip link set eth0 down")
        elif what in ("drop", "join"):  # netem acts on what is sent: on both, that is the link
            value = "100" if what == "drop" else "0"
            for each in self.nodes:
                self.on(each, f"ip link set eth0 up; tc qdisc {netem('loss', value)}")
        else:
            self.on(node, f"tc qdisc {netem(what, value)}")

    def fill(self, job: Job, rank: int, pid: int) -> float:
        group = f"/tmp/cgroup/{job.folder.name}"
        self.on(
            rank % 2,
            f"mkdir {group} && echo {FILL_MIB << 20} >{group}/memory.max &&"
            f" echo {pid} >{group}/cgroup.procs && kill -USR1 {pid};"
            f" for i in $(seq 200); do [ -e /proc/{pid}/exe ] || break; sleep 0.1; done",
        )
        return time.monotonic()


BEDS: dict[str, type[Bed]] = {"node": Bed, "nodes": Nodes, "slurm": Slurm, "rdma": Machines}
