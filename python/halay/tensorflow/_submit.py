# SPDX-License-Identifier: Apache-2.0
"""One call of an operation in C: names, labels, process sets and scales. No gradients, no checks of
what TensorFlow or the operation checks."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from .._process_sets import ProcessSet
from ._library import operations

# What the operation HalayAsk answers.
ASK_LABEL, ASK_RANK, ASK_SIZE, ASK_LOCAL_RANK, ASK_LOCAL_SIZE, ASK_INCLUDED = range(6)


@functools.cache
def _eager_label() -> Any:
    with tf.device("CPU:0"):
        return tf.constant(0, tf.int32)


def label() -> Any:
    """Tells the operation whether its node's name is its own (in a graph), or it is called eagerly.

    In a graph it comes from an operation with a state, one a graph: so TensorFlow does not take a
    collective of constants for a constant.
    """
    if tf.executing_eagerly():
        return _eager_label()
    graph = tf.compat.v1.get_default_graph()
    found = getattr(graph, "_halay_label", None)
    if found is None:
        with tf.control_dependencies(None), tf.name_scope("halay"):
            found = operations.halay_ask(what=ASK_LABEL, name="label")
        graph._halay_label = found
    return found


@functools.lru_cache(maxsize=1024)
def bits(scale: float) -> int:
    """A double as the integer of its bits: attributes of operations have single precision."""
    return int(struct.unpack("<q", struct.pack("<d", float(scale)))[0])


def scale_of(number: int) -> float:
    """The reverse of bits()."""
    return float(struct.unpack("<d", struct.pack("<q", number))[0])


def number_of(process_set: ProcessSet) -> int:
    """process_set_id of a set that is in use."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set={process_set!r} is none: see hvd.add_process_set()")
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{process_set!r} is not in use: hand it to hvd.init(process_sets=[...]) or "
            "hvd.add_process_set() first"
        )
    return number


def names(
    kind: str, name: str | None, tensors: Sequence[Any], set_number: int, ignore_name_scope: bool
) -> dict[str, Any]:
    """`name` and `tensor_name` of a call.

    In a graph an operation is known by its node's name, which, if the program gives none, follows
    from that of its input: so it does not matter in which order ranks make their operations.
    Eagerly, by the name that is given, or a number. A process set has its number in it: TensorFlow
    numbers the nodes of a graph, and ranks differ in which sets they are members of.
    """
    if tf.executing_eagerly():
        return {"tensor_name": name or ""}
    if name is None:
        inputs = [tensors[0]] if len(tensors) == 1 else [tensors[0], tensors[-1]]
        name = "_".join([f"Halay{kind}", *(tensor.name for tensor in inputs)])
    own = f"{name}_set{set_number}" if set_number else name
    clean = re.sub(r"[^A-Za-z0-9_]", "_", own)
    if not clean[:1].isalnum():
        clean = f"h{clean}"
    node = tf.compat.v1.get_default_graph().unique_name(clean, mark_as_used=False)
    return {
        "name": clean,
        "tensor_name": name if ignore_name_scope else "",
        "node_name": node,  # TensorFlow makes one of two that are alike, and ranks another one
    }


def as_tensor(value: Any) -> Any:
    """A variable or an array as a tensor."""
    if isinstance(value, tf.Tensor):
        return value
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
        raise TypeError(
            f"a {type(value).__name__} is not dense: make it so (to_tensor(), "
            "tf.sparse.to_dense()), or hand over the tensors that it has"
        )
    return tf.convert_to_tensor(value)


def as_tensors(tensors: Sequence[Any]) -> list[Any]:
    """Variables and arrays as tensors. All have to be of one type."""
    return [as_tensor(one) for one in tensors]


def listed(tensors: Any) -> list[Any]:
    """What a grouped call is given."""
    if isinstance(tensors, (tf.Tensor, tf.Variable)):
        raise TypeError("a grouped call takes a list of tensors, not one tensor")
    return list(tensors)


def _reduction(operation: Any, kind: str) -> Callable[..., list[Any]]:
    def call(
        tensors: Sequence[Any],
        op: int,
        set_number: int,
        name: str | None = None,
        ignore_name_scope: bool = False,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> list[Any]:
        found = as_tensors(tensors)
        result: list[Any] = operation(
            found,
            label(),
            reduce_op=op,
            prescale_bits=bits(prescale),
            postscale_bits=bits(postscale),
            process_set_id=set_number,
            **names(kind, name, found, set_number, ignore_name_scope),
        )
        return result

    return call


# The reductions of some tensors of one type; this rank's rows of them.
allreduce = _reduction(operations.halay_allreduce, "Allreduce")
_scatter = _reduction(operations.halay_reducescatter, "Reducescatter")


def reducescatter(tensors: Sequence[Any], *args: Any, **how: Any) -> list[Any]:
    scattered = _scatter(tensors, *args, **how)
    for out, tensor in zip(scattered, tensors):
        _set_rows(out, tensor)
    return scattered


def allgather(
    tensors: Sequence[Any],
    set_number: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> tuple[list[Any], list[Any]]:
    """All ranks' tensors, and how many rows of each are each rank's (int32)."""
    found = as_tensors(tensors)
    gathered, rows = operations.halay_allgather(
        found,
        label(),
        process_set_id=set_number,
        **names("Allgather", name, found, set_number, ignore_name_scope),
    )
    for out, tensor in zip(gathered, found):
        _set_rows(out, tensor)
    return gathered, rows


def broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    set_number: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> list[Any]:
    """root_rank is a rank of the job, also in a process set."""
    found = as_tensors(tensors)
    result: list[Any] = operations.halay_broadcast(
        found,
        label(),
        root_rank=root_rank,
        process_set_id=set_number,
        **names("Broadcast", name, found, set_number, ignore_name_scope),
    )
    return result


def alltoall(
    tensor: Any,
    splits: Any,
    set_number: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
) -> tuple[Any, Any]:
    """What all ranks had for this one, and how many rows of each. splits: int32; empty: equal."""
    (found,) = as_tensors([tensor])
    received, rows = operations.halay_alltoall(
        found,
        splits,
        label(),
        process_set_id=set_number,
        **names("Alltoall", name, [found], set_number, ignore_name_scope),
    )
    _set_rows(received, found)
    return received, rows


def ask(what: int, set_number: int = 0, name: str | None = None) -> Any:
    """What the job is at the time that the operation runs, as an int32 scalar."""
    return operations.halay_ask(what=what, process_set_id=set_number, name=name)


def _set_rows(out: Any, tensor: Any) -> None:
    """In a graph: of a result all is known but the number of rows."""
    if not tf.executing_eagerly() and tensor.shape.rank:
        out.set_shape([None, *tensor.shape[1:]])
