# SPDX-License-Identifier: Apache-2.0
"""run(): the driver's side. It starts a barrier stage, hears from the tasks, and says who is which
rank; then it waits for all of them.

Invariant: a run begins once. Tasks that Spark starts again after the ranks were told who they are
get nothing to do: what failed in the middle is not repeated behind the caller's back.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import pickle
import queue
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, NoReturn

from .._engines import Loss, WorkerLost, by_node, numbers, reason, told
from ..errors import HorovodInternalError
from ..horovod import SHIM
from .line import Line
from .task import Contact, End, Hello, Output, Work, attend
from .words import RAISED, RETURNED, Failure, Orders

START_S = 600  # where nobody says how long tasks may take to start
GRACE_S = 5  # so long others have after the first failure to end by themselves
SAME_S = 1.5  # so long after the first failure a task that is gone has the same reason
HANG_UP_S = 5  # in which tasks have ended their ranks
JOB_S = 30  # in which Spark has noticed that its job is over
STRANGERS = 64  # connections at a time beside those of the tasks
_runs = itertools.count()


class _Member:
    """A task that has called, and the thread that serves it."""

    def __init__(self, hello: Hello, line: Line) -> None:
        self.attempt, self.partition, self.where, self.address = hello
        self.line, self.thread = line, threading.current_thread()
        self.rank = -1  # not told yet
        self.work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()


class _Event(NamedTuple):
    """kind: hello, end (what: End), gone (what: why), job (what: None or Spark's error)."""

    kind: str
    member: _Member | None
    what: Any = None


class RankFailed(Exception):
    """The cause of what run() raises: the traceback in the rank."""


class _Switchboard:
    """Listens for tasks; what they say becomes events, their output goes to the streams."""

    def __init__(self, host: str, bind: str, tasks: int, streams: Mapping[str, Any]) -> None:
        self.events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._streams = streams
        self._writing = threading.Lock()
        self._room = threading.Semaphore(tasks + STRANGERS)
        self._server = socket.create_server(
            (bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET
        )
        key = secrets.token_bytes(32)
        self.contact = Contact(host, self._server.getsockname()[1], key)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock = self._server.accept()[0]
            except OSError:
                return  # closed
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()
            else:
                sock.close()  # a task calls again

    def _serve(self, sock: socket.socket) -> None:
        member = None
        try:
            line = Line(sock, self.contact.key, True)
            member = _Member(Hello(*line.receive()), line)
            self.events.put(_Event("hello", member))
            line.send(member.work.get())
            while True:
                said = line.receive()
                if isinstance(said, Output):
                    self._write(said)
                else:
                    self.events.put(_Event("end", member, said))
        except Exception as error:  # of a stranger too, who has no say in anything else
            if member is not None:
                self.events.put(_Event("gone", member, str(error)))
        finally:
            self._room.release()
            sock.close()

    def _write(self, output: Output) -> None:
        stream = self._streams[output.stream]
        text = output.text.decode("utf-8", "replace")
        with self._writing:
            try:
                stream.write(text)
                stream.flush()
            except Exception as error:  # the caller's: no reason to end the run
                warnings.warn(f"{output.stream}: {error}", stacklevel=1)

    def close(self, members: Sequence[_Member]) -> None:
        """Hangs up, and gives the tasks time to end what they have started."""
        # Not every kernel wakes up accept() when its socket is closed.
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for member in members:
            member.work.put(None)  # it may not have been told anything
            member.line.finish()
        end_s = time.monotonic() + HANG_UP_S
        for member in members:
            member.thread.join(max(end_s - time.monotonic(), 0))


def _slots(context: Any) -> int | None:
    """How many tasks the cluster can run at a time; None where it does not say."""
    try:
        jvm = context._jsc.sc()
        profile = jvm.resourceProfileManager().defaultResourceProfile()
        return int(jvm.maxNumConcurrentTasks(profile))
    except Exception:
        return None


class _Job:
    """One run: Spark's job, its tasks, the ranks."""

    def __init__(self, context: Any, size: int, start_s: float, streams: Mapping[str, Any]) -> None:
        self._context, self._size, self._start_s = context, size, start_s
        self._until_s = time.monotonic() + start_s
        conf = context.getConf()
        host = conf.get("spark.driver.host")
        bind = conf.get("spark.driver.bindAddress", host)
        self.board = _Switchboard(host, bind, size, streams)
        self._group = f"halay.spark.run.{os.getpid()}.{next(_runs)}"
        self._members: dict[int, _Member] = {}  # by partition, then by rank
        self._called: list[_Member] = []  # all
        self._thread: threading.Thread | None = None
        self._job_error: BaseException | None = None

    def submit(self, name: str) -> None:
        """Starts the stage, as soon as the cluster is large enough for it."""
        from pyspark import InheritableThread

        slots = _slots(self._context)
        while slots is not None and slots < self._size:
            if time.monotonic() >= self._until_s:
                self._late(slots)
            time.sleep(0.1)
            slots = _slots(self._context)
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
        self.board.events.put(_Event("job", None, error))

    def _late(self, slots: int | None) -> NoReturn:
        if slots is None:
            room = "is there room for them?"
        else:
            held = "" if slots < self._size else ", of which others may hold some"
            room = f"the cluster has room for {slots} tasks at a time{held}"
        raise TimeoutError(
            f"Timed out waiting for Spark tasks to start: {len(self._members)} of {self._size} "
            f"have in {self._start_s:g} s; {room}. Ask for a smaller num_proc, give Spark more "
            "executors or cores, or run() a longer start_timeout"
        )

    def gather(self) -> None:
        """All tasks of one attempt call; those of a former one are no part of the run."""
        attempts: dict[str, dict[int, _Member]] = {}
        while len(self._members) < self._size:
            try:
                event = self.board.events.get(timeout=max(self._until_s - time.monotonic(), 0))
            except queue.Empty:
                self._late(_slots(self._context))
            if event.kind == "job":
                raise RuntimeError(
                    f"Spark ended the job before all tasks had started: {_text(event.what)}"
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
                end_s = min(end_s, time.monotonic() + 1)  # what its end did to ranks comes before
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
                f"Spark ended the job before all ranks had: {_text(self._job_error)}"
            ) from self._job_error
        errors = {r: _error(f) for r, f in failures.items() if isinstance(f, Failure)}
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
            self._context.cancelJobGroup(self._group)
        self.board.close(self._called)
        if self._thread is not None:
            self._thread.join(JOB_S)


def _text(error: BaseException | None) -> str:
    """What Spark says, without the stacks of its own calls."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    return next((line for line in text.splitlines() if line.strip()), "no reason is known")


def _ended(status: int, when: str) -> str:
    if status >= 0:
        return f"its process ended with status {status}{when}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    memory = ": has the machine run out of memory?" if -status == signal.SIGKILL else ""
    return f"its process was killed by {name}{when}{memory}"


def _outcome(event: _Event) -> bytes | Failure | str:
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


def _error(failure: Failure) -> Exception:
    """What the rank raised, as far as it can be raised here."""
    if failure.error is not None:
        try:
            error = pickle.loads(failure.error)
        except Exception:
            error = None
        if isinstance(error, Exception):
            return error
    return RuntimeError(failure.summary)


def _python(context: Any) -> str | None:
    """Of the ranks: this process's, as Horovod has it; None where Spark is told another one."""
    told = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    return None if told else sys.executable


def _context() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError(
            "there is no active SparkContext: make a SparkSession first. (One of Spark Connect has "
            "none: run() needs a session that runs in this process)"
        )
    return context


def _variables(
    start_s: float, nics: Iterable[str] | None, use_mpi: bool | None, env: Mapping[str, Any] | None
) -> dict[str, str]:
    variables = {"HALAY_START_DEADLINE": f"{start_s:g}"}
    names = sorted(nics) if isinstance(nics, (set, frozenset)) else list(nics or ())
    if len(names) > 1:
        warnings.warn(f"nics: ranks listen at one of them, {names[0]}", stacklevel=3)
    if names:
        variables["HALAY_INTERFACE"] = names[0]
    if use_mpi:
        variables["HOROVOD_CONTROLLER"] = "mpi"
    given = {name: str(value) for name, value in (env or {}).items() if value is not None}
    return {**variables, **given}


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
    context = _context()
    size = context.defaultParallelism if num_proc is None else num_proc
    if size < 1:
        raise ValueError(f"num_proc must be at least 1, not {size}")
    if start_timeout is None:
        start_timeout = float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT") or START_S)
    if verbose >= 1:
        inferred = " (inferred from spark.default.parallelism)" if num_proc is None else ""
        logging.info("Running %d processes%s...", size, inferred)
    streams = {n: s for n, s in (("stdout", stdout), ("stderr", stderr)) if s is not None}
    variables = _variables(start_timeout, nics, use_mpi, env)
    function = bytes(cloudpickle.dumps((fn, tuple(args), dict(kwargs or {}))))
    with _Job(context, size, start_timeout, streams) as job:
        job.submit(f"halay.spark.run({getattr(fn, '__name__', 'fn')})")
        job.gather()
        job.tell(
            function,
            variables,
            executable=executable or _python(context),
            forward=tuple(streams),
            timestamp=prefix_output_with_timestamp,
        )
        return job.collect()


def run_elastic(*_: Any, **__: Any) -> NoReturn:
    """Not there yet: ranks that come and go."""
    raise NotImplementedError(
        "halay.spark.run_elastic is not there in Halay yet: ranks on Spark do not come and go. "
        "halay.spark.run() has a fixed number of them"
    )
