#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# all_double.sh BUILD: all.sh over the double: every part passes, or says what is not there; a part
# that fails, or that does not end, makes it fail, and what comes after it still runs.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "all_double: $*" >&2; cat "$out"/*/*.log >&2; exit 1; }
export HALAY_GPU_BUILD=$1 HALAY_GPU_DRIVER=$1/double HALAY_GPU_SHORT=1 CUDA_DOUBLE="delay_us=0"
export HALAY_NCCL_LIBRARY=$1/double/libnccl.so.2 NCCL_DOUBLE_ONE=1

"$here/all.sh" "$out/all" || fail "it fails over the double"
for part in 10-machine 20-build 30-bits 50-threads 60-times 70-processes 72-nccl 74-export 80-kill; do
    grep -q "^$part: pass, " "$out/all/verdicts" || fail "$part does not pass"
done
grep -q "^40-memcheck: \(pass\|skip\), " "$out/all/verdicts" || fail "40-memcheck"
grep -q "^76-torch: \(pass\|skip\), " "$out/all/verdicts" || fail "76-torch"
[ "$(wc -l <"$out/all/verdicts")" = "$(find "$here/parts" -name '*.sh' | wc -l)" ] || fail "a part has no verdict"
grep -q "70-processes: pass.*by Halay's kernels" "$out/all/verdicts" || fail "processes on one GPU are staged"
grep -q "60-times: pass.*% of a copy" "$out/all/verdicts" || fail "times without a share"

mkdir "$out/parts"
echo 'echo "no such thing"; exit 77' >"$out/parts/1.sh"
printf '# limit 1\nsleep 60\n' >"$out/parts/2.sh"
echo 'echo "wrong bits"; exit 3' >"$out/parts/3.sh"
echo 'echo well' >"$out/parts/4.sh"
! HALAY_GPU_PARTS=$out/parts "$here/all.sh" "$out/bad" || fail "it passes, though parts fail"
sed 's/, [0-9]* s: /|/' "$out/bad/verdicts" >"$out/got"
printf '%s\n' '1: skip|no such thing' '2: FAIL (ran past 1 s)|' '3: FAIL (3)|wrong bits' '4: pass|well' |
    diff - "$out/got" || fail "other verdicts"
HALAY_GPU_SECONDS=0 HALAY_GPU_PARTS=$out/parts "$here/all.sh" "$out/bad" >"$out/told"
grep -q "no time is left" "$out/told" || fail "it goes on when its time is over"
rm "$out/parts/2.sh" "$out/parts/3.sh"
HALAY_GPU_PARTS=$out/parts "$here/all.sh" "$out/bad" || fail "it fails, though no part does"

# Called wrongly it says so, and runs nothing.
wrongly() { # WORDS VARIABLE=VALUE
    rm -rf "$out/wrongly"
    env "$2" "$here/all.sh" "$out/wrongly" >"$out/told" 2>&1
    [ $? = 2 ] || fail "$2: not 2: $(cat "$out/told")"
    grep -q "$1" "$out/told" || fail "$2: $(cat "$out/told")"
    [ ! -e "$out/wrongly" ] || fail "$2: it has run"
}
mkdir "$out/empty"
for seconds in abc -1 1.5 " 7" 08x; do wrongly "HALAY_GPU_SECONDS is" "HALAY_GPU_SECONDS=$seconds"; done
wrongly "there are no parts" "HALAY_GPU_PARTS=$out/empty"
wrongly "there are no parts" "HALAY_GPU_PARTS=$out/nowhere"

# Ended midway, by a signal to it or to its group, it ends its part, and what that has started.
is_over() { # PID: ended, and perhaps nobody has waited for it
    for _ in {1..100}; do
        grep -q '^State:[[:space:]]*[^Z]' "/proc/$1/status" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}
mkdir "$out/long"
cat >"$out/long/1.sh" <<'PART'
bash -c 'trap "" HUP INT TERM; echo $$ >"$OUT/stubborn"; while :; do sleep 0.1; done' &
sleep 100
PART
echo "touch $out/went-on" >"$out/long/2.sh"
for signal in HUP:1 INT:2 TERM:15; do
    for to in '' -; do
        end=$out/end-$signal$to
        set -m # a group of its own, which heeds SIGINT
        HALAY_GPU_PARTS=$out/long "$here/all.sh" "$end" >"$out/told" 2>&1 &
        pid=$!
        set +m
        for _ in {1..300}; do [ ! -s "$end/stubborn" ] || break; sleep 0.1; done
        kill -s "${signal%:*}" -- "$to$pid"
        wait "$pid"
        rc=$?
        [ $rc = $((128 + ${signal#*:})) ] || fail "SIG$signal to '$to$pid': it ends with $rc"
        is_over "$(cat "$end/stubborn")" || fail "SIG$signal to '$to$pid': its part runs on"
        [ "$(cat "$end/verdicts")" = "1: ENDED by SIG${signal%:*}" ] || fail "SIG$signal: $(cat "$end/verdicts")"
        [ ! -e "$out/went-on" ] || fail "SIG$signal: it goes on"
    done
done

# Without a driver the parts say so, and all.sh fails.
mkdir "$out/few"
cp "$here"/parts/10-machine.sh "$here"/parts/30-bits.sh "$out/few"
! HALAY_GPU_PARTS=$out/few HALAY_GPU_DRIVER=$out/nowhere "$here/all.sh" "$out/none" || fail "it passes without a driver"
grep -q "^10-machine: FAIL.*there is no libcuda" "$out/none/verdicts" || fail "no driver, and nobody says so"
