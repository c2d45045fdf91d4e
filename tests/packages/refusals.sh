#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/release, check-abi and site do not take: one reason, and nothing is made.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
command -v git >/dev/null || { echo "skipped: no git" && exit 77; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
refuses() { # MESSAGE COMMAND...: said by the script itself, without git's words before it
    "${@:2}" >out 2>&1 && fail "${*:2}: taken"
    head -1 out | grep -qe "$1" || fail "${*:2}: not '$1' but $(cat out)"
    [ ! -e made ] || fail "${*:2}: it has made something"
}
mkdir -p outer/tree/python/halay outer/tree/scripts
cp "$source"/scripts/{lib.sh,release,check-abi,site} outer/tree/scripts
cp "$source/python/halay/_version.py" outer/tree/python/halay
echo "## $version" >outer/tree/CHANGELOG.md
tree=$here/outer/tree/scripts

for script in release check-abi site; do
    refuses "^$script: wrong usage" "$tree/$script" --help
done
refuses "^release: .*/tree is no clone" "$tree/release" made
git -C outer init -q # a tarball that lies in somebody's repository
refuses "^release: .*/tree is no clone" "$tree/release" made
refuses "^check-abi: .*/tree is no clone" "$tree/check-abi"
rm -rf outer/.git
git -C outer/tree init -q
git -C outer/tree add .
git -C outer/tree commit -qm one
refuses "^check-abi: none is no commit" "$tree/check-abi" none
git -C outer/tree tag "v$version"
git -C outer/tree commit -q --allow-empty -m two
refuses "^release: v$version is another commit already: raise the version" "$tree/release" made
echo >>outer/tree/CHANGELOG.md
refuses "^release: the tree has changes" "$tree/release" made
git -C outer/tree tag -d "v$version" >/dev/null
echo "## 0.0.0" >outer/tree/CHANGELOG.md
git -C outer/tree commit -qam three
refuses "^release: CHANGELOG.md says nothing of $version" "$tree/release" made
touch file
refuses "^release: $here/file is not empty" "$tree/release" file
