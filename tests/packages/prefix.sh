#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two installed versions side by side, by their module files, under Lmod and environment-modules: load, swap,
# unload. The recipes of deploy/packaging/ name this version, and options that there are.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

for recipe in "$source"/deploy/packaging/{spack/packages/halay/package.py,easybuild/*.eb}; do
    "$PYTHON" -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$recipe" || fail "$recipe is no Python"
    grep -qF "$version" "$recipe" || fail "$recipe is of another version than $version"
    grep -o 'HALAY_[A-Z_]*' "$recipe" | sort -u >options
    while read -r option; do
        grep -q "^$option:BOOL=" "$BUILD/CMakeCache.txt" || fail "$recipe names $option, which is no option"
    done <options
done

grep -qx "version: $version" "$source/CITATION.cff" || fail "CITATION.cff is of another version than $version"

cmake --install "$BUILD" --prefix "$here/one" --strip >/dev/null || fail "cmake --install"
cp -r "$here/one" "$here/two"
mv "$here/two/share/modulefiles/halay/"{"$version",99.0.0} || fail "no module file of $version"

seen() { env | grep -v '^_' | sort; } # without the tools' own variables

# The module with mpicc and mpiexec.
mpi() {
    module load "halay-mpi/$version"
    mpicc "$source/tests/job/installed_mpi/ring.c" -o ring || fail "mpicc"
    [ "$(mpiexec -n 3 ./ring)" = "ring of 3: 6" ] || fail "mpiexec"
    [ -e "$MPI4PY_LIBMPI" ] || fail "MPI4PY_LIBMPI=$MPI4PY_LIBMPI"
    module unload halay-mpi
    ! command -v mpicc | grep -F "$here" || fail "mpicc is still on PATH"
}

# What a user does, in a shell in which there is the function `module`.
uses() {
    local before after
    module use "$here/one/share/modulefiles" "$here/two/share/modulefiles"
    before=$(seen)
    module load "halay/$version"
    sums halayrun "$here/one"
    pkg-config --exists "halay = $version" || fail "pkg-config does not find it"
    [ ! -x "$here/one/bin/halaycc" ] || mpi
    [ ! -e "$here/one/share/man/man1/halayrun.1" ] || man -w halayrun >/dev/null || fail "no manual page of halayrun"
    [ ! -e /usr/share/man/man1/ls.1.gz ] || man -w ls >/dev/null || fail "the system's manual pages are gone"
    module swap "halay/$version" halay/99.0.0
    sums halayrun "$here/two"
    [ "$HALAY_ROOT" = "$here/two" ] || fail "HALAY_ROOT=$HALAY_ROOT after the swap"
    case $PATH in *"$here/one"*) fail "the first version is still on PATH" ;; esac
    module unload halay
    after=$(seen)
    [ "$after" = "$before" ] || fail "unload leaves: $(diff <(echo "$before") <(echo "$after"))"
}

tools=0
if [ -r /usr/share/lmod/lmod/init/bash ]; then
    (set +u && . /usr/share/lmod/lmod/init/bash && uses) || exit 1
    tools=$((tools + 1))
fi
# Debian lets only one of them be installed.
modulecmd=$(echo /usr/lib/*/modulecmd.tcl)
if [ ! -r "$modulecmd" ] && apt-get download -qq environment-modules >/dev/null 2>&1; then
    dpkg -x environment-modules_*.deb other && modulecmd=$(echo "$PWD"/other/usr/lib/*/modulecmd.tcl)
fi
if [ -r "$modulecmd" ] && command -v tclsh >/dev/null; then
    (module() { eval "$(tclsh "$modulecmd" bash "$@")"; } && set +u && uses) || exit 1
    tools=$((tools + 1))
fi
[ $tools != 0 ] || { echo "skipped: neither Lmod nor environment-modules (Debian: lmod)" && exit 77; }
echo "$tools tools for modules"
