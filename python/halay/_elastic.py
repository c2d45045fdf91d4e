# SPDX-License-Identifier: Apache-2.0
"""Elastic training, for any framework: states, and run_fn(), which goes on when ranks change.

In an elastic job (docs/elastic.md) a rank that is lost, one that is told to leave (SIGTERM) and
processes that wait to join make the ranks meet again, without ending a process. In any other job
the ranks stay the same, and only errors by which none was lost are recovered from.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

from . import _session
from ._core import error, lib
from .errors import (
    LEFT,
    HalayBootError,
    HalayForked,
    HalayPeerLost,
    HorovodInternalError,
    HostsUpdatedInterrupt,
)

# After these, no further collective of a job whose ranks stay the same can work.
_LASTING = (HalayPeerLost, HalayBootError, HalayForked)

Result = TypeVar("Result")

SAME_S = 2.0
_CODE = re.compile(r"\b(HALAY_E[A-Z]+)\b(?:: )?([^\n]*)")


class _Notice:
    """Whether this process has been told to leave."""

    told = False


_notice = _Notice()


@contextlib.contextmanager
def _noticing(wanted: bool) -> Iterator[None]:
    """In the with statement, SIGTERM is a notice; one after SAME_S acts as it did before.

    Schedulers signal an agent and its processes alike, and the agent hands it on.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not wanted or not in_main or _notice.told:
        yield
        return
    before, first = signal.getsignal(signal.SIGTERM), math.inf

    def take(*_: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if now < first + SAME_S:
            first, _notice.told = min(first, now), True
            return
        put_back()
        signal.raise_signal(signal.SIGTERM)

    def put_back() -> None:
        if signal.getsignal(signal.SIGTERM) is take:
            # None: a handler that Python did not set, and cannot set again.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    signal.signal(signal.SIGTERM, take)
    try:
        yield
    finally:
        put_back()


class _News:
    """What programs for Horovod ask of its queue of messages from the driver."""

    def empty(self) -> bool:
        """Whether this rank knows of no reason to change the ranks at the next commit."""
        found = _session.current()
        waiting = found is not None and found.elastic and found.newcomers()
        return not (_notice.told or waiting)


class State:
    """What training needs to go on: saved by commit(), put back by restore().

    bcast_object, get_rank: a framework's functions, for classes that are made of this one.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
    ) -> None:
        self._bcast_object, self._rank = bcast_object, get_rank
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0
        self._host_messages = _News()

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Functions to call whenever run() begins again: the ranks may be others then."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps a copy of the state as it is now, in memory; then as check_host_updates()."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """In an elastic job, HostsUpdatedInterrupt on all ranks if the ranks are about to change.

        All ranks have to call it equally often. In any other job it does nothing.
        """
        found = _session.current()
        if found is None or not found.elastic:
            return
        waiting, leaving = found.greatest(found.newcomers() or 0, _notice.told)
        if waiting or leaving:
            raise HostsUpdatedInterrupt(skip_sync=not waiting)

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """Called when run() begins again, before sync()."""


class ObjectState(State):
    """Python objects, given as keyword arguments and kept as attributes."""

    def __init__(
        self,
        bcast_object: Callable[..., Any],
        get_rank: Callable[[], int] | None = None,
        **objects: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._names = list(objects)
        for name, value in objects.items():
            setattr(self, name, value)
        self._saved: dict[str, Any] = {}
        ObjectState.save(self)

    def save(self) -> None:
        self._saved = copy.deepcopy({name: getattr(self, name) for name in self._names})

    def restore(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)

    def sync(self) -> None:
        """Gives all ranks the objects of rank 0, and commits them."""
        if self._names:
            assert self._bcast_object is not None
            mine = {name: getattr(self, name) for name in self._names}
            self._saved = self._bcast_object(mine)
            ObjectState.restore(self)


def ours(failure: Exception) -> HorovodInternalError | None:
    """The HalayError that a framework has wrapped in its own error, if that is what it is."""
    found = _CODE.search(str(failure))
    code = getattr(lib, found[1], None) if found is not None else None
    if found is None or code is None:
        return None
    of = _session.current()
    return error(code, found[2] or found[1], *(() if of is None else (of.rank, of.host)))


def meet_again() -> None:
    """Ends the session and opens another, in which this process may have another rank."""
    _session.shutdown_quietly()
    _session.init()


class _Standing:
    """Whether this process has the job's state, and whether it knows that there is one."""

    def __init__(self) -> None:
        self.holds = self.known = False

    def may_skip(self, wish: bool) -> bool:
        """Whether no rank wants the state. All ranks of an elastic job call it after a meeting.

        Somebody may have joined although only a rank left; and all that had the state may be gone.
        """
        open_session = _session.session()
        own = (not (wish and self.holds), self.holds, self.known)
        wanted, held, known = open_session.greatest(*own)
        self.known = bool(known or held)
        if known and not held:
            raise RuntimeError(
                "all ranks that had the state of the training are lost, and those that have joined "
                "had not got it yet: start the job again, from a checkpoint "
                f"[seen by rank {open_session.rank} on {open_session.host}]"
            )
        return not wanted


def _begin(state: State, standing: _Standing, again: bool, skip_sync: bool, elastic: bool) -> None:
    """All that comes before the program's function."""
    if again:
        state.on_reset()
    if elastic:
        skip_sync = standing.may_skip(skip_sync)
    if not skip_sync:
        state.sync()
    standing.holds = standing.known = True


def run_fn(
    func: Callable[..., Result], reset: Callable[[], None] = meet_again
) -> Callable[..., Result]:
    """A function that makes the state equal on all ranks, then calls func(state, ...).

    A HorovodInternalError, as all HalayErrors are, puts the last commit back; the ranks meet anew
    by reset(), and func is called again. In a job whose ranks stay the same, that is done once for
    each commit: a second error without one, or a lost rank, is raised. HostsUpdatedInterrupt calls
    func again with the state as it is; in an elastic job the ranks meet anew, and one that was told
    to leave ends here, by SystemExit.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Result:
        found = _session.current()
        elastic = found is not None and found.elastic
        standing = _Standing()
        commits_at_error: int | None = None
        again = skip_sync = False
        with _noticing(elastic):
            while True:
                try:
                    _begin(state, standing, again, skip_sync, elastic)
                    return func(state, *args, **kwargs)
                except HorovodInternalError as failure:
                    _session.abandon()
                    state.restore()
                    lasting = isinstance(failure, HalayForked if elastic else _LASTING)
                    vain = not elastic and state._commits == commits_at_error
                    if lasting or vain:
                        raise
                    commits_at_error, skip_sync = state._commits, False
                    reset()
                except HostsUpdatedInterrupt as request:
                    skip_sync = request.skip_sync
                    if _notice.told:  # maybe too late to say it: the others meet anyway
                        _session.shutdown_quietly(for_good=True)
                        raise SystemExit(LEFT) from None
                    if elastic:
                        reset()
                again = True

    return wrapper
