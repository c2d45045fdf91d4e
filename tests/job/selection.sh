#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What chooses algorithms: files and names that are wrong are told with the right ones, ranks that
# have read different ones are told which, and HALAY_EXPLAIN says what was chosen and how long it took.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"

printf '%s 100\n' call_ns step_ns copy_byte_ns reduce_byte_ns \
    {near,far}_{overhead_ns,latency_ns,byte_ns,eager_bytes} >one.model
sed 's/near_latency_ns 100/near_latency_ns 101/' one.model >other.model
printf '# rows\nallreduce - 1M any circulant\nbarrier - - any dissemination\n' >one.rows
printf 'allreduce - 1M any ring\nbarrier - - any dissemination\n' >other.rows
printf 'barrier - - any dissemination\nallreduce - 1M any quick\n' >wrong.rows

refused() { # VARIABLE=VALUE TEXT...
    run env "$1" "$HALAYRUN" -np 2 "$JOB_RANK"
    [ "$status" != 0 ] || fail "$1 is taken"
    for text in "${@:2}"; do says err "halay_init failed: .*$text"; done
}
refused HALAY_ALGORITHM=allreduce=quick "HALAY_ALGORITHM: allreduce has no algorithm 'quick'; it has: ring .*circulant"
refused HALAY_ALGORITHM=teleport=ring "collectives: allreduce, .*, exscan"
refused HALAY_SELECTION=wrong.rows "wrong.rows, line 2: allreduce has no algorithm 'quick'; it has: ring .*circulant"
refused HALAY_SELECTION=nowhere.rows "nowhere.rows: No such file"
refused HALAY_SELECTION=. "[Dd]irectory"
refused HALAY_SELECTION=model:nowhere.model "HALAY_SELECTION: model:nowhere.model: No such file"
refused HALAY_SELECTION=model:one.rows "HALAY_SELECTION: model:one.rows, line 2: there is no constant 'allreduce'"
refused HALAY_EXPLAIN=yes "HALAY_EXPLAIN is 'yes'; it takes 1 or 0"

differ() { # VARIABLE ONE OTHER
    run "$HALAYRUN" -np 3 bash -c '
        [ $PMIX_RANK = 2 ] && export '"$1=$3"' || export '"$1=$2"'
        exec "$0"' "$JOB_RANK"
    [ "$status" != 0 ] || fail "$1 may differ"
    says err "settings differ: rank [01] has .*$2.*; rank 2 has .*$3.*"
}
differ HALAY_SELECTION model:one.model model:other.model
differ HALAY_SELECTION one.rows other.rows
differ HALAY_SELECTION one.rows model
differ HALAY_ALGORITHM allreduce=ring allreduce=circulant
nothing_left

# The same rows, and constants, from files of other names and with other comments, are the same.
(echo "# a copy" && cat one.rows) >copy.rows
(echo "# a copy" && cat one.model) >copy.model
run "$HALAYRUN" -np 3 bash -c '
    [ $PMIX_RANK = 2 ] && export HALAY_SELECTION=model:copy.model || export HALAY_SELECTION=model:one.model
    exec "$0"' "$JOB_RANK"
expect 0 "a file of constants"
run env HALAY_EXPLAIN=1 "$HALAYRUN" -np 3 bash -c '
    [ $PMIX_RANK = 2 ] && export HALAY_SELECTION=copy.rows || export HALAY_SELECTION=one.rows
    exec "$0"' "$JOB_RANK"
expect 0 "a file of rows"
says err "^  chosen: circulant: line 2 of HALAY_SELECTION's file"
says err "^\* circulant  *[0-9.]*  *[0-9.]* "
run env HALAY_EXPLAIN=1 HALAY_SELECTION=model "$HALAYRUN" -np 2 "$BENCH" allreduce --min 1K --max 1K --seconds 0.01
expect 0 "the model chooses"
says err "HALAY_SELECTION=model"
[ "$(grep -c '^allreduce of 1024 bytes, 2 ranks' err)" = 1 ] || fail "more than rank 0 explains, or more than once"
says err "^allreduce of 1024 bytes by [a-z_]*: [0-9]* calls, median [0-9.]* us, mean [0-9.]* us; predicted [0-9.]* us, off by [+-]"
explained=$(sed -n 's/^allreduce of 1024 bytes by .* median \([0-9.]*\) us, mean.*/\1/p' err)
timed=$(awk '$1 == 1024 { print $5 }' out)
awk -v a="$explained" -v b="$timed" 'BEGIN { exit !(a > 0 && b > 0 && a < 10 * b + 100) }' ||
    fail "the median is said to be $explained us; the benchmark's is $timed us"
# Ranks that share processors choose otherwise, all alike, also where each has had one of its own taken away.
for ranks in 2 3; do
    run env HALAY_EXPLAIN=1 taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" \
        "$HALAYRUN" -np "$ranks" "$BENCH" barrier --seconds 0.01
    expect 0 "$ranks ranks on one processor"
done
says err "^  chosen: star: row [0-9]* of the table: .*, all on one node of one processor"
run "$HALAYRUN" -np 2 "$JOB_RANK"
expect 0 "without it"
if grep -q chosen: err; then fail "explains unasked"; fi
nothing_left
