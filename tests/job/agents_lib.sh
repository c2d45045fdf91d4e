# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of agents share: a head and its agents, whose output is in head.out, 1.err and so on.
# shellcheck source-path=SCRIPTDIR source=lib.sh
[ -n "${here:-}" ] || . "$(dirname "$0")/lib.sh"
export HALAY_SECRET=$mark HALAY_STOP_TIMEOUT=1
declare -A pid
besides=()
cool=(--blacklist-cooldown-range 0.1 60)
endless=1000000$mark # steps of job_elastic, by which this test finds its own

say_all() { for f in *.err; do echo "-- $f" && tail -n 25 "$f"; done >&2; }
# NAME COMMAND...: in the background; its process is ${pid[NAME]}
begin() {
    timeout -k 5 60 "${@:2}" >"$1.out" 2>"$1.err" &
    pid[$1]=$!
}
process() { TRIES=2000 until_true pgrep -P "${pid[$1]}" -x halayrun && pgrep -P "${pid[$1]}" -x halayrun; }
# STATUS NAME [TEXT]
ended() {
    wait "${pid[$2]}"
    status=$?
    [ "$status" = "$1" ] || fail "$2 has ended with status $status, not $1"
    [ -z "${3:-}" ] || grep -q -- "$3" "$2.err" || fail "$2.err does not say: $3"
}
told() { TRIES=2000 until_true grep -q -- "$2" "$1.err"; }
# OPTIONS...: a head, whose address is $where
job() {
    rm -f over done.* ./*.err ./*.out
    begin head ${at[@]+"${at[@]}"} "$HALAYRUN" --listen "${listen:-127.0.0.1:0}" "$@"
    told head "agents come to"
    where=$(sed -n 's/.*agents come to \([^ ]*\): .*/\1/p' head.err)
}
# NAME OPTIONS...
agent() { begin "$1" ${at[@]+"${at[@]}"} "$HALAYRUN" --agent "$where" "${@:2}"; }
# NAME COMMAND...: in a folder of its own, with jobs of its own, until all_beside
beside() {
    mkdir "$1"
    besides+=("$1")
    (
        pid=()
        trap 'kill "${pid[@]}" 2>/dev/null; wait' EXIT
        trap 'exit 1' TERM
        cd "$1" && "${@:2}"
    ) &
    pid[$1]=$!
}
all_beside() { for name in "${besides[@]}"; do wait "${pid[$name]}" || fail "beside all else: $name"; done; }
# SIZE [TIMES]: rank 0 has said so, so often
world() { TRIES=2000 until_true eval "[ \$(cat ./*.err | grep -c 'a world of $1 from') -ge ${2:-1} ]"; }
gone() { TRIES=500 until_true eval "! pgrep -f '^$JOB_ELASTIC $endless'"; }
# TEXT: what the discovery script prints, whole at any time
hosts() { printf '%s\n' "$1" >hosts.new && mv hosts.new hosts; }
