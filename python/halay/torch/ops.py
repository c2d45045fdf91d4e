# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors, by name: ranks may submit in different orders.

The asynchronous forms return a handle for poll() and synchronize(). A tensor belongs to Halay
from the submission to the return of synchronize(): it must not be read or written in between.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .. import _session
from .._core import ffi, lib
from .._session import Session, TraceRecord
from ._tensors import address, describe, touched, type_of
from .compression import Compression, Compressor

# Horovod's numbers.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

_OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
_C_OPS = {Sum: lib.HALAY_SUM, Min: lib.HALAY_MIN, Max: lib.HALAY_MAX, Product: lib.HALAY_PROD}
_BOOL_OPS = {Min: lib.HALAY_LAND, Max: lib.HALAY_LOR, Product: lib.HALAY_LAND}


def init(comm: object = None, process_sets: object = None) -> None:
    """Joins the job that the launcher started; alone, a job of one rank. Again: does nothing."""
    if comm is not None:
        raise NotImplementedError(
            "hvd.init(comm=...) is not supported: Halay joins the whole job of its launcher; "
            "leave comm out"
        )
    if process_sets is not None:
        raise NotImplementedError(
            "hvd.init(process_sets=...) is not supported yet; leave process_sets out"
        )
    _session.init()


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


def trace() -> list[TraceRecord]:
    """The operations finished on this rank since the last call, oldest first."""
    return _session.session().trace()


def _choose_op(op: int | None, average: bool | None) -> int:
    if average is not None:
        if op is not None:
            raise ValueError("give either op or average, not both; average is the old spelling")
        warnings.warn(
            "average= is the old spelling; use op=hvd.Average or op=hvd.Sum",
            DeprecationWarning,
            stacklevel=4,
        )
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise NotImplementedError("op=hvd.Adasum is not implemented; use hvd.Average or hvd.Sum")
    if op not in range(len(_OP_NAMES)):
        raise ValueError(f"op={op!r} is no reduction; use hvd.Average, Sum, Min, Max or Product")
    return op


def _c_reduction(
    what: str, tensor: torch.Tensor, op: int, prescale: float, postscale: float, nranks: int
) -> tuple[int, float, float]:
    """Halay's operation and scales.

    Average is the sum times 1/size, as in Horovod; integers without scales are divided, and
    truncate toward zero.
    """
    scaled = prescale != 1.0 or postscale != 1.0
    if tensor.dtype == torch.bool:
        if op not in _BOOL_OPS or scaled:
            raise TypeError(
                f"{what}: bool takes op Min, Max or Product without scale factors; convert it, "
                "for example with tensor.int()"
            )
        return _BOOL_OPS[op], 1.0, 1.0
    if op == Average:
        inexact = tensor.is_floating_point() or tensor.is_complex()
        if inexact or scaled:
            return lib.HALAY_SUM, prescale, postscale / nranks
        return lib.HALAY_AVERAGE, 1.0, 1.0
    if scaled and op != Sum:
        raise ValueError(
            f"{what}: prescale_factor and postscale_factor need op Average or Sum, not "
            f"{_OP_NAMES[op]}"
        )
    return _C_OPS[op], prescale, postscale


def _warn_graph(tensor: torch.Tensor, kind: str) -> None:
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        warnings.warn(
            f"hvd.{kind} does not take part in autograd yet: no gradient flows through its "
            "result. Use tensor.detach() to say that this is meant.",
            UserWarning,
            stacklevel=4,
        )


def _scaled_integers(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """A copy times factor, in float64, truncated toward zero: as Horovod does."""
    return (tensor.to(torch.float64) * factor).to(tensor.dtype)


def _allreduce(
    tensor: torch.Tensor,
    output: torch.Tensor | None,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
) -> int:
    open_session = _session.session()
    type_ = type_of(tensor, "allreduce", name)
    what = describe(tensor, "allreduce", name)
    c_op, prescale, postscale = _c_reduction(
        what, tensor, op, prescale, postscale, open_session.size
    )
    if not lib.halay_op_takes(c_op, type_):
        raise TypeError(f"{what}: op {_OP_NAMES[op]} does not take this dtype")
    out = torch.empty_like(tensor, requires_grad=False) if output is None else output
    sent, after = tensor, 1.0
    if not (tensor.is_floating_point() or tensor.is_complex()):
        # The library scales inexact types only.
        if prescale != 1.0:
            sent = _scaled_integers(tensor, prescale)
        prescale, postscale, after = 1.0, 1.0, postscale

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(
            lib.halay_trainer_allreduce(
                trainer,
                encoded,
                address(sent),
                address(out),
                out.numel(),
                type_,
                c_op,
                prescale,
                postscale,
                ticket,
            )
        )

    def finish(_of: Session, _ticket: int) -> torch.Tensor:
        if after != 1.0:
            out.copy_(_scaled_integers(out, after))
        touched(out)
        return out

    return open_session.submit("allreduce", name, start, (sent, out), finish)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reduction over all ranks into a new tensor. Returns a handle."""
    op = _choose_op(op, average)
    _warn_graph(tensor, "allreduce")
    return _allreduce(tensor, None, name, op, prescale_factor, postscale_factor)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """The reduction of all ranks' tensors: shape and dtype are those of `tensor`.

    op: Average (the default), Sum, Min, Max or Product. The scale factors multiply before and
    after the sum.
    """
    op = _choose_op(op, average)
    _warn_graph(tensor, "allreduce")
    compressed, context = compression.compress(tensor)
    handle = _allreduce(compressed, None, name, op, prescale_factor, postscale_factor)
    return compression.decompress(synchronize(handle), context)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """As allreduce_async(), in place."""
    op = _choose_op(op, average)
    return _allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """As allreduce(), in place. Returns `tensor`."""
    op = _choose_op(op, average)
    return synchronize(_allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor))


def _allgather(tensor: torch.Tensor, name: str | None, with_rows: bool) -> int:
    open_session = _session.session()
    type_ = type_of(tensor, "allgather", name)
    if tensor.dim() == 0:
        raise ValueError(
            f"{describe(tensor, 'allgather', name)}: a scalar has no first dimension to gather "
            "along; use tensor.unsqueeze(0)"
        )
    row_shape = tuple(tensor.shape[1:])
    row_count = 1
    for extent in row_shape:
        row_count *= extent

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(
            lib.halay_trainer_allgather(
                trainer, encoded, address(tensor), tensor.shape[0], row_count, type_, ticket
            )
        )

    def finish(of: Session, ticket: int) -> Any:
        data, count, rows = of.gathered(ticket)
        out = torch.empty((sum(rows), *row_shape), dtype=tensor.dtype)
        assert out.numel() == count
        if count > 0:
            ffi.memmove(address(out), data, count * out.element_size())
        return (out, rows) if with_rows else out

    return open_session.submit("allgather", name, start, tensor, finish)


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> int:
    """Starts an allgather. Returns a handle."""
    _warn_graph(tensor, "allgather")
    return _allgather(tensor, name, with_rows=False)


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """All ranks' tensors one after the other along the first dimension, which may differ."""
    _warn_graph(tensor, "allgather")
    return synchronize(_allgather(tensor, name, with_rows=False))


def allgather_rows(tensor: torch.Tensor, name: str | None = None) -> tuple[torch.Tensor, list[int]]:
    """As allgather(), and how many rows are of each rank. Halay's own, not Horovod's."""
    gathered: tuple[torch.Tensor, list[int]] = _session.session().wait(
        _allgather(tensor, name, with_rows=True)
    )
    return gathered


def _broadcast(tensor: torch.Tensor, root_rank: int, name: str | None) -> int:
    open_session = _session.session()
    type_ = type_of(tensor, "broadcast", name)
    if not 0 <= root_rank < open_session.size:
        raise ValueError(
            f"{describe(tensor, 'broadcast', name)}: root_rank {root_rank} is not one of the "
            f"{open_session.size} ranks"
        )

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(
            lib.halay_trainer_broadcast(
                trainer, encoded, address(tensor), tensor.numel(), type_, root_rank, ticket
            )
        )

    def finish(_of: Session, _ticket: int) -> torch.Tensor:
        touched(tensor)
        return tensor

    return open_session.submit("broadcast", name, start, tensor, finish)


def _copy_for_broadcast(tensor: torch.Tensor, name: str | None) -> torch.Tensor:
    _session.session()
    type_of(tensor, "broadcast", name)
    _warn_graph(tensor, "broadcast")
    return tensor.detach().clone()


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Starts a broadcast into a new tensor. Returns a handle."""
    return _broadcast(_copy_for_broadcast(tensor, name), root_rank, name)


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """The tensor of rank root_rank; shapes and dtypes are equal on all ranks."""
    return synchronize(_broadcast(_copy_for_broadcast(tensor, name), root_rank, name))


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """As broadcast_async(), in place."""
    return _broadcast(tensor, root_rank, name)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """As broadcast(), in place. Returns `tensor`."""
    return synchronize(_broadcast(tensor, root_rank, name))


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return at once. Never blocks."""
    return _session.session().poll(handle)


def synchronize(handle: int) -> torch.Tensor:
    """Waits for a handle, once, and returns its result or raises its error."""
    result: torch.Tensor = _session.session().wait(handle)
    return result


def barrier() -> None:
    """Returns when all ranks have called it."""
    open_session = _session.session()

    def start(trainer: Any, encoded: bytes, ticket: Any) -> int:
        return int(lib.halay_trainer_barrier(trainer, encoded, ticket))

    open_session.wait(open_session.submit("barrier", None, start, None, lambda *_: None))
