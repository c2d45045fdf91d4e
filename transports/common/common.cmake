# SPDX-License-Identifier: Apache-2.0
add_library(halay_meet STATIC common/open.c common/link.c common/call.c common/guest.c
            common/address.c common/proof.c common/gate.c common/locked.c)
target_link_libraries(halay_meet PUBLIC halay_keys)
target_include_directories(halay_meet PUBLIC ${PROJECT_SOURCE_DIR}/include)
