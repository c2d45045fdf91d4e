# SPDX-License-Identifier: Apache-2.0
# Between nodes, over TCP sockets: where there is nothing faster.
halay_plugin(transport tcp tcp/tcp.c tcp/open.c tcp/land.c tcp/in.c tcp/out.c
             tcp/link.c tcp/seal.c tcp/watch.c)
target_link_libraries(halay_transport_tcp PUBLIC halay_meet)
target_link_libraries(halay_transport_tcp_plugin PRIVATE halay_meet)
