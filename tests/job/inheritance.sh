#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A process that a rank forks or starts has the rank's environment, and is told that it is not the rank.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
run "$HALAYRUN" -np 2 "$JOB_CLIENT" children
expect 0
within 5000
says err "is that rank already"
says err "was forked from rank 1"
nothing_left
