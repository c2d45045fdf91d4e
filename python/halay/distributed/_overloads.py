# SPDX-License-Identifier: Apache-2.0
"""The overloads of a group's methods that torch's binding has, each brought to one form.

Of many methods there is one for lists of tensors and options, and one for a single tensor, where
operation, root and time limit are arguments. Halay's methods have the first form only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


class Form:
    """The parameters of one method, and what becomes of its arguments."""

    def __init__(self, parameters: str, more: str = "", *options: Any) -> None:
        """parameters: "*" begins that of a list of tensors; after "/" comes its name where one
        tensor is passed. more: what can stand in place of options, of the first class given."""
        words = parameters.split()
        self.names = [word.lstrip("*").split("/") for word in words]
        self.lists = [at for at, word in enumerate(words) if word.startswith("*")]
        self.singles = [at for at in self.lists if "/" in words[at]]
        self.more = more.split()
        self.options = options

    def take(self, call: str, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """What the method is called with: its parameters in order, and options or None."""
        count = len(self.names)
        # What torch itself calls most.
        usual = count == 1 and len(args) == 2 and not named and type(args[0]) is list
        if usual and isinstance(args[1], self.options):
            return list(args)
        left = dict(named)
        values = list(args[:count])
        for names in self.names[len(values) :]:
            found = [name for name in names if name in left]
            if not found:
                break
            values.append(left.pop(found[0]))
        one = any(isinstance(values[at], torch.Tensor) for at in self.singles if at < len(values))
        if self.options:
            if len(values) < count:
                raise TypeError(f"halay {call}: {self.names[len(values)][0]} is missing")
            values.append(self._options(call, args[count:], left, one))
        elif args[count:]:
            raise TypeError(f"halay {call}: {len(args)} arguments, of {count} at most")
        if left:
            raise TypeError(f"halay {call}: no such argument, or given twice: {', '.join(left)}")
        for at in self.lists[: len(values)]:
            if one:
                values[at] = [values[at]]
            elif isinstance(values[at], torch.Tensor):
                raise TypeError(f"halay {call}: {self.names[at][0]}: a list of tensors is needed")
        return values

    def _options(self, call: str, args: tuple[Any, ...], left: dict[str, Any], one: bool) -> Any:
        """Those that were passed, or new ones with what was passed instead."""
        if not args and not left and not (one and "root" in self.more):
            return None
        if len(args) == 1 and (args[0] is None or isinstance(args[0], self.options)):
            return args[0]
        if not args and "opts" in left:
            return left.pop("opts")
        if len(args) > len(self.more):
            raise TypeError(f"halay {call}: options or fewer arguments are needed")
        given = dict(zip(self.more, args))
        given.update({name: left.pop(name) for name in self.more[len(args) :] if name in left})
        if one and "root" in self.more and "root" not in given:
            raise TypeError(f"halay {call}: root is missing")
        made = self.options[0]()
        for name, value in given.items():
            if name == "timeout" and value is None:
                continue
            try:
                setattr(made, _FIELDS[name], value)
            except TypeError:
                kind = type(value).__name__
                raise TypeError(f"halay {call}: {name} cannot be of type {kind}") from None
        return made


# By the names that Halay's methods have; others are other names of these.
FORMS = {
    "allreduce": Form("*tensors/tensor", "op timeout", c10d.AllreduceOptions),
    "allreduce_coalesced": Form(
        "*tensors", "", c10d.AllreduceCoalescedOptions, c10d.AllreduceOptions
    ),
    "reduce": Form("*tensors/tensor", "root op timeout", c10d.ReduceOptions),
    "reduce_scatter": Form(
        "*output_tensors/output *input_tensors/input", "op timeout", c10d.ReduceScatterOptions
    ),
    "reduce_scatter_single": Form("outputTensor inputTensor", "", c10d.ReduceScatterOptions),
    "reduce_scatter_single_coalesced": Form("*outputs *inputs", "", c10d.ReduceScatterOptions),
    "broadcast": Form("*tensors/tensor", "root timeout", c10d.BroadcastOptions),
    "allgather": Form(
        "*output_tensors *input_tensors/input_tensor", "timeout", c10d.AllgatherOptions
    ),
    "allgather_coalesced": Form("*output_lists *input_list", "", c10d.AllgatherOptions),
    "all_gather_single": Form("output input", "", c10d.AllgatherOptions),
    "all_gather_single_coalesced": Form("*outputs *inputs", "", c10d.AllgatherOptions),
    "gather": Form(
        "*output_tensors *input_tensors/input_tensor", "root timeout", c10d.GatherOptions
    ),
    "scatter": Form(
        "*output_tensors/output_tensor *input_tensors", "root timeout", c10d.ScatterOptions
    ),
    "alltoall": Form("*output_tensors *input_tensors", "", c10d.AllToAllOptions),
    "all_to_all_single": Form(
        "output input output_split_sizes input_split_sizes", "timeout", c10d.AllToAllOptions
    ),
    "barrier": Form("", "timeout", c10d.BarrierOptions),
    "send": Form("*tensors dstRank tag"),
    "recv": Form("*tensors srcRank tag"),
    "recv_anysource": Form("*arg0 arg1"),
}
