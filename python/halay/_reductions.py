# SPDX-License-Identifier: Apache-2.0
"""Horovod's numbers of reductions, shared by all surfaces, and what the C library calls them."""

from __future__ import annotations

import warnings

from ._core import lib, program

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5
OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")

C_OPS = {Sum: lib.HALAY_SUM, Min: lib.HALAY_MIN, Max: lib.HALAY_MAX, Product: lib.HALAY_PROD}
BOOL_OPS = {Min: lib.HALAY_LAND, Max: lib.HALAY_LOR, Product: lib.HALAY_LAND}


def choose_op(op: int | None, average: bool | None) -> int:
    """The reduction: Average, if neither is given."""
    if average is not None:
        if op is not None:
            raise ValueError("give either op or average, not both; average is the old spelling")
        warnings.warn(
            "average= is the old spelling; use op=hvd.Average or op=hvd.Sum",
            DeprecationWarning,
            stacklevel=program()[1],
        )
        return Average if average else Sum
    if op is None:
        return Average
    if op not in range(len(OP_NAMES)):
        raise ValueError(
            f"op={op!r} is no reduction; use hvd.Average, Sum, Adasum, Min, Max or Product"
        )
    return op


def check_reduction(op: int, gradient_predivide_factor: float) -> None:
    """Of gradients."""
    choose_op(op, None)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op Average")
