# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# For the tools' selftest.sh: a folder of its own, where a command's output lies in out and err.
set -u
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1

fail() {
    echo "FAILED: $*" >&2
    head -c 6000 out err >&2
    exit 1
}
expect() {
    local status=$1
    shift
    "$@" >out 2>err </dev/null
    [ $? = "$status" ] || fail "exit status is not $status: $*"
}
says() { grep -Eq -- "$1" out || fail "the output has no: $1"; }
silent() { ! grep -E -- "$1" out || fail "the output has: $1"; }
