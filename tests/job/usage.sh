#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What cannot be run is refused with its reason, before anything is started.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016,SC2086,SC2217
. "$(dirname "$0")/lib.sh"
bad() { # status, message, arguments
    run "$HALAYRUN" "${@:3}"
    expect "$1" "${@:3}"
    says err "^halayrun: .*$2"
    [ ! -s out ] || fail "${*:3}: something ran"
    nothing_left
}
for n in 0 -1 1025 two 2x 1.5 "" 99999999999999999999; do
    bad 2 "-np must be a whole number from 1 to 1024, not '$n'" -np "$n" echo ran
done
bad 2 "say how many ranks" echo ran
bad 2 "say what to run"
bad 2 "say what to run" -np 2
bad 2 "no option --nonsense" --nonsense -np 2 echo ran
bad 2 "needs a value" -np
bad 2 "timeout must be" --timeout 0 -np 1 echo ran
bad 2 "min-np must be a whole number from 1 to 1024, not '0'" --min-np 0 -np 1 echo ran
bad 2 "max-np must be .* not 'many'" --max-np many echo ran
bad 2 "say how many ranks" --min-np 2 echo ran
bad 2 "min-np 3 is more than the 2 processes that the job begins with" --min-np 3 -np 2 echo ran
bad 2 "-np 3 is more than --max-np 2 allows" -np 3 --max-np 2 --min-np 1 echo ran
bad 2 "min-np 3 is more than --max-np 2 allows" --min-np 3 --max-np 2 --host-discovery-script true echo ran
for o in "--reset-limit 1" "--elastic-timeout 1" "--slots-per-host 2" "--blacklist-cooldown-range 1 2"; do
    bad 2 "${o%% *} is for a job whose ranks change: give --min-np" $o -np 1 echo ran
done
bad 2 "keep-going is for a job whose ranks are always the same" --keep-going --min-np 1 -np 1 echo ran
bad 2 "slots-per-host is for hosts of --host-discovery-script" --slots-per-host 2 --min-np 1 -np 1 echo ran
bad 2 "host-discovery-script says where, and so do -H" --host-discovery-script true -H localhost:2 echo ran
bad 2 "cooldown-range 2 1: the first is the shorter one" --min-np 1 --blacklist-cooldown-range 2 1 -np 1 echo ran
bad 2 "cooldown-range takes two numbers of seconds .* not '-np'" --min-np 1 --blacklist-cooldown-range 2 -np 1 echo ran
bad 2 "cooldown-range takes two numbers of seconds .* not ''" --min-np 1 -np 1 --blacklist-cooldown-range 2
for fd in 2 x 9 "" 8; do
    bad 2 "notes-fd takes the number of an open descriptor that can be written, from 3 on, not '$fd'" --notes-fd "$fd" -np 1 echo ran 8</dev/null
done
bad 2 "-x takes NAME=VALUE, not 'A B=a'" -x 'A B=a' -np 1 echo ran
bad 2 "NAME=VALUE" -x =1 -np 1 echo ran
bad 127 "cannot start 'no-such-program': No such file or directory on PATH$" -np 2 no-such-program
bad 127 "cannot start './no/such': No such file or directory$" -np 2 ./no/such
touch plain
bad 127 "cannot start 'plain': No such file or directory on PATH; it is in this folder: give ./" -np 2 plain
bad 126 "cannot start './plain': Permission denied" -np 2 ./plain
bad 126 "cannot start '/tmp': Is a directory" -np 2 /tmp
printf 'echo no first line\n' >script
chmod +x script
bad 126 "Exec format error (a script begins with" -np 2 ./script
printf '#!/bin/sh\r\necho a line of Windows\r\n' >script
bad 127 "No such file or directory (the program that its first line names is not there" -np 2 ./script
HALAY_PLUGIN_DIR=/nonexistent bad 125 "no plug-in for the ranks to meet at: /nonexistent/halay-launch-meet.so" -np 2 true
TMPDIR=/nonexistent bad 125 "cannot make a folder in /nonexistent" -np 2 true

run "$HALAYRUN" --help
expect 0 --help
says out "^Usage: halayrun -np N"
run "$HALAYRUN" --version
expect 0 --version
says out "^halayrun [0-9]"
# Options end at the program: these are its own.
run "$HALAYRUN" -n 1 echo -np 0 --help
expect 0
says out "^-np 0 --help$"
nothing_left
