/* SPDX-License-Identifier: Apache-2.0 */
/* rdma.h - ports of RDMA devices, as rdma.c reads them and rails.c chooses among them. */
#ifndef HLY_DOCTOR_RDMA_H
#define HLY_DOCTOR_RDMA_H

#include <arpa/inet.h>

#include "doctor.h"

enum { HLY_PORTS = 32 };

/* The best first. */
enum hly_gid_kind { GID_NEAR_IPV4, GID_IPV4, GID_IPV6, GID_LINK_LOCAL, GID_V1, GID_NONE };

struct hly_gid {
    enum hly_gid_kind kind;
    int index;
    char text[INET6_ADDRSTRLEN], interface[64];
};

struct hly_port {
    char device[64], name[72], state[64], link[32], rate[64];
    int number, mtu; /* path MTU; 0: not known */
    bool active, ethernet;
    unsigned long speed_mbs;
    int distance; /* of its NUMA node; 10 is near */
    char place[96], net[64];
    const char *against; /* why it is left out; NULL: it is not */
    struct hly_gid gid;
};

struct hly_ports {
    int n, nactive;
    struct hly_port port[HLY_PORTS];
};

/* rails.c: which of them a rank would use. */
void hly_tell_rails(const struct hly_probe *p, struct hly_ports *all);

#endif
