# SPDX-License-Identifier: Apache-2.0
"""Which tensors Halay takes, and where their bytes are. Only what has gaps is copied."""

from __future__ import annotations

import torch

from .. import _session
from .._tensors import (
    DEVICES,
    TYPES,
    address,
    behind,
    no_tensor,
    plain,
    refuse_unreal,
    shared_error,
    shares_memory,
    waited,
)

__all__ = [
    "address",
    "behind",
    "dense",
    "describe",
    "refuse_overlap",
    "touched",
    "type_of",
    "waited",
]


def describe(tensor: torch.Tensor, kind: str, name: object) -> str:
    label = f" {name!r}" if name is not None else ""
    return (
        f"{kind}{label}: tensor of shape {tuple(tensor.shape)}, {tensor.dtype}, "
        f"on device {tensor.device}"
    )


def type_of(tensor: object, kind: str, name: object) -> int:
    """The halay_type_t of a tensor that can be sent; else an error that says why."""
    if not isinstance(tensor, torch.Tensor):
        raise no_tensor(tensor, kind)
    tensor = plain(tensor, f"{kind} {name!r}" if name is not None else kind)
    if tensor.layout != torch.strided:
        raise ValueError(
            f"{describe(tensor, kind, name)}: layout {tensor.layout} is not supported; "
            "use tensor.to_dense()"
        )
    if tensor.device.type not in DEVICES:
        raise ValueError(
            f"{describe(tensor, kind, name)}: only memory of the CPU and of CUDA devices is "
            "supported; use tensor.cpu()"
        )
    if tensor.is_cuda:
        _check_gpu(tensor, kind, name)
    refuse_unreal(tensor, kind)
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise TypeError(
            f"{describe(tensor, kind, name)}: this dtype is not supported; convert it, "
            "for example with tensor.float(), or, where nothing is reduced, send its bytes: "
            "tensor.view(torch.uint8)"
        )
    return found


def _check_gpu(tensor: torch.Tensor, kind: str, name: object) -> None:
    """The library works with the GPU that it meets first; its error has less to say."""
    of = _session.current()
    if of is None:
        return
    if of.gpu is None:
        of.gpu = tensor.device.index
    if of.gpu != tensor.device.index:
        raise ValueError(
            f"{describe(tensor, kind, name)}: earlier tensors were on cuda:{of.gpu}, and a process "
            "works with one GPU; call torch.cuda.set_device(hvd.local_rank()) first, and make all "
            "tensors there"
        )


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in one piece: the tensor itself, or a copy if it has gaps or lazy signs."""
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def refuse_overlap(tensor: torch.Tensor, kind: str, name: object) -> None:
    """Refuses a tensor that cannot be written: each element needs memory of its own."""
    if shares_memory(tensor):
        raise shared_error(tensor, describe(tensor, kind, name))


_bump = getattr(torch.autograd.graph, "increment_version", None)  # since torch 2.1


def touched(tensor: torch.Tensor) -> None:
    """Tells autograd that the tensor was written to: a saved copy of it is stale now."""
    if _bump is not None and not tensor.is_inference():
        _bump(tensor)
