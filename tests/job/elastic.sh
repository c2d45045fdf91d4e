#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job whose ranks change: processes that fail are started again and come in, the discovery script adds and takes
# places, and what cannot go on ends with its reason.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
cool=(--blacklist-cooldown-range 0.1 60)
hangs=
trap 'kill $hangs ${job:-} 2>/dev/null; wait; rm -rf "$here"' EXIT
died='killed by signal 9 (SIGKILL); started again in 0.1 s$'

job() { # halayrun's options and job_elastic's arguments
    rm -f over done.*
    run timeout -k 5 60 "$HALAYRUN" "$@"
}
worlds() { # A B: of A ranks, without one or two of them of B, and of A again. Newcomers may come one by one, or be there
    # when the others meet.
    local seen
    seen=$(sed -n 's/.*a world of \([0-9]*\) from.*/\1/p' err | tr '\n' ' ')
    [ "$seen" = "$1 $2 $1 " ] || [ "$seen" = "$1 $1 " ] || [ "$seen" = "$1 $2 $(($1 - 1)) $1 " ] || fail "worlds of $seen, not $1 $2 $1"
}
ended() { # COUNT STEPS: so many come to the end
    [ "$(grep -c "ended after $2 steps" out)" = "$1" ] || fail "not $1 ranks come to the end"
}

# The script hangs, beside all else: it is killed with what it has started, and the last answer stays.
mkdir hangs
cat >hangs/hosts <<END
[ -e asked ] && { sleep 1000.$mark & sleep 1000.$mark; }
touch asked
echo localhost:2
END
(cd hangs && exec timeout -k 5 100 "$HALAYRUN" --min-np 2 --host-discovery-script 'sh ./hosts' "$JOB_ELASTIC" 100000 >out 2>err) &
hangs=$!

job -np 3 --min-np 2 "${cool[@]}" -l "$JOB_ELASTIC" 40 kill:1:5
expect 0 "a rank was killed"
says err "^halayrun: process 1 (pid [0-9]* on .*) was $died"
worlds 3 2
ended 3 40
says out '^\[1\] ended'

# Two at once, rank 0 among them; the first in the slot comes back and fails again: twice as long.
job -np 4 --min-np 2 "${cool[@]}" "$JOB_ELASTIC" 60 kill:0:5 exit:2:5 exit:2:5
expect 0 "two at once"
says err "process 0 .* was $died"
says err "process 2 .* exited with status 3; started again in 0.1 s$"
says err "process 2 .* exited with status 3; started again in 0.2 s$"
ended 4 60

job -np 2 --min-np 1 "${cool[@]}" "$JOB_ELASTIC" 30 end:1:5
expect 0 "a rank left without halay_finalize"
says err "process 1 .* exited with status 0 without halay_finalize; started again in 0.1 s$"
worlds 2 1

# Who comes when the job has ended already has nothing to do, and that is no failure.
late='if case "$HALAY_JOB;" in *";slot=0;"*) ;; *) false ;; esac; then echo $$ >first
elif [ -e done.2 ]; then
    touch over
    while grep -vq " Z " "/proc/$(cat first)/stat" 2>/dev/null; do sleep 0.02; done
fi
exec "$0" "$@"'
job -np 2 --min-np 1 "${cool[@]}" sh -c "$late" "$JOB_ELASTIC" 100000 kill:1:5
expect 0 "one came too late"
says out '^came too late$'
! grep 'exited' err || fail "who came too late has failed"
ended 1 '[0-9]*'

HALAY_STOP_TIMEOUT=1 job -np 3 --min-np 2 "${cool[@]}" "$JOB_ELASTIC" 30 stop:0:5
expect 0 "rank 0 was stopped"
says err "process 0 .* is stopped, and the others go on without it: it is killed$"
worlds 3 2
ended 3 30

# Nobody has said that these are lost, who do not come to meet the others: one that is stopped, and one that does
# something else, for which the others wait until the time for meeting is over.
HALAY_STOP_TIMEOUT=1 job -np 3 --min-np 2 "${cool[@]}" "$JOB_ELASTIC" 30 late:0:3 kill:1:5
expect 0 "one was stopped before it met the others"
says err "process 0 .* is stopped, and the others go on without it: it is killed$"
says err "process 1 .* was $died"
ended 3 30
within 10000
job -np 3 --min-np 1 --elastic-timeout 4 "${cool[@]}" "$JOB_ELASTIC" 30 hang:0:3 kill:1:5
expect 0 "one did not come"
says err "the others go on without process 0 (pid [0-9]*: sleeps; not in halay_init)$"
says err "process 0 .* is lost, and the others go on without it: it is killed$"
ended 3 30
# A newcomer waits for somebody who is stopped, and nobody else is left.
job -np 2 --min-np 1 --elastic-timeout 4 "${cool[@]}" "$JOB_ELASTIC" 30 kill:0:5 stop:1:5
expect 0 "one was killed, the other one stopped"
says err "process 1 .* is stopped, and the others go on without it: it is killed$"
ended 2 30

# A failure counts for the status unless the others have met without the process.
job -np 2 --min-np 1 --blacklist-cooldown-range 9 9 "$JOB_ELASTIC" 10 exit:1:10
expect 3 "a rank failed behind the last step"
within 5000

job -np 3 --min-np 2 --reset-limit 0 "${cool[@]}" "$JOB_ELASTIC" 1000 exit:1:5
expect 3 "the reset limit"
says err "^halayrun: the ranks have had to meet again, 1 time more than --reset-limit 0 allows$"

job -np 2 --min-np 2 --elastic-timeout 2 "$JOB_ELASTIC" 1000 kill:1:5 kill:1:0 kill:1:0 kill:1:0 kill:1:0
[ "$status" != 0 ] || fail "too few ranks"
says err "^halayrun: there have been too few ranks for 2 s (--elastic-timeout): [01] process.* there must be 2 (--min-np)$"
says err "only 1 of the 2 that there must be"
within 8000

# A failure costs all places of its host, here those of one of this machine's names; no process meets the others that is
# not to stay, and there is nobody when no host is left.
two_hosts=(--min-np 2 --max-np 4 --host-discovery-script 'echo localhost:2; echo 127.0.0.1:2' --blacklist hosts)
job "${two_hosts[@]}" --blacklist-cooldown-range 0.3 9 --horovod "$JOB_ELASTIC" 60 exit:3:5
expect 0 "a host was dropped"
says err "process 3 .* exited with status 3; host 127.0.0.1 is dropped for 0.3 s, with 1 more process of it$"
worlds 4 2
ended 4 60
job "${two_hosts[@]}" -l --horovod sh -c 'echo "$HOROVOD_HOSTNAME"; exec "$0" 30 kill:1:5' "$JOB_ELASTIC"
expect 0 "a host was dropped for good"
says err "process 1 .* (SIGKILL); host localhost is dropped, with 1 more process of it$"
[ "$(grep -c '\] localhost$' out) $(grep -c '\] 127.0.0.1$' out)" = "2 2" ] || fail "not two places on each host"
ended 2 30
job "${two_hosts[@]}" "$JOB_ELASTIC" 1000 exit:0:5 exit:1:5 exit:2:5 exit:3:5
expect 3 "all have failed"
says err "^halayrun: processes have failed on each host, and all hosts are dropped (--blacklist hosts): no place is left$"
within 5000
# One that the others lose before it ends has failed, too: it is not told to leave.
job --min-np 2 --host-discovery-script 'echo localhost:2' --blacklist hosts "$JOB_ELASTIC" 1000 slow:0:5
expect 3 "the only host has failed, slowly"
says err "process 0 .* exited with status 3; host localhost is dropped, with 1 more process of it$"
says err "^halayrun: processes have failed on each host, and all hosts are dropped"
within 20000

job -np 2 --min-np 1 "${cool[@]}" sh -c 'exit 4'
expect 4 "no process comes to halay_init"
says err "^halayrun: 2 of 2 processes have failed 3 times each, and no ranks have met: there must be 1 (--min-np)$"

# The script's word: two more, nonsense of several kinds, two fewer.
rm -f over done.*
hosts() { printf "$@" >hosts.new && mv hosts.new hosts; } # whole at any time
hosts localhost
empty err
"$HALAYRUN" --min-np 1 --max-np 3 --elastic-timeout 20 -v --host-discovery-script 'echo far:8; cat hosts' \
    "$JOB_ELASTIC" 100000 >out 2>err &
job=$!
TRIES=2000 until_true grep -q "world of 1 from" err
hosts '127.0.0.1\n\n  %s:5 \n' "$(hostname)"
TRIES=2000 until_true grep -q "world of 3 from" err
hosts 'local host'
TRIES=2000 until_true grep -q "it printed 'local host', which is no host name; its last answer stays" err
hosts 'localhost:0'
TRIES=2000 until_true grep -q "it printed 'localhost:0', which does not say how many slots" err
rm hosts
TRIES=2000 until_true grep -q "it exited with status 1 .*; its last answer stays" err
ln -s /dev/zero hosts
TRIES=2000 until_true grep -q "it prints more than 65536 bytes" err
hosts localhost:1
TRIES=2000 until_true grep -q "process 1 .* is told to leave (SIGTERM): its place is gone" err
two_left() { [ "$(grep -c '^left' out)" = 2 ]; }
TRIES=2000 until_true two_left
now() { grep 'a world of' err | tail -1 | grep -q "world of $1 "; }
TRIES=2000 until_true now 1 # they may leave one by one
hosts localhost:2           # who has left as it was told has not ended the job
TRIES=2000 until_true now 2
touch over
wait $job
status=$?
expect 0 "after the script's words"
ended 2 '[0-9]*'
[ "$(grep -c 'host far is not this machine' err)" = 1 ] || fail "the other host is not named once"
! grep -E 'started again|was killed' err || fail "who was told to leave has failed"

# Signals end it, as any job. What the slot's last process had started ends when another is started there; that of a
# process that has come since, when halayrun is killed.
children() { [ "$(pgrep -fxc "sleep 1001[.]$mark")" = "$1" ]; }
again() { [ "$(grep -c 'a world of 2' err)" -ge 2 ]; }
begin() { # events
    rm -f over done.*
    empty err
    MARK=1001.$mark "$HALAYRUN" -np 2 --min-np 1 "${cool[@]}" "$JOB_ELASTIC" 100000 "$@" >out 2>err &
    job=$!
    TRIES=2000 until_true again
}
begin child:1:5 kill:1:5
TRIES=2000 until_true children 0
kill -TERM $job
wait $job
status=$?
expect 143 "SIGTERM"
says err "signal 15 (SIGTERM): ending the job"
begin kill:1:2 child:1:3
TRIES=2000 until_true children 1
kill -KILL $job
wait $job 2>/dev/null
TRIES=2000 until_true children 0
alive() { pgrep -fx "$JOB_ELASTIC 100000 kill:1:2 child:1:3"; }
TRIES=2000 until_true eval '! alive'

said() { grep -q "it has not ended within 10 s; its last answer stays" hangs/err; }
TRIES=2000 until_true said
touch hangs/over
wait $hangs
status=$?
expect 0 "the script hung"
TRIES=2000 until_true sleeping 0
nothing_left
