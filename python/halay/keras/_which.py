# SPDX-License-Identifier: Apache-2.0
"""Which Keras: 3, on its back end; or tf_keras, the older one, with TF_USE_LEGACY_KERAS=1."""

from __future__ import annotations

import importlib
import os
from typing import Any

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
keras: Any
if LEGACY:
    try:
        keras = importlib.import_module("tf_keras")
    except ModuleNotFoundError as cause:
        raise ImportError("TF_USE_LEGACY_KERAS=1 needs the package tf_keras: install it") from cause
    BACKEND = "tensorflow"
else:
    keras = importlib.import_module("keras")
    if int(keras.__version__.split(".")[0]) < 3:
        raise ImportError(
            f"halay.keras is for Keras 3; this is {keras.__version__}. With TF_USE_LEGACY_KERAS=1 "
            "it is for the package tf_keras"
        )
    BACKEND = keras.backend.backend()
if BACKEND not in ("tensorflow", "jax", "torch"):
    raise ImportError(
        f"halay.keras works on the back ends tensorflow, jax and torch, not on {BACKEND}: set "
        "KERAS_BACKEND"
    )
# Halay's module for the framework below.
hvd: Any = importlib.import_module(f"halay.{BACKEND}")


def numpy_of(variable: Any) -> Any:
    """A variable's value, as a NumPy array."""
    return variable.numpy() if LEGACY else keras.ops.convert_to_numpy(variable)


def tensor_of(value: Any) -> Any:
    """A value as a tensor of the framework below."""
    if BACKEND == "tensorflow":
        return importlib.import_module("tensorflow").convert_to_tensor(value)
    return keras.ops.convert_to_tensor(value)


def variables_of(optimizer: Any) -> list[Any]:
    """An optimizer's variables: a list in Keras 3, a function in older ones."""
    found = getattr(optimizer, "variables", [])
    return list(found() if callable(found) else found)
