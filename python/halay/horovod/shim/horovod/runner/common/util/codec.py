# SPDX-License-Identifier: Apache-2.0
"""Objects as text."""

from __future__ import annotations

import base64
import pickle
from typing import Any

from halay.horovod.launch import dumps

__all__ = ["dumps_base64", "loads_base64"]


def dumps_base64(obj: Any, to_ascii: bool = True) -> str | bytes:
    """obj's pickle, by cloudpickle where it is there, in base64: text, or its bytes."""
    encoded = base64.b64encode(dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: str | bytes) -> Any:
    """What dumps_base64() was given. Only of text that one trusts: a pickle runs code."""
    return pickle.loads(base64.b64decode(encoded))
