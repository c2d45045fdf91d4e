#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay-bench measures every collective, in every type and way, alone and under halayrun; and it
# notices wrong data. Needs $HALAYRUN, $BENCH and $SPOILT, which is halay-bench over results that
# have been spoilt.
# shellcheck source-path=SCRIPTDIR source=../common/selftest.sh
. "$(dirname "$(readlink -f "$0")")/../common/selftest.sh"
all="allreduce broadcast allgather reduce_scatter reduce gather scatter alltoall scan exscan"
quick=(--max 64KiB --seconds 0.0005)

for c in $all barrier; do
    expect 0 "$HALAYRUN" -np 3 "$BENCH" $c "${quick[@]}" --csv table.csv
    grep -q NO out && fail "$c: right data called wrong"
    awk -F, -v rows="$([ $c = barrier ] && echo 1 || echo 12)" 'NR > 1 && ($3 < 3 || !($4 >= $6) || !($6 > 0) || $8 != 1) { bad = 1 }
        END { exit bad || NR - 1 < rows }' table.csv || fail "$c: not a good table: $(cat table.csv)"
    expect 0 "$BENCH" $c "${quick[@]}"
done
for c in $all; do
    for n in 1 3; do
        [ $c$n = exscan1 ] && continue # nothing comes out
        expect 1 "$HALAYRUN" -np $n "$SPOILT" $c "${quick[@]}"
        [ "$(grep -c ' NO$' out)" -ge 12 ] || fail "$c: a row with wrong data is called valid"
        grep -q 'wrong data' err || fail "$c: wrong data are not told"
    done
done
for type in float16 bfloat16 float64 int32 int64; do
    for op in sum min max; do
        expect 0 "$HALAYRUN" -np 2 "$BENCH" allreduce --type $type --op $op --max 16K --seconds 0.0005
    done
done
for c in ${all/broadcast /}; do
    expect 0 "$HALAYRUN" -np 3 "$BENCH" $c "${quick[@]}" --in-place --barrier --registered --iterations 2 --warmup 0
done

expect 0 "$HALAYRUN" -np 2 "$BENCH" allreduce --iterations 1 --warmup 0 --stop-at 0.000000001 --csv table.csv
[ "$(wc -l <table.csv)" = 2 ] || fail "--stop-at: not the first size alone: $(cat table.csv)"

expect 0 "$HALAYRUN" -np 3 "$BENCH" calibrate -o machine.model
[ "$(grep -c '^near_' machine.model)" = 4 ] || fail "not a model: $(cat machine.model)"
grep -q '^# near: measured; far: compiled in; stage: compiled in$' machine.model || fail "does not say what was measured"
expect 0 env HALAY_SELECTION=model:machine.model "$HALAYRUN" -np 2 "$BENCH" allreduce "${quick[@]}"
expect 1 "$HALAYRUN" -np 2 "$BENCH" calibrate -o nowhere/machine.model
expect 2 "$BENCH" calibrate -o machine.model
expect 2 "$BENCH" calibrate
expect 2 "$BENCH" calibrate -o machine.model --max 4K
expect 2 "$BENCH" allreduce -o machine.model
expect 2 "$BENCH"
expect 2 "$BENCH" alltoallw
expect 2 "$BENCH" allreduce broadcast
for wrong in "--min 0" "--min 8KiB --max 4K" "--max 1T" "--max 4KB" "--max -1" "--type float80" "--op prod" "--max 1 --type int32" \
    "--iterations 0" "--seconds nan" "--seconds 0" "--stop-at -1" "--csv" "--frob"; do
    # shellcheck disable=SC2086
    expect 2 "$BENCH" allreduce $wrong
done
expect 2 "$BENCH" broadcast --in-place
expect 2 "$BENCH" barrier --barrier
expect 1 "$BENCH" allreduce --csv nowhere/table.csv
expect 0 "$BENCH" --help
