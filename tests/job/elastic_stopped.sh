#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job whose ranks change, of as many as there must be at least: one that is stopped, wherever it is, is named and
# killed after HALAY_STOP_TIMEOUT, and another one comes in its place. The others do not wait for --elastic-timeout.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
trap 'kill ${tracer:-} 2>/dev/null; wait; rm -rf "$here"' EXIT
export HALAY_STOP_TIMEOUT=1
STEPS=30

# NAME SLOT OPTIONS... -- EVENTS...: the job ends well, of two or three ranks, and says that the slot's was killed.
case_of() {
    local name=$1 slot=$2 options=() n
    shift 2
    rm -f done.* held.*
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    run timeout -k 5 60 "$HALAYRUN" "${options[@]}" --blacklist-cooldown-range 0.1 60 sh -c "${before:-}"' exec "$0" "$@"' \
        "$JOB_ELASTIC" $STEPS "$@"
    expect 0 "$name"
    says err "process $slot (pid [0-9]* on .*) is ${how:-stopped}, and the others go on without it: it is killed$"
    n=$(sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' err | tail -1)
    [ "$(grep -c "ended after $STEPS steps" out)" = "$n" ] || fail "$name: not $n ranks come to the end"
    [ "$n" = "${ranks:-2}" ] || fail "$name: a world of $n at the end"
    within 30000
}
# The shell of a slot stops before it becomes the rank, the first or the second time.
holds() { # SLOT TIME
    before="case \"\$HALAY_JOB;\" in *\";slot=$1;\"*) false;; esac || { echo >>held.$1; [ \$(wc -l <held.$1) != $2 ] || kill -STOP \$\$; };"
}

case_of "in a call" 1 -np 2 --min-np 2 -- stop:1:5
case_of "rank 0, in a call" 0 -np 2 --min-np 2 -- stop:0:5
ranks=3 case_of "while the others meet" 0 -np 3 --min-np 3 -- late:0:3 kill:1:5
case_of "all that have the state" 1 -np 2 --min-np 2 -- kill:0:5 stop:1:5
holds 1 1
case_of "before the first world" 1 -np 2 --min-np 2 --
ranks=3 case_of "before the first world, which begins without it" 1 -np 3 --min-np 2 --
holds 1 2
case_of "a newcomer" 1 -np 2 --min-np 2 -- kill:1:5
before=
how=lost HALAY_DEADLINE=2 case_of "one that runs, and has missed the deadline" 1 -np 2 --min-np 2 -- pause:1:5

# A debugger's.
cat >trace.py <<'END'
import ctypes, os, sys, time
while not os.path.exists("pid"):
    time.sleep(0.02)
if ctypes.CDLL(None).ptrace(16, int(open("pid").read()), None, None):  # PTRACE_ATTACH
    sys.exit("may not trace")
while not os.WIFSIGNALED(os.waitpid(int(open("pid").read()), 0x40000000)[1]):  # __WALL
    pass
END
python3 trace.py &
tracer=$!
before='case "$HALAY_JOB;" in *";slot=1;"*) false;; esac || [ -e pid ] || { echo $$ >pid.new; mv pid.new pid; sleep 1; };'
case_of "traced" 1 -np 2 --min-np 2 --
wait $tracer || fail "the debugger has failed"
tracer=
nothing_left
