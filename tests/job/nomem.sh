#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two processes, of which the n-th allocation, descriptor or thread of one fails, in halay_init, calls and
# halay_finalize, twice, over shm and tcp: the job ends well, or with an error that says something; no crash, no hang,
# nothing left. Some n, drawn; every one, in parts at once, with: nomem.sh all [PARTS]
if [ "${1:-}" = all ]; then
    parts=${2:-6}
    for ((part = 1; part <= parts; part++)); do bash "$0" "$part/$parts" & done
    for ((part = 1, rc = 0; part <= parts; part++)); do wait -n || rc=1; done
    exit $rc
fi
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
export HALAY_START_DEADLINE=3 HALAY_DEADLINE=3 HALAY_LINK_TIMEOUT=3

# shellcheck disable=SC2016
once() { # TRANSPORT N
    run env HALAY_TRANSPORT="$1" NOMEM_AT="$2" timeout 60 "$HALAYRUN" -np 2 sh -c \
        '[ "$PMIX_RANK" = 0 ] || export LD_PRELOAD="$PRELOAD"; exec "$JOB_RANK" briefly'
}

for transport in shm tcp; do
    once $transport 0
    expect 0 "with all memory"
    total=$(sed -n 's/.*counted \([0-9]*\)$/\1/p' err)
    [ "${total:-0}" -gt 50 ] || fail "only ${total:-no} allocations were seen"
    if [[ ${1:-} == */* ]]; then which=$(seq "${1%/*}" "${1#*/}" "$total"); else which=$(shuf -i "1-$total" -n 8); fi
    echo "$transport: $total${1:+, part $1}"
    for n in $which; do
        once $transport "$n"
        [ "$status" != 124 ] || fail "$transport, $n of $total: it hangs"
        ! grep -qE "signal|Assertion|core dumped" err || fail "$transport, $n of $total: a crash"
        [ "$status" = 0 ] || grep -qE 'halay (error|warning)[: ]|halayrun: .* has ended before' err || fail "$transport, $n of $total: it says nothing"
        [ "$status" = 0 ] || echo "$transport $n: $ms ms: $(grep -m1 -oE 'halay [ew].*|halayrun: .* has ended.*' err | cut -c1-160)"
    done
done
nothing_left
