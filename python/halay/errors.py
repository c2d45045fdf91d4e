# SPDX-License-Identifier: Apache-2.0
"""What Halay raises. Wrong arguments that Python can see are ValueError or TypeError."""

from __future__ import annotations

from typing import Any

# The exit status of a process that has left an elastic job, as it was told to: what a shell says
# of SIGTERM. With 0 it would say that the training is done, and halayrun would start no other.
LEFT = 143


class HorovodInternalError(RuntimeError):
    """What elastic training recovers from, by the name that programs know."""


class HalayError(HorovodInternalError):
    """A call into the C library failed.

    code: the HALAY_E* number. name: its name. rank, host: of the process that raises it, None
    before init. verdict: the library's own text: who is at fault, where, and what to do. of_job:
    where ranks were renumbered, the number that launcher and log know.
    """

    begins = ""  # the text, where programs look for a word

    def __init__(
        self,
        code: int,
        name: str,
        verdict: str,
        rank: int | None = None,
        host: str | None = None,
        of_job: int | None = None,
    ) -> None:
        self.code = code
        self.name = name
        self.verdict = verdict
        self.rank = rank
        self.host = host
        old = "" if of_job in (None, rank) else f" (rank {of_job} of the job)"
        where = "" if rank is None else f" [seen by rank {rank}{old} on {host}]"
        super().__init__(self.begins + verdict + where)
        self._given = (code, name, verdict, rank, host, of_job)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it was made: exceptions of a worker are raised again where it was called."""
        return type(self), self._given


class HalayTimeout(HalayError):
    """The deadline passed. The verdict names who was missing."""

    begins = "halay: Timed out - "  # the words that torch's tests look for


class HalayMismatch(HalayError):
    """Ranks submitted one name with different types, counts, operations or roots."""


class HalayPeerLost(HalayError):
    """A rank died, or cannot be reached any more."""


class HalayRevoked(HalayError):
    """A rank has revoked the communicator, so that all leave it: halay.distributed.shrink()."""


class HalayBootError(HalayError):
    """A launcher announced ranks that could not be found."""


class HalayOver(HalayError):
    """The job ends: this process has come too late to join it. init() ends the process then."""


class HalayForked(HalayError):
    """Called in a forked child of a rank, such as a DataLoader worker."""


class DuplicateName(HalayError, ValueError):
    """The name is out already: it was submitted and not synchronized yet."""


class NotInitialized(ValueError):
    """init() has not been called, or shutdown() has."""

    def __init__(self) -> None:
        super().__init__(
            "Halay has not been initialized; use hvd.init(), or halay.arrays.init() for arrays."
        )


class InvalidArgument(HalayError, ValueError):
    """An argument that Python found wrong where Horovod raises a RuntimeError."""


class HostsUpdatedInterrupt(RuntimeError):
    """The ranks of an elastic job are about to change: elastic.run() begins again.

    Raised by State.commit() and check_host_updates(), on all ranks in the same call; a program in
    elastic.run() may raise it, too. skip_sync: only ranks leave, so that all have the same state.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        self.skip_sync = skip_sync
        super().__init__("the ranks of the job change: elastic.run() begins again")
