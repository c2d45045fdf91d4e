# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: the user's optimizer, stepping on gradients reduced over all ranks.

A hook on each parameter submits its gradient as soon as the backward pass has finished with it,
so that reductions run while the pass goes on; step() waits for them. Every rank reduces every
parameter in every step: one without a gradient counts as zeros.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch

from .compression import Compression, Compressor
from .ops import Average, allreduce_async_, size, synchronize
from .ops import _choose_op as choose_op

_POST_ACCUMULATE = "post_accumulate"  # Tensor.register_post_accumulate_grad_hook, since torch 2.1
_ACCUMULATOR = "accumulator"  # a hook on the graph node that adds to .grad
# None: the first of them that this torch has. A test sets it to try the other one.
_HOOKS: str | None = None


def _attach(parameter: torch.Tensor, submit: Callable[[torch.Tensor], None]) -> object:
    """Has submit(parameter) called after each backward pass. Returns what must be kept alive."""
    style = _HOOKS
    if style is None:
        modern = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
        style = _POST_ACCUMULATE if modern else _ACCUMULATOR
    if style == _POST_ACCUMULATE:
        register: Any = parameter.register_post_accumulate_grad_hook
        return register(submit)
    function: Any = parameter.expand_as(parameter).grad_fn
    accumulator = function.next_functions[0][0]
    accumulator.register_hook(lambda *_: submit(parameter))
    return accumulator


class _Gradient:
    """One parameter: its name, passes to go until it is submitted, and what is out for it."""

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.passes_left = passes
        self.fired = False
        self.handle: int | None = None
        self.sent: torch.Tensor | None = None
        self.context: Any = None
        self.hook: object = None


class _Reducer:
    """Submits and awaits the gradients of one optimizer."""

    def __init__(
        self, compression: type[Compressor], passes: int, op: int, predivide: float
    ) -> None:
        self.compression = compression
        self.passes = passes
        self.op = op
        self.predivide = predivide
        self.gradients: dict[torch.Tensor, _Gradient] = {}

    def add(self, parameter: torch.Tensor, name: str) -> None:
        gradient = _Gradient(parameter, name, self.passes)
        self.gradients[parameter] = gradient
        self._hook(gradient)

    def _hook(self, gradient: _Gradient) -> None:
        if gradient.parameter.requires_grad and gradient.hook is None and size() > 1:
            # A hook lives as long as its parameter; it must not keep a dropped optimizer alive.
            reducer = weakref.ref(self)

            def submit(_: torch.Tensor) -> None:
                alive = reducer()
                if alive is not None:
                    alive._ready(gradient)

            gradient.hook = _attach(gradient.parameter, submit)

    def _ready(self, gradient: _Gradient) -> None:
        if gradient.handle is not None:
            raise AssertionError(
                f"{gradient.name}: its gradient was computed more than {self.passes} times since "
                "the last step(); set backward_passes_per_step to the number of backward passes "
                "in a step"
            )
        gradient.fired = True
        gradient.passes_left -= 1
        if gradient.passes_left == 0:
            self._submit(gradient)

    def _submit(self, gradient: _Gradient) -> None:
        parameter = gradient.parameter
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.layout != torch.strided:
            raise ValueError(
                f"{gradient.name}: sparse gradients are not supported; use sparse=False"
            )
        wire, gradient.context = self.compression.compress(parameter.grad.detach())
        gradient.sent = wire.contiguous()
        scaled = self.op == Average and self.predivide != 1.0
        gradient.handle = allreduce_async_(
            gradient.sent,
            name=gradient.name,
            op=self.op,
            prescale_factor=1.0 / self.predivide if scaled else 1.0,
            postscale_factor=self.predivide if scaled else 1.0,
        )

    def outstanding(self) -> bool:
        return any(gradient.fired for gradient in self.gradients.values())

    def synchronize(self) -> None:
        # A parameter that was frozen and is not any more has no hook yet.
        for gradient in self.gradients.values():
            self._hook(gradient)
        active = [
            g for g in self.gradients.values() if g.hook is not None and g.parameter.requires_grad
        ]
        failure: Exception | None = None
        for gradient in active:
            if gradient.handle is None:
                self._submit(gradient)
        for gradient in self.gradients.values():
            try:
                self._finish(gradient)
            except Exception as error:  # the others have to be taken back all the same
                failure = failure or error
        if failure is not None:
            raise failure

    def _finish(self, gradient: _Gradient) -> None:
        handle, sent = gradient.handle, gradient.sent
        self._forget(gradient)
        if handle is None or sent is None:
            return
        result = self.compression.decompress(synchronize(handle), gradient.context)
        grad = gradient.parameter.grad
        if grad is not None and result.data_ptr() != grad.data_ptr():
            with torch.no_grad():
                grad.copy_(result)

    def _forget(self, gradient: _Gradient) -> None:
        gradient.handle, gradient.sent, gradient.fired = None, None, False
        gradient.passes_left = self.passes

    def set_passes(self, passes: int) -> None:
        self.passes = passes
        for gradient in self.gradients.values():
            gradient.passes_left = passes


class _Distributed(torch.optim.Optimizer):
    """What DistributedOptimizer puts in front of the user's class."""

    _reducer: _Reducer
    _synchronized: bool
    _should_synchronize: bool

    @property
    def backward_passes_per_step(self) -> int:
        return self._reducer.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add to a gradient before it is reduced."""
        _check_passes(passes)
        self._reducer.set_passes(passes)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, so that they can be clipped or looked at.

        Follow it with step() inside skip_synchronize().
        """
        self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() inside it does not synchronize: synchronize() was called by hand."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the gradients, then does what the user's optimizer does."""
        wrapped = closure
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "step() after synchronize() reduces the gradients again; "
                    "call it inside `with optimizer.skip_synchronize():`",
                    stacklevel=2,
                )
            if closure is None or self._reducer.outstanding():
                self.synchronize()
            if closure is not None:
                wrapped = self._synchronizing(closure)
        self._synchronized = False
        return super().step(wrapped) if wrapped is not None else super().step()

    # torch would wrap it and run the user's step hooks twice: the user's own step() runs them.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            loss = closure()
            self._reducer.synchronize()
            return loss

        return run

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if self._reducer.outstanding():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(): the gradients are being reduced"
            )
        super().zero_grad(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = len(self.param_groups) - 1
        for index, parameter in enumerate(self.param_groups[group]["params"]):
            self._reducer.add(parameter, f"noname.{group}.{index}")

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        if self._reducer.outstanding():
            self.synchronize()
        super().load_state_dict(*args, **kwargs)
        self._synchronized, self._should_synchronize = False, True


def _check_passes(passes: int) -> None:
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {passes}")


def _names(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
) -> list[tuple[str, torch.Tensor]]:
    """A unique name for each parameter of the optimizer."""
    own = [
        (f"noname.{i}.{j}", parameter)
        for i, group in enumerate(optimizer.param_groups)
        for j, parameter in enumerate(group["params"])
    ]
    if named_parameters is None:
        return own
    given = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in given):
        raise ValueError(
            "named_parameters has to be a sequence of (name, parameter) tuples, such as "
            "model.named_parameters()"
        )
    names = [name for name, _ in given]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"parameter names must be unique; found twice: {', '.join(twice)}")
    known = {parameter: name for name, parameter in given}
    unnamed = [(label, p) for label, p in own if p not in known]
    if unnamed:
        raise ValueError(
            f"named_parameters leaves out {len(unnamed)} of the optimizer's parameters: "
            + ", ".join(f"{label} of shape {tuple(p.shape)}" for label, p in unnamed)
        )
    return [(known[parameter], parameter) for _, parameter in own]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
) -> Any:
    """The optimizer, of a subclass of its own class, that reduces gradients over all ranks.

    It shares parameter groups and state with `optimizer`, which is not to be used any more.
    named_parameters: model.named_parameters(); ranks match gradients by these names.
    compression: of what is sent. backward_passes_per_step: backward passes that add to a gradient
    before it is reduced. op: Average or another reduction. gradient_predivide_factor: with
    Average, divides gradients by it before the sum and multiplies by it over size() afterwards.
    """
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    choose_op(op, None)
    _check_passes(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    names = _names(optimizer, named_parameters)
    base = type(optimizer)
    made: Any = object.__new__(type(base.__name__, (_Distributed, base), {}))
    # Not an attribute `step` that a learning rate scheduler put over the method: it would run
    # the user's step() and never ours.
    made.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    made._reducer = _Reducer(compression, backward_passes_per_step, op, gradient_predivide_factor)
    made._synchronized, made._should_synchronize = False, True
    for name, parameter in names:
        made._reducer.add(parameter, name)
    return made
