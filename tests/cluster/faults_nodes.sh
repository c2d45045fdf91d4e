#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that find no way to each other after halay_init, over our TCP and over UCX: all are told in time, by
# the same words, whom it was about, where, and why. Strangers harm nobody.
# shellcheck source-path=SCRIPTDIR source=faults_lib.sh
. "$(dirname "$0")/faults_lib.sh"

for transport in tcp ucx; do
    export HALAY_TRANSPORT=shm+$transport
    # A rank that has ended before anybody has called it: its socket is gone, nobody waits for it.
    begin 0 3 2 "$rank" early 1
    begin 1 1 2 "$rank" early 1
    await 4 0
    counts out 1 "^told .* rank 0: -[0-9]* about rank 1 on v1: .*connection refused"
    took 0 1000
    report "$transport: a rank that has ended"

    # Two of three nodes cannot reach each other: all have it by the deadline.
    on 1 ip route add unreachable 10.78.0.2 && on 2 ip route add unreachable 10.78.0.1
    for r in 0 1 2; do begin $r $(((r + 2) % 3 + 1)) 3 HALAY_ALGORITHM=allreduce=ring "$rank" early -1 0; done
    await 4 4 4
    counts out 3 "^told .* about rank [12] on v[12]: .*No route to host"
    for r in 0 1 2; do took $r 5000; done
    report "$transport: no route"
    on 1 ip route del unreachable 10.78.0.2 && on 2 ip route del unreachable 10.78.0.1
    [ $transport = tcp ] || continue # UCX listens too: whose port is it?

    # Strangers, one that says nothing and one that says something else.
    begin 0 3 2 "$rank" early -1 1.5
    begin 1 1 2 "$rank" early -1 1.5
    listens() { on 1 ss -Hltn 2>/dev/null | grep -q LISTEN; }
    until_true listens
    sleep 0.4 # what listens now is the rank's own socket
    at=$(on 1 ss -Hltn | sed -n 's/.*10.78.0.1:\([0-9]*\) .*/\1/p;s/.*0.0.0.0:\([0-9]*\) .*/\1/p' | head -1)
    # shellcheck disable=SC2016 # expands there
    on 2 timeout 3 bash -c 'exec 3<>/dev/tcp/10.78.0.1/$1 4<>/dev/tcp/10.78.0.1/$1; printf "%0512d" 7 >&3; sleep 2' sh "$at" ||
        [ $? = 1 ] || fail "the stranger"
    await 0 0
    counts err.1 1 "10.78.0.2:[0-9]* connected to 10.78.0.1:$at and was dropped"
    report "$transport: strangers"
done
nothing_left 3
