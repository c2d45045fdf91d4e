# SPDX-License-Identifier: Apache-2.0
"""run(): the driver's side. It starts a barrier stage, hears from the tasks, and says who is which
rank; then it waits for all of them.

Invariant: a run begins once. Tasks that are started after the ranks were told who they are get
nothing to do: what failed in the middle is not repeated behind the caller's back.
"""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NoReturn

from .._engines import Loss, WorkerLost, by_node, numbers, reason, told
from ..errors import HorovodInternalError
from ..horovod import SHIM
from .board import Event, Member, Switchboard
from .session import (
    active_context,
    addresses_of,
    announce,
    cancel,
    is_cancelled,
    late,
    match_workers,
    python_of,
    slots,
    start_timeout_of,
    streams_of,
    text_of,
    variables_of,
)
from .task import End, Work, attend
from .words import RAISED, RETURNED, Failure, Orders

GRACE_S = 5  # so long others have after the first failure, or Spark's, to end by themselves
SAME_S = 1.5  # so long after the first failure a task that is gone has the same reason
TRIES = 3  # so often Spark may fail before all tasks have started
JOB_S = 30  # in which Spark has noticed that its job is over
_runs = itertools.count()


class RankFailed(Exception):
    """The cause of what run() raises: the traceback in the rank."""


class _SparkFailed(RuntimeError):
    """Before ranks have begun."""


class _Job:
    """One run: Spark's job, its tasks, the ranks."""

    def __init__(self, context: Any, size: int, start_s: float, streams: Mapping[str, Any]) -> None:
        self._context, self._size, self._start_s = context, size, start_s
        self._until_s = time.monotonic() + start_s
        self.board = Switchboard(*addresses_of(context), size, streams)
        self._group = f"halay.spark.run.{os.getpid()}.{next(_runs)}"
        self._members: dict[int, Member] = {}  # by partition, then by rank
        self._called: list[Member] = []  # all
        self._thread: threading.Thread | None = None
        self._job_error: BaseException | None = None

    def begin(self, name: str) -> None:
        """All tasks have called: of a stage that Spark gives up before, there is another one."""
        for left in reversed(range(TRIES)):
            self._submit(name)
            try:
                self.gather()
                break
            except _SparkFailed:
                if left == 0:
                    raise
                self._members = {}

    def _submit(self, name: str) -> None:
        """Starts the stage, as soon as the cluster is large enough for it."""
        from pyspark import InheritableThread

        room = slots(self._context)
        while room is not None and room < self._size:
            if time.monotonic() >= self._until_s:
                self._late(room)
            time.sleep(0.1)
            room = slots(self._context)
        self._thread = InheritableThread(target=self._spark, args=(name,), daemon=True)
        self._thread.start()

    def _spark(self, name: str) -> None:
        error: BaseException | None = None
        try:
            self._context.setJobGroup(self._group, name, interruptOnCancel=True)
            tasks = self._context.parallelize(range(self._size), self._size).barrier()
            call = functools.partial(attend, self.board.contact)
            tasks.mapPartitionsWithIndex(call).collect()
        except BaseException as one:
            error = one
        self.board.events.put(Event("job", None, error))

    def _late(self, room: int | None) -> NoReturn:
        late(len(self._members), self._size, self._start_s, room)

    def gather(self) -> None:
        """All tasks of one attempt call; those of a former one are no part of the run."""
        attempts: dict[str, dict[int, Member]] = {}
        while len(self._members) < self._size:
            try:
                event = self.board.events.get(timeout=max(self._until_s - time.monotonic(), 0))
            except queue.Empty:
                self._late(slots(self._context))
            if event.kind == "job":
                cls = RuntimeError if is_cancelled(event.what) else _SparkFailed
                raise cls(
                    f"Spark ended the job before all tasks had started: {text_of(event.what)}"
                ) from event.what
            if event.kind == "hello" and event.member is not None:
                self._called.append(event.member)
                self._members = attempts.setdefault(event.member.attempt, {})
                self._members[event.member.partition] = event.member

    def tell(self, function: bytes, variables: Mapping[str, str], **how: Any) -> None:
        """Who they are, and what to do. Ranks are numbered node by node."""
        tasks = [self._members[partition] for partition in range(self._size)]
        tasks = [tasks[i] for i in by_node([task.where for task in tasks])]
        places = [task.where for task in tasks]
        shim = SHIM in sys.path
        for rank, task in enumerate(tasks):
            task.rank = rank
            own = numbers(rank, places)
            visible = own.get("CUDA_VISIBLE_DEVICES", "").split(",")
            gpus = [str(visible.index(str(gpu))) for gpu in task.where.gpus]
            orders = Orders(rank, self._size, tasks[0].address, "", gpus, shim, function)
            task.work.put(Work(orders, {**own, **variables}, **how))
        self._members = dict(enumerate(tasks))
        for member in self._called:
            member.work.put(None)  # who was told does not listen any more

    def collect(self) -> list[Any]:
        """What the ranks returned."""
        results: dict[int, bytes] = {}
        failures: dict[int, Failure | str] = {}  # what it raised, or why it is lost
        ended: set[int] = set()  # by Spark, which ends a barrier stage whose tasks are lost
        first_s = end_s = float("inf")
        while len(results) + len(failures) + len(ended) < self._size and time.monotonic() < end_s:
            left_s = end_s - time.monotonic()
            try:
                event = self.board.events.get(timeout=None if left_s == float("inf") else left_s)
            except queue.Empty:
                break
            rank = event.member.rank if event.member is not None else -1
            if event.kind == "job":
                self._job_error = event.what
                end_s = min(end_s, time.monotonic() + (0 if is_cancelled(event.what) else GRACE_S))
            elif event.kind == "hello" and event.member is not None:
                self._called.append(event.member)
                event.member.work.put(None)
            elif rank >= 0 and rank not in {*results, *failures, *ended}:
                outcome = _outcome(event)
                if event.kind == "gone" and time.monotonic() > first_s + SAME_S:
                    ended.add(rank)
                elif isinstance(outcome, bytes):
                    results[rank] = outcome
                else:
                    failures[rank] = outcome
                    first_s = min(first_s, time.monotonic())
                    end_s = min(end_s, time.monotonic() + GRACE_S)
        if len(results) < self._size:
            self._raise(failures, set(range(self._size)) - results.keys() - failures.keys())
        return [pickle.loads(results[rank]) for rank in range(self._size)]

    def _raise(self, failures: Mapping[int, Failure | str], mute: set[int]) -> NoReturn:
        """failures in the order in which they came. mute: who has not ended."""
        if not failures:
            raise RuntimeError(
                f"Spark ended the job before all ranks had: {text_of(self._job_error)}"
            ) from self._job_error
        errors = {r: f.exception() for r, f in failures.items() if isinstance(f, Failure)}
        lost = {r: why for r, why in failures.items() if isinstance(why, str)}
        if not lost and all(isinstance(e, HorovodInternalError) for e in errors.values()):
            why = f"no word from it {GRACE_S} s after the failure of rank {next(iter(failures))}"
            lost = dict.fromkeys(sorted(mute), why)
        hosts = [self._members[rank].where.host for rank in range(self._size)]
        summaries = {r: f.summary for r, f in failures.items() if isinstance(f, Failure)}
        if lost:
            losses = [Loss(rank, hosts[rank], why) for rank, why in lost.items()]
            raise WorkerLost(losses, told(summaries)) from self._job_error
        rank, error = reason(errors, hosts)
        failure = failures[rank]
        assert isinstance(failure, Failure)
        raise error from RankFailed(f"rank {rank} on {hosts[rank]}\n{failure.traceback}")

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: Any) -> None:
        """Whatever has happened: nothing that the run has started is left."""
        if self._thread is not None and failure is not None:
            cancel(self._context, self._group)
        self.board.close(self._called)
        if self._thread is not None:
            self._thread.join(JOB_S)


def _ended(status: int, when: str) -> str:
    if status >= 0:
        return f"its process ended with status {status}{when}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    memory = ": has the machine run out of memory?" if -status == signal.SIGKILL else ""
    return f"its process was killed by {name}{when}{memory}"


def _outcome(event: Event) -> bytes | Failure | str:
    """What the rank returned, or raised, or why it is lost."""
    end = event.what
    if not isinstance(end, End):
        return f"its Spark task is gone: {end}"
    if end.status is None:
        return end.why
    kind, said = end.said[:1], end.said[1:]
    if kind == RAISED:
        try:
            return Failure(*pickle.loads(said))
        except Exception as error:
            return f"it raised what cannot be read here: {error}"
    if kind == RETURNED and end.status == 0:
        return said
    return _ended(end.status, " after it had returned" if kind == RETURNED else "")


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, Any] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Runs fn(*args, **kwargs) on num_proc ranks beside Spark's tasks: what each returned, by rank.

    num_proc: spark.default.parallelism if left out. start_timeout: seconds for all tasks to start
    and for hvd.init(), else HOROVOD_SPARK_START_TIMEOUT, else 600; TimeoutError. env: of the ranks,
    in addition. stdout, stderr: streams for what ranks write, else it goes to the executors' logs.
    nics: whose first is listened at. executable: the ranks' Python, else PYSPARK_PYTHON, else this
    process's.

    Raises what a rank raised, with its traceback; WorkerLost if a rank's process or executor was
    lost. Nothing is run again, and no process is left. MPI's arguments have no effect.
    """
    from pyspark import cloudpickle

    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi exclude each other")
    context = active_context()
    match_workers()
    size = context.defaultParallelism if num_proc is None else num_proc
    if size < 1:
        raise ValueError(f"num_proc must be at least 1, not {size}")
    start_timeout = start_timeout_of(start_timeout)
    announce(size, num_proc, verbose)
    streams = streams_of(stdout, stderr)
    variables = {
        "HALAY_START_DEADLINE": f"{start_timeout:g}",
        **({"HOROVOD_CONTROLLER": "mpi"} if use_mpi else {}),
        **variables_of(nics, env),
    }
    function = bytes(cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))))
    with _Job(context, size, start_timeout, streams) as job:
        job.begin(f"halay.spark.run({getattr(fn, '__name__', 'fn')})")
        job.tell(
            function,
            variables,
            executable=executable or python_of(context),
            forward=tuple(streams),
            timestamp=prefix_output_with_timestamp,
        )
        return job.collect()
