# SPDX-License-Identifier: Apache-2.0
"""Variables and Python objects, from one rank to all or from all to all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import tensorflow as tf

from .. import _objects
from .._process_sets import ProcessSet, global_process_set
from .ops import broadcast_


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites all ranks' variables with those of root_rank; in the same order on all ranks.

    In a TF1-style graph, returns the operation that does so when it runs. inplace is Horovod's, and
    changes nothing.
    """
    listed = list(variables)
    if not listed:
        _objects.warn_of_no_variables()
    if tf.executing_eagerly():
        if listed:
            broadcast_(listed, root_rank, process_set=process_set)
        return None
    return tf.group(*(broadcast_([one], root_rank, process_set=process_set) for one in listed))


def broadcast_global_variables(root_rank: int) -> Any:
    """In a TF1-style graph: the operation that gives all ranks root_rank's global variables."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() needs a graph: in eager code use "
            "hvd.broadcast_variables(variables, root_rank)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of rank root_rank, pickled; other ranks' obj is ignored.

    It is sent when it is called, also where a graph is being made. session is Horovod's.
    """
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """A function that is broadcast_object() of its argument."""
    return lambda obj: _objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The objects of all ranks, in the order of ranks, pickled."""
    return _objects.allgather_object(obj, name, process_set)


def _make_hook() -> Any:
    base = getattr(tf.compat.v1.train, "SessionRunHook", None)
    if base is None:  # what stands for it says so when it is called

        class Missing:
            def __init__(self, *_: Any, **__: Any) -> None:
                raise NotImplementedError(
                    "BroadcastGlobalVariablesHook: this TensorFlow has no SessionRunHook; run "
                    "hvd.broadcast_global_variables(0) in the session"
                )

        return Missing

    class BroadcastGlobalVariablesHook(base):  # type: ignore[misc,valid-type]
        """Gives all ranks root_rank's global variables once the session is there."""

        def __init__(self, root_rank: int, device: str = "") -> None:
            super().__init__()
            self.root_rank, self.device = root_rank, device
            self.bcast_op: Any = None

        def begin(self) -> None:
            """The graph is complete."""
            graph = tf.compat.v1.get_default_graph()
            if self.bcast_op is None or self.bcast_op.graph is not graph:
                with tf.device(self.device):
                    self.bcast_op = broadcast_global_variables(self.root_rank)

        def after_create_session(self, session: Any, coord: Any) -> None:
            """The variables have their first values."""
            session.run(self.bcast_op)

    return BroadcastGlobalVariablesHook


BroadcastGlobalVariablesHook = _make_hook()
