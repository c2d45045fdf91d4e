# SPDX-License-Identifier: Apache-2.0
"""Adasum (arXiv 2006.02924) above the collectives; docs/decisions/fusion.md#0022 has the reasons.

Adasum of a and b is (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, and of more vectors a tree of
these: neighbours are paired, level by level. Where a stands for more ranks than b (their number is
no power of two), the halves are their shares of the ranks: parallel vectors still give their mean,
orthogonal ones their sum. An alltoall gives each rank one chunk of all ranks'
vectors, so that only dot products have to be summed over ranks; an allgather puts the chunks of the
result together. A chunk is computed by one rank, so all ranks have the same bits.

What is submitted waits in `queue`, by name. Rank 0 tells which of its names are next, as a batch;
all ranks run the same batches in the same order. Only the thread calls the communicator.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from .. import _session
from .._core import deadline_s, error, ffi, lib, verdict_of
from .._session import Members
from .._tensors import TYPES, address
from ..errors import HalayError

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BATCH_BYTES = 64 << 20
HEAD_BYTES = 4096  # of the first message of a batch; a second one has what does not fit
SAYING_BYTES = 256  # what a rank says of a tensor that does not fit
SMALLEST = 2.2250738585072014e-308**0.5  # of |a|^2; below it the factor of a is 1
SLICE_NS = 5_000_000
FIT, MISSING, DIFFERENT = 0, 1, 2


class _Closed(Exception):
    """close() was called in the middle of a batch."""


def combine(
    rows: torch.Tensor,
    pieces: list[tuple[int, int]],
    total: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Adasum of the rows, float64, of which this rank has some columns; writes to them.

    pieces: the columns of each vector, from and to; they may be none. total(x) is the sum of x over
    the ranks that have the other columns.
    """
    weights = rows.new_ones(rows.shape[0])  # ranks that a row stands for
    while rows.shape[0] > 1:
        pairs = rows.shape[0] // 2
        left, right = rows[0 : 2 * pairs : 2], rows[1 : 2 * pairs : 2]
        dots = torch.zeros((3, len(pieces), pairs), dtype=torch.float64, device="cpu")
        for i, (begin, end) in enumerate(pieces):
            a, b = left[:, begin:end], right[:, begin:end]
            for j, (x, y) in enumerate(((a, b), (a, a), (b, b))):
                dots[j, i] = torch.bmm(x.unsqueeze(1), y.unsqueeze(2)).reshape(-1)
        both, *squares = total(dots)
        sums = weights[0 : 2 * pairs : 2] + weights[1 : 2 * pairs : 2]
        shares = [weights[side : 2 * pairs : 2] / sums for side in (0, 1)]
        factors = [
            torch.where(square >= SMALLEST, 1 - share * both / square, 1.0)
            for square, share in zip(squares, shares)
        ]
        weights = torch.cat([sums, weights[2 * pairs :]])
        for i, (begin, end) in enumerate(pieces):
            a, b = left[:, begin:end], right[:, begin:end]
            a.mul_(factors[0][i].unsqueeze(1)).addcmul_(b, factors[1][i].unsqueeze(1))
        rows = rows[::2]
    return rows[0]


class Entry:
    """One tensor that is out."""

    def __init__(
        self, name: str, sent: torch.Tensor, factor: float, then: Callable[[torch.Tensor], Any]
    ) -> None:
        self.name, self.sent, self.factor, self.then = name, sent, factor, then
        self.says = [str(sent.dtype).replace("torch.", ""), list(sent.shape)]
        self.bytes = sent.numel() * sent.element_size()
        self.result: torch.Tensor | None = None
        self.failure: HalayError | None = None
        self._ended = threading.Event()

    def end(self, result: torch.Tensor | None, failure: HalayError | None = None) -> None:
        self.result, self.failure = result, failure
        self._ended.set()

    def poll(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> Any:
        self._ended.wait()
        if self.failure is not None:
            raise self.failure
        assert self.result is not None
        return self.then(self.result)


class Side:
    """The thread, the queue and the communicator of one set of ranks."""

    def __init__(self, members: Members) -> None:
        open_session = _session.session()
        self.members, self.context, self.comm = members, open_session.context, members.side_comm
        self.rank, self.host = open_session.rank, open_session.host
        self.queue: dict[str, Entry] = {}
        self.broken: tuple[int, str] | None = None
        self.closing = False
        self.changed = threading.Condition()
        self._held: list[Any] = []  # buffers of calls that may be in flight
        # Kept: new pages cost most of a batch.
        self._scratch = torch.empty(0, dtype=torch.float64, device="cpu")
        self._thread = threading.Thread(target=self._run, name="halay-adasum", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ callers

    def submit(self, entry: Entry) -> Entry:
        with self.changed:
            if self.broken is not None:
                raise self._error(entry.name, *self.broken)
            self.queue[entry.name] = entry
            self.changed.notify_all()
        return entry

    def close(self) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        lib.halay_context_wake(self.context)
        self._thread.join()
        self._fail(lib.HALAY_ESTATE, "the job was left while the tensor was out")

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.queue or self.closing)
                if self.closing:
                    return
                self._batch()
                self._held.clear()
        except _Closed:
            pass
        except HalayError as failure:
            self._fail(failure.code, failure.verdict)
        except Exception as failure:  # of memory, or a mistake of ours: nobody may wait for ever
            self._fail(lib.HALAY_EINTERNAL, f"{type(failure).__name__}: {failure}")

    def _error(self, name: str, code: int, text: str) -> HalayError:
        return error(code, f"tensor {name!r} (Adasum): {text}", self.rank, self.host)

    def _fail(self, code: int, text: str) -> None:
        """Ends all that is out, and refuses what comes."""
        with self.changed:
            self.broken = self.broken or (code, text)
            entries, self.queue = list(self.queue.values()), {}
        for entry in entries:
            entry.end(None, self._error(entry.name, code, text))

    def _wait(self, call: Callable[..., int], *arguments: Any) -> None:
        request = ffi.new("halay_request_t **")
        self._held.append(arguments)
        code = call(*arguments, self.comm, request)
        if code == 0:
            code = lib.halay_request_test(request[0])
        while code == lib.HALAY_INPROGRESS:
            if self.closing:
                raise _Closed
            lib.halay_context_progress(self.context, SLICE_NS)
            code = lib.halay_request_test(request[0])
        if code != 0:
            raise error(code, verdict_of(self.comm, code))

    def _broadcast(self, data: torch.Tensor) -> None:
        self._held.append(data)
        self._wait(lib.halay_ibroadcast, address(data), data.numel(), TYPES[data.dtype], 0)

    def _allreduce(self, data: torch.Tensor, op: int) -> torch.Tensor:
        out = torch.empty_like(data)
        self._held += [data, out]
        self._wait(
            lib.halay_iallreduce, address(data), address(out), data.numel(), TYPES[data.dtype], op
        )
        return out

    def _allgather(self, data: torch.Tensor, counts: list[int]) -> torch.Tensor:
        out = torch.empty(sum(counts), dtype=data.dtype, device="cpu")
        self._held += [data, out]
        in_c = ffi.new("size_t[]", counts)
        self._wait(
            lib.halay_iallgatherv, address(data), address(out), in_c, ffi.NULL, TYPES[data.dtype]
        )
        return out

    def _transpose(self, data: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Row r: what rank r has of this rank's chunk."""
        nranks, own = self.members.size, counts[self.members.rank or 0]
        out = torch.empty((nranks, own), dtype=data.dtype, device="cpu")
        self._held += [data, out]
        ones = [ffi.new("size_t[]", c) for c in (counts, [own] * nranks)]
        self._wait(
            lib.halay_ialltoallv,
            address(data),
            ones[0],
            ffi.NULL,
            address(out),
            ones[1],
            ffi.NULL,
            TYPES[data.dtype],
        )
        return out

    # ------------------------------------------------------------------ a batch

    def _next(self) -> list[list[Any]]:
        """What rank 0 has out, of one type: [name, type, shape] of each."""
        chosen: list[Entry] = []
        with self.changed:
            for entry in self.queue.values():
                if chosen and sum(e.bytes for e in chosen) + entry.bytes > BATCH_BYTES:
                    break
                if not chosen or entry.sent.dtype == chosen[0].sent.dtype:
                    chosen.append(entry)
        return [[entry.name, *entry.says] for entry in chosen]

    def _agree(self) -> list[list[Any]]:
        """Rank 0's _next(), on all ranks."""
        text = json.dumps(self._next()).encode() if self.members.rank == 0 else b""
        message = len(text).to_bytes(8, "little") + text
        head = torch.frombuffer(
            bytearray(message[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")), dtype=torch.uint8
        )
        self._broadcast(head)
        said = bytes(head.tolist())
        length = int.from_bytes(said[:8], "little")
        rest = torch.empty(max(0, length + 8 - HEAD_BYTES), dtype=torch.uint8, device="cpu")
        if rest.numel() > 0:
            if self.members.rank == 0:
                rest = torch.frombuffer(bytearray(message[HEAD_BYTES:]), dtype=torch.uint8)
            self._broadcast(rest)
        found: list[list[Any]] = json.loads((said[8:] + bytes(rest.tolist()))[:length])
        return found

    def _collect(self, wanted: list[list[Any]]) -> tuple[list[Entry | None], list[int]]:
        """This rank's entries, and how each fits; waits for those that are not there yet."""
        names = [name for name, *_ in wanted]
        end = time.monotonic() + 0.75 * deadline_s()
        with self.changed:
            self.changed.wait_for(
                lambda: self.closing or all(name in self.queue for name in names),
                end - time.monotonic(),
            )
            if self.closing:
                raise _Closed
            found = [self.queue.get(name) for name in names]
        fits = [
            MISSING if entry is None else FIT if entry.says == says else DIFFERENT
            for entry, (_, *says) in zip(found, wanted)
        ]
        return found, fits

    def _batch(self) -> None:
        wanted = self._agree()
        found, fits = self._collect(wanted)
        said = torch.tensor(fits, dtype=torch.int32, device="cpu")
        worst = self._allreduce(said, lib.HALAY_MAX).tolist()
        self._refuse([(w[0], e, bad) for w, e, bad in zip(wanted, found, worst) if bad != FIT])
        entries = [e for e, bad in zip(found, worst) if bad == FIT and e is not None]
        if not entries:
            return
        results = self._reduce([entry.sent for entry in entries])
        for entry, result in zip(entries, results):
            out = result.reshape(entry.sent.shape)
            if entry.factor != 1.0:
                out = (out.to(torch.float64) * entry.factor).to(out.dtype)
            with self.changed:
                self.queue.pop(entry.name, None)
            entry.end(out)

    def _refuse(self, bad: list[tuple[str, Entry | None, int]]) -> None:
        """Ends those that some rank has not, or has otherwise: the same ones on all ranks."""
        if not bad:
            return
        own = b""
        for _, entry, _ in bad:
            what = "" if entry is None else f"{entry.says[0]} of shape {tuple(entry.says[1])}"
            own += f"{self.host}\n{what}".encode()[:SAYING_BYTES].ljust(SAYING_BYTES, b"\0")
        nranks = self.members.size
        mine = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        said = bytes(self._allgather(mine, [len(own)] * nranks).tolist())
        for i, (name, entry, worst) in enumerate(bad):
            have: dict[str, list[str]] = {}
            for r in range(nranks):
                at = r * len(own) + i * SAYING_BYTES
                text = said[at : at + SAYING_BYTES].rstrip(b"\0").decode("utf-8", "replace")
                host, _, what = text.partition("\n")
                have.setdefault(what, []).append(f"{self.members.ranks[r]} ({host})")
            lacking = have.pop("", [])
            code = lib.HALAY_ETIMEOUT if worst == MISSING or lacking else lib.HALAY_EMISMATCH
            text = "; ".join(f"{what} on rank {', '.join(who)}" for what, who in have.items())
            if lacking:
                text = f"not submitted by rank {', '.join(lacking)} in time; it is {text}"
            elif len(have) > 1:
                text = f"ranks differ: {text}"
            with self.changed:
                self.queue.pop(name, None)
            if entry is not None:
                entry.end(None, self._error(name, code, text))

    def _wide(self, rows: torch.Tensor) -> torch.Tensor:
        """In float64, in memory that is kept if it is of one batch of small tensors."""
        if rows.numel() * rows.element_size() > BATCH_BYTES:
            return rows.to(torch.float64)
        if self._scratch.numel() < rows.numel():
            self._scratch = torch.empty(rows.numel(), dtype=torch.float64, device="cpu")
        return self._scratch[: rows.numel()].view(rows.shape).copy_(rows)

    def _reduce(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        nranks, me = self.members.size, self.members.rank or 0
        sizes = [tensor.numel() for tensor in tensors]
        flat = torch.cat([t.reshape(-1) for t in tensors]) if len(tensors) > 1 else tensors[0]
        flat = flat.reshape(-1)
        bounds = [flat.numel() * r // nranks for r in range(nranks + 1)]
        counts = [end - begin for begin, end in zip(bounds, bounds[1:])]
        rows = self._wide(self._transpose(flat, counts))
        pieces, at = [], -bounds[me]
        for size in sizes:
            pieces.append((min(max(at, 0), counts[me]), min(max(at + size, 0), counts[me])))
            at += size
        own = combine(rows, pieces, lambda dots: self._allreduce(dots, lib.HALAY_SUM))
        return list(torch.split(self._allgather(own.to(flat.dtype).contiguous(), counts), sizes))


def side_of(members: Members) -> Side:
    """Made at its first use."""
    if not isinstance(members.side, Side):
        members.side = Side(members)
    return members.side
