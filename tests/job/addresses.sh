#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All ranks agree where each listens; a record has 120 bytes and 8 a rank; HALAY_INTERFACE is heeded.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2001,SC2013,SC2016,SC2086
. "$(dirname "$0")/lib.sh"
export JOB_LOG=1 JOB_EPOCHS=3
agree() { # ranks, nodes
    [ "$(wc -l <out)" = "$1" ] || fail "not $1 lines"
    [ "$(sed 's/ |.*//' out | sort -u | wc -l)" = 1 ] || fail "$1 ranks see different jobs"
    says out "^$1 ranks on $2 nodes, pmix"
    local places
    places=$(head -1 out | grep -oE ' [0-9]+@[0-9]+:[^ ]+=[0-9.]+/[1-9][0-9]*' | sort -u)
    [ "$(wc -l <<<"$places")" = "$1" ] || fail "not $1 addresses"
    [ "$(sed 's/.*=//' <<<"$places" | sort -u | wc -l)" = "$1" ] || fail "two ranks have the same address"
}
# What all records have together: 128 bytes a node and 8 a rank.
records() { # ranks, nodes
    local sum=0 bytes
    for bytes in $(sed -nE 's/.* puts a record of ([0-9]+) bytes$/\1/p' err); do sum=$((sum + bytes)); done
    [ "$sum" = $((128 * $2 + 8 * $1)) ] || fail "records of $sum bytes for $1 ranks on $2 nodes"
}
warned() { [ "$(grep -v 'halay_init has waited' err | grep -c '^\[1\]')" = "$1" ] || fail "not $1 warnings: $(grep '^\[1\]' err)"; }
for n in 1 3 64; do
    run "$HALAYRUN" -np $n "$JOB_CLIENT" info
    expect 0 "$n ranks"
    agree $n 1
    records $n 1
    warned 0
done
run "$HALAYRUN" -np 3 env HALAY_INTERFACE=lo "$JOB_CLIENT" info
expect 0 "on loopback"
agree 3 1
says out ' 2@0:[^ ]*=127\.0\.0\.1/'
# No such interface: an error that names those there are.
run "$HALAYRUN" -np 2 env HALAY_INTERFACE=no-such-1 "$JOB_CLIENT" info
[ "$status" != 0 ] || fail "an interface that is not there"
says err "HALAY_INTERFACE is 'no-such-1', but .*lo (127.0.0.1)"
within 9000 # not by the deadline
# A rank with another address than the first of its node is a node of its own; all see it so.
if ip -o addr show up 2>/dev/null | grep -q 'inet .*scope global'; then
    run "$HALAYRUN" -np 4 bash -c '[ $PMIX_RANK = 2 ] && export HALAY_INTERFACE=lo; exec "$JOB_CLIENT" info'
    expect 0 "one rank with another interface"
    agree 4 2
    records 4 2
    warned 1
    says err '^\[1\] rank 2 (pid .*) is a node of its own .*its address is 127.0.0.1, that of rank 0 is'
    says out '| rank 3 local 2 of 3 node 0$'
    says out '| rank 2 local 0 of 1 node 1$'
    within 9000
else
    echo "left out: a rank with another interface (there is only loopback)"
fi
nothing_left
