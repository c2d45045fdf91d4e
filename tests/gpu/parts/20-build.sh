# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Halay and its tests, unless a build was given.
# limit 240
programs=(gpu_bits gpu_times gpu_process gpu_calls gpu_nccl gpu_export test_ranks_cuda)
if [ "$BUILD" != "$OUT/build" ]; then
    for program in "${programs[@]}"; do
        [ -x "$BUILD/bin/$program" ] || { echo "$BUILD has no bin/$program"; exit 1; }
    done
    echo "given: $BUILD"
    exit 0
fi
for tool in cmake gcc; do
    command -v $tool >/dev/null || { echo "there is no $tool"; exit 1; }
done
cmake -S "$SOURCE" -B "$BUILD" -DCMAKE_BUILD_TYPE=Release &&
    cmake --build "$BUILD" -j "$(nproc)" --target "${programs[@]}" && echo "built: $BUILD"
