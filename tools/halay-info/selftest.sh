#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay-info tells what is there, and what is not; its plans are proved. Needs $INFO and $PLUGINS,
# the folder of the plug-ins.
set -u
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
unset "${!HALAY_@}"

fail() {
    echo "FAILED: $*" >&2
    head -c 2000 out err >&2
    exit 1
}
expect() {
    local status=$1
    shift
    "$@" >out 2>err </dev/null
    [ $? = "$status" ] || fail "exit status is not $status: $*"
}
says() { grep -Eq -- "$1" out || fail "the output has no: $1"; }

expect 0 "$INFO"
says "^library: /.*/libhalay\.so\."
says "^  transport +shm +found"
says "^  launch +pmix +found"
says "^processors: $(nproc) usable"
says "^instruction sets: .*scalar yes$"
says "^  allreduce +ring +1 +commutative +Patarasuk"
says "^  HALAY_DEADLINE +not set: 30 "
says "^  accepted$"

expect 0 env HALAY_DEADLINE=7 HALAY_ALGORITHM=allreduce=ring "$INFO"
says "^  HALAY_DEADLINE +set: 7 "
expect 1 env HALAY_ALGORITHM=allreduce=teleport "$INFO"
says "REFUSED: .*teleport.*ring"
[ "$(wc -l <err)" = 1 ] || fail "one wrong variable, and not one complaint"
expect 1 env HALAY_ISA=abacus "$INFO"
says "REFUSED: .*abacus"

mkdir plugins
cp "$PLUGINS/halay-transport-shm.so" plugins/halay-transport-ether.so
echo nonsense >plugins/halay-boot-pmix.so
export HALAY_PLUGIN_DIR=$here/plugins
expect 0 "$INFO"
says "^  transport +shm +missing: .*No such file"
says "^  boot +pmix +missing: .*(too short|invalid ELF)"
says "^  transport +ether +missing: .*no symbol halay_transport_v[0-9]+_ether: it was built for another version"
unset HALAY_PLUGIN_DIR

"$INFO" | awk '/^planners/ { on = 1; getline; next } /^[^ ]/ { on = 0 } on { print $1, $2 }' >planners
[ "$(wc -l <planners)" -ge 9 ] || fail "planners are missing"
while read -r collective algorithm; do
    for n in 1 2 7 8; do
        expect 0 "$INFO" plan "$collective" --algorithm "$algorithm" --ranks $n --rank $((n - 1))
        says "^$collective $algorithm rank $((n - 1)) of $n "
        says "^proved: "
    done
done <planners
expect 0 "$INFO" plan allreduce --algorithm ring --ranks 4 --rank 1 --in-place
says "in place"
expect 0 "$INFO" plan broadcast --algorithm binomial --ranks 5 --root 4
says "root 4"
for wrong in "" "teleport" "allreduce" "allreduce --algorithm teleport --ranks 4" "allreduce --algorithm ring" \
    "allreduce --algorithm ring --ranks 4 --rank 4" "allreduce --algorithm ring --ranks 99999" \
    "allreduce --algorithm ring --ranks -1" "allreduce --algorithm ring --ranks 2x" "allreduce --frob"; do
    # shellcheck disable=SC2086
    expect 2 "$INFO" plan $wrong
done
expect 1 "$INFO" plan allreduce --algorithm ring --ranks 4 --root 1
expect 2 "$INFO" --frob
expect 0 "$INFO" --version
