# SPDX-License-Identifier: Apache-2.0
"""The sum of sparse tensors: each rank gets the elements of all, and adds them in rank order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ._group import HalayProcessGroup


def all_reduce(group: HalayProcessGroup, tensor: torch.Tensor) -> None:
    """In place, of COO tensors of one shape and type; with the same bits on all ranks."""
    mine = tensor.detach().coalesce()
    shape = torch.tensor([mine._nnz(), mine.sparse_dim(), *mine.shape])
    shapes = shape.new_empty(group.size(), len(shape))
    group.all_gather_single(shapes, shape).wait()
    if any(not torch.equal(other[1:], shape[1:]) for other in shapes):
        raise ValueError(
            "halay all_reduce: the ranks' sparse tensors differ in shape: "
            + ", ".join(f"rank {r} has {tuple(s[2:].tolist())}" for r, s in enumerate(shapes))
        )
    counts = [int(n) for n in shapes[:, 0]]
    places, values = mine.indices().t().contiguous(), mine.values().contiguous()
    all_places = [places.new_empty(n, places.shape[1]) for n in counts]
    all_values = [values.new_empty(n, *values.shape[1:]) for n in counts]
    group.allgather([all_places], [places]).wait()
    group.allgather([all_values], [values]).wait()
    whole = torch.sparse_coo_tensor(torch.cat(all_places).t(), torch.cat(all_values), tensor.shape)
    with torch.no_grad():
        tensor.copy_(whole.coalesce())
