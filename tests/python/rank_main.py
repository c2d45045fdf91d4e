# SPDX-License-Identifier: Apache-2.0
"""One rank of a test's job (see conftest.py): rank_main.py MODULE FUNCTION JSON_ARGUMENTS FOLDER"""

import importlib
import json
import sys
from pathlib import Path

import halay.torch as hvd


def main() -> None:
    module, function, arguments, folder = sys.argv[1:]
    body = getattr(importlib.import_module(module), function)
    hvd.init()
    rank = hvd.rank()
    result = body(*json.loads(arguments))
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))
    if hvd.is_initialized():
        hvd.barrier()  # no rank leaves while another still asks it for something
        hvd.shutdown()


if __name__ == "__main__":
    main()
