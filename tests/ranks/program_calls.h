/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program_calls.h - any call of halay.h in any of its forms, with its buffers and with what has to
 * come out. Its data change from round to round; its buffers stay where they are.
 */
#ifndef TESTS_PROGRAM_CALLS_H
#define TESTS_PROGRAM_CALLS_H

#include "ranks.h"

enum pkind {
    P_ALLREDUCE,
    P_SCALED,
    P_BROADCAST,
    P_ALLGATHER,
    P_ALLGATHERV,
    P_REDUCE_SCATTER,
    P_REDUCE_SCATTERV,
    P_REDUCE,
    P_SCAN,
    P_EXSCAN,
    P_GATHER,
    P_GATHERV,
    P_SCATTER,
    P_SCATTERV,
    P_ALLTOALL,
    P_ALLTOALLV,
    P_BARRIER,
    P_KINDS,
    P_SEND = P_KINDS, /* of team rank `root`, to `peer` */
};

enum pform { P_BLOCKING, P_POSTED, P_INIT };

enum pdata {
    P_EXACT,  /* small integers in every type: any order gives the same bits */
    P_ROUNDS, /* floats whose sum depends on the order: near the exact sum, and the bits count */
    P_MATRIX, /* the user's product of matrices, which does not commute */
    P_MERGE,  /* the user's sum, which does */
};

struct pteam { /* a communicator, as one rank sees it */
    halay_comm_t *comm;
    int n, me;
    bool plain; /* its ranks are those of the world, in their order */
};

struct pcall {
    enum pkind kind;
    enum pdata data;
    size_t count;
    halay_type_t type;
    halay_op_t op, called; /* `called`: the number of the user's operation */
    int root, peer;
    bool in_place, registered;
    double prescale, postscale;

    const struct pteam *team;
    uint64_t salt;
    char *in, *in_was, *out, *want; /* behind their guards */
    char *memory;                   /* in and out */
    char *there;                    /* the same in a device's memory: what calls get; or NULL */
    size_t bytes;                   /* of memory */
    size_t in_bytes, out_bytes, certain;
    size_t counts[RANKS_MAX], displs[RANKS_MAX], from[RANKS_MAX], from_displs[RANKS_MAX];
    halay_context_t *context;
};

const char *pkind_name(enum pkind kind);
bool pkind_reduces(enum pkind kind);
bool pkind_rooted(enum pkind kind);

/* The functions behind P_MATRIX and P_MERGE, for halay_op_create: groups of 4, and of 1. */
halay_op_fn pcall_multiply, pcall_merge;

/* Takes what stands in the first part of the struct; makes the buffers. */
void pcall_make(struct pcall *c, halay_context_t *context, const struct pteam *team);
/* New data. No call is under way. */
void pcall_fill(struct pcall *c, uint64_t salt);
int pcall_begin(struct pcall *c, enum pform form, halay_request_t **request);
/* Everything is what it has to be: results, guards, gaps and the input. Returns a hash of the
 * result's bits. */
uint64_t pcall_check(struct pcall *c, const char *where);
/* The result of halay_mem_free, if there is any. */
int pcall_free(struct pcall *c);

uint64_t pmix(uint64_t hash, uint64_t word);

#endif
