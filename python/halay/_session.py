# SPDX-License-Identifier: Apache-2.0
"""The process's one session: context, trainer, and the tensors that are out.

Knows no framework: a tensor is an address, a count and a type. What was submitted is kept alive
in `pending` until a wait for it ends, since the library writes to it until then. A session belongs
to the process that made it; in a forked child every use of it ends with HALAY_EFORKED.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable, Protocol, Union

from . import _variables, _words
from ._core import (
    TEXT_BYTES,
    Place,
    error,
    ffi,
    interrupted,
    interrupts,
    lib,
    make_context,
    program,
    refuse_in_handler,
    text_of,
    verdict_of,
)
from .errors import (
    LEFT,
    DuplicateName,
    HalayError,
    HalayOver,
    HalayPeerLost,
    HalayTimeout,
    NotInitialized,
)

PLACES = 65536  # names of which the library remembers where they were submitted

# Handles are never reused, not even by a later session: a stale one is found out.
_handles = itertools.count(1)
_lock = threading.RLock()  # a handler of a signal may run while init() or shutdown() waits
_current: Session | None = None
_was_elastic = False
# What layers above do when a session is there, and when nobody waits any more for what is out.
_at_open: list[Callable[[Session], None]] = []
_at_abandon: list[Callable[[], None]] = []
# What submits to a trainer by itself, without a session: begins there, and gives its end.
_at_trainer: list[Callable[[Members], Callable[[], None]]] = []
_told: Place | None = None
# What has to know which process sets there are.
_at_change: list[Callable[[Session], None]] = []


def place() -> bytes:
    """file:line of the program that called into this package; empty if it is not on the stack."""
    frame, _ = program()
    return b"" if frame is None else os.fsencode(f"{frame.f_code.co_filename}:{frame.f_lineno}")


class Task(Protocol):
    """Something that is out with no ticket of the trainer."""

    def poll(self) -> bool:
        """Whether wait() would return at once."""

    def wait(self) -> Any:
        """Its result, or raises its error."""


class Side(Protocol):
    """What works beside the trainer, on a communicator of its own."""

    def close(self) -> None:
        """Ends its thread."""


class Members:
    """Some ranks that submit to each other: a communicator, its trainer and the names in use.

    Number 0 has all ranks. rank is this process's among them, None where it is not one of them.
    """

    def __init__(self, number: int, ranks: tuple[int, ...], own: int) -> None:
        self.number = number
        self.ranks = ranks
        self.size = len(ranks)
        self.rank: int | None = ranks.index(own) if own in ranks else None
        self.comm: Any = ffi.NULL
        self.trainer: Any = ffi.NULL
        self.names: set[str] = set()
        self._naming = threading.Lock()
        self.side_comm: Any = ffi.NULL
        self.side: Side | None = None
        self.said: dict[tuple[Any, ...], Any] = {}  # what a framework's layer says again and again
        self.beside: list[Callable[[], None]] = []  # called before the trainer is destroyed
        self._placed: set[str] = set()
        self._unnamed: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._since = ""

    def unnamed(self, kind: str) -> str:
        """The next name for one that has none: ranks that call in the same order get the same.

        By its end the library knows that it is used once, and what it follows.
        """
        return f"{self._since}noname.{next(self._unnamed[kind])}"

    def recount(self, times: int) -> None:
        """All ranks have joined, so many times: who had joined earlier has counted less."""
        self._unnamed.clear()
        self._since = f"{times}."

    def full_name(self, kind: str, name: str | None) -> tuple[str, bytes]:
        if name is None:
            name = self.unnamed(kind)
        full = f"{kind}.{name}"
        encoded = full.encode()
        if len(encoded) >= lib.HALAY_TENSOR_NAME_MAX or b"\0" in encoded:
            raise ValueError(
                f"the name {full!r} has {len(encoded)} bytes; at most "
                f"{lib.HALAY_TENSOR_NAME_MAX - 1} are allowed, and no zero byte: shorten it"
            )
        return full, encoded

    def claim(self, full: str) -> bool:
        """Takes the name, unless it is out; of threads that ask at once, one gets it."""
        with self._naming:
            if full in self.names:
                return False
            self.names.add(full)
            return True

    def place(self, name: str | None, full: str, encoded: bytes) -> None:
        """Tells the library where a name is submitted, the first time. None: a name of our own."""
        if full in self._placed:
            return
        where = place()
        if where:
            lib.halay_trainer_place(self.trainer, encoded, where, name is not None)
        if name is not None and len(self._placed) < PLACES:
            self._placed.add(full)

    def gathered(self, ticket: int) -> tuple[Any, int, list[int]]:
        """The result of a finished allgather: address, elements in all, rows of each rank."""
        data = ffi.new("void **")
        count = ffi.new("size_t *")
        rows = ffi.new("size_t **")
        code = lib.halay_trainer_result(
            self.trainer,
            ticket,
            ffi.cast("const void **", data),
            count,
            ffi.cast("const size_t **", rows),
        )
        if code != 0:
            raise error(code)
        return data[0], int(count[0]), [int(rows[0][r]) for r in range(self.size)]


@dataclass(frozen=True)
class _Pending:
    members: Members
    ticket: int
    name: str
    keep: object
    finish: Callable[[Members, int], Any]


@dataclass(frozen=True)
class _Aside:
    members: Members
    name: str
    task: Task


@dataclass(frozen=True)
class _Joint:
    """Several handles as one; finish makes the result out of theirs."""

    handles: list[int]
    finish: Callable[[list[Any]], Any]


_Entry = Union[_Pending, _Aside, _Joint]


MEETINGS = 64  # ranks that are lost one after the other, each before all others have met
MOVE_NS = 10_000_000_000  # so long a copy within a device may take


class Session:
    """From init() to shutdown()."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.pending: dict[int, _Entry] = {}
        self.registered: dict[int, Any] = {}  # by range: what must not go before it (mem.py)
        self.gpu: int | None = None  # that of the first tensor on one
        self._newest = 0  # the handle given out last, until something is polled
        self.members: dict[int, Members] = {}
        self.timeline: str | None = None
        self._joins = itertools.count(1)
        self.elastic = _was_elastic  # whether ranks come and go (docs/elastic.md)
        meetings = MEETINGS
        while not self._meet(last=meetings == 1):
            meetings -= 1

    def _meet(self, last: bool) -> bool:
        """False: in an elastic job a rank was lost before all had met, and it was not the last try.

        Its launcher knows of the loss, or is told by the next halay_init().
        """
        self.context = ffi.NULL
        try:
            # Where ranks change the context must be a new one each time.
            self.context = make_context(_told, share=_told is None and not self.elastic)
            self._read_topology()
            self.elastic = self.newcomers() is not None
            self._open_world()
            path = os.environ.get("HALAY_TIMELINE")
            if path:
                self.start_timeline(path, os.environ.get("HALAY_TIMELINE_MARK_CYCLES") == "1")
        except BaseException as failure:
            self.members.clear()
            _variables.withdraw(self)
            lib.halay_finalize(self.context)  # takes NULL
            if last or not self.may_meet_again(failure):
                raise
            return False
        return True

    def may_meet_again(self, failure: BaseException) -> bool:
        """Whether a rank was lost by this, or stopped for longer than the others' timeout, in a
        job that goes on without it."""
        return self.elastic and isinstance(failure, (HalayPeerLost, HalayTimeout))

    def _read_topology(self) -> None:
        topology = ffi.new("halay_topology_t *")
        topology.size = ffi.sizeof("halay_topology_t")
        code = lib.halay_context_topology(self.context, topology)
        if code != 0:
            raise error(code)
        self.rank, self.size = int(topology.rank), int(topology.nranks)
        self.local_rank, self.local_size = int(topology.local_rank), int(topology.local_nranks)
        self.cross_rank, self.cross_size = int(topology.node), int(topology.nnodes)
        self.host = text_of(topology.host)
        self.launcher = text_of(topology.launcher)
        self.transport = text_of(topology.transport)

    def checked(self, code: int) -> None:
        """Raises what the code says, if it is not 0."""
        if code != 0:
            raise error(code, rank=self.rank, host=self.host)

    def _why(self, code: int) -> str:
        """Why memory was refused in the call that has just failed; else what the code says."""
        return verdict_of(self.members[0].comm, code)

    def allowed(self, code: int) -> None:
        """As checked(), of a call about memory, which says why."""
        if code != 0:
            raise error(code, self._why(code), self.rank, self.host)

    def newcomers(self) -> int | None:
        """How many processes wait to join, as far as this rank is told; None: none ever does."""
        count = ffi.new("int *")
        code = lib.halay_newcomers(self.context, count)
        if code == lib.HALAY_EUNSUPPORTED:
            return None
        self.checked(code)
        return int(count[0])

    def greatest(self, *values: int) -> list[int]:
        """The greatest of each over all ranks, which call it in the same order."""
        own, most = ffi.new("int32_t[]", values), ffi.new("int32_t[]", len(values))
        world = self.members[0].comm
        code = lib.halay_allreduce(own, most, len(values), lib.HALAY_INT32, lib.HALAY_MAX, world)
        self._agreed(code)
        return [int(value) for value in most]

    def _agreed(self, code: int, what: str = "") -> None:
        """Raises why the call of all ranks that has just returned failed, if it has."""
        interrupted()
        if code != 0:
            text = verdict_of(self.members[0].comm, code)
            raise error(code, f"{what}: {text}" if what else text, self.rank, self.host)

    def _open_world(self) -> None:
        world = Members(0, tuple(range(self.size)), self.rank)
        comm = ffi.new("halay_comm_t **")
        self.checked(lib.halay_comm_world(self.context, comm))
        world.comm = comm[0]
        # Ranks of a node see its own number only: do all nodes have as many?
        self.members[0] = world
        most, least = self.greatest(self.local_size, -self.local_size)
        self.is_homogeneous = most == -least
        if _told is None and not self.elastic:
            self._agreed(_variables.announce(self, self.context, world.comm))
        self._open_trainer(world)

    def _open_trainer(self, members: Members) -> None:
        trainer = ffi.new("halay_trainer_t **")
        self.checked(lib.halay_trainer_create(self.context, members.comm, trainer))
        members.trainer = trainer[0]
        side = ffi.new("halay_comm_t **")
        self.checked(lib.halay_comm_dup(members.comm, side))  # sends nothing
        members.side_comm = side[0]
        for begin in _at_trainer:
            members.beside.append(begin(members))

    def _close_trainer(self, members: Members) -> None:
        for end in members.beside:
            end()
        if members.side is not None:
            members.side.close()
        lib.halay_trainer_destroy(members.trainer)

    def add_members(self, ranks: tuple[int, ...]) -> Members:
        """Of some ranks. Every rank of the job calls it, in the same order, with the same ones."""
        free = next(n for n in itertools.count(1) if n not in self.members)  # of one removed, too
        members = Members(free, ranks, self.rank)
        comm = ffi.new("halay_comm_t **")
        code = lib.halay_comm_from_ranks(
            self.members[0].comm, ffi.new("int[]", ranks), len(ranks), comm
        )
        self._agreed(code, f"add_process_set({[*ranks]})")
        if members.rank is not None:
            members.comm = comm[0]
            try:
                self._open_trainer(members)
            except BaseException:
                lib.halay_comm_free(members.comm)
                raise
        self.members[members.number] = members
        self._share_timeline(members)
        for changed in _at_change:
            changed(self)
        return members

    def remove_members(self, number: int) -> None:
        """Every rank of the job calls it: nobody's operation is cut off by another's removal."""
        what = f"remove_process_set({[*self.members[number].ranks]})"
        self._agreed(lib.halay_barrier(self.members[0].comm), what)
        members = self.members.pop(number)
        if members.rank is not None:
            self._close_trainer(members)
            lib.halay_comm_free(members.side_comm)
            self.checked(lib.halay_comm_free(members.comm))
        for changed in _at_change:
            changed(self)

    def _used(self, full: str) -> DuplicateName:
        return DuplicateName(
            lib.HALAY_EINVAL,
            "HALAY_EINVAL",
            f"{full!r} is out already: synchronize() it first, or give this one another name",
            self.rank,
            self.host,
        )

    @contextlib.contextmanager
    def _claimed(self, members: Members, full: str) -> Iterator[None]:
        """The name is out, unless what follows fails."""
        if not members.claim(full):
            raise self._used(full)
        try:
            yield
        except BaseException:
            members.names.discard(full)
            raise

    def submit_group(
        self, kind: str, names: list[str | None], start: Callable[[int], int], members: Members
    ) -> int:
        """start(i) submits the i-th. One handle for the list of results.

        All or nothing: no name of them may be out when the first one is submitted.
        """
        for name in names:
            full = None if name is None else members.full_name(kind, name)[0]
            if full is not None and full in members.names:
                raise self._used(full)
        handles: list[int] = []
        try:
            for i in range(len(names)):
                handles.append(start(i))
        except Exception:  # of the library, which has looked at the memory
            with contextlib.suppress(Exception):
                self.wait_all(handles)  # nobody else can
            raise
        return self.join(handles, lambda results: results)

    def _refuse_outside(self, among: Members, kind: str) -> None:
        if among.rank is None:
            raise ValueError(
                f"{kind}: rank {self.rank} is not in process set {among.number}, which has the "
                f"ranks {', '.join(map(str, among.ranks))}"
            )

    def submit_aside(
        self, kind: str, name: str | None, start: Callable[[str], Task], among: Members
    ) -> int:
        """As submit(), of what is not the trainer's: start(full name) makes it."""
        self._refuse_outside(among, kind)
        # Their numbers are their own: the trainer's go on without a gap.
        own = f"aside.{among.unnamed('aside')}" if name is None else name
        full, _ = among.full_name(kind, own)
        with self._claimed(among, full):
            task = start(full)
        return self._hand_out(_Aside(among, full, task))

    def reach(self, stream: Any, timeout_ns: int = MOVE_NS) -> None:
        """Waits until the program's stream has come to where it ends now."""
        mark, end = ffi.new("halay_mark_t *"), time.monotonic_ns() + timeout_ns
        code = lib.halay_local_mark(self.context, stream, mark)
        while code == lib.HALAY_EAGAIN and time.monotonic_ns() < end:
            lib.halay_context_progress(self.context, 1_000_000)
            code = lib.halay_local_mark(self.context, stream, mark)
        self.checked(code)
        try:
            code = lib.halay_local_marked(self.context, mark, timeout_ns)
        finally:
            lib.halay_local_unmark(self.context, mark)
        self.checked(lib.HALAY_ETIMEOUT if code == lib.HALAY_INPROGRESS else code)

    def move(self, to: Any, source: Any, count: int) -> None:
        """So many bytes within the memory of the device on which both are."""
        kind = ffi.new("uint32_t *")
        self.checked(lib.halay_mem_kind(self.context, to, count, kind))
        move = ffi.new("halay_move_t *")
        move.dst, move.src, move.count, move.type = to, source, count, lib.HALAY_UINT8
        move.factor = 1.0
        self.checked(lib.halay_local_moves(self.context, kind[0], move, 1, MOVE_NS))

    def submit(
        self,
        kind: str,
        name: str | None,
        start: Callable[[Any, bytes, Any], int],
        keep: object,
        finish: Callable[[Members, int], Any],
        members: Members | None = None,
    ) -> int:
        """Calls start(trainer, name, ticket) and returns a handle.

        keep stays alive until a wait for the handle ends; finish makes the result out of it.
        members: whom to submit to, all ranks if left out.
        """
        among = members if members is not None else self.members[0]
        self._refuse_outside(among, kind)
        full, encoded = among.full_name(kind, name)
        with self._claimed(among, full):
            among.place(name, full, encoded)
            ticket = ffi.new("halay_ticket_t *")
            code = start(among.trainer, encoded, ticket)
            if code != 0:
                raise error(code, f"{full!r}: {self._why(code)}", self.rank, self.host)
        return self._hand_out(_Pending(among, int(ticket[0]), full, keep, finish))

    def join_all(self) -> int:
        """Waits until all ranks have no more data. Returns the last one."""

        def finish(world: Members, ticket: int) -> int:
            count = ffi.new("size_t *")
            code = lib.halay_trainer_result(world.trainer, ticket, ffi.NULL, count, ffi.NULL)
            self.checked(code)
            world.recount(next(self._joins))
            return int(count[0])

        def start(trainer: Any, _name: bytes, ticket: Any) -> int:
            return int(lib.halay_trainer_join(trainer, ticket))

        last: int = self.wait(self.submit("join", "", start, None, finish))
        return last

    def join(self, handles: list[int], finish: Callable[[list[Any]], Any]) -> int:
        """One handle for several, which are not to be used by themselves any more."""
        return self._hand_out(_Joint(handles, finish))

    def _hand_out(self, entry: _Entry) -> int:
        self._newest = handle = next(_handles)
        self.pending[handle] = entry
        return handle

    def poll(self, handle: int) -> bool:
        """Whether it is done. Straight after its call the answer is no.

        The trainer's thread may have got the processor, and done all of it, before the call came
        back. Whether it has is chance, and programs ask there to see if a call is asynchronous.
        """
        newest, self._newest = self._newest, 0
        return self._is_done(handle) and handle != newest

    def _is_done(self, handle: int) -> bool:
        entry = self.pending.get(handle)
        if entry is None:
            raise _unknown(handle)
        if isinstance(entry, _Joint):
            return all(self._is_done(one) for one in entry.handles)
        if isinstance(entry, _Aside):
            return entry.task.poll()
        code = int(lib.halay_trainer_poll(entry.members.trainer, entry.ticket))
        if code < 0:
            raise error(code, rank=self.rank, host=self.host)
        return code == 1

    def wait(self, handle: int) -> Any:
        entry = self.pending.pop(handle, None)
        if entry is None:
            raise _unknown(handle)
        if isinstance(entry, _Joint):
            return entry.finish(self.wait_all(entry.handles))
        if isinstance(entry, _Aside):
            try:
                return entry.task.wait()
            finally:
                entry.members.names.discard(entry.name)
        trainer = entry.members.trainer
        code = lib.halay_trainer_wait(trainer, entry.ticket, ffi.NULL, 0)
        try:
            if code != 0:
                text = ffi.new("char[]", TEXT_BYTES)
                lib.halay_trainer_wait(trainer, entry.ticket, text, TEXT_BYTES)
                raise error(code, text_of(text), self.rank, self.host)
            if interrupts:
                interrupted()
            return entry.finish(entry.members, entry.ticket)
        finally:
            lib.halay_trainer_release(trainer, entry.ticket)
            entry.members.names.discard(entry.name)

    def wait_all(self, handles: list[int]) -> list[Any]:
        """Their results. Waits for each, also after one has failed, and raises the first error."""
        results, failure = [], None
        for handle in handles:
            try:
                results.append(self.wait(handle))
            except Exception as one:
                failure = failure or one
        if failure is not None:
            raise failure
        return results

    def start_timeline(self, path: str, mark_cycles: bool) -> None:
        """Rank 0 writes path itself, the others path.rank1 and so on."""
        if self.timeline is not None:
            raise ValueError(f"a timeline is written to {self.timeline}: stop_timeline() first")
        own = path if self.rank == 0 else f"{path}.rank{self.rank}"
        with open(own, "wb"):  # or the reason why it cannot be written
            pass
        world = self.members[0].trainer
        self.checked(lib.halay_trainer_timeline_start(world, os.fsencode(own), mark_cycles))
        self.timeline = own
        for members in self.members.values():
            self._share_timeline(members)

    def _share_timeline(self, members: Members) -> None:
        if self.timeline is not None and members.number != 0 and members.rank is not None:
            label = f"set {members.number} ".encode()
            world = self.members[0].trainer
            self.checked(lib.halay_trainer_timeline_share(members.trainer, world, label))

    def timeline_span(self, name: str, begin_ns: int, end_ns: int) -> None:
        world = self.members[0].trainer
        self.checked(lib.halay_trainer_timeline_span(world, name.encode(), begin_ns, end_ns))

    def stop_timeline(self) -> None:
        """Ends the file. Does nothing if no timeline is on."""
        path, self.timeline = self.timeline, None
        if path is None:
            return
        result = ffi.new("halay_timeline_result_t *")
        result.size = ffi.sizeof("halay_timeline_result_t")
        for members in reversed(list(self.members.values())):
            if members.rank is not None:
                self.checked(lib.halay_trainer_timeline_stop(members.trainer, result))
        if result.lost:
            print(
                f"halay: the timeline {path} lacks {result.lost} records: its file system did not "
                "keep up, or no processor was idle",
                file=sys.stderr,
                flush=True,
            )
        if result.error:
            raise OSError(result.error, os.strerror(result.error), path)

    def close(self, for_good: bool = False) -> int:
        with contextlib.suppress(OSError):
            self.stop_timeline()
        for members in reversed(list(self.members.values())):
            self._close_trainer(members)
        _variables.withdraw(self)
        end = lib.halay_leave if for_good else lib.halay_finalize
        code = int(end(self.context))
        self.pending.clear()
        self.registered.clear()
        return code


def _unknown(handle: int) -> ValueError:
    return ValueError(
        f"handle {handle!r} is not out: it was synchronized already, or is of an earlier init()"
    )


def _refuse_child(of: Session) -> None:
    if of.pid != os.getpid():
        raise error(lib.HALAY_EFORKED, rank=of.rank, host=of.host)


def current() -> Session | None:
    """The session, which may be that of the parent process: the library refuses it then."""
    return _current


def session() -> Session:
    """The session that is open, or the reason why there is none."""
    found = _current
    if found is None:
        raise NotInitialized()
    _refuse_child(found)
    return found


def stand(place: Place | None) -> None:
    """Who this process is from the next init() on. None: the launcher says so."""
    global _told
    _told = place


@contextlib.contextmanager
def as_rank(place: Place) -> Iterator[None]:
    """As stand(), for the init() in the with statement only."""
    before = _told
    stand(place)
    try:
        yield
    finally:
        stand(before)


def standing() -> Place | None:
    """What stand() was told last."""
    return _told


def _open() -> Session:
    try:
        return Session()
    except HalayOver as over:
        print(f"halay: {over}", file=sys.stderr, flush=True)
        raise SystemExit(LEFT) from None


def init() -> None:
    """Opens the session. Does nothing if it is open.

    A process of an elastic job that ends, and cannot be joined any more, ends here by SystemExit.
    """
    global _current, _was_elastic
    if _current is not None:
        _refuse_child(_current)
    with _lock:
        if _current is None:
            _current = _open()
            _was_elastic = _current.elastic
            _words.listen(_current.rank, _current.host)
            for opened in _at_open:
                opened(_current)


def shutdown(for_good: bool = False) -> None:
    """Ends the session. Does nothing if there is none.

    for_good: the others of an elastic job go on, and do not wait for this process's end.
    """
    global _current
    if _current is not None:
        _refuse_child(_current)
        refuse_in_handler("shutdown() was called")
    with _lock:
        found, _current = _current, None
        code = found.close(for_good) if found is not None else 0
    abandon()
    interrupted()
    if found is not None and code != 0:
        raise error(code, rank=found.rank, host=found.host)


def at_open(call: Callable[[Session], None]) -> Callable[[Session], None]:
    """Has call(session) called at the end of each init()."""
    _at_open.append(call)
    return call


def at_trainer(begin: Callable[[Members], Callable[[], None]]) -> None:
    """Has begin(members) called for each trainer, and what it returns before that is destroyed."""
    _at_trainer.append(begin)
    if is_initialized():
        for members in session().members.values():
            if members.rank is not None:
                members.beside.append(begin(members))


def at_abandon(call: Callable[[], None]) -> Callable[[], None]:
    """Has call() called by abandon()."""
    _at_abandon.append(call)
    return call


def at_change(call: Callable[[Session], None]) -> None:
    """Has call(session) called when a process set was added or removed; and now, if it is open."""
    _at_change.append(call)
    if is_initialized():
        call(session())


def abandon() -> None:
    """Nobody is going to wait for what is out: layers above forget it."""
    for call in _at_abandon:
        call()


def shutdown_quietly(for_good: bool = False) -> None:
    """As shutdown(), where operations may be out that nobody is going to wait for."""
    with contextlib.suppress(HalayError):
        shutdown(for_good)


def is_initialized() -> bool:
    """Whether this process may call Halay. False in a forked child, which never raises here."""
    found = _current
    return found is not None and found.pid == os.getpid()


@atexit.register
def _at_exit() -> None:
    # A forked child leaves the job alone, whichever way it ends.
    if is_initialized():
        shutdown()
