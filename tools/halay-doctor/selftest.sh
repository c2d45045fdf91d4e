#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# halay-doctor finds what is seeded: in trees of files that stand for a machine, by a filter of system
# calls, by variables; and of a job who cannot be reached. Needs $HALAYRUN, $DOCTOR and $DENY.
# shellcheck disable=SC2016 # what is seeded is expanded when it is
# shellcheck source-path=SCRIPTDIR source=../common/selftest.sh
. "$(dirname "$(readlink -f "$0")")/../common/selftest.sh"
for variable in $(compgen -e | grep -E '^(SLURM|PMIX?|OMPI|JSM|HALAY|UCX)_' | grep -v '^HALAYRUN$'); do
    unset "$variable"
done
unset RANK WORLD_SIZE

# ---------------------------------------------------------------- a machine as a tree
port=sys/class/infiniband/mlx5_0/ports/1
put() { # FILE TEXT...
    mkdir -p "tree/${1%/*}"
    printf '%s\n' "${@:2}" >"tree/$1"
}
gid() { # INDEX ADDRESS TYPE
    put "$port/gids/$1" "$2"
    put "$port/gid_attrs/types/$1" "$3"
    put "$port/gid_attrs/ndevs/$1" eth1
}
make_healthy() {
    put $port/state "4: ACTIVE"
    put $port/link_layer Ethernet
    put $port/rate "100 Gb/sec (4X EDR)"
    gid 0 fe80:0000:0000:0000:0e42:a1ff:fe00:0001 "IB/RoCE v1"
    gid 1 fe80:0000:0000:0000:0e42:a1ff:fe00:0001 "RoCE v2"
    gid 2 2001:0db8:0000:0000:0000:0000:0000:0001 "RoCE v2"
    gid 3 0000:0000:0000:0000:0000:ffff:0a00:0001 "IB/RoCE v1"
    gid 10 0000:0000:0000:0000:0000:ffff:0a00:0001 "RoCE v2"
    put sys/class/infiniband_verbs/uverbs0/ibdev mlx5_0
    put dev/infiniband/uverbs0
    for file in {current,max}_link_speed; do put sys/class/infiniband/mlx5_0/device/"$file" "16.0 GT/s PCIe"; done
    for file in {current,max}_link_width; do put sys/class/infiniband/mlx5_0/device/"$file" 16; done
    put sys/class/net/eth1/operstate up
    put sys/class/net/eth1/mtu 9000
    put sys/class/net/eth1/speed 100000
    put proc/net/route $'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT' \
        $'eth0\t00000000\t0100000A\t0003\t0\t0\t500\t00000000\t0\t0\t0' \
        $'eth1\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0' \
        $'eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0'
    put proc/self/limits "Limit                     Soft Limit           Hard Limit           Units" \
        "Max open files            65536                1048576              files" \
        "Max locked memory         unlimited            unlimited            bytes"
    put proc/self/status "Name:	halay-doctor" "CapEff:	0000000000000000" "Cpus_allowed_list:	0-63"
    put proc/self/cgroup "0::/job/step"
    put proc/meminfo "MemTotal:       263000000 kB" "HugePages_Total:     512" "Hugepagesize:       2048 kB"
    put proc/mounts "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0"
    put proc/sys/kernel/osrelease 6.1.0-13-amd64
    put proc/sys/kernel/yama/ptrace_scope 0
    put sys/kernel/mm/transparent_hugepage/enabled "always [madvise] never"
    put sys/fs/cgroup/job/step/memory.max max
    put sys/fs/cgroup/job/step/cpu.max "max 100000"
}
make_healthy
mv tree base
healthy() {
    rm -rf tree
    cp -r base tree
}
# A healthy machine, changed by the commands that follow: STATUS COMMANDS
seeded() {
    healthy
    eval "$2"
    expect "$1" "$DOCTOR" --root tree
}

seeded 0 :
says "^ok +rdma.port +mlx5_0/1: ACTIVE, Ethernet, 100 Gb/sec"
says "^ok +rdma.gid +mlx5_0/1: GID index 10, RoCE v2, 10\.0\.0\.1 on eth1: an IPv4 address of the interface at"
says "^ok +rdma.mtu +mlx5_0/1: packets of 4096 bytes"
says "^ok +rdma.choice +mlx5_0/1: would be used, with GID index 10"
says "^ok +net.interface +eth1: ranks listen there, for it has the default route; MTU 9000, 100000 Mb/s"
says "^0 errors, 0 warnings, 0 notes$"
expect 0 "$DOCTOR" --root tree --brief
silent "^(ok|note)"

seeded 0 'rm -r tree/sys/class/infiniband*'
says "^warning +rdma.device +there is no RDMA device"
seeded 1 'put $port/state "1: DOWN"; put sys/class/infiniband/mlx5_0/device/net/eth1/mtu 9000'
says "do:  ip link set eth1 up"
says "^error +rdma.port +mlx5_0/1: DOWN, Ethernet: the port is not active, nor is any other"
silent rdma.choice
seeded 0 'cp -r tree/sys/class/infiniband/mlx5_{0,1}; put ${port/_0/_1}/state "1: DOWN"
    put sys/class/infiniband_verbs/uverbs1/ibdev mlx5_1; put dev/infiniband/uverbs1'
says "^warning +rdma.port +mlx5_1/1: DOWN"
says "^ok +rdma.choice +mlx5_0/1: .*the best of 1 port$"
# Two ports: equally good; one is far, in the same subnet or in another; slow; without an address.
two() { # COMMANDS
    seeded 0 'cp -r tree/sys/class/infiniband/mlx5_{0,1}; put sys/class/infiniband_verbs/uverbs1/ibdev mlx5_1
        put dev/infiniband/uverbs1; put proc/self/status "Cpus_allowed_list:	0-3,8"
        for i in 0 1; do put sys/devices/system/node/node$i/cpulist $((4 * i))-$((4 * i + 3))
            put sys/devices/system/node/node$i/distance "$((10 + 11 * i)) $((21 - 11 * i))"
            put sys/class/infiniband/mlx5_$i/device/numa_node 0; done;'"$1"
}
far='put sys/class/infiniband/mlx5_1/device/numa_node 1'
elsewhere='for i in 0 1 2 3 10; do put ${port/_0/_1}/gid_attrs/ndevs/$i eth2; done'
two :
says "^ok +rdma.choice +mlx5_0/1, mlx5_1/1: would be used, with GID index 10 .*GID index 10 .*the best of 2 ports: mess"
silent rdma.rail
two "$far"
says "^ok +rdma.choice +mlx5_0/1: would be used, .*the best of 2 ports$"
says "^ok +rdma.rail +mlx5_1/1: is left out: another one of its subnet is nearer \(100000 Mb/s, distance 21\)"
two "$far; put sys/class/infiniband/mlx5_0/device/numa_node 1"
says "^ok +rdma.choice +mlx5_0/1, mlx5_1/1: "
two "$far; $elsewhere"
says "^ok +rdma.choice +mlx5_0/1, mlx5_1/1: "
two "$elsewhere; put \$port/rate '25 Gb/sec (1X EDR)'"
says "^ok +rdma.choice +mlx5_1/1: would be used"
says "^ok +rdma.rail +mlx5_0/1: is left out: it is less than half as fast"
two "$far; rm tree/\$port/gids/{2,3,10}"
says "^ok +rdma.choice +mlx5_1/1: would be used"
says "^ok +rdma.rail +mlx5_0/1: is left out: it has link-local addresses only"
seeded 1 'put $port/state "2: INIT"; put $port/link_layer InfiniBand'
says "opensm"
seeded 0 'put $port/link_layer InfiniBand; put $port/rate "25 Gb/sec (1X EDR)"'
says "^warning +rdma.rate +mlx5_0/1: 25 Gb/sec \(1X EDR\): one lane"
says "^ok +rdma.choice +mlx5_0/1: would be used, the best of 1 port$"

seeded 0 'rm tree/$port/gids/{2,3,10}'
says "^warning +rdma.gid +mlx5_0/1: there are link-local GIDs only \(fe80::e42:a1ff:fe00:1 at index 1\)"
seeded 0 'rm tree/$port/gids/10'
says "^ok +rdma.gid .*index 2, RoCE v2, 2001:db8::1 .*a global IPv6"
healthy
expect 0 env HALAY_VERBS=device=mlx5_0:1,gid=3 "$DOCTOR" --root tree
says "^note +rdma.choice +HALAY_VERBS is set: device=mlx5_0:1,gid=3$"
# A folder may have a thousand entries, most of them empty, in any order.
seeded 0 'for i in {11..1023}; do echo 0000:0000:0000:0000:0000:0000:0000:0000 >tree/$port/gids/$i; done'
says "^ok +rdma.gid .*index 10, RoCE v2, 10.0.0.1"
seeded 0 'put $port/gid_attrs/ndevs/10 eth2; put sys/class/net/eth2/mtu 9000'
says "^ok +rdma.gid .*index 10, .*though not of the interface"
seeded 1 'rm tree/$port/gids/{1,2,10}'
says "^error +rdma.gid +mlx5_0/1: there are RoCE v1 GIDs only"
says "cma_roce_mode -d mlx5_0 -p 1 -m 2"
seeded 1 'rm tree/$port/gids/*'
says "^error +rdma.gid +mlx5_0/1: there is no GID"
seeded 1 'rm tree/dev/infiniband/uverbs0'
says "^error +rdma.access +mlx5_0: /dev/infiniband/uverbs0 cannot be opened"
seeded 0 'put sys/class/infiniband/mlx5_0/device/current_link_width 4'
says "^warning +rdma.pci +mlx5_0: PCI at 16.0 GT/s PCIe x4; it could do 16.0 GT/s PCIe x16"
seeded 0 'put sys/class/net/eth1/mtu 1500'
says "^note +rdma.mtu +mlx5_0/1: packets of 1024 bytes, for the MTU of eth1 is 1500"
seeded 0 'cp -r tree/sys/class/infiniband/mlx5_{0,1}; put sys/class/net/eth2/mtu 1500
    for i in 0 1 2 3 10; do put ${port/_0/_1}/gid_attrs/ndevs/$i eth2; done
    put sys/class/infiniband_verbs/uverbs1/ibdev mlx5_1; put dev/infiniband/uverbs1'
says "^warning +rdma.mtu +mlx5_1/1: packets of 1024 bytes, of mlx5_0/1 4096"

seeded 1 'put proc/self/limits "Max locked memory         65536                65536                bytes"'
says "^error +limit.memlock +a process may lock 64 KiB of memory; RDMA takes 64 MiB"
says "do:  ulimit -l unlimited; .*PropagateResourceLimitsExcept=MEMLOCK"
seeded 0 'put proc/self/limits "Max locked memory         65536                65536                bytes"
    put proc/self/status "CapEff:	0000000000004000"'
says "^ok +limit.memlock +64 KiB, and this process may go beyond"
seeded 0 'put proc/self/limits "Max open files            100                  100                  files"'
says "^warning +limit.files +100 open files"
seeded 0 'put proc/mounts "shm /dev/shm tmpfs rw,size=65536k,inode64 0 0"'
says "^warning +shm +/dev/shm: 64 MiB"
seeded 0 'put proc/mounts ""'
says "^warning +shm +/dev/shm: is not mounted"
seeded 0 'put proc/meminfo "MemTotal: 263000000 kB" "HugePages_Total: 0"
    put sys/kernel/mm/transparent_hugepage/enabled "always madvise [never]"'
says "^note +hugepages +none are reserved; transparent: never"
seeded 0 'put proc/sys/kernel/yama/ptrace_scope 2'
says "^note +ptrace +kernel.yama.ptrace_scope is 2"

seeded 0 'put sys/fs/cgroup/job/memory.max 2147483648; put sys/fs/cgroup/job/memory.current 2000000000'
says "^warning +cgroup.memory +/job: 2.0 GiB, of which 141 MiB are left"
seeded 0 'put proc/self/cgroup "3:cpu,cpuacct:/a" "4:memory:/a/b" "0::/"; put sys/fs/cgroup/memory/a/b/memory.limit_in_bytes 9223372036854771712
    put sys/fs/cgroup/memory/a/memory.limit_in_bytes 17179869184; put sys/fs/cgroup/memory/a/memory.usage_in_bytes 1073741824
    put sys/fs/cgroup/cpu/a/cpu.cfs_quota_us 150000; put sys/fs/cgroup/cpu/a/cpu.cfs_period_us 100000'
says "^note +cgroup.memory +/a: 16 GiB, of which 15 GiB are left"
says "^note +cgroup.cpu +1.5 processors' time"
seeded 0 'put sys/fs/cgroup/job/step/cpu.max "200000 100000"; put sys/fs/cgroup/job/pids.max 64
    put sys/fs/cgroup/job/step/rdma.max "mlx5_0 hca_handle=2 hca_object=100"'
says "^note +cgroup.cpu +2 processors' time"
says "^warning +cgroup.pids +/job: 64 processes"
says "^warning +cgroup.rdma .*hca_object=100"

seeded 0 'put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57  Tue"; put proc/driver/nvidia/gpus/0/x'
says "^warning +gpu.peer +neither nvidia_peermem is loaded, nor is dmabuf"
seeded 0 'put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57  Tue"; put proc/driver/nvidia/gpus/0/x
    put sys/module/nvidia_peermem/refcnt 0'
says "^ok +gpu.peer +RDMA may reach GPU memory by nvidia_peermem; NVIDIA's closed kernel modules have no dmabuf; HALAY_GPUDIRECT is not 1: it is copied through"
seeded 0 'put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel"; put proc/driver/nvidia/gpus/0/x'
says "^ok +gpu +1 of NVIDIA; .*570.86.15"
says "^ok +gpu.peer +RDMA may reach GPU memory by dmabuf; HALAY_GPUDIRECT is not 1: it is copied"
export HALAY_GPUDIRECT=1
seeded 0 'put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel"; put proc/driver/nvidia/gpus/0/x
    put sys/module/nvidia_peermem/refcnt 0'
says "^ok +gpu.peer +RDMA may reach GPU memory by dmabuf, else nvidia_peermem; HALAY_GPUDIRECT=1: it does"
seeded 0 'put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel"; put proc/driver/nvidia/gpus/0/x
    rm -r tree/sys/class/infiniband'
says "^warning +gpu.peer +HALAY_GPUDIRECT is 1, and there is no RDMA device"
HALAY_GPUDIRECT=x seeded 1 true # without a GPU too
says "^error +gpu.setting +HALAY_GPUDIRECT is 'x'; it takes 1 or 0 \(the default\)"
unset HALAY_GPUDIRECT

nvidia='put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel"; put proc/driver/nvidia/gpus/0/x'
export HALAY_NCCL_LIBRARY=$DOUBLE/libnccl.so.2 NCCL_DOUBLE=version=22105
seeded 0 "$nvidia"
says "^ok +gpu.nccl +/.*/libnccl.so.2: NCCL 2.21.5"
NCCL_DOUBLE=version=21705 seeded 0 true # asked for, without a GPU's driver
says "^warning +gpu.nccl +.*: NCCL 2.17.5, and 2.18 or newer is needed"
HALAY_NCCL_LIBRARY=/no/nccl.so seeded 0 "$nvidia; put proc/driver/nvidia/gpus/1/x"
says "^warning +gpu.nccl +none: /no/nccl.so: "
HALAY_NCCL_LIBRARY=off seeded 0 "$nvidia; put proc/driver/nvidia/gpus/1/x"
says "^ok +gpu.nccl +HALAY_NCCL_LIBRARY is off"
unset HALAY_NCCL_LIBRARY NCCL_DOUBLE
seeded 0 true # nobody asks, and there is no GPU
! grep -q gpu.nccl out || fail "NCCL was looked for"

seeded 1 'put usr/lib64/slurm/mpi_none.so'
says "^error +slurm.pmix +/usr/lib64/slurm: Slurm has no PMIx plug-in"
seeded 0 'put usr/lib64/slurm/mpi_pmix_v4.so; put usr/lib64/slurm/mpi_pmix.so; put etc/slurm/slurm.conf ClusterName=c'
says "^ok +slurm.pmix +/usr/lib64/slurm: mpi_pmix, mpi_pmix_v4$"
says "^note +slurm.limits +/etc/slurm/slurm.conf: srun hands on"
seeded 0 'put usr/lib64/slurm/mpi_pmix_v4.so; put etc/slurm/slurm.conf PropagateResourceLimitsExcept=MEMLOCK'
silent slurm.limits

seeded 1 'rm -r tree/sys/class/net/eth1; export HALAY_INTERFACE=eth7'
unset HALAY_INTERFACE
says "^error +net.interface +eth7: there is no such interface, and HALAY_INTERFACE names it"
seeded 0 'rm -r tree/sys/class'
says "^note +net.interface +unknown: /sys is not mounted"
seeded 1 'put sys/class/net/eth1/operstate down'
says "^error +net.interface +eth1: it is down"

# Nothing, nonsense, and files that never end.
mkdir empty
expect 0 "$DOCTOR" --root empty
seeded 1 'find tree -type f | while read -r f; do head -c 100000 /dev/zero | tr "\0" "\"x\n\\1" >"$f"; done'
expect 1 "$DOCTOR" --root tree --json
python3 -m json.tool out >/dev/null || fail "what is odd in files makes no JSON"

# ---------------------------------------------------------------- this machine
for call in memfd_create pidfd_open process_vm_readv; do
    "$DENY" "$call" "$DOCTOR" >out 2>err
    status=$?
    [ $status != 77 ] || continue
    says "^(error|note) +seccomp +$call: refused: Operation not permitted \(a seccomp filter is active\)"
    [ $call = process_vm_readv ] || [ $status = 1 ] || fail "exit status $status without $call"
done
PMIX_VERSION=1.2.5 "$DOCTOR" >out 2>err
says "^warning +pmix.launcher +the launcher has PMIx 1.2.5, and libpmix here is [0-9.]+$"

mkdir plugins
cp "${DOCTOR%/bin/*}"/lib/halay/halay-{boot-*,transport-shm,transport-tcp}.so plugins
HALAY_PLUGIN_DIR=$here/plugins "$DOCTOR" >out 2>err
says "^ok +plugins +transports: shm tcp$"
says "^(note|warning) +plugin.verbs +the transport's plug-in is missing: .*/halay-transport-verbs.so: cannot open"
says "^ +do:  install libibverbs-dev \(Debian\) where Halay is built"
rm plugins/halay-transport-tcp.so
HALAY_PLUGIN_DIR=$here/plugins "$DOCTOR" >out 2>err && fail "a plug-in that is always built is missing, and no error"
says "^error +plugin.tcp "

# ---------------------------------------------------------------- a job
healthy
expect 0 "$HALAYRUN" -np 3 "$DOCTOR" --root tree --json
python3 -c '
import json
r = json.load(open("out"))
assert r["ranks"] == 3 and [h["rank"] for h in r["hosts"]] == [0, 1, 2], r
pairs = {(p["from"], p["to"]): p for p in r["pairs"]}
assert len(pairs) == 6 and all(p["result"] == "ok" and p["transport"] == "shm" for p in pairs.values()), pairs
assert all(p["latency_us"] > 0 and p["bandwidth_mb_per_s"] > 0 for p in pairs.values()), pairs
assert all(p["latency_us"] == pairs[b, a]["latency_us"] for (a, b), p in pairs.items())
' || fail "not the JSON that it should be"

# One rank sees another machine: what differs is told once, with who has it.
put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Rel"
mv tree healthy
healthy
put proc/driver/nvidia/version "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57  Tue"
put sys/class/net/eth1/mtu 1500
put proc/sys/kernel/yama/ptrace_scope 1
mv tree other
# shellcheck disable=SC2016
expect 0 "$HALAYRUN" -np 3 bash -c 'if [ $PMIX_RANK = 1 ]; then root=other; else root=healthy; fi
    exec "$DOCTOR" --root $root --no-pairs'
says "^note +ptrace +kernel.yama.ptrace_scope is 1$"
says "^ +on:  1 of 3: [^ ]+ \(rank 1\)$"
says "^warning +hosts.differ +RDMA packets: 4096 bytes on .*, 1024 bytes on .*; not as the first: 1 of 3"
says "^warning +hosts.differ +the interface's MTU: 9000 on .*, 1500 on"
says "^warning +hosts.differ +GPUDirect: possible on .*, not possible on .*; not as the first: 1 of 3"
[ "$(grep -c "^ok *rdma.gid" out)" = 1 ] || fail "what is well is told more than once"
silent latency

# A rank that leaves before the pairs: it is named, and the others are measured.
# shellcheck disable=SC2016
expect 1 "$HALAYRUN" -np 4 bash -c 'if [ $PMIX_RANK = 2 ]; then more=--no-pairs; fi
    exec "$DOCTOR" --root healthy --seconds 8 $more'
says "^error +pairs.reach .* ranks 0 and 2 do not reach each other over shm: "
says "^error +pairs.reach .* ranks 2 and 3 do not reach each other over shm: |ranks 1 and 2 do not reach"
says "do:  see those ranks' own output; ranks of one node meet by"
says "^ +1 [^ ]+ +[0-9.]+ +- +(FAILED|\?) +[0-9.]+$"

expect 0 "$HALAYRUN" -np 3 "$DOCTOR" --root healthy --most 2 --brief
says "^note +job.most +left out: 1 of 3 ranks; 2 is the most"
says "pairs: 1 inside a node over shm"
expect 0 "$HALAYRUN" -np 2 "$DOCTOR" --root healthy --seconds 20.5 --all-ranks
says "^ok +pairs.reach +the two reach each other$"

# No job: told with the findings of the first rank's host.
expect 1 env SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 "$DOCTOR" --root healthy
says "^halay-doctor .*; no job was made$"
says "^error +job +Slurm's srun announced 2 ranks, .* start it with srun --mpi=pmix"
expect 0 env SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$DOCTOR" --root healthy
[ ! -s out ] || fail "a second rank prints, too"

# ---------------------------------------------------------------- a picture, where matplotlib is
"$HALAYRUN" -np 3 "$DOCTOR" --root healthy --picture pairs.png >out 2>err
status=$?
if python3 -c 'import matplotlib' 2>/dev/null; then
    [ "$status $(head -c 4 pairs.png | tail -c 3)" = "0 PNG" ] || fail "no picture"
else
    [ $status = 1 ] || fail "exit status $status without a picture"
    grep -q "no picture: python3 has no matplotlib" err || fail "not told why there is no picture"
    says "^latency"
fi

for wrong in --frob --most=0 --most=257 --most=x --seconds=0 --seconds=nan --picture=x.pdf --root=nowhere extra; do
    expect 2 "$DOCTOR" $wrong
done
expect 0 "$DOCTOR" --help
