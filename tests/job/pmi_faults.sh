#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A launcher with PMI-1 that answers wrongly or not, and ranks that never come: each rank says what it got.
# shellcheck source-path=SCRIPTDIR source=pmi_lib.sh disable=SC2016
. "$(dirname "$0")/pmi_lib.sh"

# A rank that never calls halay_init: the others end by their deadline, and say for what they have waited.
HALAY_START_DEADLINE=3 pmi 3 without=2 -- "$JOB_RANK" briefly
[ "$status" != 0 ] || fail "a job without rank 2"
within 6000
says err "did not answer rank [01]'s 'barrier_in' within 3.0 s: do all 3 ranks live, and has each called halay_init"
says err "has waited for .* for all 3 ranks to call it"

# A launcher that answers wrongly, not, or is gone: rank 1 says what it got, and no rank outlasts its deadline.
export HALAY_START_DEADLINE=1.5
wrong() { # wrong REQUEST ACTION TEXT
    pmi 2 "fault=$1:$2" -- sh -c '[ $PMI_RANK = 1 ] || export HALAY_START_DEADLINE=15; exec "$JOB_RANK" briefly'
    [ "$status" != 0 ] || fail "$1 was answered by $2"
    within 5000
    says err "$3"
}
for request in init get_maxes get_my_kvsname barrier_in get; do
    wrong $request close "did not answer rank 1's '$request': the connection has ended"
    wrong $request silent "did not answer rank 1's '$request' within 1.5 s"
    wrong $request "nonsense" "answered rank 1's '$request' with 'nonsense', which is not PMI-1"
    wrong $request "" "answered rank 1's '$request' with ''"
    wrong $request "cmd=barrier_outs rc=0" "answered rank 1's '$request' with 'cmd=barrier_outs rc=0'"
    wrong $request "$(printf 'x%.0s' {1..3000})" "answered rank 1's '$request' with 'xxx"
done
wrong init 'cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0' "which is not PMI-1"
wrong init 'cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1' "rc=-1', which is not PMI-1"
wrong init 'cmd=response_to_init pmi_version=1 rc=0\ncmd=maxes' "rc=0?cmd=maxes"
wrong get_maxes 'cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64' "vallen_max=64', which is not PMI-1"
wrong get_my_kvsname "cmd=my_kvsname kvsname=$(printf 'k%.0s' {1..600})" "which is not PMI-1"
for value in "" x / x/y 127.0.0.1:1 127.0.0.1/ab :1/ab "[::1/ab"; do
    wrong get "cmd=get_result rc=0 value=$value" "which is not PMI-1"
done
wrong get "cmd=get_result rc=0 value=-/" "rank 0 cannot go on, and has said why"
wrong get "cmd=get_result rc=0 value=127.0.0.1:1/ab" "found no rendezvous of rank 0 at '127.0.0.1'"
# Where rank 0 cannot listen, no rank waits for its deadline.
HALAY_START_DEADLINE=20 pmi 3 -- sh -c '[ $PMI_RANK != 0 ] || export HALAY_INTERFACE=none0; exec "$JOB_RANK" briefly'
[ "$status" != 0 ] || fail "rank 0 has no interface, and has joined"
says err none0
within 5000
nothing_left
