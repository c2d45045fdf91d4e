# SPDX-License-Identifier: Apache-2.0
"""The delta optimizer, for op=hvd.Adasum: each rank steps by itself, and what that has changed is
reduced. Adasum is made for such changes: the learning rate and the optimizer's scaling are in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .. import _session
from .._process_sets import ProcessSet, members_of
from .._reductions import Adasum
from .._tensors import outside_graph
from .compression import Compressor
from .front import Front
from .ops import allreduce_async_


class Delta(Front):
    """What DistributedOptimizer(op=Adasum) puts in front of the user's class."""

    _names: list[tuple[str, torch.Tensor]]
    _compression: type[Compressor]
    _process_set: ProcessSet
    backward_passes_per_step: int

    def _made_with(self) -> tuple[Any, ...]:
        return self._names, self._compression, self._process_set, self.backward_passes_per_step

    def _make_again(self, *made_with: Any) -> None:
        names, self._compression, self._process_set, passes = made_with
        self._names, self.backward_passes_per_step = list(names), passes

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        return {parameter: name for name, parameter in self._names}

    def set_backward_passes_per_step(self, passes: int) -> None:
        """step() is called after so many passes; nothing depends on it here."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be positive, not {passes}")
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Does nothing: gradients are this rank's own, and step() waits for what it sends."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """There is no step() without synchronizing."""
        raise AssertionError("skip_synchronize() is not supported with op=hvd.Adasum")
        yield

    @outside_graph
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does what the user's optimizer does, and adds Adasum of all ranks' changes instead."""
        moved = [(name, p) for name, p in self._names if p.requires_grad]
        for _, parameter in moved:
            if closure is None and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        starts = [parameter.detach().clone() for _, parameter in moved]
        loss = super().step(closure) if closure is not None else super().step()
        with torch.no_grad():
            try:
                for (_, parameter), target in zip(moved, self._targets(moved, starts)):
                    parameter.copy_(target)
            except Exception:
                for (_, parameter), start in zip(moved, starts):
                    parameter.copy_(start)
                raise
        return loss

    # torch would wrap it and run the user's step hooks twice: the user's own step() runs them.
    step.hooked = True  # type: ignore[attr-defined]

    def _targets(
        self, moved: list[tuple[str, torch.Tensor]], starts: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Where the parameters go."""
        handles, contexts = [], []
        for (name, parameter), start in zip(moved, starts):
            wire, context = self._compression.compress(parameter.detach() - start)
            contexts.append(context)
            handles.append(
                allreduce_async_(wire, name=name, op=Adasum, process_set=self._process_set)
            )
        found = _session.session().wait_all(handles)
        return [
            start + self._compression.decompress(change, context)
            for start, change, context in zip(starts, found, contexts)
        ]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        prefix = members_of(self._process_set).unnamed("optimizer")
        for index, parameter in enumerate(self.param_groups[-1]["params"]):
            self._names.append((f"{prefix}.{index}", parameter))
