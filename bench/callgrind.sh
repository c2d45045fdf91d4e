# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by what counts instructions: builds a program of this folder against a build tree, and counts.

callgrind_build() { # PROGRAM BUILD: leaves $scratch/PROGRAM, and removes it at the end
    local program=$1 build tool
    build=$(realpath "$2")
    for tool in valgrind callgrind_annotate cc; do
        command -v "$tool" >/dev/null || { echo "$program: there is no $tool (Debian: valgrind, gcc)" >&2; exit 1; }
    done
    [ -e "$build/lib/libhalay.so" ] || { echo "$program: $build has no lib/libhalay.so" >&2; exit 1; }
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cc -O2 -std=gnu11 -rdynamic -Iinclude "bench/$program.c" -o "$scratch/$program" \
        -L"$build/lib" -lhalay -lpthread -Wl,-rpath,"$build/lib"
}

callgrind_count() { # NAME PROGRAM ARGUMENT...: prints the instructions; the profile is $scratch/NAME; uses $callgrind_options
    local name=$1 program=$2
    shift 2
    valgrind --tool=callgrind --keep-debuginfo=yes ${callgrind_options[@]+"${callgrind_options[@]}"} --callgrind-out-file="$scratch/$name" \
        "$scratch/$program" "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
    awk '/^summary:|^totals:/ { print $2; exit }' "$scratch/$name"
}
