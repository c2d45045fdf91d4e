# SPDX-License-Identifier: Apache-2.0
# The transport over UCX, by loopback TCP: the contract, then deaths and bad peers.
if(TARGET halay_transport_ucx)
  halay_test(unit transport_ucx SOURCES test_transport_ucx.c net_cases.c transport_epochs.c transport_proof.c net_rank.c
             LIBS halay_transport_body halay_transport_ucx TIMEOUT 300 WAITS)
  # UCX patches madvise when it is loaded; a thread that ends calls it after the thread sanitizer
  # has taken the thread's state away, which crashes inside the sanitizer.
  if(HALAY_SANITIZE MATCHES thread)
    set_property(TEST unit/transport_ucx PROPERTY ENVIRONMENT UCX_MEM_EVENTS=n)
  endif()
endif()
