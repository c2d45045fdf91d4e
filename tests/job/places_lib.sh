# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of halayrun on several machines share: launchers that are not there, or stand-ins that
# write down how they were called, and an environment of which every variable is known.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
mkdir bin

# stand_in NAME [VERSION LINE]: its arguments go to argv, one a line, its environment to env; ends with 7.
stand_in() {
    cat >"bin/$1" <<END
#!/bin/bash
[ "\$1" = --version ] && echo "$2" && exit 0
printf '%s\n' "\${0##*/}" "\$@" >"$here/argv"
/usr/bin/env >"$here/env"
exit 7
END
    chmod +x "bin/$1"
}
stand_ins() {
    rm -f bin/*
    for name in "$@"; do stand_in "$name" "mpirun (Open MPI) 4.1.4"; done
}

# in_place [VARIABLE=VALUE...] -- ARGUMENTS...: halayrun, with these variables only.
in_place() {
    local variables=()
    while [ "$1" != -- ]; do variables+=("$1") && shift; done
    run /usr/bin/env -i PATH="$here/bin" "${variables[@]}" "$HALAYRUN" "${@:2}"
}

# prints LINE [VARIABLE=VALUE...] -- ARGUMENTS...: the command that halayrun would run.
prints() {
    in_place "${@:2}"
    expect 0 "${@:2}"
    [ "$(sed 's/ --allow-run-as-root//' out)" = "$1" ] || fail "${*:2}: not '$1'"
    [ ! -s err ] || fail "${*:2}: prints and complains"
}

# refuses STATUS TEXT [VARIABLE=VALUE...] -- ARGUMENTS...
refuses() {
    rm -f argv
    in_place "${@:3}"
    expect "$1" "${@:3}"
    says err "^halayrun: .*$2"
    [ "$(wc -l <err)" = 1 ] || fail "${*:3}: says more than one line"
    if [ -s out ] || [ -e argv ]; then fail "${*:3}: something ran"; fi
}
