# SPDX-License-Identifier: Apache-2.0
# A spike: RDMA writes over a queue pair, on libibverbs.
find_package(PkgConfig QUIET)
pkg_check_modules(IBVERBS QUIET IMPORTED_TARGET libibverbs)
if(IBVERBS_FOUND)
  halay_plugin(transport verbs verbs/verbs.c)
  target_link_libraries(halay_transport_verbs PUBLIC halay_meet PkgConfig::IBVERBS)
  target_link_libraries(halay_transport_verbs_plugin PRIVATE halay_meet PkgConfig::IBVERBS)
else()
  message(STATUS "transports/verbs is left out: no libibverbs (Debian: libibverbs-dev)")
endif()
