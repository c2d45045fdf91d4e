# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: the user's optimizer, stepping on gradients reduced over all ranks.

A hook on each parameter submits its gradient as soon as the backward pass has finished with it,
so that reductions run while the pass goes on; step() waits for them. Every rank reduces every
parameter in every step: one without a gradient counts as zeros.

Optimizers that are alive at the same time and reduce one parameter in the same way share its
gradient, so that they may step in turn. If their ways differ, the newer one reduces it and the
older one may not step any more.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Union

import torch

from .. import _session
from .._core import program
from .._process_sets import ProcessSet, global_process_set, members_of
from .._reductions import Adasum, Average, Sum, choose_op
from .._tensors import outside_graph
from ._submit import synchronize
from .compression import Compression, Compressor
from .delta import Delta
from .front import Front, made_of
from .ops import allreduce_async_, sparse_allreduce_async

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


@dataclass(frozen=True)
class _Way:
    """How gradients are reduced."""

    compression: type[Compressor]
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet


_DISTURBED = """gradients were changed while they were being reduced, so that ranks would part. \
Wait for them before a GradScaler, clipping or anything else changes them:
    optimizer.synchronize()  # then scaler.unscale_(optimizer), clip_grad_norm_(...), ...
    with optimizer.skip_synchronize(): optimizer.step()  # or scaler.step(optimizer)"""


def _version(grad: torch.Tensor) -> int:
    """How often the gradient was written to. 0: parts of one memory count for each other."""
    values = grad if grad.layout == torch.strided else grad.detach()._values()
    storage = getattr(values, "untyped_storage", None)  # since torch 2.0
    if type(values) is not torch.Tensor or storage is None or values.is_inference():
        return 0
    whole = storage().nbytes() == values.numel() * values.element_size()
    return values._version if whole else 0


class _Gradient:
    """One parameter: its name, passes to go until it is submitted, and what is out for it."""

    def __init__(self, parameter: torch.Tensor, name: str, way: _Way, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.way = way
        self.passes = passes
        self.passes_left = passes
        self.group: list[_Gradient] = [self]
        self.fired = False
        self.superseded = False
        self.handle: int | Callable[[], torch.Tensor] | None = None
        self.sent: torch.Tensor | None = None
        self.as_sent: tuple[torch.Tensor, int] | None = None
        self.context: Any = None
        self.hook: object = None
        self.sparse_dims: tuple[int, int] | None = None  # of the last gradient that was sparse

    def attach(self) -> None:
        members = members_of(self.way.process_set)
        if members.rank is None or members.size == 1:
            return
        if self.parameter.requires_grad and self.hook is None:
            # A hook lives as long as its parameter; it must not keep a dropped optimizer alive.
            weak = weakref.ref(self)

            @outside_graph
            def submit(_: torch.Tensor) -> None:
                alive = weak()
                if alive is not None and not alive.superseded:
                    alive.ready()

            self.hook = _attach(self.parameter, submit)

    def active(self) -> bool:
        return self.hook is not None and self.parameter.requires_grad

    def ready(self) -> None:
        if self.handle is not None:
            self.as_sent = None  # that it was changed is told here
            raise AssertionError(
                f"{self.name}: its gradient was computed more than {self.passes} times since "
                "the last step(); set backward_passes_per_step to the number of backward passes "
                "in a step"
            )
        self.fired = True
        self.passes_left -= 1
        if all(one.passes_left <= 0 or not one.active() for one in self.group):
            for one in self.group:
                if one.handle is None and one.active():
                    one.submit()

    def submit(self) -> None:
        parameter, way = self.parameter, self.way
        if parameter.grad is None:
            parameter.grad = self._nothing()
        self.as_sent = parameter.grad, _version(parameter.grad)
        grad = parameter.grad.detach()
        if grad.layout != torch.strided:
            self.sparse_dims = (grad.sparse_dim(), grad.dense_dim())
            if not way.sparse_as_dense:
                self._submit_sparse(grad)
                return
            grad = grad.to_dense()
        wire, self.context = way.compression.compress(grad)
        self.sent = wire.contiguous()
        scaled = way.op == Average and way.predivide != 1.0
        self.handle = allreduce_async_(
            self.sent,
            name=self.name,
            op=way.op,
            prescale_factor=1.0 / way.predivide if scaled else 1.0,
            postscale_factor=way.predivide if scaled else 1.0,
            process_set=way.process_set,
        )

    def _submit_sparse(self, grad: torch.Tensor) -> None:
        if self.way.op not in (Average, Sum):
            raise ValueError(
                f"{self.name}: sparse gradients need op Average or Sum, or sparse_as_dense=True"
            )
        self.handle = sparse_allreduce_async(grad, self.name, self.way.op, self.way.process_set)

    def _nothing(self) -> torch.Tensor:
        """For a parameter that got no gradient: zeros, sparse if the last one was."""
        like = self.parameter
        if self.sparse_dims is None:
            return torch.zeros_like(like)
        first, rest = self.sparse_dims
        indices = torch.empty((first, 0), dtype=torch.int64, device=like.device)
        values = like.new_empty((0, *like.shape[len(like.shape) - rest :]))
        return torch.sparse_coo_tensor(indices, values, like.shape)

    def disturbed(self) -> bool:
        """Whether the gradient is another one, or was written to, since it was submitted."""
        grad = self.parameter.grad
        if self.handle is None or self.as_sent is None or grad is None:
            return False  # None: the program does without it
        sent, version = self.as_sent
        return grad is not sent or _version(grad) != version

    def finish(self) -> None:
        handle, disturbed = self.handle, self.disturbed()
        sent, context = self.sent, self.context
        self.forget()
        if handle is None:
            return
        found = handle() if callable(handle) else synchronize(handle)
        if disturbed:
            raise RuntimeError(f"{self.name}: {_DISTURBED}")
        if callable(handle):
            self.parameter.grad = found
            return
        assert sent is not None
        result = self.way.compression.decompress(found, context)
        grad = self.parameter.grad
        if grad is None:
            return
        if grad.layout != torch.strided:  # it was sent as a dense one
            self.parameter.grad = result.to_sparse(grad.sparse_dim())
        elif result.data_ptr() != grad.data_ptr():
            with torch.no_grad():
                grad.copy_(result)

    def forget(self) -> None:
        self.handle, self.sent, self.as_sent, self.fired = None, None, None, False
        self.passes_left = self.passes


# By id of the parameter, which its _Gradient keeps alive.
_gradients: weakref.WeakValueDictionary[int, _Gradient] = weakref.WeakValueDictionary()


@_session.at_abandon
def _forget_all() -> None:
    """Does not wait for handles of a session that is over, or nearly so."""
    for gradient in list(_gradients.values()):
        gradient.forget()


class _Reducer:
    """Submits and awaits the gradients of one optimizer."""

    def __init__(self, way: _Way, passes: int) -> None:
        self.way = way
        self.passes = passes
        self.gradients: dict[torch.Tensor, _Gradient] = {}

    def add(self, parameter: torch.Tensor, name: str, shared: bool = True) -> None:
        """shared: a gradient that another optimizer reduces in the same way is used with it."""
        gradient = _gradients.get(id(parameter))
        if gradient is not None:
            equal = (gradient.name, gradient.way, gradient.passes) == (name, self.way, self.passes)
            if not equal or not shared or len(gradient.group) > 1:
                gradient.superseded = True
                gradient = None
        if gradient is None:
            gradient = _Gradient(parameter, name, self.way, self.passes)
            _gradients[id(parameter)] = gradient
        self.gradients[parameter] = gradient
        gradient.attach()

    def group(self, parameters: Sequence[torch.Tensor]) -> None:
        """Submits them together, when the last of them is ready."""
        members = [self.gradients[p] for p in parameters if p in self.gradients]
        for gradient in members:
            gradient.group = members

    def outstanding(self) -> bool:
        return any(gradient.fired for gradient in self.gradients.values())

    def synchronize(self) -> None:
        for gradient in self.gradients.values():
            if gradient.superseded:
                raise RuntimeError(
                    f"{gradient.name}: a newer DistributedOptimizer with other options reduces "
                    "this parameter; use that one"
                )
            # A parameter that was frozen and is not any more has no hook yet.
            gradient.attach()
        failure: Exception | None = None
        for gradient in self.gradients.values():
            if gradient.handle is None and gradient.active():
                gradient.submit()
        for gradient in self.gradients.values():
            try:
                gradient.finish()
            except Exception as error:  # the others have to be taken back all the same
                failure = failure or error
        if failure is not None:
            raise failure

    def set_passes(self, passes: int) -> None:
        self.passes = passes
        for gradient in self.gradients.values():
            gradient.passes = gradient.passes_left = passes


class _Distributed(Front):
    """What DistributedOptimizer puts in front of the user's class."""

    _reducer: _Reducer
    _synchronized: bool
    _should_synchronize: bool

    def _reduce_by(
        self,
        way: _Way,
        passes: int,
        names: list[tuple[str, torch.Tensor]],
        together: list[list[torch.Tensor]],
    ) -> None:
        """together: parameters that are submitted together, as lists."""
        self._reducer = _Reducer(way, passes)
        self._synchronized, self._should_synchronize = False, True
        for name, parameter in names:
            self._reducer.add(parameter, name, shared=not together)
        for group in together:
            self._reducer.group(group)

    def _made_with(self) -> tuple[Any, ...]:
        reducer = self._reducer
        groups = {id(g.group): g.group for g in reducer.gradients.values() if len(g.group) > 1}
        together = [[one.parameter for one in group] for group in groups.values()]
        names = [(gradient.name, p) for p, gradient in reducer.gradients.items()]
        return reducer.way, reducer.passes, names, together

    def _make_again(self, *made_with: Any) -> None:
        self._reduce_by(*made_with)

    @property
    def _parameter_names(self) -> dict[torch.Tensor, str]:
        """By parameter: programs written for Horovod read it."""
        return {parameter: gradient.name for parameter, gradient in self._reducer.gradients.items()}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        # A GradScaler changes gradients without counting it in their versions.
        scaling = sys._getframe(1).f_code.co_name == "_unscale_grads_"
        if scaling and self._reducer.outstanding():
            raise RuntimeError(f"GradScaler: {_DISTURBED}")
        found: list[dict[str, Any]] = self.__dict__["param_groups"]
        return found

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    @property
    def backward_passes_per_step(self) -> int:
        return self._reducer.passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How many backward passes add to a gradient before it is reduced."""
        _check_passes(passes)
        self._reducer.set_passes(passes)

    @outside_graph
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

    @outside_graph
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduces the gradients, then does what the user's optimizer does."""
        wrapped = closure
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    # Programs filter the warning by how it begins.
                    "optimizer.step() called without optimizer.skip_synchronize() after "
                    "optimizer.synchronize(): the gradients are reduced again",
                    stacklevel=program()[1],
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

    @outside_graph
    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if self._reducer.outstanding():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(): the gradients are being reduced"
            )
        super().zero_grad(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        prefix = members_of(global_process_set).unnamed("optimizer")
        for index, parameter in enumerate(self.param_groups[-1]["params"]):
            self._reducer.add(parameter, f"{prefix}.{index}")

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
    # Several optimizers without names do not meet: ranks make them in the same order.
    members = members_of(global_process_set)
    prefix = members.unnamed("optimizer") if named_parameters is None else "noname"
    own = [
        (f"{prefix}.{i}.{j}", parameter)
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
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
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


# A number of groups, or lists of parameters.
Groups = Union[int, list[list[torch.Tensor]], None]


def _grouped(groups: Groups, parameters: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The parameters of each group; those that are in none are reduced by themselves."""
    if groups is None or groups == 0:
        return []
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 0:
            raise ValueError(f"groups must not be negative, it is {groups}")
        chosen = [p for p in parameters if p.requires_grad]
        each = -(-len(chosen) // groups)
        return [chosen[i : i + each] for i in range(0, len(chosen), each)] if chosen else []
    if not isinstance(groups, list) or not all(isinstance(g, (list, tuple)) for g in groups):
        raise ValueError("groups has to be a number of groups or a list of lists of torch.Tensor")
    listed = [parameter for group in groups for parameter in group]
    if not all(isinstance(parameter, torch.Tensor) for parameter in listed):
        raise ValueError("groups has to consist of torch.Tensor")
    if len({id(parameter) for parameter in listed}) != len(listed):
        raise ValueError("a parameter is in groups twice; it may be in one only")
    return [list(group) for group in groups]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The optimizer, of a subclass of its own class, that reduces gradients over all ranks.

    It shares parameter groups and state with `optimizer`, which is not to be used any more.
    named_parameters: model.named_parameters(); ranks match gradients by these names.
    compression: of what is sent. backward_passes_per_step: backward passes that add to a gradient
    before it is reduced. op: Average or another reduction; with Adasum each rank steps by itself
    and the changes are reduced, so that what follows for gradients does not matter.
    gradient_predivide_factor: with Average, divides gradients by it before the sum and multiplies
    by it over size() afterwards. groups: how many groups, or lists of parameters, are submitted
    together (num_groups is the old spelling). sparse_as_dense: a sparse gradient is reduced as a
    dense one, and is sparse again for the step; otherwise every rank has to have a sparse gradient,
    or none, for a parameter in its first step. process_set: whose gradients to reduce; ranks
    outside it step by themselves.
    """
    if isinstance(optimizer, (_Distributed, Delta)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    choose_op(op, None)
    _check_passes(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if num_groups != 0:
        warnings.warn(
            "num_groups= is the old spelling; use groups=",
            DeprecationWarning,
            stacklevel=program()[1],
        )
        groups = num_groups if groups is None else groups
    names = _names(optimizer, named_parameters)
    together = _grouped(groups, [parameter for _, parameter in names])
    members = members_of(process_set)
    several = members.size > 1 or _session.session().elastic  # or will be
    if op == Adasum and members.rank is not None and several:
        made = made_of(optimizer, Delta)
        made._make_again(names, compression, process_set, backward_passes_per_step)
        return made
    made = made_of(optimizer, _Distributed)
    way = _Way(compression, op, gradient_predivide_factor, sparse_as_dense, process_set)
    made._reduce_by(way, backward_passes_per_step, names, together)
    return made
