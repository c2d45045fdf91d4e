# SPDX-License-Identifier: Apache-2.0
"""A rank that needs the standard library alone: an array is summed; says what lies where."""

import array
from pathlib import Path

import halay
import halay.arrays as ha
from halay._core import library_path

ha.init()
mine = array.array("d", [ha.rank() + 1.0] * 5)
ha.allreduce(mine, mine)
assert mine.tolist() == [ha.size() * (ha.size() + 1) / 2] * 5, mine
where = Path(halay.__file__).parent
print(f"rank {ha.rank()} of {ha.size()}: {library_path}, package {where}", flush=True)
ha.shutdown()
