#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Another user of this machine can neither join a job, nor end it, nor hinder its end.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217,SC2094
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || { echo "only root can become another user"; exit 77; }

# The ranks are in the job, and wait for go.
"$HALAYRUN" -np 2 bash -c 'printenv | grep ^PMIX_ >variables.$PMIX_RANK
    until [ -e go ]; do sleep 0.05; done
    exec "$JOB_CLIENT" info' >out 2>err &
job=$!
trap 'kill -KILL $job 2>/dev/null; rm -rf "$here"' EXIT
until_true test -s variables.0 -a -s variables.1
[ "$(stat -c %a "$TMPDIR"/halayrun-*)" = 700 ] || fail "others may look into the job's folder"
readarray -t variables <variables.0
timeout 20 env "${variables[@]}" "$JOB_STRANGER" leave >left ||
    fail "the server speaks to a stranger: $(cat left)"
timeout 40 env "${variables[@]}" "$JOB_STRANGER" join >joined 2>&1 ||
    fail "a stranger has joined: $(cat joined)"
kill -0 $job || fail "the job has ended: $(cat err)"
touch go
start=$(date +%s%3N)
wait $job || fail "the job has failed: $?"
[ $(($(date +%s%3N) - start)) -lt 20000 ] || fail "its end took long"
says out "^2 ranks on 1 nodes"
says err "a process of user 65534 connected to this job's PMIx server, and was turned away"
[ "$(grep -c 'turned away' err)" = 1 ] || fail "said more than once"

# What the server knows is not the ranks' secret, and everybody has another.
run "$HALAYRUN" -np 1 bash -c 'echo "${#HALAY_SECRET} $HALAY_SECRET"'
says out "^32 [0-9a-f]\{32\}$"
cp out first
run "$HALAYRUN" -np 1 bash -c 'echo "${#HALAY_SECRET} $HALAY_SECRET"'
! cmp -s out first || fail "the same secret twice"
HALAY_SECRET=own run "$HALAYRUN" -np 1 bash -c 'echo "$HALAY_SECRET"'
[ "$(cat out)" = own ] || fail "the user's secret was replaced"
says err "^halayrun: the job's secret is that of HALAY_SECRET"

# Ranks that have joined have none in their environment any more: neither for core dumps, nor for what they start.
for options in "" "--min-np 2"; do
    # shellcheck disable=SC2086
    run "$HALAYRUN" -np 2 $options "$JOB_LIVES" eheh
    expect 0 "a rank hides its secret, $options"
    [ "$(grep -c "^secret '\([0-9a-f]\{32\}\)', at first '\1'$" out)" = 2 ] || fail "not two secrets at first"
    [ "$(grep -c "^secret '\*', at first '\**'$" out)" = 2 ] || fail "a secret stays"
    for r in 0 1; do [ "$(grep -c "^rank $r of 2$" out)" = 2 ] || fail "rank $r has not joined twice"; done
done
run "$HALAYRUN" -np 1 "$JOB_LIVES" hch "" "exec $JOB_LIVES h"
says out "^refused: .*has the environment of rank 0, but the process that has started it is that rank already"
[ "$(grep -c "^rank 0 of 1$" out)" = 2 ] || fail "not two lives beside its child"
run "$HALAYRUN" -np 1 "$JOB_LIVES" hch "" "HALAY_JOB=none $JOB_LIVES h; exec $HALAYRUN -np 2 $JOB_LIVES h"
for r in 0 1; do says out "^rank $r of 2$"; done
HALAY_SECRET='*' run "$HALAYRUN" --agents 1
says err "needs a secret"
run "$HALAYRUN" -np 1 -x HALAY_SECRET=shown true
expect 2
says err "export HALAY_SECRET, and give -x HALAY_SECRET"
nothing_left
