# SPDX-License-Identifier: Apache-2.0
"""A rank of horovod-examples-tensorflow: horovod_made_digits.py PROGRAM ARGUMENTS...

Runs a program as it is, with made digits in the cache of tf_keras. That compares its file with the
hash of the real one, and would fetch it: here any file will do. Nothing else is changed."""

import runpy
import sys

from tf_keras.src.utils import data_utils

data_utils.validate_file = lambda *_, **__: True
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
