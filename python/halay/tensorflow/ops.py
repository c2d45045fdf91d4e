# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors, in graphs and eagerly, with gradients.

In a tf.function nothing waits for a collective but what needs its result: many are out at a time,
and ranks may run them in different orders. Gradients are Horovod's: all ranks' losses are averaged,
except for op=Sum, where they are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from .._process_sets import ProcessSet, global_process_set, whole
from .._reductions import OP_NAMES, Adasum, Average, Max, Min, Product, Sum, choose_op
from . import _adasum, _submit
from ._library import operations
from ._submit import ask, number_of, scale_of
from .compression import Compression, Compressor

_Gradient = Callable[..., "list[Any]"]
_NO_GRADIENT = {Adasum: "Adasum", Min: "Min", Max: "Max", Product: "Product"}


def _gradient_of(operation: str) -> Callable[[_Gradient], _Gradient]:
    """Registers the gradient of an operation."""
    made: Callable[[_Gradient], _Gradient] = tf.RegisterGradient(operation)
    return made


def _inexact(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_complex)


def _scaled_integers(tensor: Any, factor: Any) -> Any:
    """Times factor, in float64, truncated toward zero: as Horovod does."""
    return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def _check_scales(dtype: Any, op: int, prescale: float, postscale: float) -> None:
    if prescale == 1.0 and postscale == 1.0:
        return
    if dtype == tf.bool or op not in (Average, Sum, Adasum):
        raise ValueError(
            "prescale_factor and postscale_factor need op Average, Sum or Adasum and numbers, not "
            f"{OP_NAMES[op]} of {dtype.name}"
        )


def _reduce(
    call: Any,
    tensors: Sequence[Any],
    op: int,
    among: ProcessSet,
    prescale: float,
    postscale: float,
    **named: Any,
) -> list[Any]:
    """call: of _submit. The library scales inexact types only; the others are scaled here."""
    number = number_of(among)
    found = _submit.as_tensors(tensors)
    _check_scales(found[0].dtype, op, prescale, postscale)
    if _inexact(found[0].dtype) or (prescale == 1.0 and postscale == 1.0):
        done: list[Any] = call(found, op, number, prescale=prescale, postscale=postscale, **named)
        return done
    factor: Any = postscale
    if op == Average:
        factor = tf.cast(postscale, tf.float64) / tf.cast(ask(_submit.ASK_SIZE, number), tf.float64)
    sent = found if prescale == 1.0 else [_scaled_integers(t, prescale) for t in found]
    return [_scaled_integers(t, factor) for t in call(sent, Sum, number, **named)]


def _by_type(tensors: Sequence[Any], call: Any) -> list[Any]:
    """call(tensors, number) for those of each type, the results in the order of the tensors."""
    types = list(dict.fromkeys(tensor.dtype for tensor in tensors))
    if len(types) == 1:
        return list(call(tensors, None))
    results: list[Any] = [None] * len(tensors)
    for number, dtype in enumerate(types):
        places = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
        for place, result in zip(places, call([tensors[i] for i in places], number)):
            results[place] = result
    return results


def _numbered(name: str | None, number: int | None) -> str | None:
    return name if name is None or number is None else f"{name}_{number}"


# ---------------------------------------------------------------------------- allreduce


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    return _grouped_allreduce(
        [tensor],
        name,
        op,
        prescale_factor,
        postscale_factor,
        ignore_name_scope,
        process_set,
    )[0]


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Dense tensors, of any types."""
    if op == Adasum:
        factor = prescale_factor * postscale_factor
        return [
            _adasum.adasum(tensor, factor, process_set, _numbered(name, i), ignore_name_scope)
            for i, tensor in enumerate(tensors)
        ]
    return _by_type(
        _submit.as_tensors(tensors),
        lambda some, number: _reduce(
            _submit.allreduce,
            some,
            op,
            process_set,
            prescale_factor,
            postscale_factor,
            name=_numbered(name, number),
            ignore_name_scope=ignore_name_scope,
        ),
    )


def _refuse_sparse(op: int, prescale: float, postscale: float) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"allreduce of tf.IndexedSlices takes op Average or Sum, not {OP_NAMES[op]}; "
            "sparse_as_dense=True makes dense tensors of them"
        )
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError("allreduce of tf.IndexedSlices takes no scale factors")


def _sparse_allreduce(
    slices: Sequence[Any],
    op: int,
    process_set: ProcessSet,
    name: str | None,
    ignore_name_scope: bool,
) -> list[Any]:
    """The sum of slices are the slices of all ranks one after the other."""
    names = [None if name is None else f"{name}_{part}" for part in ("values", "indices")]
    values, indices = (
        grouped_allgather(parts, own_name, ignore_name_scope, process_set)
        for parts, own_name in zip(
            ([one.values for one in slices], [one.indices for one in slices]), names
        )
    )
    if op == Average:
        size = ask(_submit.ASK_SIZE, number_of(process_set))
        # As in Horovod, of integers too: their mean is floating point.
        values = [value / tf.cast(size, value.dtype) for value in values]
    return [
        tf.IndexedSlices(value, index, dense_shape=one.dense_shape)
        for value, index, one in zip(values, indices, slices)
    ]


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The reduction of all ranks' tensors: shape and dtype are those of `tensor`.

    tensor: a tensor or variable, with the same shape on all ranks; of tf.IndexedSlices the result
    has the slices of all ranks. op: Average (the default), Sum, Adasum, Min, Max or Product. The
    scale factors multiply before and after the sum. device_dense and device_sparse are Horovod's.
    """
    chosen = choose_op(op, average)
    plain = compression is Compression.none and prescale_factor == postscale_factor == 1.0
    if plain and not (device_dense or chosen == Adasum or isinstance(tensor, tf.IndexedSlices)):
        number = number_of(process_set)
        return _submit.allreduce([tensor], chosen, number, name, ignore_name_scope)[0]
    return grouped_allreduce(
        [tensor],
        None,
        device_dense,
        device_sparse,
        compression,
        chosen,
        prescale_factor,
        postscale_factor,
        process_set,
        ignore_name_scope,
        name,
    )[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """allreduce() of each tensor; the i-th of all ranks belong together."""
    chosen = choose_op(op, average)
    tensors = _submit.listed(tensors)
    if not tensors:
        return []
    results: list[Any] = [None] * len(tensors)
    sparse = [i for i, t in enumerate(tensors) if isinstance(t, tf.IndexedSlices)]
    dense = [i for i in range(len(tensors)) if i not in set(sparse)]
    if sparse:
        _refuse_sparse(chosen, prescale_factor, postscale_factor)
        with tf.device(device_sparse):
            found = _sparse_allreduce(
                [tensors[i] for i in sparse], chosen, process_set, name, ignore_name_scope
            )
        for place, result in zip(sparse, found):
            results[place] = result
    if dense:
        pairs = [compression.compress(_submit.as_tensor(tensors[i])) for i in dense]
        with tf.device(device_dense):
            reduced = _grouped_allreduce(
                [compressed for compressed, _ in pairs],
                name,
                chosen,
                prescale_factor,
                postscale_factor,
                ignore_name_scope,
                process_set,
            )
        for place, one, (_, context) in zip(dense, reduced, pairs):
            results[place] = compression.decompress(one, context)
    return results


def _set_of(op: Any) -> Any:
    return op.get_attr("process_set_id")


def _back(gradients: Sequence[Any], op: Any) -> list[Any]:
    """In the type of what went forward: TensorFlow gives zeros of float32 for what nobody uses."""
    dtype = op.inputs[0].dtype
    return [g if g.dtype == dtype else tf.cast(g, dtype) for g in gradients]


@_gradient_of("HalayAllreduce")
def _allreduce_gradient(op: Any, *gradients: Any) -> list[Any]:
    reduction = op.get_attr("reduce_op")
    if reduction in _NO_GRADIENT:
        raise LookupError(
            f"allreduce: op {_NO_GRADIENT[reduction]} has no gradient here; use "
            "tf.stop_gradient(), Average or Sum"
        )
    reduced = _submit.allreduce(
        _back(gradients, op),
        reduction,
        _set_of(op),
        prescale=scale_of(op.get_attr("prescale_bits")),
        postscale=scale_of(op.get_attr("postscale_bits")),
    )
    return [*reduced, None]


# ---------------------------------------------------------------------------- allgather


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """All ranks' tensors one after the other along the first dimension, which may differ."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allgather() of each tensor; the i-th of all ranks belong together."""
    tensors = _submit.listed(tensors)
    if not tensors:
        return []
    number = number_of(process_set)
    return _by_type(
        _submit.as_tensors(tensors),
        lambda some, part: _submit.allgather(
            some, number, _numbered(name, part), ignore_name_scope
        )[0],
    )


@_gradient_of("HalayAllgather")
def _allgather_gradient(op: Any, *gradients: Any) -> list[Any]:
    count = op.get_attr("num_tensors")
    number = _set_of(op)
    reduced = _submit.allreduce(_back(gradients[:count], op), Average, number)
    rank = ask(_submit.ASK_RANK, number)
    own = []
    for gradient, rows in zip(reduced, op.outputs[count:]):
        begin = tf.reduce_sum(rows[:rank])
        own.append(gradient[begin : begin + rows[rank]])
    return [*own, None]


# ---------------------------------------------------------------------------- broadcast


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of rank root_rank; shapes and dtypes are equal on all ranks."""
    number, root = number_of(process_set), whole(root_rank, "broadcast")
    return _submit.broadcast([tensor], root, number, name, ignore_name_scope)[0]


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives the variables the values of rank root_rank, which it returns."""
    number, root = number_of(process_set), whole(root_rank, "broadcast")
    sent = _by_type(
        [_as_variable(variable) for variable in variables],
        lambda some, part: _submit.broadcast(
            [tf.identity(one) for one in some], root, number, _numbered(name, part)
        ),
    )
    done = [_as_variable(v).assign(value) for v, value in zip(variables, sent)]
    if tf.executing_eagerly():
        return [_as_variable(v).read_value() for v in variables]
    with tf.control_dependencies(done):
        return [_as_variable(v).read_value() for v in variables]


def _as_variable(variable: Any) -> Any:
    """TensorFlow's own, of which a variable of Keras 3 has one."""
    return variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)


@_gradient_of("HalayBroadcast")
def _broadcast_gradient(op: Any, *gradients: Any) -> list[Any]:
    number, root = _set_of(op), op.get_attr("root_rank")
    reduced = _submit.allreduce(_back(gradients, op), Average, number)
    at_root = tf.equal(ask(_submit.ASK_RANK, 0), tf.cast(root, tf.int32))
    return [*(tf.where(at_root, one, tf.zeros_like(one)) for one in reduced), None]


# ---------------------------------------------------------------------------- alltoall


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Rows of the tensor to each rank, and what all had for this one.

    splits: how many of the rows (the first dimension) go to each rank, in order; without them all
    ranks get as many. With them, returns also how many rows came from each rank (int32).
    """
    if splits is None:
        wanted = tf.constant([], dtype=tf.int32)
    else:
        wanted = tf.convert_to_tensor(splits)
        if not wanted.dtype.is_integer:
            raise TypeError(f"alltoall: splits must be integers, not {wanted.dtype.name}")
        if wanted.dtype != tf.int32:  # one that is too large stays so
            wanted = tf.saturate_cast(wanted, tf.int32)
    received, rows = _submit.alltoall(
        tensor, wanted, number_of(process_set), name, ignore_name_scope
    )
    return received if splits is None else (received, rows)


@_gradient_of("HalayAlltoall")
def _alltoall_gradient(op: Any, gradient: Any, _: Any) -> list[Any]:
    back, _rows = _submit.alltoall(_back([gradient], op)[0], op.outputs[1], _set_of(op))
    return [back, None, None]


# ---------------------------------------------------------------------------- reducescatter


def _check_scatter(op: int) -> None:
    if op == Adasum:
        raise NotImplementedError("reducescatter: has no op Adasum; use hvd.allreduce()")
    if choose_op(op, None) not in (Average, Sum):
        raise ValueError("reducescatter: takes op Average or Sum")


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    _check_scatter(op)
    return _by_type(
        _submit.as_tensors(tensors),
        lambda some, number: _reduce(
            _submit.reducescatter,
            some,
            op,
            process_set,
            prescale_factor,
            postscale_factor,
            name=_numbered(name, number),
            ignore_name_scope=ignore_name_scope,
        ),
    )


def _reducescatter(tensor: Any, name: str | None = None, **how: Any) -> Any:
    return _grouped_reducescatter([tensor], name, **how)[0]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's rows of the reduction: the rows are dealt out, first ranks get one more."""
    return grouped_reducescatter(
        [tensor],
        device_dense,
        compression,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        ignore_name_scope,
        name,
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """reducescatter() of each tensor; the i-th of all ranks belong together."""
    tensors = _submit.listed(tensors)
    if not tensors:
        return []
    pairs = [compression.compress(_submit.as_tensor(tensor)) for tensor in tensors]
    with tf.device(device_dense):
        found = _grouped_reducescatter(
            [compressed for compressed, _ in pairs],
            name,
            op,
            ignore_name_scope,
            process_set,
            prescale_factor,
            postscale_factor,
        )
    return [compression.decompress(one, context) for one, (_, context) in zip(found, pairs)]


@_gradient_of("HalayReducescatter")
def _reducescatter_gradient(op: Any, *gradients: Any) -> list[Any]:
    number = _set_of(op)
    factor = scale_of(op.get_attr("prescale_bits")) * scale_of(op.get_attr("postscale_bits"))
    scaled = _back(gradients, op)
    if factor != 1.0:
        scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in scaled]
    if op.get_attr("reduce_op") == Sum:
        size = ask(_submit.ASK_SIZE, number)
        scaled = [gradient * tf.cast(size, gradient.dtype) for gradient in scaled]
    return [*_submit.allgather(scaled, number)[0], None]


# ---------------------------------------------------------------------------- the rest


def join() -> Any:
    """Says that this rank has no more data, waits for all to say so, and returns the last to.

    Meanwhile this rank gives zeros to the others' allreduces with op Average and Sum, and counts
    in the average. Any other operation raises an error on them. An int32 scalar.
    """
    return operations.halay_join(_submit.label())


tf.no_gradient("HalayJoin")
tf.no_gradient("HalayAsk")


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """How many ranks there are when the operation runs, which may be later than it is made."""
    return ask(_submit.ASK_SIZE, process_set_id, name)


def rank_op(name: str | None = None) -> Any:
    """This process's rank when the operation runs."""
    return ask(_submit.ASK_RANK, 0, name)


def local_rank_op(name: str | None = None) -> Any:
    """This process's number on its node when the operation runs."""
    return ask(_submit.ASK_LOCAL_RANK, 0, name)


def local_size_op(name: str | None = None) -> Any:
    """How many ranks are on this node when the operation runs."""
    return ask(_submit.ASK_LOCAL_SIZE, 0, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 if this process is in the set when the operation runs, 0 if it is not.

    -1: there is no job; -2: there is no such set.
    """
    return ask(_submit.ASK_INCLUDED, process_set_id, name)
