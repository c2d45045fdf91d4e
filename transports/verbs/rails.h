/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rails.h - which ports serve, which pairs of ports join two ends, and which data go over which:
 * pure functions, which the tests try everywhere. docs/decisions/transports.md#0029 says why.
 */
#ifndef HALAY_VERBS_RAILS_H
#define HALAY_VERBS_RAILS_H

#include "rules.h"

enum {
    HLY_VERBS_PORTS = 64,        /* candidates, at most */
    HLY_VERBS_NODES = 64,        /* of NUMA, at most */
    HLY_VERBS_NEAR = 10,         /* the distance of what is near, as the kernel counts */
    HLY_VERBS_CUT = 4 << 10,     /* parts of a put begin at a multiple of it */
    HLY_VERBS_PARTED = 128 << 10 /* a larger put is cut */
};

/* What one end tells the other of a port and of the queue pair on it. */
typedef struct hly_verbs_port {
    uint32_t qpn, mtu, lid, rkey, port, ngids, type;
    uint32_t number;    /* of all candidates of this node, by their places */
    uint32_t device;    /* its rkey's place in a key */
    uint32_t speed_mbs; /* megabits a second */
    uint64_t page;
    char name[16];
    hly_verbs_gid_t gids[HLY_VERBS_GIDS]; /* the nearest to the bootstrap first */
} hly_verbs_port_t;

/* ------------------------------------------------------------------ which ports */

/* A port that may serve. */
typedef struct hly_verbs_candidate {
    hly_verbs_port_t port;
    int distance;   /* of its device's NUMA node to this process; 10 is near */
    int near;       /* hly_verbs_gid_near of its best GID */
    char place[96]; /* where on the PCI bus */
    int device;     /* the caller's */
    int net, good;  /* rails_choose: the first that is in its subnet; is it equally good */
} hly_verbs_candidate_t;

/*
 * Puts the best ones first, in the order in which they serve, and numbers all. wanted: as many, or
 * -1: all that are equally good, at most RAILS. Returns how many serve.
 */
int hly_verbs_rails_choose(hly_verbs_candidate_t all[], int n, int wanted, int local_rank);

/*
 * How far a device is: lists as the kernel writes them ("0-3,8"). cpus: of the
 * process; node: of the device, -1: not known.
 */
typedef struct hly_verbs_numa { /* nodes that are online, in order */
    int n;
    int node[HLY_VERBS_NODES];
    char cpus[HLY_VERBS_NODES][256], distances[HLY_VERBS_NODES][512];
} hly_verbs_numa_t;
int hly_verbs_list_next(const char **list, int *first, int *last);
int hly_verbs_lists_meet(const char *a, const char *b);
int hly_verbs_distance(const hly_verbs_numa_t *numa, const char *cpus, int node);

/* ------------------------------------------------------------------ which pairs */

typedef struct hly_verbs_lane_plan {
    int mine, its; /* ports */
    int gid, its_gid, mtu;
    uint32_t share; /* of a put that is cut */
} hly_verbs_lane_plan_t;

/* Both ends' ports; lower: as for gids_pair. Returns how many lanes, 0: nothing leads there. */
int hly_verbs_map(const hly_verbs_port_t mine[], int n, const hly_verbs_port_t its[], int m,
                  int lower, hly_verbs_lane_plan_t lanes[HLY_VERBS_RAILS]);
/* The same at both ends if they mean the same. */
uint64_t hly_verbs_map_hash(const hly_verbs_port_t mine[], const hly_verbs_port_t its[], int lower,
                            const hly_verbs_lane_plan_t lanes[], int n);

/* ------------------------------------------------------------------ which data */

/* Where the part of a lane begins, of a put of so many bytes; that of lane n is its end. */
size_t hly_verbs_part(size_t bytes, const hly_verbs_lane_plan_t lanes[], int n, int lane);

#endif
