# SPDX-License-Identifier: Apache-2.0
"""A rank that needs the standard library alone: arrays summed over all ranks."""

import array

import halay
import halay._core
import halay.arrays as ha

ha.init()
mine = array.array("d", [ha.rank() + 1.0] * 5)
ha.allreduce(mine, mine)
assert mine.tolist() == [ha.size() * (ha.size() + 1) / 2] * 5, mine
print(f"rank {ha.rank()} of {ha.size()}: {halay._core.library_path}")
ha.shutdown()
