# SPDX-License-Identifier: Apache-2.0
"""run_elastic(): the driver's side (docs/decisions/elastic.md#0105). A Spark job of one task for
each place, submitted again when it has ended; the head, and what the tasks say.

Invariant: when it returns or raises, neither head nor jobs are left.
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import pickle
import queue
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, NoReturn

from .._agents import MET, RAISED, RETURNED, Ended, Failure, Head, Orders, Said
from .._engines import COOLDOWN_S, Cooldown, Loss, WorkerLost
from ..errors import HorovodInternalError
from ..horovod import SHIM
from . import session
from .board import Event, Member, Switchboard
from .driver import RankFailed
from .elastic_task import Work, attend
from .task import End

ELASTIC_S = 600  # where nobody says how long too few ranks may wait for others
IN_VAIN = 3  # so often jobs may fail for each of the least ranks before these have met
TICK_S = 0.2
LAST_WORDS_S = 10  # in which tasks have told what they had to when the head has ended
CANCEL_S = 30  # in which Spark has ended the jobs
_runs = itertools.count()


class Terms(NamedTuple):
    """The limits of a run. failures: how often the function may raise in one place."""

    size: int
    least: int
    most: int
    start_s: float
    elastic_s: float
    reset_limit: int | None
    failures: int


class _Run:
    """The jobs, their tasks, and what these have said."""

    def __init__(self, context: Any, terms: Terms, streams: Mapping[str, Any]) -> None:
        self.terms, self._context = terms, context
        self.board = Switchboard(*session.addresses_of(context), terms.most, streams)
        self._group = f"halay.spark.run_elastic.{os.getpid()}.{next(_runs)}"
        self._over = threading.Event()
        self._keepers: list[threading.Thread] = []
        self._members: dict[int, Member] = {}  # the task of each place that has one
        self._work: Work | None = None  # told to tasks that call
        self._has_met, self._in_vain = False, 0
        self._returned: list[Said] = []
        self._raised: list[tuple[Member, Said]] = []  # in places that have not met again
        self._times: collections.Counter[int] = collections.Counter()  # raised, by place
        self._losses: list[Loss] = []

    # -------------------------------------------------------------- jobs

    def submit(self, name: str) -> None:
        """A job for each place, until the run is over."""
        from pyspark import InheritableThread

        for place in range(self.terms.most):
            keeper = InheritableThread(target=self._keep, args=(name, place), daemon=True)
            self._keepers.append(keeper)
            keeper.start()

    def _keep(self, name: str, place: int) -> None:
        cooldown = Cooldown(*COOLDOWN_S)
        while not self._over.is_set():
            begin_s, error = time.monotonic(), None
            try:
                self._context.setJobGroup(self._group, name, interruptOnCancel=True)
                call = functools.partial(attend, self.board.contact, place)
                self._context.parallelize([place], 1).mapPartitions(call).collect()
            except BaseException as one:
                error = one
            self.board.events.put(Event("job", None, error))
            self._over.wait(cooldown.after(time.monotonic() - begin_s))

    # -------------------------------------------------------------- what they say

    def gather(self) -> None:
        """Until as many tasks have called as there are to be ranks at first."""
        end_s = time.monotonic() + self.terms.start_s
        while len(self._members) < self.terms.size:
            self._hear(TICK_S)
            if time.monotonic() >= end_s and len(self._members) < self.terms.size:
                room = session.slots(self._context)
                session.late(len(self._members), self.terms.size, self.terms.start_s, room)

    def begin(self, work: Work) -> None:
        """What tasks are told, those that have called and those that will."""
        self._work = work
        for member in self._members.values():
            member.work.put(work)

    def watch(self, head: Head) -> list[Any]:
        """What the ranks that there were at the end have returned."""
        while head.status is None:
            self._hear(TICK_S)
            if any(times >= self.terms.failures for times in self._times.values()):
                head.stop()
        end_s = time.monotonic() + LAST_WORDS_S
        while self._members and time.monotonic() < end_s:
            self._hear(TICK_S)
        if head.status != 0:
            self._raise(head)
        self._returned.sort(key=lambda said: said.rank)
        if self._losses and len(self._returned) < min((s.size for s in self._returned), default=0):
            raise WorkerLost(self._losses[-1:], "What it has returned is lost with it.")
        return [pickle.loads(said.value) for said in self._returned]

    def _hear(self, timeout_s: float) -> None:
        """One event, if there is one in time."""
        try:
            event = self.board.events.get(timeout=timeout_s)
        except queue.Empty:
            return
        member = event.member
        if event.kind == "job":
            if event.what is not None:
                self._fail(event.what)
        elif member is not None and event.kind == "hello":
            self._members[member.partition] = member
            if self._work is not None:
                member.work.put(self._work)
        elif member is not None and event.kind == "gone":
            if self._leaves(member):
                self._lose(member, f"its Spark task is gone: {event.what}")
        elif member is not None:
            self._take(member, event.what)

    def _take(self, member: Member, said: Said | Ended | End) -> None:
        if isinstance(said, End):
            self._leaves(member)
            if not self._has_met:
                raise RuntimeError(f"{member.where.host}: {said.why}")
            self._lose(member, said.why)
        elif isinstance(said, Ended):
            self._leaves(member)
            member.line.finish()  # its task ends
        elif said.kind == MET:
            self._has_met, member.rank = True, said.rank
            self._raised = [one for one in self._raised if one[0].partition != member.partition]
        elif said.kind == RETURNED:
            self._returned.append(said)
        elif said.kind == RAISED:
            self._raised.append((member, said))
            self._times[member.partition] += 1

    def _leaves(self, member: Member) -> bool:
        """Whether it has been its place's task until now."""
        if self._members.get(member.partition) is not member:
            return False
        del self._members[member.partition]
        return True

    def _lose(self, member: Member, why: str) -> None:
        self._losses = [*self._losses[-1:], Loss(member.rank, member.where.host, why)]

    # -------------------------------------------------------------- the end

    def _fail(self, error: BaseException) -> None:
        """Spark has ended a job. It is submitted again, if that can be of use."""
        if session.is_cancelled(error):
            raise RuntimeError(f"Spark ended the run: {session.text_of(error)}") from error
        self._in_vain += not self._has_met
        if self._in_vain >= IN_VAIN * self.terms.least:
            text = session.text_of(error)
            raise RuntimeError(
                f"Spark ended {self._in_vain} jobs before ranks had met: {text}. Do all executors "
                "have Halay (PYTHONPATH), for the Python that they run (PYSPARK_PYTHON)?"
            ) from error

    def _raise(self, head: Head) -> NoReturn:
        if self._raised:
            failures = [(m, said, Failure(*pickle.loads(said.value))) for m, said in self._raised]
            own = [f for f in failures if not isinstance(f[2].exception(), HorovodInternalError)]
            member, said, failure = (own or failures)[0]
            error, where = failure.exception(), f"rank {said.rank} on {member.where.host}"
            if hasattr(error, "add_note"):
                error.add_note(f"raised by {where}")
            cause = RankFailed(f"{where}\n{failure.traceback}")
            cause.__cause__ = head.ended()
            raise error from cause
        terms, remedies = self.terms, []
        if self._losses:
            rank, host, why = self._losses[-1]
            remedies.append(
                f"Lost last: {f'rank {rank}' if rank >= 0 else 'a task'} on {host}: {why}"
            )
        room = session.slots(self._context)
        if len(self._members) < terms.least and room is not None:
            remedies.append(
                f"min_num_proc is {terms.least}, and the cluster has room for {room} tasks at a "
                "time: ask for less, give Spark more executors, or a longer elastic_timeout"
            )
        raise head.ended(". ".join(remedies))

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: Any) -> None:
        """Whatever has happened: nothing that the run has started is left."""
        self._over.set()
        self.board.close(list(self._members.values()))
        end_s = time.monotonic() + CANCEL_S
        while any(keeper.is_alive() for keeper in self._keepers) and time.monotonic() < end_s:
            session.cancel(self._context, self._group)  # of tasks that have no room yet
            for keeper in self._keepers:
                keeper.join(TICK_S)


class _Call:
    """What a rank's process calls."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> None:
        self.fn, self.args, self.kwargs = fn, tuple(args), dict(kwargs or {})

    def __call__(self) -> Any:
        return self.fn(*self.args, **self.kwargs)


def _terms(
    context: Any,
    num_proc: int | None,
    least: int | None,
    most: int | None,
    start_timeout: float | None,
    elastic_timeout: float | None,
    reset_limit: int | None,
) -> Terms:
    size = context.defaultParallelism if num_proc is None else num_proc
    least, most = size if least is None else least, size if most is None else most
    if not 1 <= least <= size <= most:
        raise ValueError(
            "1 <= min_num_proc <= num_proc <= max_num_proc must hold, and they are "
            f"{least}, {size} and {most}"
        )
    if elastic_timeout is None:
        elastic_timeout = float(os.environ.get("HOROVOD_ELASTIC_TIMEOUT") or ELASTIC_S)
    start_s = session.start_timeout_of(start_timeout)
    failures = session.failures_of(context)
    return Terms(size, least, most, start_s, elastic_timeout, reset_limit, failures)


def _head(context: Any, terms: Terms, secret: str, verbose: int) -> Head:
    """Beside the driver; executors reach it by the driver's name."""

    def say(line: str) -> None:
        if verbose >= 1:
            print(line, file=sys.stderr, flush=True)

    bind = session.addresses_of(context)[1]
    return Head(
        terms.least,
        terms.most,
        host=str(socket.getaddrinfo(bind, None, type=socket.SOCK_STREAM)[0][4][0]),
        agents=terms.size,
        reset_limit=terms.reset_limit,
        elastic_timeout_s=terms.elastic_s,
        say=say,
        secret=secret,
    )


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, Any] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Runs fn(*args, **kwargs), whose training is under hvd.elastic.run, on ranks that come and go.

    It begins with num_proc of them (spark.default.parallelism if left out), goes on with
    min_num_proc or more, and takes in others up to max_num_proc; both are num_proc if left out. A
    lost executor's rank is another one's later, the other ranks keep their process.

    start_timeout: seconds for num_proc tasks to start, else HOROVOD_SPARK_START_TIMEOUT, else 600;
    TimeoutError. elastic_timeout: seconds for which too few ranks wait for others, else
    HOROVOD_ELASTIC_TIMEOUT, else 600. reset_limit: so often ranks may meet anew. The others are
    those of run(); min_np and max_np are the old spelling.

    Returns what the ranks that there were at the end have returned, by rank. Raises what fn has
    raised in one place as often as Spark lets a task fail; halay.spark.JobEnded if the job ended
    for another reason, which it says. No process is left.
    """
    from pyspark import cloudpickle

    for name, old in (("min_np", min_np), ("max_np", max_np)):
        if old is not None:
            text = f"{name} is deprecated, use {name[:4]}num_proc instead"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
    context = session.active_context()
    session.match_workers()
    least, most = (
        o if o is not None else n for o, n in ((min_np, min_num_proc), (max_np, max_num_proc))
    )
    terms = _terms(context, num_proc, least, most, start_timeout, elastic_timeout, reset_limit)
    session.announce(terms.size, num_proc, verbose)

    streams = session.streams_of(stdout, stderr)
    function = bytes(cloudpickle.dumps(_Call(fn, args, kwargs)))
    orders = Orders(function, "pyspark.cloudpickle", SHIM in sys.path)
    work = Work(
        "",
        orders,
        session.variables_of(nics, env),
        session.python_of(context),
        tuple(streams),
        prefix_output_with_timestamp,
    )
    with _Run(context, terms, streams) as run:
        run.submit(f"halay.spark.run_elastic({getattr(fn, '__name__', 'fn')})")
        run.gather()
        with _head(context, terms, run.board.contact.secret(), verbose) as head:
            host = session.addresses_of(context)[0]
            port = head.contact.address.rpartition(":")[2]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            run.begin(work._replace(address=address))
            return run.watch(head)
