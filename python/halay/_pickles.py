# SPDX-License-Identifier: Apache-2.0
"""The pickler: cloudpickle's where it is installed, which takes functions of scripts, too."""

from __future__ import annotations

import contextlib
import importlib
import pickle
from typing import Any

_source: Any = pickle
with contextlib.suppress(ImportError):
    _source = importlib.import_module("cloudpickle")
Pickler, dumps = _source.Pickler, _source.dumps
