# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of packages share. Needs $BUILD, a finished build, and $PYTHON, one that has cffi.
# A test runs in a folder of its own.
set -u
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HALAY_CALIBRATION=off
unset HALAY_PLUGIN_DIR HALAY_LIBRARY LD_LIBRARY_PATH PYTHONPATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH MODULEPATH LOADEDMODULES _LMFILES_
# shellcheck disable=SC2034
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$source/python/halay/_version.py")

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# sums LAUNCHER TREE: two ranks under this launcher add up an array; all that they use lies in TREE.
sums() {
    local said
    said=$("$1" -np 2 "$PYTHON" "$source/tests/packages/arrays.py" 2>&1) || fail "$1: $said"
    [ "$(grep -o "rank [01] of 2: $2/[^ ,]*, package $2/" <<<"$said" | sort -u | wc -l)" = 2 ] || fail "$1 with what lies in $2: $said"
}
