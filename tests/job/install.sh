#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installed tree serves a program of somebody else's, built with pkg-config and with CMake; it can
# be moved; and it knows nothing of the tree that it was built in. Needs $BUILD, finished, $LIBDIR, $MANDIR.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source=$(cd "$(dirname "$0")" && pwd)
. "$source/lib.sh"
unset HALAY_PLUGIN_DIR LD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH halay_DIR DESTDIR
[ -z "$SANITIZE" ] || { echo "skipped: programs of others are not built with sanitizers" && exit 77; }
command -v pkg-config >/dev/null || { echo "skipped: there is no pkg-config" && exit 77; }

# works TREE: its launcher, library and plug-ins, and the programs that were built against it.
works() {
    local real
    real=$(realpath "$1")
    for program in ./with-pkg-config with-cmake/sum; do
        run env LD_LIBRARY_PATH="$1/$LIBDIR" "$1/bin/halayrun" -np 2 "$program"
        expect 0 "$program under $1/bin/halayrun"
        for r in 0 1; do says out "^rank $r of 2: 3 over shm$"; done
    done
    run "$1/bin/halayrun" -np 2 "$1/bin/halay-bench" allreduce --max 1K --seconds 0.01
    expect 0 "$1/bin/halay-bench"
    run "$1/bin/halay-info"
    expect 0 "$1/bin/halay-info"
    says out "^library: $real/$LIBDIR/libhalay.so"
    says out "^plug-ins in $real/$LIBDIR/halay$"
    for plugin in "transport shm " "boot      pmix" "launch    pmix"; do says out "$plugin    found"; done
}

# builds TREE: with-pkg-config and with-cmake/sum.
builds() {
    local flags
    flags=$(PKG_CONFIG_PATH="$1/$LIBDIR/pkgconfig" pkg-config --cflags --libs halay) || fail "pkg-config"
    rm -rf with-cmake with-pkg-config
    # shellcheck disable=SC2086
    run $CC -Wall -Wextra -Werror "$source/installed/sum.c" -o with-pkg-config $flags
    expect 0 "compiles with $flags"
    readelf -d with-pkg-config | grep -q 'NEEDED.*\[libhalay\.so\.0\]' || fail "not linked to libhalay.so.0"
    run cmake -S "$source/installed" -B with-cmake -DCMAKE_PREFIX_PATH="$1"
    expect 0 "find_package(halay)"
    run cmake --build with-cmake
    expect 0 "builds with halay::halay"
    [ "$(realpath "$(cat with-cmake/halayrun)")" = "$(realpath "$1/bin/halayrun")" ] ||
        fail "HALAY_HALAYRUN is $(cat with-cmake/halayrun)"
}

# A package is made with DESTDIR: nothing may lie outside, or name where it lies now.
run env DESTDIR="$here/stage" cmake --install "$BUILD" --prefix /opt/halay --strip
expect 0 "cmake --install with DESTDIR"
[ "$(ls "$here/stage" "$here/stage/opt" | tr '\n' ' ')" = "$here/stage: opt  $here/stage/opt: halay " ] ||
    fail "installed outside the prefix: $(ls -R "$here/stage" | head -20)"
! grep -rlF -e "$BUILD" -e "$here" "$here/stage" || fail "these name the tree that they were built in"
builds "$here/stage/opt/halay"
works "$here/stage/opt/halay"
if command -v pandoc >/dev/null; then
    for symbol in $(nm -D --defined-only "$here/stage/opt/halay/$LIBDIR/libhalay.so" | sed -n 's/.* T //p'); do
        page=$here/stage/opt/halay/$MANDIR/man3/$symbol.3
        [ "$(wc -l <"$page")" != 1 ] || page=$here/stage/opt/halay/$MANDIR/$(cut -d' ' -f2 "$page")
        sed '/SH SYNOPSIS/q' "$page" | grep -qw "$symbol" || fail "no manual page for $symbol"
    done
fi

# The programs stay, the tree moves: to a path with a space, and to one through a link.
mkdir "$here/else where" && mv "$here/stage/opt/halay" "$here/else where/halay" && rm -r "$here/stage"
works "$here/else where/halay"
mv "$here/else where/halay" "$here/moved" && ln -s "$here/moved" "$here/link"
builds "$here/link"
works "$here/link"

# A version that it does not have is refused.
cp -r "$source/installed" later && sed -i 's/halay 0.1 /halay 0.2 /' later/CMakeLists.txt
run cmake -S later -B later/build -DCMAKE_PREFIX_PATH="$here/moved"
[ "$status" != 0 ] || fail "find_package(halay 0.2) accepts another version"
says err 'requested version "0.2"'
nothing_left
