#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first rank that fails ends the job, is named, and gives the exit status.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
host=$(hostname)
end() { # how, status, message
    run "$HALAYRUN" -np 3 "$JOB_CLIENT" end "$1"
    expect "$2" "$1"
    says err "^halayrun: rank 1 (pid [0-9]* on $host) $3"
    [ "$(wc -l <err)" = 1 ] || fail "$1: more than one message"
    within 4000
    nothing_left
}
end kill 137 "was killed by signal 9 (SIGKILL)"
end exit 3 "exited with status 3"
end connected 1 "exited without leaving the job: it called PMIx_Init and not PMIx_Finalize"
end abort 7 "ended the job with status 7 (PMIx_Abort): had enough"

# The others have a second to say what they saw; who does not heed SIGTERM is killed another second later.
run "$HALAYRUN" -np 3 bash -c 'case $PMIX_RANK in 0) sleep 0.4; echo I saw it; exit 5;; 1) exit 9;;
    2) trap "" TERM; sleep 1000.'$mark'; sleep 1000.'$mark';; esac'
expect 9
says out "I saw it"
[ "$ms" -ge 1900 ] || fail "the grace was cut short: $ms ms"
within 4000
nothing_left

run "$HALAYRUN" -np 2 --timeout 1 sleep 1000.$mark
expect 124
says err "has not ended within 1 s"
within 3000
nothing_left

# Exit status 0 of a program that never heard of PMIx is success, at different times too.
run "$HALAYRUN" -np 3 bash -c 'sleep 0.$PMIX_RANK'
expect 0
[ ! -s err ] || fail "a good job is not silent"
