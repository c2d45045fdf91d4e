# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Puts this build into other/ with another id: $other instead of $id. Needs $BUILD and fail.
other_build() {
    id=$(sed -n 's/#define HLY_BUILD "\(.*\)"/\1/p' "$BUILD/generated/hly_build.h")
    other=${id%+*}+00000000
    mkdir -p other/halay
    cp "$BUILD"/lib/libhalay.so.0 other
    cp "$BUILD"/lib/halay/*.so other/halay
    LC_ALL=C sed -i "s/${id//[.+]/[.+]}/$other/g" other/libhalay.so.0 other/halay/*.so
    grep -q "$other" other/libhalay.so.0 || fail "the library does not know its build"
}
