# SPDX-License-Identifier: Apache-2.0
# Puts over a queue pair, between two emulated machines with Soft-RoCE.
if(TARGET halay_transport_verbs)
  add_executable(verbs_put verbs_put.c)
  target_link_libraries(verbs_put PRIVATE halay_transport_verbs)
  cluster_test(verbs TIMEOUT 300 LABEL rdma)
  cluster_test(verbs_faults TIMEOUT 300 LABEL rdma)
  cluster_test(rdma_rows TIMEOUT 300 LABEL rdma)
endif()
