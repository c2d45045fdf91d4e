# SPDX-License-Identifier: Apache-2.0
"""Part of check-layers: the symbols that the built objects of the core use of each other, and those
that the built libraries export."""

import re
import subprocess

from layers_objects import objects_of
from layers_waits import check_waits

CIRCLE = 5  # files that use each other, at most; those of planners do by one table


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return sorted(line.split()[-1].split("@")[0] for line in lines)


def object_symbols(path):
    """What an object defines for others, and what it needs of them."""
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in lines.splitlines()]
    return ({w[2] for w in words if len(w) == 3 and w[1] in "TDBRV"},
            {w[1] for w in words if len(w) == 2 and w[0] == "U"})


def reachable(start, uses):
    found, left = set(), [start]
    while left:
        new = uses[left.pop()] - found
        found |= new
        left += new
    return found


def check_circles(uses):
    """Of the files in `uses` (file to files) at most CIRCLE use each other in a circle."""
    reach = {name: reachable(name, uses) for name in uses}
    circles = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in uses} - {()}
    for circle in sorted(circles):
        if len(circle) > CIRCLE:
            yield f"{len(circle)} files of src/ use each other in a circle: {', '.join(circle)}"


def check_objects(build, layers):
    """No folder of the core uses a symbol of one above it; training uses what users do."""
    found = {name: object_symbols(o) for o, name in objects_of(build, "src", "halay_core")}
    if not found:
        yield f"{build}/src: there are no objects; build first"
    yield from check_waits(build)
    owner = {symbol: name for name, (own, _) in found.items() for symbol in own}
    yield from check_circles({
        name[:-2]: {owner[s][:-2] for s in needs & owner.keys() if owner[s] != name
                    and not owner[s].startswith("plan/")}
        for name, (_, needs) in found.items() if not name.startswith("plan/")})
    for name, (_, needs) in found.items():
        folder = name.split("/")[0]
        for symbol in sorted(needs & owner.keys()):
            other = owner[symbol].split("/")[0]
            both = folder in layers and other in layers
            upward = both and layers.index(other) > layers.index(folder)
            below = folder in ("plan", "device") and other in layers
            hidden = folder == "training" and other != folder and not symbol.startswith("halay_")
            if upward or hidden or (below and not symbol.startswith("halay_")):
                yield f"{name[:-2]} uses {symbol} of {owner[symbol][:-2]}, which is above it"


def check_symbols(lib):
    for plugin in sorted(lib.glob("halay/halay-*-*.so")):
        _, kind, name = plugin.stem.split("-", 2)
        names = exported(plugin)
        own = [n for n in names if re.fullmatch(rf"halay_{kind}_v\d+_{name}", n)]
        twin = [n for n in names if re.fullmatch(rf"halay_boot_v\d+_{name}", n)]
        allowed = sorted(own + twin) if kind == "transport" else own
        if len(own) != 1 or len(twin) > 1 or names != allowed:
            yield f"{plugin}: exports {names}: the table halay_{kind}_v<ABI>_{name} may be, no more"
    for name in exported(lib / "libhalay_mpi.so") if (lib / "libhalay_mpi.so").exists() else []:
        if not re.match(r"MPIX?ABI_|mpiabi_version_|mpiwrapper_", name):
            yield f"{lib}/libhalay_mpi.so: exports {name}: only names of MPItrampoline's ABI may be"
    for library in lib.glob("libhalay.so"):
        for name in exported(library):
            if not name.startswith("halay_"):
                yield f"{library}: exports {name}: only halay_* may be"
