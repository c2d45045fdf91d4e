# SPDX-License-Identifier: Apache-2.0
"""Adds up an array, and says where the package and the library lie."""

from pathlib import Path

import numpy as np

import halay
import halay.arrays as hvd
from halay._core import library_path

hvd.init()
total = hvd.allreduce(np.full(3, hvd.rank() + 1.0))
package = Path(halay.__file__).resolve().parent
library = Path(library_path).resolve()
common = package if package in library.parents else package.parents[2]
assert common in library.parents, (package, library)
print(f"rank {hvd.rank()} of {hvd.size()}: {total} {library}", flush=True)
