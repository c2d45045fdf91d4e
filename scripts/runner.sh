# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What scripts/test runs and counts with. Only what ctest and pytest report is counted as passed;
# anything else counts when it fails.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

passed=0 failed=0 skipped=0 notes=()
all=false # scripts/test --all
results=$root/build/results

fail() { failed=$((failed + 1)) && notes+=("FAILED: $1") && say "FAILED: $1"; }

# step NAME COMMAND...: what is no test. Exit status 77: skipped.
step() {
    local name=$1 status=0
    shift
    "$@" </dev/null || status=$?
    case $status in
    0) return ;;
    77) skipped=$((skipped + 1)) && notes+=("skipped $name") ;;
    *) fail "$name" && return 1 ;;
    esac
}

# suite NAME FILE COMMAND...: a runner of tests, which writes the JUnit file FILE.
suite() {
    local name=$1 file=$2 status=0 counts=() lines
    shift 2
    say "$name"
    mkdir -p "$results" && rm -f "$file"
    "$@" </dev/null || status=$?
    mapfile -t lines < <(scripts/count-tests "$file")
    read -r -a counts <<<"${lines[0]:-}"
    [ ${#counts[@]} = 3 ] || { fail "$name: no results" && return; }
    notes+=("${lines[@]:1}")
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) skipped=$((skipped + counts[2]))
    if [ "${counts[1]}" != 0 ]; then
        notes+=("FAILED: ${counts[1]} of $name")
    elif [ $status != 0 ]; then
        fail "$name: exit status $status, though no test failed"
    fi
}

# build PRESET FOLDER [TARGET...]
build() {
    cmake --preset "$1" -DHALAY_TESTS=ON >/dev/null && ninja --quiet -C "$2" "${@:3}"
}

# ctests FOLDER LABEL...  Those of unit, plan, ranks and gpu say how many places of two a processor they take.
ctests() {
    local folder=$1 labels fixed places
    shift
    places=$(nproc)
    case $1 in unit | ranks | gpu | job) places=$((2 * places)) ;; esac # jobs wait for patiences, mostly
    labels=$(IFS='|' && echo "$*")
    # Without a fixed layout of memory gcc 12's thread sanitizer does not start on some kernels.
    fixed=(setarch "$(uname -m)" -R)
    "${fixed[@]}" true 2>/dev/null || fixed=()
    suite "$folder: $labels" "$results/$folder-$1.xml" "${fixed[@]}" \
        ctest --test-dir "$folder" -j "$places" -L "^($labels)\$" --no-tests=error \
        --output-on-failure --test-output-truncation middle --output-junit "$results/$folder-$1.xml"
}

# sanitized "TARGET..." LABEL...: these targets, and no others, under both sanitizers
sanitized() {
    local targets build
    read -ra targets <<<"$1"
    for build in build-asan build-tsan; do
        step $build build ${build#build-} $build "${targets[@]}" && ctests $build "${@:2}"
    done
}

# Fails if a test of FOLDER has none of the labels, or gpu and another one.
all_labelled() {
    local folder=$1 labels
    shift
    labels=$(IFS='|' && echo "$*")
    ctest --test-dir "$folder" -N -LE "^($labels)\$" | grep 'Test *#' && echo "belong to no part" && return 1
    ctest --test-dir "$folder" -N -L '^gpu$' -L '^[^g]' | grep 'Test *#' && echo "belong to two parts" && return 1
    return 0
}

# Where the machine can have no nodes of its own (no root, no namespaces), the tests say so and skip.
test_bed() {
    local command=tests/cluster/$1
    "$command" check >/dev/null || [ "$(id -u)" != 0 ] || "$command" install >/dev/null
}

# timed PART BUDGET_S: runs part_PART. Half as long again as its budget is a failure.
timed() {
    local start=$SECONDS took
    say "part $1"
    "part_$1"
    took=$((SECONDS - start))
    notes+=("$1: $took s, budget $2 s (load $(cut -d' ' -f1 /proc/loadavg))")
    [ $all = true ] || [ $((took * 2)) -le $(($2 * 3)) ] || fail "$1: $took s, its budget is $2 s"
}
