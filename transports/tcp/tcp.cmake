# SPDX-License-Identifier: Apache-2.0
# Between nodes, over TCP sockets: where there is nothing faster.
halay_plugin(transport tcp tcp/tcp.c tcp/open.c tcp/address.c tcp/peer.c tcp/in.c tcp/out.c
             tcp/link.c tcp/meet.c tcp/watch.c)
