# SPDX-License-Identifier: Apache-2.0
"""The process's one context, shared by its process groups, and the thread that moves it on.

A request is in one of three hands, and only that hand may call into the library with it: in the
list `pending`, under `lock`; with the caller that waits for it, who has taken it out of the list;
or nowhere, when it is done. A thread, the mover, sleeps in halay_context_progress() while the list
is not empty, and completes what it finds done; a caller in wait() takes its request out and makes
progress itself, so that no thread has to be woken for it.

Callbacks of a future may wait for another call's future. So each callback has a thread of its own
while it runs, and so has each future that is told, and the mover is another one.
"""

from __future__ import annotations

import atexit
import collections
import hashlib
import heapq
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from .. import _variables, _words
from .._core import (
    Place,
    error,
    ffi,
    interrupted,
    lib,
    make_context,
    refuse_in_handler,
    text_of,
    verdict_error,
)
from ..errors import HalayError
from ._callbacks import Order, Task

if TYPE_CHECKING:
    from ._work import HalayWork

SLEEP_NS = 1_000_000_000
MOST_THREADS = 256  # of which all but the mover may be in what waits;
MOST_LEFT = 1024  # works that nobody has waited for
MOST_CALLBACKS = 200  # of these that run beside the one whose turn it is to make calls
JOIN_S = 5.0

_lock = threading.Lock()
_current: Job | None = None


class _Use:
    """A thread that is in the library, for a call on a communicator: close() waits for it."""

    __slots__ = ("_comm", "_job")

    def __init__(self, job: Job, comm: Any) -> None:
        self._job, self._comm = job, comm

    def __enter__(self) -> None:
        with self._job.lock:
            self._job.usable()
            self._job.uses.append((threading.get_ident(), self._comm))

    def __exit__(self, *_: object) -> None:
        with self._job.lock:
            self._job.uses.remove((threading.get_ident(), self._comm))


class Job:
    """From the first process group to the end of the last."""

    def __init__(self, place: Place | None = None) -> None:
        self.pid = os.getpid()
        self.users = 0
        self.closed = False  # no call begins any more;
        self.finalized = False  # the context is gone
        self.inner = threading.RLock()
        self.lock = threading.Condition(self.inner)  # of threads that have nothing to do
        self.pending: dict[int, HalayWork] = {}
        self.left: collections.deque[HalayWork] = collections.deque(maxlen=MOST_LEFT)
        self.uses: list[tuple[int, Any]] = []  # of threads, on communicators
        self.context = make_context(place, share=place is None)
        try:
            self._read_topology()
            self.world = self._world()
            # Sub-groups are made of this one, so that their making and the program's calls on the
            # default group do not meet.
            self.parent = self.dup(self.world)
            # Nobody makes calls on this one. shrink() revokes it, so that ranks come which are in
            # none of its caller's groups.
            self.leaves = self.dup(self.world)
            if place is None:
                self.must(_variables.announce(self, self.context, self.parent), self.parent)
        except BaseException:
            _variables.withdraw(self)
            lib.halay_finalize(self.context)
            raise
        self._made: dict[tuple[Any, ...], int] = {}  # by group()
        self._mover: int | None = None  # which thread it is
        self._threads: list[threading.Thread] = []
        self._idle = 0  # of these
        self._untold: collections.deque[HalayWork] = collections.deque()  # futures of what is done
        self.order = Order(self)
        self.callbacks_at_once = False  # those of a future that is done when they are attached
        self._tasks: list[Task] = []  # a heap: callbacks of futures that are done
        self._running = 0  # callbacks

    def _read_topology(self) -> None:
        topology = ffi.new("halay_topology_t *")
        topology.size = ffi.sizeof("halay_topology_t")
        self.must(lib.halay_context_topology(self.context, topology))
        self.rank, self.size = int(topology.rank), int(topology.nranks)
        self.host, self.nnodes = text_of(topology.host), int(topology.nnodes)
        self.of_job = self.rank
        self._verdict = ffi.new("halay_verdict_t *")

    def _world(self) -> Any:
        comm = ffi.new("halay_comm_t **")
        self.must(lib.halay_comm_world(self.context, comm))
        return comm[0]

    def must(self, code: int, comm: Any = None) -> None:
        interrupted()
        if code != 0:
            raise self.error(code, comm)

    def error(self, code: int, comm: Any = None) -> HalayError:
        """The exception for a code, with the communicator's verdict where it has one."""
        text = ""
        # What revokes a group is shrink(): who called it first has said why.
        of = [comm] if code != lib.HALAY_EREVOKED else [getattr(self, "leaves", None), comm]
        for one in of:
            if one is None or self.finalized or text:
                continue
            verdict = ffi.new("halay_verdict_t *")
            verdict.size = ffi.sizeof("halay_verdict_t")
            if lib.halay_comm_verdict(one, verdict) == 0 and verdict.code == code:
                text = text_of(verdict.text)
        who = [getattr(self, name, None) for name in ("rank", "host", "of_job")]
        return verdict_error(code, text, *who)

    def shrinks(self) -> bool:
        """Whether some rank has called shrink(). Each call on a sub-group asks: its ranks may not
        be in a group with that one. A thread in such a call waits for ranks that ask."""
        return self.revoked(self.leaves)

    def revoked(self, comm: Any) -> bool:
        """Whether this rank has heard that a communicator, on which no call fails, was revoked."""
        if self.closed:
            return False
        self._verdict.size = ffi.sizeof("halay_verdict_t")
        code = lib.halay_comm_verdict(comm, self._verdict)
        return bool(code == 0 and self._verdict.code == lib.HALAY_EREVOKED)

    def usable(self) -> None:
        """Raises if this process may not use the job: it ended, or is a forked child's."""
        if self.pid != os.getpid():
            raise error(lib.HALAY_EFORKED, rank=self.rank, host=self.host)
        if self.closed:
            raise self.error(lib.HALAY_ESTATE)

    def dup(self, comm: Any) -> Any:
        made = ffi.new("halay_comm_t **")
        self.must(lib.halay_comm_dup(comm, made), comm)
        return made[0]

    def group(self, comm: Any, ranks: list[int], what: str) -> Any:
        """Collective over these ranks of the communicator alone. The n-th of one name and list on
        one rank is that of the others."""
        name = (int(ffi.cast("uintptr_t", comm)), what, *ranks)
        with self.lock:
            before = self._made[name] = self._made.get(name, 0) + 1
        said = hashlib.sha256(f"{what} {before}".encode()).digest()
        made, list_of = ffi.new("halay_comm_t **"), ffi.new("int[]", ranks)
        tag = int.from_bytes(said[:8], "little")
        self.must(lib.halay_comm_create_group(comm, list_of, len(ranks), tag, made), comm)
        return made[0]

    def revoke(self, comm: Any) -> None:
        """Ends all calls on it, on all ranks, with HalayRevoked, and later ones. Not collective."""
        self.must(lib.halay_comm_revoke(comm), comm)

    def agree(self, flag: int) -> int:
        """The bitwise AND of the flags of all ranks that have not failed; the same on all of them.

        Collective over these, also after failures, and while there are more.
        """
        value = ffi.new("int *", flag)
        self.must(lib.halay_comm_agree(self.world, value), self.world)
        return int(value[0])

    def failed(self) -> list[int]:
        """The ranks of the job that are known here to have failed."""
        n, ranks = ffi.new("int *", self.size), ffi.new("int[]", self.size)
        self.must(lib.halay_comm_failed(self.world, ranks, n), self.world)
        return [int(ranks[i]) for i in range(n[0])]

    def shrink(self) -> None:
        """From now on the job is that of the ranks that have not failed, in their order.

        Collective over these. Communicators that were made before are those of the old job.
        """
        made, number = ffi.new("halay_comm_t **"), ffi.new("int *")
        self.must(lib.halay_comm_shrink(self.world, made), self.world)
        self.world = made[0]
        self.must(lib.halay_comm_rank(self.world, number))
        self.rank = int(number[0])
        self.must(lib.halay_comm_size(self.world, number))
        self.size = int(number[0])
        self.parent = self.dup(self.world)
        self.leaves = self.dup(self.world)

    def gather(self, number: int) -> list[int]:
        """The numbers of all ranks, in order."""
        mine, of_all = ffi.new("int32_t *", number), ffi.new("int32_t[]", self.size)
        request = ffi.new("halay_request_t **")
        code = lib.halay_iallgather(mine, of_all, 1, lib.HALAY_INT32, self.parent, request)
        if code == 0:
            code = lib.halay_request_wait(request[0])
        self.must(code, self.parent)
        return list(of_all)

    def watch(self, work: HalayWork) -> None:
        """From now on the thread completes it, unless a caller waits for it first."""
        with self.lock:
            if not self.closed:
                self.pending[id(work)] = work
                self.call_threads()
                lib.halay_context_wake(self.context)
                return
        work.complete(lib.HALAY_ESTATE)

    def take(self, work: HalayWork) -> bool:
        """Whether the caller may wait for it: it is in nobody else's hands, and not done."""
        with self.lock:
            return self.pending.pop(id(work), None) is not None

    def ready(self, task: Task) -> None:
        """The future of a callback is done: a thread of the job runs it."""
        with self.lock:
            over = self.closed or self.pid != os.getpid()
            if not over:
                heapq.heappush(self._tasks, task)
                self.call_threads()
        if over:
            task.run()

    def call_threads(self) -> None:
        """Under the lock: somebody moves on what is pending, somebody tells each future, and
        somebody runs each callback."""
        tasks = len(self._tasks) if self._may_run() else 0
        need = len(self._untold) + tasks + int(self._mover is None and bool(self.pending))
        self.lock.notify(min(need, self._idle))
        for _ in range(self._idle, min(need, MOST_THREADS - len(self._threads))):
            self._idle += 1
            self._threads.append(threading.Thread(target=self._run, name="halay", daemon=True))
            self._threads[-1].start()

    def _may_run(self) -> bool:
        """Whether a thread may be given to the first callback: others may wait for that one."""
        if not self._tasks or self._running < MOST_CALLBACKS:
            return bool(self._tasks)
        return self.closed or self.order.may_call(self._tasks[0].turn)

    def _run(self) -> None:
        me = threading.get_ident()
        while True:
            told, task = None, None
            with self.lock:
                while not (
                    self.closed
                    or self._untold
                    or self._may_run()
                    or (self.pending and self._mover is None)
                ):
                    self.lock.wait()
                self._idle -= 1
                if self._untold:
                    told = self._untold.popleft()
                elif self._may_run():
                    task = heapq.heappop(self._tasks)
                    self._running += 1
                elif self.closed:
                    return
                else:
                    self._mover = me
                self.call_threads()
            if told is not None:
                told.tell()
            elif task is not None:
                task.run()
            while self._mover == me:
                lib.halay_context_progress(self.context, SLEEP_NS)
                self.reap()
                with self.lock:
                    if self._untold or self._may_run() or self.closed or not self.pending:
                        self._mover = None
            with self.lock:
                self._idle += 1
                self._running -= int(task is not None)

    def reap(self) -> None:
        """Completes what is done. Threads of the job tell the futures."""
        done = []
        with self.lock:
            for work in list(self.pending.values()):
                code = lib.halay_request_test(work.request)
                if code != lib.HALAY_INPROGRESS:
                    del self.pending[id(work)]
                    done.append((work, code))
        heard = [work for work, code in done if work.finish(code)]
        if heard:
            with self.lock:
                self._untold.extend(heard)
                if self._mover != threading.get_ident():  # it takes one itself, and calls others
                    self.call_threads()
        for work, _ in done:
            work.raise_interrupt()

    def use(self, comm: Any) -> _Use:
        """Around what a thread that is not the job's own does in the library."""
        return _Use(self, comm)

    def _is_used(self) -> bool:
        """Whether another thread is in the library."""
        me = threading.get_ident()
        return self._mover not in (None, me) or any(thread != me for thread, _ in self.uses)

    def close(self) -> None:
        """Calls that other threads wait for end with HalayRevoked, on all ranks."""
        refuse_in_handler("destroy_process_group() was called")
        with self.lock:
            self.closed = True
            left, self.pending = list(self.pending.values()), {}
            uses = list(self.uses)
            self.lock.notify_all()
            self.order.close()
        for _, comm in uses:
            lib.halay_comm_revoke(comm)
        while self._is_used():
            lib.halay_context_wake(self.context)
            time.sleep(0.001)
        self.finalized = True
        _variables.withdraw(self)
        self.left.clear()
        lib.halay_finalize(self.context)
        for work in left:
            work.complete(lib.HALAY_ESTATE)
        end, me = time.monotonic() + JOIN_S, threading.current_thread()
        for thread in self._threads:
            if thread is not me:  # a callback of the program may be in no hurry
                thread.join(max(0.0, end - time.monotonic()))


def is_joined() -> bool:
    """Whether this process has found its job."""
    return _current is not None and not (_current.closed and _current.pid == os.getpid())


def job(place: Place | None = None) -> Job:
    """The job of this process; finds it the first time, as this rank where no launcher says so."""
    global _current
    with _lock:
        if _current is None or not is_joined():
            _current = Job(place)
            _words.listen(_current.rank, _current.host)
        _current.usable()
        return _current


def join(place: Place | None = None) -> Job:
    """The job, with one more user; leave() ends its use."""
    return share(job(place))


def share(found: Job) -> Job:
    """The job, with one more user."""
    with _lock:
        found.users += 1
    return found


def leave(found: Job) -> None:
    """The last user ends the job."""
    if found.pid != os.getpid() or found.closed:
        return
    with _lock:
        found.users -= 1
        last = found.users <= 0
    if last:
        found.close()


@atexit.register
def _at_exit() -> None:
    # A forked child leaves the job alone, whichever way it ends.
    if _current is not None and _current.pid == os.getpid() and not _current.closed:
        _current.close()
