# SPDX-License-Identifier: Apache-2.0
add_library(halay_meet STATIC common/open.c common/link.c common/call.c common/guest.c
            common/address.c)
target_include_directories(halay_meet PUBLIC ${PROJECT_SOURCE_DIR}/include)
