#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay_init_shared beside the last halay_finalize: it waits for that, and is not "initialised twice".
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
for boot in meet pmix; do
    launch=("$HALAYRUN" -np 1)
    [ $boot = meet ] || launch+=(env -u HALAY_JOB)
    run "${launch[@]}" "$JOB_SHARED"
    expect 0 "three threads, $boot"
    says out "^2100 lives"
done
nothing_left
