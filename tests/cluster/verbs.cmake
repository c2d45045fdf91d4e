# SPDX-License-Identifier: Apache-2.0
# Puts over a queue pair, between two emulated machines with Soft-RoCE.
if(TARGET halay_transport_verbs)
  add_executable(verbs_put verbs_put.c)
  target_link_libraries(verbs_put PRIVATE halay_transport_verbs)
  target_link_options(verbs_put PRIVATE LINKER:--wrap=hly_verbs_map_hash)
  add_executable(verbs_count verbs_count.c verbs_side.c)
  target_link_libraries(verbs_count PRIVATE halay)
  cluster_test(verbs TIMEOUT 300 LABEL rdma)
  cluster_test(verbs_faults TIMEOUT 300 LABEL rdma)
  cluster_test(verbs_rails TIMEOUT 300 LABEL rdma)
  cluster_test(rdma_rows TIMEOUT 300 LABEL rdma)
endif()
