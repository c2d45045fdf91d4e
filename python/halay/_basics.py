# SPDX-License-Identifier: Apache-2.0
"""The job: init, shutdown, who is who, and what the library was built with."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from . import _session
from ._core import Place
from ._process_sets import ProcessSet, add_process_set


def _refuse_part_of_the_job(comm: Any) -> None:
    """comm may be None, all ranks in order, or an mpi4py communicator of all ranks."""
    if comm is None:
        return
    size = _session.session().size
    found = comm.Get_size() if hasattr(comm, "Get_size") else list(comm)
    if found not in (size, [], list(range(size))):
        _session.shutdown()
        raise NotImplementedError(
            "hvd.init(comm=...) of a part of the job is not supported: leave comm out, and use "
            "hvd.add_process_set(ranks) for a part"
        )


# What init() was given: made again when the ranks of an elastic job meet again.
_process_sets: Sequence[ProcessSet] | str | None = None


def init(
    comm: object = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    allgather: Callable[[bytes], Sequence[bytes]] | None = None,
    rank: int | None = None,
    size: int | None = None,
) -> None:
    """Joins the job that the launcher started; alone, a job of one rank. Again: does nothing.

    process_sets: those to be made at once, the same on all ranks; "dynamic" changes nothing, for
    hvd.add_process_set() may be called always.
    allgather: the program's own, with the rank and size that it uses, where no launcher says
    them: it gives the bytes of all ranks, in their order, as mpi4py's comm.allgather does. It is
    called once, by a thread of its own.
    """
    if (allgather is None) != (rank is None) or (allgather is None) != (size is None):
        raise ValueError("init(allgather=..., rank=..., size=...): give all three, or none of them")
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'process_sets={process_sets!r}: give a list of ProcessSet or "dynamic"')
    wanted = [] if process_sets is None or isinstance(process_sets, str) else process_sets
    ranks = [process_set.ranks for process_set in wanted]
    for one in ranks:
        if ranks.count(one) > 1:
            raise ValueError(f"process_sets: the ranks {one} are there twice")
    global _process_sets
    begun = _session.is_initialized()
    if allgather is None or rank is None or size is None:
        _session.init()
    else:
        with _session.as_rank(Place(rank, size, "", "", allgather=allgather)):
            _session.init()
    _refuse_part_of_the_job(comm)
    if begun:
        return
    _process_sets = process_sets
    if process_sets is None or isinstance(process_sets, str):
        return
    meetings = _session.MEETINGS
    while not _added(process_sets, last=meetings == 1):
        _session.init()
        meetings -= 1


def _added(process_sets: Sequence[ProcessSet], last: bool) -> bool:
    """False: a rank of an elastic job was lost meanwhile, and it was not the last try. There is no
    session then."""
    met = _session.session()
    try:
        for process_set in process_sets:
            if process_set.ranks not in [list(m.ranks) for m in met.members.values()]:
                add_process_set(process_set)
    except BaseException as failure:
        again = not last and met.may_meet_again(failure)
        (_session.shutdown_quietly if again else _session.shutdown)()
        if not again:
            raise
        return False
    return True


def meet_again() -> None:
    """Leaves the job, whatever is out, and joins it anew: elastic.run() does so."""
    _session.shutdown_quietly()
    init(process_sets=_process_sets)


def shutdown() -> None:
    """Leaves the job. init() may follow."""
    _session.shutdown()


def is_initialized() -> bool:
    """Whether init() was called in this very process."""
    return _session.is_initialized()


def rank() -> int:
    """This process's number in the job, from 0."""
    return _session.session().rank


def size() -> int:
    """How many processes the job has."""
    return _session.session().size


def local_rank() -> int:
    """This process's number among those of its node."""
    return _session.session().local_rank


def local_size() -> int:
    """How many processes of the job run on this node."""
    return _session.session().local_size


def cross_rank() -> int:
    """The number of this node."""
    return _session.session().cross_rank


def cross_size() -> int:
    """How many nodes the job has."""
    return _session.session().cross_size


def transport() -> str:
    """The transport in use: "shm", ...; "none" if there is one rank."""
    return _session.session().transport


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Records what is done from now on, in Chrome's trace format: docs/timeline.md.

    Rank 0 writes file_path, the others file_path.rank1 and so on; ``python -m halay.timeline
    merge`` makes one file of them. mark_cycles: also marks where a round or a programme begins.
    """
    _session.session().start_timeline(os.fspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the timeline, and its file. Does nothing if none is on."""
    _session.session().stop_timeline()


@contextlib.contextmanager
def timeline_span(name: str) -> Iterator[None]:
    """Shows what the program does in the with statement, in a row of its own of the timeline."""
    begin_ns = time.monotonic_ns()
    try:
        yield
    finally:
        _session.session().timeline_span(name, begin_ns, time.monotonic_ns())


def is_homogeneous() -> bool:
    """Whether all nodes have as many ranks of the job."""
    return _session.session().is_homogeneous
