# SPDX-License-Identifier: Apache-2.0
"""Imports TensorFlow, or Keras on another back end, without packages that these import only where
they are installed: more than a third of the time that an import takes."""

import importlib
import os
import sys

other = os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow"
hidden = {"pandas", "sklearn", *([] if other else ["jax"])} - set(sys.modules)
sys.modules.update(dict.fromkeys(hidden))
importlib.import_module("keras" if other else "tensorflow")
for name in hidden:
    del sys.modules[name]
