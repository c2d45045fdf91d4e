#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installed tree serves a program for MPI of somebody else's: by halaycc and its other names, pkg-config and CMake's
# find_package(MPI); it can be moved; halayrun --mpi finds it. Needs $BUILD, finished, and $LIBDIR.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source=$(cd "$(dirname "$0")" && pwd)
. "$source/lib.sh"
unset HALAY_PLUGIN_DIR LD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH MPI_HOME DESTDIR HALAY_CC HALAY_CXX
[ -z "$SANITIZE" ] || { echo "skipped: programs of others are not built with sanitizers" && exit 77; }
[ -x "$BUILD/bin/halaycc" ] || { echo "skipped: no MPI library was built: it needs Python 3" && exit 77; }

# right START...: the program that follows is a ring of three ranks
right() {
    run "$@"
    expect 0 "$*"
    says out "^ring of 3: 6$"
}

# is_abi PROGRAM: it runs over any MPI with the standard's ABI
is_abi() {
    readelf -d "$1" >needs
    grep -q 'NEEDED.*\[libmpi_abi\.so\.1\]' needs || fail "$1 is not linked to libmpi_abi.so.1"
    ! grep 'NEEDED.*halay' needs || fail "$1 is linked to Halay itself"
}

# finds OPTION...: CMake, with these
finds() {
    local start name
    rm -rf with-cmake
    run cmake -S "$source/installed_mpi" -B with-cmake "$@"
    expect 0 "find_package(MPI) with $*"
    run cmake --build with-cmake
    expect 0 "builds with MPI::MPI_C and MPI::MPI_CXX"
    is_abi with-cmake/ring
    read -ra start <with-cmake/start
    for name in ring ringxx; do right "${start[@]}" 3 with-cmake/$name; done
}

# builds TREE: with all that finds the library there
builds() {
    local home=$1/$LIBDIR/halay-mpi flags name
    cp "$source/installed_mpi/ring.c" ring.c && cp ring.c ring.cpp
    for name in "$1/bin/halaycc" "$home/bin/mpicc" "$home/bin/mpicxx" "$home/bin/mpic++"; do
        rm -f ring ring.o
        case $name in *cc) file=ring.c ;; *) file=ring.cpp ;; esac
        run "$name" -Wall -Werror $file -o ring
        expect 0 "$name"
        is_abi ring
        right "$home/bin/mpiexec" -n 3 ./ring
        run "$name" -Werror -c $file -o ring.o
        expect 0 "$name -c"
        run "$name" ring.o -o ring
        expect 0 "$name links"
        right "$1/bin/halayrun" -np 3 ./ring
    done
    [[ $("$home/bin/mpicc" -compile_info) != *-l* && $("$home/bin/mpicc" -link_info) == *-lmpi_abi* ]] || fail "-compile_info"
    [[ $("$home/bin/mpicxx" -show) == "c++ "* && $(HALAY_CC="ccache gcc" "$home/bin/mpicc" -show -c a.c) == "ccache gcc "*a.c ]] ||
        fail "-show"
    if command -v pkg-config >/dev/null; then
        flags=$(PKG_CONFIG_PATH="$1/$LIBDIR/pkgconfig" pkg-config --cflags --libs halay-mpi) || fail "pkg-config"
        # shellcheck disable=SC2086
        run $CC -Werror ring.c -o ring $flags
        expect 0 "compiles with $flags"
        is_abi ring
        right "$1/bin/halayrun" -np 3 ./ring
    fi
    finds -DMPI_HOME="$home"
    finds -DMPI_C_COMPILER="$1/bin/halaycc" -DMPI_CXX_COMPILER="$home/bin/mpicxx" -DMPIEXEC_EXECUTABLE="$home/bin/mpiexec"
}

run cmake --install "$BUILD" --prefix "$here/one" --strip
expect 0 "cmake --install"
[[ $(readlink "$here/one/$LIBDIR/halay-mpi/bin/mpicc") != /* ]] || fail "the link is absolute"
builds "$here/one"
# A program stays, and the tree moves: halayrun --mpi says where the library is.
mkdir else && mv one else/where
run else/where/bin/halayrun -np 3 with-cmake/ring
[ "$status" != 0 ] || fail "the program has found a library"
right else/where/bin/halayrun --mpi -np 3 with-cmake/ring
# shellcheck disable=SC2016
run env LD_LIBRARY_PATH=/theirs else/where/bin/halayrun --mpi -x A=1 -np 1 sh -c 'echo "$LD_LIBRARY_PATH $MPI4PY_LIBMPI"'
says out "^$here/else/where/$LIBDIR/halay-mpi:/theirs $here/else/where/$LIBDIR/halay-mpi/libmpi.so.12$"
run else/where/bin/halayrun --mpi -x LD_LIBRARY_PATH=/given -np 1 printenv LD_LIBRARY_PATH
says out "^$here/else/where/$LIBDIR/halay-mpi:/given$"
builds "$here/else/where"
rm -r "else/where/$LIBDIR/halay-mpi"
run else/where/bin/halayrun --mpi -np 3 with-cmake/ring
expect 2 "--mpi without a library"
says err "halayrun: --mpi: there is no [.][.]/$LIBDIR/halay-mpi"
nothing_left
