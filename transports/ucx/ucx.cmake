# SPDX-License-Identifier: Apache-2.0
# Between nodes, over UCX (Debian: libucx-dev): whatever networks UCX finds, TCP where there is none.
halay_find(UCX ucx>=1.12)
if(UCX_FOUND)
  halay_plugin(transport ucx ucx/ucx.c ucx/open.c ucx/settings.c ucx/peer.c ucx/short.c
               ucx/watch.c)
  target_link_libraries(halay_transport_ucx PUBLIC halay_meet PkgConfig::UCX)
  target_link_libraries(halay_transport_ucx_plugin PRIVATE halay_meet PkgConfig::UCX)
else()
  halay_no_plugin("transport ucx" "pkg-config finds no ucx >= 1.12 (Debian: libucx-dev)")
endif()
