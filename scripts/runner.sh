# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What scripts/test runs and counts with. Only what ctest and pytest report is counted as passed;
# anything else counts when it fails. A test that fails is run once more, alone: if it passes then, it
# is flaky. More than three flaky ones are a failure.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

passed=0 failed=0 skipped=0 flaky=0 notes=() part='' long=''
all=false # scripts/test --all
results=$root/build/results

# fail NAME [HINT...]
fail() {
    failed=$((failed + 1)) && notes+=("FAILED: $1") && say "FAILED: $1"
    shift
    [ $# = 0 ] || notes+=("${@/#/  }")
}

# took NAME START: what takes long is told with its part.
took() { [ $((SECONDS - $2)) -lt 15 ] || long+=", $1 $((SECONDS - $2))"; }

# step NAME COMMAND...: what is no test. Exit status 77: skipped.
step() {
    local name=$1 status=0 alone start=$SECONDS
    shift
    "$@" </dev/null || status=$?
    took "$name" $start
    case $status in
    0) return ;;
    77) skipped=$((skipped + 1)) && notes+=("skipped $name") ;;
    *)
        alone=$(printf '%q ' "$@")
        [ "$(type -t "$1")" != function ] || alone="scripts/test $part"
        fail "$name" "alone: $alone" "its output stands above, behind: part $part" && return 1
        ;;
    esac
}

# suite NAME FILE: a runner of tests, the command ${runner[@]}, which writes the JUnit file FILE;
# ${single[@]} runs the test {}.
runner=() single=()
suite() {
    local name=$1 file=$2 status=0 counts=() lines start=$SECONDS
    say "$name"
    mkdir -p "$results" && rm -f "$file"
    "${runner[@]}" </dev/null || status=$?
    took "$name" $start
    mapfile -t lines < <("$root/scripts/count-tests" "$file" "${single[@]}")
    read -r -a counts <<<"${lines[0]:-}"
    [ ${#counts[@]} = 4 ] || { fail "$name: no results" "exit status $status of: ${runner[*]}" && return; }
    notes+=("${lines[@]:1}")
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2])) flaky=$((flaky + counts[3]))
    if [ "${counts[1]}" != 0 ]; then
        say "FAILED: ${counts[1]} of $name"
    elif [ $status != 0 ] && ! { [ "${counts[3]}" != 0 ] && [[ $status =~ ^(1|8)$ ]]; }; then # pytest's, ctest's
        fail "$name: exit status $status, though no test failed" "the command: ${runner[*]}"
    fi
}

# What scripts/test keeps of its last runs: "PART SECONDS", a line each.
last() { sed -n "s/^$1 //p" "$results/seconds" 2>/dev/null; }
keep() {
    mkdir -p "$results"
    { sed "/^$1 /d" "$results/seconds" 2>/dev/null; echo "$1 $2"; } >"$results/seconds.new"
    mv "$results/seconds.new" "$results/seconds"
}

# parts PART...: runs part_PART of each. Only CI minds how long they take: twice the budget is a failure.
declare -A budget=()
parts() {
    local number=0 start seconds left other
    for part in "$@"; do
        number=$((number + 1)) left=0 start=$SECONDS long=
        for other in "${@:number}"; do left=$((left + $(last "$other" | grep . || echo "${budget[$other]}"))); done
        say "part $part, $number of $#; about $(((left + 59) / 60)) minutes are left"
        "part_$part"
        seconds=$((SECONDS - start))
        keep "$part" $seconds
        notes+=("$part: $seconds s, budget ${budget[$part]} s (load $(cut -d' ' -f1 /proc/loadavg))${long/,/:}")
        [ $all = true ] || [ "${CI:-}" != true ] || [ $seconds -le $((2 * ${budget[$part]})) ] ||
            fail "$part: $seconds s, more than twice its budget of ${budget[$part]} s"
    done
    [ $flaky -le 3 ] || fail "$flaky flaky tests, more than 3"
}

# The last line is what CI reads.
summary() {
    say "in $SECONDS s:"
    [ ${#notes[@]} = 0 ] || printf '  %s\n' "${notes[@]}"
    [ $flaky = 0 ] || say "flaky: $flaky (docs/status.md records each until it is explained)"
    echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
    [ $failed = 0 ]
}
