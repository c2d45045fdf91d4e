# SPDX-License-Identifier: Apache-2.0
# A spike: RDMA writes over a queue pair, on libibverbs (Debian: libibverbs-dev, rdma-core).
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(IBVERBS QUIET IMPORTED_TARGET libibverbs)
endif()
if(IBVERBS_FOUND)
  halay_plugin(transport verbs verbs/verbs.c verbs/meet.c verbs/open.c)
  target_link_libraries(halay_transport_verbs PUBLIC PkgConfig::IBVERBS)
  target_link_libraries(halay_transport_verbs_plugin PRIVATE PkgConfig::IBVERBS)
else()
  message(STATUS "transports/verbs is left out: pkg-config finds no libibverbs "
                 "(Debian: libibverbs-dev)")
endif()
