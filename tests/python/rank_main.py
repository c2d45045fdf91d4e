# SPDX-License-Identifier: Apache-2.0
"""A rank of a test's job (see conftest.py).

rank_main.py MODULE FUNCTION JSON_ARGUMENTS FOLDER: calls the function, and ends.
rank_main.py FOLDER PID: does so with each line [MODULE, FUNCTION, ARGUMENTS, FOLDER] that it finds
in FOLDER/calls, one after the other, as long as that process lives.
"""

import importlib
import json
import sys
import time
from pathlib import Path

import halay.torch as hvd


def call(module: str, function: str, arguments: list, folder: str) -> None:
    body = getattr(importlib.import_module(module), function)
    hvd.init()
    rank = hvd.rank()
    result = body(*arguments)
    new = Path(folder) / f"new-{rank}"
    new.write_text(json.dumps(result))
    if hvd.is_initialized():
        hvd.barrier()  # no rank leaves while another still asks it for something
        hvd.shutdown()
    new.rename(Path(folder) / f"{rank}.json")


def serve(folder: str, master: str) -> None:
    with (Path(folder) / "calls").open() as calls:
        line, pause = "", 0.001
        while Path("/proc", master).exists():
            line += calls.readline()
            if line.endswith("\n"):
                call(*json.loads(line))
                line, pause = "", 0.001
            else:
                time.sleep(pause)
                pause = min(2 * pause, 0.03)


def main() -> None:
    if len(sys.argv) == 3:
        serve(*sys.argv[1:])
    else:
        module, function, arguments, folder = sys.argv[1:]
        call(module, function, json.loads(arguments), folder)


if __name__ == "__main__":
    main()
