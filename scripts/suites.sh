# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How the parts of scripts/test build, and run ctest and pytest.
# shellcheck source-path=SCRIPTDIR source=runner.sh
. "$(dirname "${BASH_SOURCE[0]}")/runner.sh"

# build PRESET FOLDER [TARGET...]
build() {
    cmake --preset "$1" -DHALAY_TESTS=ON >/dev/null && ninja --quiet -C "$2" "${@:3}"
}

names() { ctest --test-dir "$1" -N -L "$2" "${@:3}" | sed -n 's/.*Test *#[0-9]*: //p'; }
# left_out FOLDER LABELS: two thirds of the tests with the label sampled, and under a sanitizer two thirds
# of those that the other sanitizer has, too.
left_out() {
    local both
    [ "${SAMPLE:-}" ] || return 0
    mapfile -t both < <(names "$1" "$2" -L '^sampled$')
    SAMPLE="$SAMPLE ${1##*/}" "$root/scripts/sample.py" 3 --rest "${both[@]}"
    [[ $1 == build-?san ]] || return 0
    mapfile -t both < <(comm -12 <(names build-asan "$2" -LE '^sampled$' | sort) <(names build-tsan "$2" -LE '^sampled$' | sort))
    SAMPLE="$SAMPLE ${1##*/}" "$root/scripts/sample.py" 3 --rest "${both[@]/#/both-}" | sed 's/^both-//'
}

# ctests FOLDER LABEL...  Those of unit, plan, ranks and gpu say how many places of two a processor they take.
ctests() {
    local folder=$1 labels fixed places out=() less=()
    shift
    places=$(nproc)
    case $1 in unit | ranks | gpu | job) places=$((2 * places)) ;; esac # jobs wait for timeouts, mostly
    labels=$(IFS='|' && echo "$*")
    # Without a fixed layout of memory gcc 12's thread sanitizer does not start on some kernels.
    fixed=(setarch "$(uname -m)" -R)
    "${fixed[@]}" true 2>/dev/null || fixed=()
    mapfile -t out < <(left_out "$folder" "^($labels)\$" | grep .)
    [ ${#out[@]} = 0 ] || less=(-E "^($(IFS='|' && echo "${out[*]}"))\$")
    single=("${fixed[@]}" env "SAMPLE=${SAMPLE:-}" ${PYTHON:+"PYTHON=$PYTHON"} ctest --test-dir "$folder" --no-tests=error --output-on-failure -R "{}")
    runner=("${fixed[@]}" ctest --test-dir "$folder" -j "$places" -L "^($labels)\$" "${less[@]}" --no-tests=error
        --output-on-failure --test-output-truncation middle --output-junit "$results/${folder##*/}-$1.xml")
    suite "${folder##*/}: $labels" "$results/${folder##*/}-$1.xml"
}

# pytests NAME ARGUMENT...: whole files beside one another, as many as there are processors, at most four.
pytests() {
    local beside pytest=("$python" -m pytest -q -p no:cacheprovider -m "$($all || echo "not long")" -o junit_logging=all -o junit_log_passing_tests=false)
    need_build || return
    beside=$(($(nproc) < 4 ? $(nproc) : 4))
    single=(env "SAMPLE=" timeout -k 20 600 "${pytest[@]}" "{}")
    runner=(timeout -k 20 1800 "${pytest[@]}" -n "$beside" --dist loadfile --junitxml "$results/$1.xml" "${@:2}")
    suite "$1" "$results/$1.xml"
}

# sanitized "TARGET..." LABEL...: these targets, and no others, under both sanitizers
sanitized() {
    local targets build
    read -ra targets <<<"$1"
    step "cmake --preset tsan" cmake --preset tsan -DHALAY_TESTS=ON >/dev/null # both sanitizers' names
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
    ctest --test-dir "$folder" -N -L '^gpu$' -L "^(${labels/|gpu/})\$" | grep 'Test *#' && echo "belong to two parts" && return 1
    return 0
}

# Where the machine can have no nodes of its own (no root, no namespaces), the tests say so and skip.
test_bed() {
    local command=tests/cluster/$1
    "$command" check >/dev/null || [ "$(id -u)" != 0 ] || "$command" install >/dev/null
}
