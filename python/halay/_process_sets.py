# SPDX-License-Identifier: Apache-2.0
"""Process sets: some ranks of the job, with collectives of their own.

Each has a communicator and a trainer. Adding and removing one is a call of every rank of the job,
also of those that are not in it, in the same order.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Union

from . import _session
from ._session import Members, Session


class ProcessSet:
    """Some ranks of the job: given to init() or add_process_set(), then to the collectives."""

    def __init__(self, ranks_or_comm: Any) -> None:
        if hasattr(ranks_or_comm, "Get_group"):
            raise NotImplementedError(
                "ProcessSet of an MPI communicator is not supported; give the list of its ranks"
            )
        ranks = sorted(ranks_or_comm)
        if any(not isinstance(rank, int) or rank < 0 for rank in ranks):
            raise ValueError(f"ProcessSet needs a list of ranks, not {ranks_or_comm!r}")
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"ProcessSet: a rank is in it twice: {ranks}")
        self._ranks: tuple[int, ...] = tuple(ranks)
        self._of: Session | None = None
        self._number: int | None = None

    mpi_comm: Any = None
    _always: int | None = None  # its number, also when there is no job

    def __reduce__(self) -> Any:
        """Unpickled it is in use where a set of the same ranks is."""
        return _found, (self._ranks,)

    def __copy__(self) -> ProcessSet:
        return self

    def __deepcopy__(self, _: Any) -> ProcessSet:
        """Itself: it names ranks, and a copy would not be known to them."""
        return self

    def _members(self) -> Members | None:
        """Its members; None if it was not added, was removed, or its session is over."""
        if self._number is None or not _session.is_initialized():
            return None
        open_session = _session.session()
        return open_session.members.get(self._number) if open_session is self._of else None

    @property
    def process_set_id(self) -> int | None:
        members = self._members()
        return self._always if members is None else members.number

    @process_set_id.setter
    def process_set_id(self, _: Any) -> None:
        raise ValueError("process_set_id is what hvd.add_process_set() gives: it cannot be set")

    @property
    def ranks(self) -> list[int] | None:
        return list(self._ranks)

    def size(self) -> int | None:
        """How many ranks it has; None unless it is in use."""
        members = self._members()
        return None if members is None else members.size

    def rank(self) -> int | None:
        """This process's number in it; None unless it is in use, or if this is not one of its."""
        members = self._members()
        return None if members is None else members.rank

    def included(self) -> bool | None:
        """Whether this process is one of its."""
        return _session.session().rank in self._ranks

    def __repr__(self) -> str:
        shown = f"process_set_id={self.process_set_id}, ranks={self.ranks}"
        return f"ProcessSet({shown}, mpi_comm={self.mpi_comm})"


def _found(ranks: tuple[int, ...]) -> ProcessSet:
    made = ProcessSet(ranks)
    if _session.is_initialized():
        open_session = _session.session()
        for members in open_session.members.values():
            if members.ranks == ranks and members.number != 0:
                made._number, made._of = members.number, open_session
    return made


class _AllRanks(ProcessSet):
    _always = 0

    def __reduce__(self) -> Any:
        return "global_process_set"

    def _members(self) -> Members | None:
        return _session.session().members[0] if _session.is_initialized() else None

    @property
    def ranks(self) -> list[int] | None:
        members = self._members()
        return None if members is None else list(members.ranks)

    def included(self) -> bool | None:
        return self._members() is not None


global_process_set: ProcessSet = _AllRanks([])

Ranks = Union[ProcessSet, Sequence[int]]


def members_of(process_set: ProcessSet) -> Members:
    """The members of a process set that is in use."""
    open_session = _session.session()
    if process_set is global_process_set:
        return open_session.members[0]
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set={process_set!r} is none: see hvd.add_process_set()")
    members = process_set._members()
    if members is None:
        raise ValueError(
            f"{process_set!r} is not in use: hand it to hvd.init(process_sets=[...]) or "
            "hvd.add_process_set() first"
        )
    return members


def whole(number: Any, what: str, word: str = "root_rank") -> int:
    """A rank that a program gives, as an int."""
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{what}: {word} must be an integer, not {number!r}") from None


def root_among(members: Members, root_rank: Any, what: str) -> int:
    """The number among the members of the root that a program gives, which is a rank of the job."""
    root = whole(root_rank, what)
    if root not in members.ranks:
        raise ValueError(f"{what}: root_rank {root} is not one of the {members.size} ranks")
    return members.ranks.index(root)


def add_process_set(process_set: Ranks) -> ProcessSet:
    """Makes a process set usable, and returns it. Every rank of the job calls it."""
    found = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    open_session = _session.session()
    known: Iterable[Members] = open_session.members.values()
    if found._ranks in [members.ranks for members in known]:
        raise ValueError(f"there is a process set of the ranks {list(found._ranks)} already")
    if not found._ranks or found._ranks[-1] >= open_session.size:
        raise ValueError(
            f"the ranks {list(found._ranks)} are not some of the {open_session.size} of this job"
        )
    found._number = open_session.add_members(found._ranks).number
    found._of = open_session
    return found


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends its use. Every rank of the job calls it. False: it was not in use, or has all ranks."""
    members = process_set._members()
    if members is None or members.number == 0:
        return False
    process_set._number = None
    _session.session().remove_members(members.number)
    return True
