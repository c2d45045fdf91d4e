# SPDX-License-Identifier: Apache-2.0
"""A rank without NumPy sums an array; says what lies where, its launcher and its transport."""

import array
from pathlib import Path

import halay
import halay.arrays as ha
from halay._core import library_path
from halay._session import session

ha.init()
mine = array.array("d", [ha.rank() + 1.0] * 5)
ha.allreduce(mine, mine)
assert mine.tolist() == [ha.size() * (ha.size() + 1) / 2] * 5, mine
where = Path(halay.__file__).parent
by, over = session().launcher or "nobody", session().transport
print(f"rank {ha.rank()} of {ha.size()}: {library_path}, package {where}, {by}, {over}", flush=True)
ha.shutdown()
