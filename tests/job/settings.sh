#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every setting of common/settings.c with a value that makes no sense is told of, with its name, the value and what it takes;
# and a setting that is added to the table without a row here fails.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
table=$(dirname "$0")/../../common/settings.c
[ -r "$table" ] || fail "no table $table"
one="$HALAYRUN -np 1 $JOB_RANK"
two="$HALAYRUN -np 2 $JOB_RANK"

# Setting, the ranks that it takes, wrong values with blanks between, and what is said of each. A setting with -
# has no wrong value, or none that this program reads: why is in the last column.
rows='HALAY_DEADLINE|one|soon -1 0 nan 1s|takes seconds
HALAY_STOP_TIMEOUT|one|soon -1 0|takes seconds
HALAY_LINK_TIMEOUT|one|soon -1 0|takes seconds
HALAY_START_DEADLINE|one|soon -1 0|takes seconds
HALAY_FUSION|one|abc -1 1M 99999999999999999999|takes a number from 0
HALAY_AUTOTUNE|one|2 yes 0,steps:8 1, ,1 1,,1 steps:0 steps:129 steps:1.5 steps: warmup:abc warmup:-1 group:1M log: againx|takes 0 (the default) or 1, or
HALAY_CALIBRATION|-||a folder, of which nothing need be there: job/calibration
HALAY_STALL|one|abc -1 nan 1s|takes seconds
HALAY_TIMELINE|-||a file of the Python package
HALAY_TIMELINE_MARK_CYCLES|-||of the Python package
HALAY_HOROVOD|-||of the Python package
HALAY_ALGORITHM|one|ring|collective=algorithm
HALAY_SELECTION|one|/nowhere model:/nowhere|No such file
HALAY_GPUDIRECT|one|2 yes|takes 1 or 0
HALAY_NCCL_LIBRARY|one|own:0 own:-1 own: own:1M|takes NCCL.s file; off
HALAY_EXPLAIN|one|2 yes|takes 1 or 0
HALAY_TRANSPORT|one|shm+ +tcp + shm+tcp+tcp ../shm SHM|takes the name of a transport
HALAY_TRANSPORT|two|abc abc+tcp|there are: .*shm
HALAY_VERBS|-||read by verbs: unit/verbs_rules
HALAY_TCP_SEAL|two HALAY_TRANSPORT=tcp|abc|headers
HALAY_RENDEZVOUS|-||job/tcp_variables
HALAY_SECRET|-||any text
HALAY_INTERFACE|two|nothere0|HALAY_INTERFACE
HALAY_DEBUG|one|yes|error, warn
HALAY_PLUGIN_DIR|two|/nowhere|cannot open shared object
HALAY_LIBRARY|-||of the Python package
HALAY_RECORD|-||job/record
HALAY_JOB|alone|meet=abc meet=unix:x meet=:7 meet=host:0|takes the driver
HALAY_JOB|alone|meet=unix:/nowhere;slot=abc meet=unix:/nowhere;slot=-1 meet=unix:/nowhere;slot=65536|takes a number from 0
HALAY_JOB|alone|processors=abc processors=0 processors=-1|takes a number from 1
HALAY_BIND|one|some|none
# What was dropped is refused, with what has taken its place.
HALAY_AUTOTUNE_LOG|one|file|no setting any more: set HALAY_AUTOTUNE=log:FILE
HALAY_AUTOTUNE_STEPS|one|8|no setting any more: set HALAY_AUTOTUNE=steps:N
HALAY_AUTOTUNE_WARMUP|one|8|no setting any more: set HALAY_AUTOTUNE=warmup:N
HALAY_BATCH_COPIES|one|0 1|no setting any more: .*one launch
HALAY_GROUP_BYTES|one|8|no setting any more: set HALAY_AUTOTUNE=group:BYTES
HALAY_ISA|one|scalar|no setting any more: .*halay_config_t
HALAY_MODEL|one|file|no setting any more: set HALAY_SELECTION=model:FILE
HALAY_LAUNCHER|one|none|no setting any more: .*set HALAY_JOB=none
HALAY_LAST_WORDS|one|1|the launcher sets HALAY_JOB instead
HALAY_MEET|one|unix:/m|the launcher sets HALAY_JOB instead
HALAY_MEET_JOB|one|1|the launcher sets HALAY_JOB instead
HALAY_MEET_SLOT|one|1|the launcher sets HALAY_JOB instead
HALAY_NRANKS|one|1|the launcher sets HALAY_JOB instead
HALAY_PROCESSORS|one|1|the launcher sets HALAY_JOB instead
HALAY_RECORD_AT|one|1|the launcher sets HALAY_JOB instead
HALAY_LINK_PATIENCE|one|30|no setting any more: set HALAY_LINK_TIMEOUT
HALAY_STOP_PATIENCE|one|30|no setting any more: set HALAY_STOP_TIMEOUT
HALAY_OWN_GROUPS|one|off|no setting any more: set HALAY_NCCL_LIBRARY=own:BYTES, or off'

while IFS='|' read -r setting ranks values must; do
    case $setting$ranks in '#'* | *-) continue ;; esac
    for value in $values; do
        case $ranks in
        one) command=$one ;;
        alone*) command="${ranks#alone} $JOB_RANK" ;;
        *) command="${ranks#two} $two" ;;
        esac
        # shellcheck disable=SC2086
        run timeout 40 env "$setting=$value" $command </dev/null
        case $status in 0 | 124) fail "$setting=$value: exit status $status" ;; esac
        says err "$setting"
        says err "$must"
        grep -qF -- "${value##*;}" err || fail "$setting=$value: the value is not said"
    done
done <<<"$rows"

while read -r setting; do
    grep -q "^$setting|" <<<"$rows" || fail "$setting is in the table, and has no row here"
done < <(sed -n 's/^    {"\(HALAY_[A-Z_]*\)".*/\1/p' "$table")
nothing_left
