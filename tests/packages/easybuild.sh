#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The easyconfig is built by EasyBuild from PyPI, of what git knows of this tree, and its module is used. Takes
# minutes, and the network: PACKAGES_LONG=1.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
[ "${PACKAGES_LONG:-}" ] || { echo "skipped: takes minutes (PACKAGES_LONG=1)" && exit 77; }
[ -r /usr/share/lmod/lmod/init/bash ] || { echo "skipped: there is no Lmod (Debian: lmod)" && exit 77; }
"$PYTHON" -m venv eb
eb/bin/pip install -q easybuild-framework easybuild-easyblocks 2>log ||
    { cat log && echo "skipped: EasyBuild cannot be installed" && exit 77; }
git -C "$source" archive --prefix "halay-$version/" --format tar.gz -o "$here/halay-$version.tar.gz" HEAD || fail "git archive"
set +u && . /usr/share/lmod/lmod/init/bash && set -u
PATH=$here/eb/bin:$PATH
eb "$source/deploy/packaging/easybuild/Halay-$version.eb" --sourcepath "$here" --prefix "$here/site" --modules-tool Lmod \
    --tmpdir "$here" --allow-use-as-root-and-accept-consequences >log 2>&1 || fail "eb: $(tail -30 log)"
set +u && module use "$here/site/modules/all" && module load Halay && set -u
sums halayrun "$here/site/software/Halay/$version"
