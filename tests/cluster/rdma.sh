#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The RDMA test-bed itself: two emulated machines, whose Soft-RoCE devices reach one another; the exit
# status of one is that of all.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
why=$("$folder/rdma-nodes" check) || skip "$why"
command -v ibv_rc_pingpong >/dev/null || skip "no ibv_rc_pingpong (rdma-nodes install)"
run "$folder/rdma-nodes" run --nodes 2 --raw --timeout 120 --share "$here" -- bash -c '
    if [ $NODE_ID = 0 ]; then
        ibv_rc_pingpong -d rxe0 -g 1 -n 100 >/dev/null & # listens before it is called
        until [ -n "$(ss -Hltn)" ]; do sleep 0.1; done
        $NODE_BARRIER listening
        wait $! && echo pong
    else
        $NODE_BARRIER listening
        ibv_rc_pingpong -d rxe0 -g 1 -n 100 node0 >/dev/null && echo pong && exit 7
    fi'
expect 7 "rdma-nodes run, where one machine ends with 7"
counts out 2 "^pong$"
