# SPDX-License-Identifier: Apache-2.0
"""The process's one session: context, trainer, and the tensors that are out.

Knows no framework: a tensor is an address, a count and a type. What was submitted is kept alive
in `pending` until it is waited for, since the library writes to it till then. A session belongs
to the process that made it; in a forked child every use of it ends with HALAY_EFORKED.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable

from ._core import error, ffi, lib, text_of
from .errors import DuplicateName, NotInitialized

TEXT_BYTES = 1024
TRACE_CHUNK = 4096

# Handles are never reused, not even by a later session: a stale one is found out.
_handles = itertools.count(1)
_lock = threading.Lock()
_current: Session | None = None


@dataclass(frozen=True)
class TraceRecord:
    """One finished operation. Times are time.monotonic_ns() of this rank's node."""

    name: str
    submit_ns: int
    start_ns: int
    end_ns: int
    bytes: int


@dataclass(frozen=True)
class _Pending:
    ticket: int
    name: str
    keep: object
    finish: Callable[[Session, int], Any]


class Session:
    """From init() to shutdown()."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.pending: dict[int, _Pending] = {}
        self._names: set[str] = set()
        self._unnamed: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._context = _make_context()
        try:
            self._read_topology()
            self._trainer = self._make_trainer()
        except BaseException:
            lib.halay_finalize(self._context)
            raise

    def _read_topology(self) -> None:
        topology = ffi.new("halay_topology_t *")
        topology.size = ffi.sizeof("halay_topology_t")
        code = lib.halay_context_topology(self._context, topology)
        if code != 0:
            raise error(code)
        self.rank, self.size = int(topology.rank), int(topology.nranks)
        self.local_rank, self.local_size = int(topology.local_rank), int(topology.local_nranks)
        self.cross_rank, self.cross_size = int(topology.node), int(topology.nnodes)
        self.host = text_of(topology.host)
        self.launcher = text_of(topology.launcher)
        self.transport = text_of(topology.transport)

    def _make_trainer(self) -> Any:
        comm = ffi.new("halay_comm_t **")
        trainer = ffi.new("halay_trainer_t **")
        code = lib.halay_comm_world(self._context, comm)
        if code == 0:
            code = lib.halay_trainer_create(self._context, comm[0], trainer)
        if code != 0:
            raise error(code, rank=self.rank, host=self.host)
        return trainer[0]

    def _full_name(self, kind: str, name: str | None) -> tuple[str, bytes]:
        if name is None:
            name = f"noname.{next(self._unnamed[kind])}"
        full = f"{kind}.{name}"
        encoded = full.encode()
        if len(encoded) >= lib.HALAY_TENSOR_NAME_MAX or b"\0" in encoded:
            raise ValueError(
                f"the name {full!r} has {len(encoded)} bytes; at most "
                f"{lib.HALAY_TENSOR_NAME_MAX - 1} are allowed, and no zero byte: shorten it"
            )
        return full, encoded

    def submit(
        self,
        kind: str,
        name: str | None,
        start: Callable[[Any, bytes, Any], int],
        keep: object,
        finish: Callable[[Session, int], Any],
    ) -> int:
        """Calls start(trainer, name, ticket) and returns a handle.

        keep stays alive until the handle is waited for; finish makes the result out of it.
        """
        full, encoded = self._full_name(kind, name)
        if full in self._names:
            raise DuplicateName(
                lib.HALAY_EINVAL,
                "HALAY_EINVAL",
                f"{full!r} is out already: synchronize() it first, or give this one another name",
                self.rank,
                self.host,
            )
        ticket = ffi.new("halay_ticket_t *")
        code = start(self._trainer, encoded, ticket)
        if code != 0:
            raise error(
                code, f"{full!r}: {text_of(lib.halay_strerror(code))}", self.rank, self.host
            )
        self._names.add(full)
        handle = next(_handles)
        self.pending[handle] = _Pending(int(ticket[0]), full, keep, finish)
        return handle

    def poll(self, handle: int) -> bool:
        entry = self.pending.get(handle)
        if entry is None:
            raise _unknown(handle)
        code = int(lib.halay_trainer_poll(self._trainer, entry.ticket))
        if code < 0:
            raise error(code, rank=self.rank, host=self.host)
        return code == 1

    def wait(self, handle: int) -> Any:
        entry = self.pending.pop(handle, None)
        if entry is None:
            raise _unknown(handle)
        text = ffi.new("char[]", TEXT_BYTES)
        code = lib.halay_trainer_wait(self._trainer, entry.ticket, text, TEXT_BYTES)
        try:
            if code != 0:
                raise error(code, text_of(text), self.rank, self.host)
            return entry.finish(self, entry.ticket)
        finally:
            lib.halay_trainer_release(self._trainer, entry.ticket)
            self._names.discard(entry.name)

    def gathered(self, ticket: int) -> tuple[Any, int, list[int]]:
        """Of a finished allgather: address, elements in all, rows of each rank."""
        data = ffi.new("void **")
        count = ffi.new("size_t *")
        rows = ffi.new("size_t **")
        code = lib.halay_trainer_result(
            self._trainer,
            ticket,
            ffi.cast("const void **", data),
            count,
            ffi.cast("const size_t **", rows),
        )
        if code != 0:
            raise error(code, rank=self.rank, host=self.host)
        return data[0], int(count[0]), [int(rows[0][r]) for r in range(self.size)]

    def trace(self) -> list[TraceRecord]:
        records: list[TraceRecord] = []
        chunk = ffi.new("halay_trace_t[]", TRACE_CHUNK)
        while True:
            found = int(lib.halay_trainer_trace(self._trainer, chunk, TRACE_CHUNK))
            records += [
                TraceRecord(text_of(t.name), t.submit_ns, t.start_ns, t.end_ns, t.bytes)
                for t in chunk[0:found]
            ]
            if found < TRACE_CHUNK:
                return records

    def close(self) -> int:
        lib.halay_trainer_destroy(self._trainer)
        code = int(lib.halay_finalize(self._context))
        self.pending.clear()
        return code


def _unknown(handle: int) -> ValueError:
    return ValueError(
        f"handle {handle!r} is not out: it was synchronized already, or is of an earlier init()"
    )


def _make_context() -> Any:
    text = ffi.new("char[]", TEXT_BYTES)
    config = ffi.new("halay_config_t *")
    config.size = ffi.sizeof("halay_config_t")
    config.error, config.error_bytes = text, TEXT_BYTES
    context = ffi.new("halay_context_t **")
    code = lib.halay_init(config, context)
    if code != 0:
        raise error(code, text_of(text))
    return context[0]


def _refuse_child(of: Session) -> None:
    if of.pid != os.getpid():
        raise error(lib.HALAY_EFORKED, rank=of.rank, host=of.host)


def session() -> Session:
    """The session that is open, or the reason why there is none."""
    found = _current
    if found is None:
        raise NotInitialized()
    _refuse_child(found)
    return found


def init() -> None:
    """Opens the session. Does nothing if it is open."""
    global _current
    if _current is not None:
        _refuse_child(_current)
    with _lock:
        if _current is None:
            _current = Session()


def shutdown() -> None:
    """Ends the session. Does nothing if there is none."""
    global _current
    if _current is not None:
        _refuse_child(_current)
    with _lock:
        found, _current = _current, None
        code = found.close() if found is not None else 0
    if found is not None and code != 0:
        raise error(code, rank=found.rank, host=found.host)


def is_initialized() -> bool:
    """Whether this process may call Halay. False in a forked child, which never raises here."""
    found = _current
    return found is not None and found.pid == os.getpid()


@atexit.register
def _at_exit() -> None:
    # A forked child leaves the job alone, whichever way it ends.
    if is_initialized():
        shutdown()
