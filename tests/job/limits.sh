#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Address space and descriptors run out, for one rank alone and for two, over shm and tcp: it works, or every rank
# ends with an error that says something, by the start deadline and the calls' own; and nothing is left.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"
export HALAY_START_DEADLINE=3 HALAY_DEADLINE=3

limited() { # LIMIT... ; the ranks are in pids
    local begun name
    begun=$(date +%s%3N)
    await
    ms=$(($(date +%s%3N) - begun))
    within 40000 # under load; alone 7 s at most
    for name in "${!was[@]}"; do
        ! grep 'Too many open files' "err.$name" | grep -v 'ulimit -n' || fail "ulimit $*: rank $name gives no remedy"
        case ${was[$name]} in
        0) ;;
        1 | 127) [ -s "err.$name" ] || fail "ulimit $*: rank $name says nothing" ;; # 127: the loader
        *) cat "err.$name" >err && fail "ulimit $*: rank $name ended with ${was[$name]}" ;;
        esac
    done
}

for limit in "-v 60000" "-n 6" "-n 12" "-n 16" "-n 20"; do
    begin 0 0 1 sh -c "ulimit $limit; exec \"\$@\"" sh "$JOB_RANK"
    limited "$limit"
    for transport in shm tcp; do
        for r in 0 1; do begin $r $r 2 HALAY_TRANSPORT=$transport sh -c "ulimit $limit; exec \"\$@\"" sh "$JOB_RANK"; done
        limited "$limit"
    done
done
[ "${was[0]} ${was[1]}" = "0 0" ] || fail "20 descriptors are too few"
nothing_left
