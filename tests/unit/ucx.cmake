# SPDX-License-Identifier: Apache-2.0
# The transport over UCX, by loopback TCP: the contract, then deaths and bad peers.
if(TARGET halay_transport_ucx)
  halay_test(unit transport_ucx SOURCES test_transport_ucx.c
             LIBS halay_transport_body halay_transport_ucx TIMEOUT 300)
endif()
