#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first rank of a node dies: in the node's meeting, in the fence, and when all have joined.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
for when in meeting fence; do
    run "$HALAYRUN" -np 3 "$JOB_CLIENT" first $when
    expect 137 "$when"
    says out "^rank 1 was told at once$"
    says err "rank 0 (pid [0-9]* on $(hostname)), the first rank of this node, has died"
    nothing_left
done
run "$HALAYRUN" -np 3 "$JOB_CLIENT" first after
expect 137 after
says out "^rank 1 lives on$"
says out "^rank 2 lives on$"
nothing_left
