#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Variables that make no sense, or no job, are refused at once, with the variable and the remedy.
# shellcheck source-path=SCRIPTDIR source=tcp_lib.sh
. "$(dirname "$0")/tcp_lib.sh"

# refused TEXT VARIABLE=VALUE...
refused() {
    run env "${@:2}" "$JOB_RANK"
    expect 1 "${@:2}"
    says err "$1"
    says err HALAY_JOB=none
    within 3000
}
here="MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"
refused "RANK is set, but WORLD_SIZE is not" RANK=0
refused "WORLD_SIZE is set, but RANK is not" WORLD_SIZE=2
refused "WORLD_SIZE (2) are set, but MASTER_ADDR is not" RANK=0 WORLD_SIZE=2 MASTER_PORT=1
refused "WORLD_SIZE (2) are set, but MASTER_PORT is not" RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost
for bad in 2 -1 1x " 1" 99999999999999999999; do
    # shellcheck disable=SC2086
    refused "RANK is '$bad': with WORLD_SIZE=2 it takes a number from 0 to 1" RANK="$bad" WORLD_SIZE=2 $here
done
for bad in 0 -1 two 65537 4294967298; do
    # shellcheck disable=SC2086
    refused "WORLD_SIZE is '$bad'" RANK=0 WORLD_SIZE="$bad" $here
done
# shellcheck disable=SC2086
refused "LOCAL_RANK is '2' and LOCAL_WORLD_SIZE '2'" RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2 $here
refused "RANK is '1'" RANK=1 WORLD_SIZE=1
# The plug-in is not there: no job of one rank each.
# shellcheck disable=SC2086
refused "Running each alone would be silently wrong" RANK=0 WORLD_SIZE=2 $here HALAY_PLUGIN_DIR="$here"

for bad in 0 65536 port; do
    run env RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=$bad "$JOB_RANK"
    says err "MASTER_PORT '$bad'"
done
for bad in host host: :80 host:0 ::1:80 host:port; do
    run env RANK=0 WORLD_SIZE=2 HALAY_RENDEZVOUS=$bad "$JOB_RANK"
    says err "HALAY_RENDEZVOUS is '$bad': it takes host:port"
done

# Alone, and nothing loaded for it.
for variables in "" "RANK=0 WORLD_SIZE=1" "WORLD_SIZE=1" "RANK=1 WORLD_SIZE=2 HALAY_JOB=none"; do
    # shellcheck disable=SC2086
    run env $variables HALAY_PLUGIN_DIR=/nowhere "$JOB_RANK"
    expect 0 "alone with '$variables'"
    says out "^rank 0 of 1, alone"
done
nothing_left
