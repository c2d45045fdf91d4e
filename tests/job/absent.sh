#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank that never joins: the others are told by their deadline, not by patience.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
run "$HALAYRUN" -np 3 "$JOB_CLIENT" absent
expect 0
says err "not all of the 3 ranks joined within 1.5 s"
nothing_left
