# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm: batch normalization over the joined batch of all ranks.

Each rank sends its count, mean and sum of squared deviations; every rank puts them together in the
order of ranks, so all get the same bits. Ranks may have batches of different sizes, or none.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from .._basics import size
from .._reductions import Sum
from .._tensors import outside_graph
from .ops import allgather, allreduce

_numbers = itertools.count()


def _joined(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Count, mean and variance of all, from rows of (count, means, sums of squared deviations).

    Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample
    variances, 1979.
    """
    features = (parts.shape[1] - 1) // 2
    counts, means, squares = torch.split(parts, [1, features, features], dim=1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    variance = (squares + counts * (means - mean) ** 2).sum(0) / total
    return total, mean, variance


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: Any, bias: Any, eps: float, name: str
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        # The half types are normalized in float32, as torch does.
        wide = torch.promote_types(x.dtype, torch.float32)
        rows = x.transpose(0, 1).reshape(x.shape[1], -1).to(wide)
        count = rows.shape[1]
        mean = rows.mean(1) if count > 0 else rows.new_zeros(rows.shape[0])
        squares = ((rows - mean.unsqueeze(1)) ** 2).sum(1)
        own = torch.cat([rows.new_full((1,), float(count)), mean, squares])
        total, mean, variance = _joined(allgather(own.unsqueeze(0), f"{name}.forward"))
        scale = torch.rsqrt(variance + eps)
        shape = (1, -1, *[1] * (x.dim() - 2))
        normal = (x.to(wide) - mean.reshape(shape)) * scale.reshape(shape)
        ctx.save_for_backward(normal, scale, weight, total)
        ctx.shape, ctx.name, ctx.dtypes = shape, name, (x.dtype, wide)
        out = normal
        if weight is not None:
            out = normal * weight.to(wide).reshape(shape) + bias.to(wide).reshape(shape)
        ctx.mark_non_differentiable(total, mean, variance)
        return out.to(x.dtype), total, mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:
        normal, scale, weight, total = ctx.saved_tensors
        narrow, wide = ctx.dtypes
        gradient = gradient.to(wide)
        axes = [0, *range(2, gradient.dim())]
        of_bias, of_weight = gradient.sum(axes), (gradient * normal).sum(axes)
        sums = allreduce(torch.stack([of_bias, of_weight]), name=f"{ctx.name}.backward", op=Sum)
        shift, slope = (sums / total).reshape(2, *ctx.shape)
        factor = scale if weight is None else scale * weight.to(wide)
        of_x = (gradient - shift - normal * slope) * factor.reshape(ctx.shape)
        if weight is None:
            return of_x.to(narrow), None, None, None, None
        return of_x.to(narrow), of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d to 3d, with mean and variance of all ranks' batches in training.

    Every rank has to run it, in the forward and in the backward pass. Gradients of weight and
    bias are those of this rank's batch, as of any other layer.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        # Ranks make their modules in the same order, so that a module has one name on all.
        self._name = f"sync_batch_norm.{next(_numbers)}"

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm needs (batch, {self.num_features}, ...), not {tuple(input.shape)}"
            )

    def _momentum_now(self) -> float:
        """How much of the new statistics goes into the running ones; counts this batch."""
        if self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            return 1.0 / float(self.num_batches_tracked)
        return self.momentum

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training and self.running_mean is not None:
            return F.batch_norm(
                input,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                False,
                0.0,
                self.eps,
            )
        return self._of_batches(input)

    @outside_graph
    def _of_batches(self, input: torch.Tensor) -> torch.Tensor:
        """By the mean and variance of all ranks' batches."""
        tracked = self.training and self.running_mean is not None
        share = self._momentum_now() if tracked else 0.0
        if size() == 1:
            means, variances = (self.running_mean, self.running_var) if tracked else (None, None)
            return F.batch_norm(
                input, means, variances, self.weight, self.bias, True, share, self.eps
            )
        apply: Any = _Normalize.apply
        out, total, mean, variance = apply(input, self.weight, self.bias, self.eps, self._name)
        if tracked:
            assert self.running_mean is not None and self.running_var is not None
            with torch.no_grad():
                unbiased = variance * (total / (total - 1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
        result: torch.Tensor = out
        return result
