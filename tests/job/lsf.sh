#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The templates for LSF, with stand-ins. blaunch does what IBM's reference says: it starts a command on a host of the job by a
# shell there, as rsh does, or with -no-shell by itself, with this environment. The hosts are this machine.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
folder=$(cd "$(dirname "$0")/../.." && pwd)/deploy/lsf
TRIES=2000
job=
trap 'kill $job 2>/dev/null; wait; rm -rf "$here"' EXIT
mkdir bin
# blaunches by_shell|by_itself
blaunches() {
    printf '#!/bin/sh\ncase " $LSB_MCPU_HOSTS" in *" $1 "*) ;; *) exit 255 ;; esac
export TMPDIR=%s/tmp.$1 # each host has its own
mkdir -p "$TMPDIR"
echo "$1" >>%s/blaunched\nshift\n' "$here" "$here" >bin/blaunch
    if [ "$1" = by_shell ]; then echo 'exec sh -c "$*"'; else echo 'exec "$@"'; fi >>bin/blaunch
    chmod +x bin/blaunch
    rm -f blaunched
}
cat >train <<'END'
#!/bin/sh
[ "$*" = "%h 50% it's" ] && exec "$JOB_ELASTIC" 100000
END
chmod +x train
worlds() { [ -e err ] && sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' err | tr '\n' ' '; }
last_is() { [[ $(worlds) == *"$1 " ]]; }
agent_of() { pgrep -o -f -- "halayrun --agent .* --agent-name $1 "; }
export HALAYRUN LSB_JOBID=$RANDOM PATH=$here/bin:$PATH

# Agents on the job's other hosts; one is killed, and started again.
for how in by_itself by_shell; do
    blaunches $how
    rm -f over err # of the one before
    LSB_MCPU_HOSTS="$(hostname) 2 node1 1 node2 2 " timeout -k 5 60 "$folder/elastic.lsf" ./train '%h' "50% it's" >out 2>err &
    job=$!
    until_true last_is 5
    [ "$(sort blaunched | tr '\n' ' ')" = "node1 node2 " ] || fail "blaunch was called for $(cat blaunched)"
    if [ $how = by_shell ]; then
        kill -KILL "$(agent_of node2)" || fail "no agent of node2"
        until_true eval '[ "$(wc -l <blaunched)" = 3 ]'
        until_true eval '[[ $(worlds) == *"5 "*"5 " ]]' # again
    fi
    touch over
    wait $job
    status=$? job=
    expect 0 "the job of the template, $how"
    [ "$(grep -c "ended after" out)" = 5 ] || fail "not five ranks come to the end"
done
run env -u LSB_MCPU_HOSTS "$folder/elastic.lsf" true
expect 1 "outside of LSF"
says err "run it by bsub"
run env -u LSB_JOBID "$folder/train.lsf" true
expect 1 "outside of LSF"
says err "run it by bsub"
run "$folder/train.lsf"
expect 2 "without a program"

# A job of always as many ranks: jsrun has one for each slot, or $NP; without the launch node.
cat >bin/jsrun <<'END'
#!/bin/sh
[ "$1 $3 $4" = "--erf_input -X 1" ] || exit 2
sed -n 's/^rank: [0-9]*: { hostname: \([^;]*\); cpu: {\([0-9]*\)-[0-9]*} .*/\1/p' "$2" | xargs
shift 4
echo "$HALAY_HOROVOD $*"
END
chmod +x bin/jsrun
export LSB_MCPU_HOSTS="batch1 1 node1 4 node2 4"
run "$folder/train.lsf" ./train "a b"
expect 0 "train.lsf by jsrun"
[ "$(cat out)" = "node1 node1 node1 node1 node2 node2 node2 node2
1 ./train a b" ] || fail "not jsrun's words: $(cat out)"
run env NP=2 "$folder/train.lsf" ./train
says out "^node1 node2$"
rm bin/jsrun

# Without JSM: Open MPI's daemons by blaunch.
command -v mpirun >/dev/null || { nothing_left; echo "skipped from here: no mpirun (Debian: openmpi-bin)"; exit 0; }
[[ $(mpirun --version 2>/dev/null) == *"Open MPI"* ]] || { nothing_left; echo "skipped from here: mpirun is not Open MPI's"; exit 0; }
blaunches by_shell
export LSB_MCPU_HOSTS="batch1 1 node1 2 node2 2"
run env HALAY_DEADLINE=20 "$folder/train.lsf" "$JOB_RANK"
expect 0 "train.lsf by mpirun"
for r in 0 1 2 3; do says out "^rank $r of 4, pmix (mpirun), shm+tcp$"; done
[ "$(sort blaunched | xargs)" = "node1 node2" ] || fail "blaunch was called for $(cat blaunched)"
nothing_left
