# SPDX-License-Identifier: Apache-2.0
# The transport between processes: the contract, then real processes, deaths, and bad peers.
if(TARGET halay_transport_shm)
  halay_test(unit transport_shm SOURCES test_transport_shm.c test_transport_shm_death.c
             test_transport_shm_faults.c shm_rank.c
             LIBS halay_transport_body halay_transport_shm TIMEOUT 300 WAITS)
  halay_test(unit transport_shm_lend SOURCES test_transport_shm_lend.c shm_rank.c
             LIBS halay_transport_shm TIMEOUT 120 WAITS)
  target_link_options(test_unit_transport_shm_lend PRIVATE -Wl,--wrap=realloc)
endif()
