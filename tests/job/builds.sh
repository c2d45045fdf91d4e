#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two builds in one job: every rank is told so at once, with both builds and both ranks; by the
# bootstrap, and where that is of one build, by the first hello.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh disable=SC2016
. "$(dirname "$0")/tcp_lib.sh"
other_build

# mixed TEXT... : of three ranks, the last one runs the other build
mixed() {
    run "$HALAYRUN" -np 3 bash -c '[ $PMIX_RANK = 2 ] && export LD_LIBRARY_PATH='"$here"'/other
        exec "$@"' sh "${command[@]}"
    [ "$status" != 0 ] || fail "two builds are one job"
    within 10000 # the deadlines are 30 and 300 s
    for text in "$@"; do says err "$text"; done
    ! grep "is lost" err || fail "a rank is lost, not of another build"
    nothing_left
}
command=("$JOB_RANK")
mixed "rank [012] .* runs Halay $id, but rank [012] .* runs Halay $other\|rank [012] .* runs Halay $other, but rank [012] .* runs Halay $id"
[ "$(grep -c "runs Halay .*$other" err)" -ge 3 ] || fail "not every rank is told"
command=(env "HALAY_PLUGIN_DIR=$BUILD/lib/halay" "$JOB_RANK")
mixed "different builds of Halay: rank [01] has $id; rank 2 has $other. Give all ranks"

# The other bootstrap.
begin 0 0 2 "$JOB_RANK"
begin 1 1 2 LD_LIBRARY_PATH="$here/other" "$JOB_RANK"
await
cat out.* err.* >all
says all "runs Halay $other, but .* runs Halay $id: run the same version"
[ "$(grep -l "runs Halay $other" err.0 err.1 | wc -l)" = 2 ] || fail "not both ranks are told"
