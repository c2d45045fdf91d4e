# SPDX-License-Identifier: Apache-2.0
"""Runs a function of a test module on N ranks with torch.distributed over a back end.

As a program it is one rank: distributed_job.py BACKEND INIT MODULE FUNCTION JSON_ARGUMENTS FOLDER
"""

import importlib
import json
import os
import sys
from pathlib import Path

import torch.distributed as dist


def distributed(
    folder,
    nranks,
    function,
    *args,
    launcher="halayrun",
    backend="halay",
    env=None,
    timeout=180,
    options=(),
):
    """(exit status, output, what the function returned by rank; None where it did not)"""
    from conftest import HALAYRUN, environment, run

    start, init = {
        "halayrun": ([str(HALAYRUN), *options, "-np", str(nranks), sys.executable], "halay://"),
        "torchrun": (
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", str(nranks)),
            ],
            "env://",
        ),
    }[launcher]
    for rank in range(nranks):
        (folder / f"{rank}.json").unlink(missing_ok=True)
    command = [*start, __file__, backend, init, function.__module__, function.__name__]
    command += [json.dumps(args), str(folder)]
    status, text = run(command, timeout, environment(env))
    files = [folder / f"{rank}.json" for rank in range(nranks)]
    return status, text, [json.loads(f.read_text()) if f.exists() else None for f in files]


def well(*args, **options):
    """What the function returned, by rank; the job has to end well."""
    status, text, results = distributed(*args, **options)
    assert status == 0, f"exit status {status}\n{text}"
    return results


def main() -> None:
    backend, init, module, function, arguments, folder = sys.argv[1:]
    import halay.distributed  # noqa: F401

    body = getattr(importlib.import_module(module), function)
    dist.init_process_group(backend, init_method=init)
    rank = dist.get_rank()
    result = body(*json.loads(arguments))
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    if dist.is_initialized():
        left = dist.get_backend()
        dist.destroy_process_group()
        if left == "gloo":
            os._exit(0)  # its threads may abort an interpreter that ends: ecosystem/rank.py


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
