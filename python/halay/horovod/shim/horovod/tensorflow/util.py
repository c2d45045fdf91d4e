# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs and tests import."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..common.util import _cache

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    """Whether operations run as they are called."""
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Any) -> Any:
    return tf.function(f)


def vars_to_refs(vars: Any) -> Any:
    """Variables, in lists of any depth, as what has a hash."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The reverse of vars_to_refs()."""
    return [refs_to_vars(ref) for ref in refs] if isinstance(refs, tuple) else refs.deref()
