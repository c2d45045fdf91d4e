#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay-info tells what is there, and what is not; its plans are proved. Needs $INFO and $PLUGINS,
# the folder of the plug-ins.
# shellcheck source-path=SCRIPTDIR source=../common/selftest.sh
. "$(dirname "$(readlink -f "$0")")/../common/selftest.sh"
root=$(readlink -f "$(dirname "$(readlink -f "$0")")/../..")
unset "${!HALAY_@}"

expect 0 "$INFO"
says "^library: /.*/libhalay\.so\."
says "^  transport +shm +found"
says "^  launch +pmix +found"
says "^processors: $(nproc) usable"
says "^instruction sets: .*scalar yes$"
says "^  allreduce +ring +1 +commutative +Patarasuk"
says "^  HALAY_DEADLINE +not set: 1800 "
says "^  accepted$"

expect 0 env HALAY_DEADLINE=7 HALAY_ALGORITHM=allreduce=ring "$INFO"
says "^  HALAY_DEADLINE +set: 7 "
expect 1 env HALAY_ALGORITHM=allreduce=teleport "$INFO"
says "REFUSED: .*teleport.*ring"
[ "$(wc -l <err)" = 1 ] || fail "one wrong variable, and not one complaint"
expect 1 env HALAY_ISA=abacus "$INFO"
says "REFUSED: HALAY_ISA is .abacus., but it is no setting any more"
expect 0 env HALAY_SECRET=sesame "$INFO"
says "^  HALAY_SECRET +set "
! grep -q sesame out || fail "the secret is shown"

# NCCL: of its double, too old, none, and off.
says "^NCCL: "
nccl=$DOUBLE/libnccl.so.2
expect 0 env NCCL_DOUBLE=version=22105 HALAY_NCCL_LIBRARY="$nccl" "$INFO"
says "^NCCL: /.*/double/libnccl.so.2: NCCL 2.21.5$"
expect 0 env NCCL_DOUBLE=version=21705 HALAY_NCCL_LIBRARY="$nccl" "$INFO"
says "^NCCL: .*: NCCL 2.17.5, and 2.18 or newer is needed: "
expect 0 env HALAY_NCCL_LIBRARY="$DOUBLE/libcuda.so.1" "$INFO"
says "^NCCL: .*does not say which NCCL it is"
expect 0 env HALAY_NCCL_LIBRARY=/no/nccl.so "$INFO"
says "^NCCL: none: /no/nccl.so: .*No such file"
mkfifo fifo
expect 0 timeout 20 env HALAY_NCCL_LIBRARY=./fifo "$INFO"
says "^NCCL: none: ./fifo is not a file"
expect 0 env HALAY_NCCL_LIBRARY=off "$INFO"
says "^NCCL: HALAY_NCCL_LIBRARY is off"
expect 0 env HALAY_NCCL_LIBRARY=own:64 "$INFO"
says "^NCCL: HALAY_NCCL_LIBRARY is own:64: "

mkdir plugins
cp "$PLUGINS/halay-transport-shm.so" plugins/halay-transport-ether.so
echo nonsense >plugins/halay-boot-pmix.so
export HALAY_PLUGIN_DIR=$here/plugins
expect 0 "$INFO"
says "^  transport +shm +missing: .*No such file"
says "^  boot +pmix +missing: .*(too short|invalid ELF)"
says "^  transport +verbs +missing: .*No such file.*; install libibverbs-dev \(Debian\) where Halay is built"
says "^  transport +ucx +missing: .*No such file.*; install libucx-dev "
echo nonsense >plugins/halay-transport-verbs.so
expect 0 "$INFO"
says "^  transport +verbs +missing: .*; install libibverbs1 ibverbs-providers \(Debian\)"
says "^  transport +ether +missing: .*no symbol halay_transport_v[0-9]+_ether: it was built for another version"
unset HALAY_PLUGIN_DIR
# What a plug-in is left out without, README's command installs.
mapfile -t packages < <(grep -rhoE 'Debian: [a-z0-9-]+' "$root"/transports/*/*.cmake "$root/pmix/CMakeLists.txt" | cut -d' ' -f2 | sort -u)
PKG_CONFIG_LIBDIR=$here expect 0 cmake -S "$root" -B build -DHALAY_TESTS=OFF
mv err out # it is said even where status lines are not read
for plugin in "transport verbs: .*libibverbs-dev" "transport ucx: .*libucx-dev" "boot pmix, launch pmix: .*libpmix-dev"; do
    says "^-- no plug-in $plugin"
done
[ ${#packages[@]} = 3 ] || fail "CMake names ${#packages[@]} packages, not 3"
for package in "${packages[@]}" ibverbs-providers; do
    [[ " $(sed -n '/^lap packages/,/[^\\]$/p' "$root/scripts/quickstart" | tr '\n' ' ')" = *" $package "* ]] || fail "quickstart does not install $package"
done

"$INFO" | awk '/^planners/ { on = 1; getline; next } /^[^ ]/ { on = 0 } on { print $1, $2, /power of two/ ? "1 2 8" : "1 2 7 8" }' >planners
[ "$(wc -l <planners)" -ge 9 ] || fail "planners are missing"
while read -r collective algorithm ranks; do
    for n in $ranks; do
        expect 0 "$INFO" plan "$collective" --algorithm "$algorithm" --ranks "$n" --rank $((n - 1))
        says "^$collective $algorithm rank $((n - 1)) of $n "
        says "^proved: "
    done
done <planners
expect 0 "$INFO" plan allreduce --algorithm ring --ranks 4 --rank 1 --in-place
says "in place"
expect 0 "$INFO" plan broadcast --algorithm binomial --ranks 5 --root 4
says "root 4"
for wrong in "" "teleport" "allreduce" "allreduce --algorithm teleport --ranks 4" "allreduce --algorithm ring" \
    "allreduce --algorithm ring --ranks 4 --rank 4" "allreduce --algorithm ring --ranks 99999" \
    "allreduce --algorithm ring --ranks -1" "allreduce --algorithm ring --ranks 2x" "allreduce --frob"; do
    # shellcheck disable=SC2086
    expect 2 "$INFO" plan $wrong
done
expect 1 "$INFO" plan allreduce --algorithm ring --ranks 4 --root 1

expect 0 "$INFO" explain allreduce 1MiB --type float32 --ranks 16 --nodes 4
says "^allreduce of 1048576 bytes, 16 ranks on 4 nodes$"
says "^  lower bound [0-9.]+ us: latency"
says "^\* two_level +[0-9.]+ +[0-9.]+ +6 +1966080 +168$"
says "^  chosen: two_level: row [0-9]+ of the table"
expect 0 "$INFO" explain allreduce 64 --ranks 6 --nodes 3 --round-robin --op ordered
says "^  ring +refused: the operation does not commute$"
says "^  two_level_short +refused: .*not consecutive$"
says "^  chosen: recursive_doubling: "
expect 0 "$INFO" explain barrier --ranks 8 --oversubscribed
says "^  chosen: two_stars: row [0-9]+ of the table: .*more than its processors$"
expect 0 "$INFO" explain barrier --ranks 8 --single
says "^  chosen: star: row [0-9]+ of the table: .*of one processor$"
expect 0 "$INFO" explain allreduce 64 --ranks 6 --algorithm allreduce=ring --op ordered
says "HALAY_ALGORITHM's ring cannot: the operation does not commute"
expect 0 env HALAY_ALGORITHM=allreduce=ring "$INFO" explain allreduce 64 --ranks 6 --op max
says "^  chosen: ring: it was asked for by name"
echo "barrier - - any two_level # all" >rows
expect 0 "$INFO" explain barrier --ranks 6 --selection rows
says "^  chosen: two_level: line 1 of HALAY_SELECTION's file"
printf '%s 100\n' call_ns step_ns copy_byte_ns reduce_byte_ns {near,far}_{overhead_ns,latency_ns,byte_ns,eager_bytes} >model
expect 0 "$INFO" explain allgather 1K --vector --ranks 6 --nodes 3 --model model --json
python3 -c 'import json
e = json.load(open("out"))
c = {c["algorithm"]: c for c in e["candidates"]}
assert e["chosen"] in c and "refused" in c["circulant"] and c["ring"]["rounds"] == 5
assert e["bytes"] == 6144 and c["ring"]["busiest_bytes"] == 5120 and e["bound_ns"] > 51200
' || fail "not the JSON that it should be"
gpu=(explain allreduce 1M --gpu --algorithm allreduce=ring --ranks 4)
expect 0 "$INFO" "${gpu[@]}" --nodes 2
says "^  in device memory: staged, .*; not GPUDirect: ranks share a node$"
expect 0 env -u HALAY_GPUDIRECT "$INFO" "${gpu[@]}" --nodes 4
says "^  in device memory: staged, .*; not GPUDirect: HALAY_GPUDIRECT is not 1$"
expect 0 env HALAY_GPUDIRECT=1 "$INFO" "${gpu[@]}" --nodes 4
says "^  in device memory: direct \(GPUDirect\), unless it scales"
expect 0 env HALAY_GPUDIRECT=1 "$INFO" "${gpu[@]}" --nodes 4 --algorithm allreduce=circulant
says "^  in device memory: staged, .*; not GPUDirect: this algorithm's messages lie in two places; .*HALAY_ALGORITHM"
expect 0 env HALAY_GPUDIRECT=1 "$INFO" explain allreduce 1M --gpu --ranks 1
says "^  in device memory: on the device; there are no messages$"
expect 0 env HALAY_GPUDIRECT=1 "$INFO"
says "^  HALAY_GPUDIRECT +set: 1 "
expect 1 env HALAY_GPUDIRECT=x "$INFO"
says "REFUSED: .*HALAY_GPUDIRECT is 'x'; it takes 1 or 0; the default is 0"
expect 2 env HALAY_GPUDIRECT=x "$INFO" "${gpu[@]}" --nodes 4
expect 2 "$INFO" explain alltoall 8 --ranks 4 # no block for each
expect 2 "$INFO" explain alltoall 15 --ranks 4
expect 2 "$INFO" explain allreduce 3 --ranks 4
expect 0 "$INFO" explain alltoall 8 --type int8 --ranks 4
expect 0 "$INFO" explain alltoall 16 --ranks 4
says "16 bytes"
while read -r c; do
    [ "$c" = barrier ] && size= || size=4K
    # shellcheck disable=SC2086
    for n in 1 3 16; do expect 0 "$INFO" explain "$c" $size --ranks $n --selection model; done
    says "^  chosen: .*HALAY_SELECTION=model"
done < <(awk '{ print $1 }' planners | sort -u)
for wrong in "allreduce" "allreduce 1K" "allreduce 1X --ranks 2" "barrier 1K --ranks 2" "teleport 1K --ranks 2" \
    "allreduce 1K --ranks 0" "allreduce 1K --ranks 2 --nodes 3" "allreduce 1K --ranks 2 --root 1" \
    "broadcast 1K --ranks 2 --root 2" "allreduce 1K --ranks 2 --type float80" "allreduce 1K --ranks 2 --op best" \
    "allreduce 1K --ranks 2 --type float32 --op bitand" "barrier --ranks 4 --nodes 2 --oversubscribed"; do
    # shellcheck disable=SC2086
    expect 2 "$INFO" explain $wrong
done
expect 1 "$INFO" explain barrier --ranks 2 --selection nowhere
expect 1 "$INFO" explain barrier --ranks 2 --model rows
expect 1 "$INFO" explain barrier --ranks 2 --algorithm barrier=fence
grep -q "dissemination" err || fail "the right names are not told"
expect 2 "$INFO" --frob
expect 0 "$INFO" --version
