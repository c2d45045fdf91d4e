#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The template for LSF, with a stand-in for blaunch: agents on the job's other hosts; one is killed, and started again.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
template=$(cd "$(dirname "$0")/../.." && pwd)/lsf/elastic.lsf
TRIES=2000
job=
trap 'kill $job 2>/dev/null; wait; rm -rf "$here"' EXIT
mkdir bin
# blaunch HOST COMMAND...
cat >bin/blaunch <<'END'
#!/bin/sh
echo "$1" >>blaunched
shift
exec "$@"
END
cat >train <<'END'
#!/bin/sh
[ "$*" = "%h 50% it's" ] && exec "$JOB_ELASTIC" 100000
END
chmod +x bin/blaunch train
worlds() { sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' err | tr '\n' ' '; }
last_is() { [[ $(worlds) == *"$1 " ]]; }
agent_of() { pgrep -o -f -- "halayrun --agent .* --agent-name $1 "; }

export HALAYRUN LSB_JOBID=$RANDOM
LSB_MCPU_HOSTS="$(hostname) 2 node1 1 node2 2 " PATH=$here/bin:$PATH timeout -k 5 60 "$template" ./train '%h' "50% it's" >out 2>err &
job=$!
until_true last_is 5
[ "$(sort blaunched | tr '\n' ' ')" = "node1 node2 " ] || fail "blaunch was called for $(cat blaunched)"
kill -KILL "$(agent_of node2)" || fail "no agent of node2"
until_true eval '[ "$(wc -l <blaunched)" = 3 ]'
until_true eval '[[ $(worlds) == *"5 "*"5 " ]]' # again
touch over
wait $job
status=$? job=
expect 0 "the job of the template"
[ "$(grep -c "ended after" out)" = 5 ] || fail "not five ranks come to the end"
run env -u LSB_MCPU_HOSTS "$template" true
expect 1 "outside of LSF"
says err "run it by bsub"
nothing_left
