# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# by_variables ARG...: two ranks of gpu_process, that find each other by variables: no launcher is
# needed. by_halayrun: where that was built with PMIx. The answer is that of rank 0, or of the job.
by_variables() {
    local port=$((20000 + RANDOM % 10000)) other status
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    RANK=1 "$BUILD/bin/gpu_process" "$@" &
    other=$!
    RANK=0 "$BUILD/bin/gpu_process" "$@"
    status=$?
    wait $other || [ $status != 0 ] || status=$?
    return $status
}

by_halayrun() { "$BUILD/bin/halayrun" -np 2 "$BUILD/bin/gpu_process" "$@"; }

export launchers=by_variables
[ ! -e "$BUILD/lib/halay/halay-launch-pmix.so" ] || launchers="by_variables by_halayrun"
