#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Agents: launchers that bring places to the head of a job. Here all are on one machine.
# shellcheck source-path=SCRIPTDIR source=agents_lib.sh
. "$(dirname "$0")/agents_lib.sh"
trap 'kill "${pid[@]}" 2>/dev/null; wait; rm -rf "$here"' EXIT

# Beside all else, what waits for a timeout. Jobs whose agent has a process that is stopped: others meet for another
# loss; a newcomer waits, and nobody else is left; all others have ended.
stopped() { # STATUS ELASTIC-TIMEOUT PLACES EVENTS...
    local slot=${4#*:}
    job --agents 1 --min-np "${least:-1}" --elastic-timeout "$2" "${cool[@]}"
    agent 1 -np "$3" "$JOB_ELASTIC" 30 "${@:4}"
    ended "$1" head "process ${slot%:*} (pid .* was killed by signal 9 (SIGKILL): it was stopped, and the others go on"
    ended "$1" 1
}
beside meet stopped 0 100 3 late:0:3 kill:1:5
beside join stopped 0 10 2 stop:1:5 kill:0:5
beside last stopped 137 100 2 stop:1:30
least=2 beside fewer stopped 0 100 2 stop:1:5
too_few_agents() {
    job --agents 3 --elastic-timeout 6
    agent 1 -np 1 true
    ended 1 head "1 of 3 agents have come to $where within 6 s (--elastic-timeout): .* (1 place)$"
    ended 1 1
}
beside few too_few_agents
no_agents() {
    hosts far.example
    job --agents 0 --min-np 1 --host-discovery-script 'cat hosts' --elastic-timeout 6
    ended 1 head "there have been too few ranks for 6 s"
    [ "$(grep -c 'host far.example is not this machine.*by itself or by --start-agent$' head.err)" = 1 ] || fail "said not once"
}
beside none no_agents
# A failure costs all places of its host, which two agents have brought here; nobody meets the others who is not to stay.
dropped() {
    local n
    job --agents 3 --min-np 1 --max-np 4 --blacklist hosts --blacklist-cooldown-range 1 9
    for n in 1 2 3; do
        agent $n --agent-name "$(cut -c$n <<<aab)" -np 1 --horovod sh -c 'echo "host $HOROVOD_HOSTNAME"; exec "$@"' - "$JOB_ELASTIC" "$endless" kill:0:5
        told head "an agent on . has brought place $((n - 1))"
    done
    told head "process 0 (pid [0-9]* on a) was killed by signal 9 (SIGKILL); host a is dropped for 1 s, with 1 more process of it$"
    world 1
    [ "$(grep -m 1 'a world of' 3.err)" = "a world of 1 from step 5" ] || fail "not b alone"
    world 3 2
    touch over
    for n in head 1 2 3; do ended 0 "$n"; done
    [ "$(cat 1.out 2.out 3.out | grep '^host' | tr '\n' ' ')" = "host a host a host a host a host b " ] || fail "HOROVOD_HOSTNAME"
}
beside drop dropped

# What is refused at once.
refused() { # TEXT OPTIONS...
    run timeout 20 "$HALAYRUN" "${@:2}"
    expect 2 "$*"
    says err "$1"
}
HALAY_SECRET='' refused "needs a secret, the same for its head and all of them: export HALAY_SECRET" --agents 1
echo "$mark" >secret
refused "'secret' has mode 0644 .*: chmod 600 'secret'$" --agents 1 --secret-file secret
refused "cannot read 'nothing': No such file" --agent localhost:1 -np 1 --secret-file nothing true
chmod 600 secret
: >empty && chmod 600 empty
refused "'empty' has no secret" --agents 1 --secret-file empty
refused "brings 1 to 1024 places: give -np K" --agent localhost:1 true
refused "min-np is not for an agent" --agent localhost:1 -np 1 --min-np 1 true
refused "listen takes \[IP:\]PORT" --agents 1 --listen 70000
refused "listen: '1.2.3' is no IP address" --agents 1 --listen 1.2.3:0
refused "agent-name is a host's name" --agent localhost:1 --agent-name 'a b' -np 1 true
refused "listen is for a job with agents" --listen 7000 -np 1 true
refused "agents 0 is for a job whose ranks change" --agents 0
refused "leaves the program to the agents" --agents 1 true
refused "start-agent is for the hosts of" --start-agent 'ssh %h' --min-np 1
refused "each agent brings one at least" --agents 2 --max-np 2 -np 1 true
run "$HALAYRUN" --agents 1 --listen 192.0.2.1:0
expect 125 "an address of others"
says err "^halayrun: no rendezvous at any port of 192.0.2.1: Cannot assign requested address$"
[ "$(wc -l <err)" = 1 ] || fail "it says more than that"
run "$HALAYRUN" --agent nowhere -np 1 true
expect 125 "no address"
says err "'nowhere' is no address of a head"

# Something else listens there, and never says a word: known soon, and at the end.
python3 -c 'import socket, time
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
time.sleep(60)' >silent.port &
silent=$!
until_true test -s silent.port
HALAY_START_DEADLINE=7 run "$HALAYRUN" --agent "127.0.0.1:$(cat silent.port)" -np 1 true
expect 125 "a silent listener"
where_silent="at '127.0.0.1:[0-9]*' (last: 127.0.0.1 port [0-9]*: what listens there says nothing)"
says err "this agent has waited for [0-9.]* s: it looks for the head $where_silent. If that stays so it ends with an error in [12] s"
says err "this agent found no head $where_silent: is the launcher"
kill $silent

# Ranks that stay the same: of two agents, and one of the head. Who has another secret or version does not come in.
HALAY_SECRET='' job --agents 2 --secret-file secret -np 1 "$JOB_RANK" briefly
agent 1 -np 2 -l "$JOB_RANK" briefly
told head "an agent on .* has brought places 1 to 2"
HALAY_SECRET=other agent 2 -np 1 "$JOB_RANK" briefly
ended 125 2 "this agent and the head at '$where' do not have the same secret: HALAY_SECRET is another here\|is set here and another there"
told head "an agent, of so many processes: 1 (pid .*) was refused: its HALAY_SECRET is not"
other_build
HALAY_PLUGIN_DIR=other/halay agent 2 -np 1 "$JOB_RANK" briefly
ended 125 2 "it runs Halay $other, and the head $id: run the same version on all nodes"
told head "was refused: it runs Halay $other"
begin second "$HALAYRUN" --agents 1 --listen "$where"
ended 125 second "no rendezvous at TCP port ${where##*:} of 127.0.0.1: Address already in use"
agent 2 -np 1 --secret-file secret "$JOB_RANK" briefly
for name in head 1 2; do ended 0 $name; done
grep -q '^\[2\] rank 2 of 4' 1.out || fail "ranks of the first agent are not labelled"

# The head comes later than its agent, at a port that nobody else draws. A rank's end, and an agent's, are failures of
# the job.
listen=127.0.0.1:$((12000 + $$ % 8000))
job --agents 1 && kill "${pid[head]}" && wait "${pid[head]}"
agent 1 -np 2 sleep "1000.$mark"
told 1 "this agent has waited for [0-9.]* s: it looks for the head at '$where' (last: .*: Connection refused). If that stays so"
agent 3 -np 1 true # it waits, too, and a signal ends that
TRIES=2000 until_true eval "ls $TMPDIR | grep -q halayrun-.*-$(process 3)"
kill -TERM "$(process 3)"
ended 143 3
job --agents 2
unset listen
agent 2 -np 1 sleep "1000.$mark"
TRIES=2000 until_true sleeping 3
pkill -KILL -fxn "sleep 1000[.]$mark"
ended 137 head "rank [0-2] (pid [0-9]* on .*) was killed by signal 9 (SIGKILL)$"
ended 137 1
ended 137 2
sleeping 0 || fail "processes are left"
job --agents 1 -np 1 sleep "1000.$mark"
agent 1 -np 1 sleep "1000.$mark"
TRIES=2000 until_true sleeping 2
kill -KILL "$(process 1)"
ended 137 head "rank 1 (pid [0-9]* on .*) is lost with its agent$"
TRIES=2000 until_true sleeping 0 # the kernel ends the one of the agent, when it comes to it

# A signal to the head: ranks here and there have time to save; then all is over.
cat >saves <<'END'
stop=
trap stop=1 TERM
touch up.$$
until [ $stop ]; do sleep 0.05; done
sleep 1.5
echo saved
exit 143
END
for least in "" "--min-np 1"; do
    rm -f up.*
    job --agents 1 $least -np 1 bash saves
    agent 1 -np 2 bash saves
    TRIES=2000 until_true eval '[ "$(ls up.* | wc -l)" = 3 ]'
    kill -TERM "$(process head)"
    ended 143 head "signal 15 (SIGTERM): ending the job; the ranks have got it, and have 30 s"
    ended 143 1
    [ "$(cat head.out 1.out | grep -c saved)" = 3 ] || fail "ranks had no time to save $least"
done

# Ranks that change: one is killed, one is stopped, an agent is killed, another takes its places.
E=("$JOB_ELASTIC" "$endless")
job --agents 2 --min-np 2 --max-np 5 "${cool[@]}" -np 1 "${E[@]}"
agent 1 -np 2 "${E[@]}" kill:1:2 stop:2:20
told head "places 1 to 2"
agent 2 -np 2 "${E[@]}"
told head "process 1 (pid [0-9]* on .*) was killed by signal 9 (SIGKILL); started again in 0.1 s$"
told head "process 2 (pid .* was killed by signal 9 (SIGKILL): it was stopped, and the others go on without it; st"
agent 3 -np 1 "${E[@]}"
ended 125 3 "refuses: the job has agents for all of its places"
kill -KILL "$(process 2)"
told head "lost the agent on .*: its connection ended"
told head "process 4 (pid [0-9]* on .*) is lost with its agent$"
agent 4 -np 3 "${E[@]}"
told 4 "the job has room for 2 of the 3 processes of this agent"
five_again() { grep 'a world of' head.err | tail -1 | grep -q 'of 5 '; }
TRIES=2000 until_true five_again
# An agent that is told to end lets its processes leave: no error anywhere.
kill -TERM "$(process 4)"
start=$(date +%s%3N)
ended 143 4 "are told to leave the job at their next commit"
ms=$(($(date +%s%3N) - start))
within 20000
told head "the agent on .* leaves"
! grep -q "[34] .*lost with its agent.*" <(sed -n '/leaves/,$p' head.err) || fail "who leaves has failed"
kill -TERM "$(process head)"
ended 143 head "signal 15 (SIGTERM): ending the job"
ended 143 1
gone

# The head is killed: its agents end what they have started.
job --agents 1 --min-np 1 "${cool[@]}"
agent 1 -np 2 "${E[@]}"
world 2
kill -KILL "$(process head)"
start=$(date +%s%3N)
ended 125 1 "the head of the job at $where is lost: .*: the processes here are ended"
ms=$(($(date +%s%3N) - start))
within 5000
gone

# Hosts of the discovery script: a command starts agents there; a place that is gone, a host that is. The name is longer than
# what an agent says of it.
near=near.$(printf 'x%.0s' {1..60}).example
echo 'exec "$HALAYRUN" --agent "$1" --agent-name "$2" -np 2 "$JOB_ELASTIC" '"$endless" >far
hosts "$near:2"$'\nbad:1'
job --min-np 1 "${cool[@]}" --host-discovery-script 'cat hosts' \
    --start-agent '[ %h != bad ] || exit 3; exec sh ./far %a %h'
bad_twice() { [ "$(grep -c 'command for host bad ended with status 3; it is run again' head.err)" -ge 2 ]; }
TRIES=2000 until_true bad_twice
world 2
hosts near:1
told head "process 1 (pid [0-9]* on near.xx*) is told to leave (SIGTERM): its place is gone"
world 1
hosts ''
told head "process 0 (pid [0-9]* on near.xx*) is told to leave"
touch over
kill -TERM "$(process head)"
ended 143 head
gone
all_beside
nothing_left
