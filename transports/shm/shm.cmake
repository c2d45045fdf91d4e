# SPDX-License-Identifier: Apache-2.0
# Between the processes of a node: memfd rings, passed over an abstract Unix socket.
halay_plugin(transport shm shm/shm.c shm/open.c shm/ring.c shm/region.c shm/meet.c shm/way.c
             shm/peer.c shm/watch.c shm/name.c)
target_link_libraries(halay_transport_shm PUBLIC halay_meet halay_proc)
target_link_libraries(halay_transport_shm_plugin PRIVATE halay_meet halay_proc)
