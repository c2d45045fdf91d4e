# SPDX-License-Identifier: Apache-2.0
# The transport over TCP, by loopback: the contract, then deaths and bad peers.
if(TARGET halay_transport_tcp)
  halay_test(unit transport_tcp SOURCES test_transport_tcp.c net_cases.c transport_epochs.c transport_proof.c
             test_transport_tcp_stream.c test_transport_tcp_seal.c tcp_fake.c net_rank.c
             LIBS halay_transport_body halay_transport_tcp TIMEOUT 300 WAITS)
endif()
