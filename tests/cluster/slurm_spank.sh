#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The SPANK plug-in: a site's defaults, which a user overrides, and srun --halay-doctor. A plug-in that is absent
# or broken, and a doctor that is, stop no job.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2016
. "$(dirname "$0")/lib.sh"
plugin=$build/lib/slurm/halay-spank.so
[ -e "$plugin" ] || skip "there is no slurm/spank.h (Debian: libslurm-dev)"
stack() { printf 'optional %s %s\n' "$1" "${*:2}" >"$here/stack"; }
# The doctor is no rank, and looks at this node.
printf '#!/bin/sh\necho "doctor $* on $(hostname), rank ${PMIX_RANK:-none}"\n' >doctor && chmod +x doctor
stack "$plugin" "doctor=$here/doctor" HALAY_TRANSPORT=tcp HALAY_PATIENCE=7 nonsense
start_slurm 2 --cpus 4 --plugstack "$here/stack"
show='echo "$SLURM_PROCID: $HALAY_TRANSPORT $HALAY_PATIENCE"'

HALAY_PATIENCE=9 run login timeout 60 srun -N2 -n4 sh -c "$show"
expect 0 "srun with a site's defaults"
counts out 4 "^[0-3]: tcp 9$"
says err "'nonsense' is neither"
counts err 0 "^doctor"

ranks -N2 -n4 --halay-doctor "$rank" one
expect 0 "srun --halay-doctor"
[ "$(grep -c "^doctor --brief on n[12], rank none$" err)" = 2 ] || fail "not one doctor a node"
counts out 4 "^rank . of 4"

rm doctor
ranks -N2 -n4 --halay-doctor "$rank" one
expect 0 "a job whose doctor is not there"
counts out 4 "^rank . of 4"
says err "there is no $here/doctor on this node"

# bad NAME MESSAGE: with this doctor the job runs all the same.
bad() {
    ranks -N2 -n4 --halay-doctor "$rank" one
    expect 0 "a job whose doctor $1"
    counts out 4 "^rank . of 4"
    says err "$2"
}
echo '#!/bin/sh' >doctor
bad "is no program" "doctor cannot be run on this node"
chmod +x doctor && echo 'kill -SEGV $$' >>doctor
bad "crashes" "doctor was ended by signal 11"
printf '#!/bin/sh\nhead -c 3000000 /dev/zero | tr "\\0" "\\n"\necho seen >&2\nexit 3\n' >doctor
bad "prints megabytes, and fails" "^seen"

echo broken >broken.so
for broken in "$here/none.so" "$here/broken.so" "$build/lib/libhalay.so"; do
    stack "$broken"
    cp stack "$here/bed/etc/plugstack.conf"
    run login timeout 60 srun -N2 -n2 true
    expect 0 "a job where the plug-in is $broken"
done
says err "${broken##*/}"
nothing_left 2
