# SPDX-License-Identifier: Apache-2.0
# Between nodes that have RDMA, on queue pairs, with libibverbs.
halay_find(VERBS libibverbs)
if(VERBS_FOUND)
  halay_plugin(transport verbs verbs/verbs.c verbs/open.c verbs/ports.c verbs/device.c verbs/pair.c verbs/end.c
               verbs/peer.c verbs/send.c verbs/put.c verbs/recv.c verbs/poll.c verbs/mem.c verbs/rules.c
               verbs/rails.c)
  include(CheckSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES PkgConfig::VERBS)
  check_symbol_exists(ibv_reg_dmabuf_mr infiniband/verbs.h HLY_VERBS_DMABUF) # rdma-core 34
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(HLY_VERBS_DMABUF)
    set_source_files_properties(verbs/mem.c PROPERTIES COMPILE_DEFINITIONS HLY_VERBS_DMABUF)
  endif()
  target_link_libraries(halay_transport_verbs PUBLIC halay_meet halay_proc PkgConfig::VERBS)
  target_link_libraries(halay_transport_verbs_plugin PRIVATE halay_meet halay_proc PkgConfig::VERBS)
  # A thread that destroys queue pairs may outlive dlclose.
  target_link_options(halay_transport_verbs_plugin PRIVATE -Wl,-z,nodelete)
else()
  halay_no_plugin("transport verbs" "pkg-config finds no libibverbs, and there is no RDMA without it (Debian: libibverbs-dev)")
endif()
