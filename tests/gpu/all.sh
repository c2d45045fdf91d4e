#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# all.sh OUT: everything that needs a GPU, in one command: below 8 minutes, nothing from a network.
# Each part is a file of parts/, run in the order of their names with `# limit SECONDS` of its
# own, shortened where the whole has no more. A part ends with 0; with 77 if something is not there, which its last line names; else it has
# failed, and so has all.sh. OUT gets a log of each part, and the verdicts: OUT/verdicts.
#   HALAY_GPU_BUILD   a build to test; without it, one is made in OUT/build
#   HALAY_GPU_DRIVER  a folder whose libcuda.so.1 is used: build/double is the double's
#   HALAY_GPU_PARTS   where the parts are, if not here
#   HALAY_GPU_SECONDS  for all of it (460)
#   HALAY_GPU_SHORT   not empty: little of each part
# By SIGHUP, SIGINT and SIGTERM it ends, with the part that runs and all of its processes: 128 and the
# signal's number. 2: it was called wrongly.
set -uo pipefail
shopt -s nullglob
here=$(cd "$(dirname "$0")" && pwd)
wrong() { echo "all.sh: $*" >&2; exit 2; }
[ $# = 1 ] || wrong "usage: all.sh OUT"
seconds=${HALAY_GPU_SECONDS:-460}
[[ $seconds =~ ^[0-9]{1,6}$ ]] || wrong "HALAY_GPU_SECONDS is '$seconds': it has to be whole seconds"
folder=${HALAY_GPU_PARTS:-$here/parts}
parts=("$folder"/*.sh)
[ ${#parts[@]} -gt 0 ] || wrong "there are no parts (*.sh) in $folder, see HALAY_GPU_PARTS"
mkdir -p "$1" || wrong "OUT cannot be made"
OUT=$(cd "$1" && pwd)
export OUT SOURCE=${here%/tests/gpu} HALAY_GPU_SHORT=${HALAY_GPU_SHORT:-}
export BUILD=${HALAY_GPU_BUILD:-$OUT/build}

# The driver goes before the double's folder, which tests in a build have as their run path.
if [ -n "${HALAY_GPU_DRIVER:-}" ]; then
    DRIVER=$HALAY_GPU_DRIVER/libcuda.so.1
else
    DRIVER=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | sed -n 's/.*libcuda\.so\.1 .*x86-64.* => //p' | head -1)
fi
if [ -e "$DRIVER" ]; then
    mkdir -p "$OUT/driver" && ln -sf "$(readlink -f "$DRIVER")" "$OUT/driver/libcuda.so.1"
    export LD_LIBRARY_PATH=$OUT/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    DRIVER=
fi
export DRIVER

: >"$OUT/verdicts"
failed=0
name=none
# The part's processes are a group, of which timeout is the head; what does not heed SIGTERM is killed.
end_group() { kill -KILL -- -"$!" 2>/dev/null; }
ended_by() {
    trap '' HUP INT TERM
    if [ -n "${!:-}" ]; then
        kill -TERM "$!" 2>/dev/null
        wait "$!" 2>/dev/null
        end_group
    fi
    echo "$name: ENDED by SIG$1" | tee -a "$OUT/verdicts"
    exit $((128 + $2))
}
trap 'ended_by HUP 1' HUP
trap 'ended_by INT 2' INT
trap 'ended_by TERM 15' TERM
for part in "${parts[@]}"; do
    name=$(basename "$part" .sh)
    limit=$(sed -n 's/^# limit \([0-9]*\)$/\1/p' "$part")
    limit=${limit:-60}
    left=$((10#$seconds - SECONDS))
    [ "$limit" -le $left ] || limit=$left
    begin=$SECONDS
    if [ "$limit" -gt 0 ]; then
        timeout -k 5 "$limit" bash "$part" </dev/null >"$OUT/$name.log" 2>&1 &
        wait "$!"
        rc=$?
        end_group
    else
        echo "no time is left for it" >"$OUT/$name.log"
        rc=1
    fi
    case $rc in
    0) verdict=pass ;;
    77) verdict=skip ;;
    124 | 137) verdict="FAIL (ran past $limit s)" ;;
    *) verdict="FAIL ($rc)" ;;
    esac
    [ $rc = 0 ] || [ $rc = 77 ] || failed=$((failed + 1))
    echo "$name: $verdict, $((SECONDS - begin)) s: $(tail -n 1 "$OUT/$name.log")" | tee -a "$OUT/verdicts"
done
echo "all.sh: ${#parts[@]} parts, $failed failed, $SECONDS s; logs in $OUT"
[ $failed = 0 ]
