/* SPDX-License-Identifier: Apache-2.0 */
/*
 * announce.h - announcements: what a rank tells the others about a tensor, and what follows from
 * that alone.
 */
#ifndef HLT_ANNOUNCE_H
#define HLT_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>

#include "halay/halay.h"
#include "halay/local.h"
#include "halay/training.h"

enum { HLT_ROUND_ENTRIES = 16 }; /* announcements of one rank in one round */

#define HLT_DIM_LARGE UINT32_MAX

/* Flags in the lowest bits of hlt_announcement.wait in a block. In a programme's item `wait` is
 * HLT_IN_PLACE or 0. core.h says what a run, a replay and a programme are. */
#define HLT_PART_REPLAYED UINT64_C(1) /* a replay has executed other tensors of the same run */
#define HLT_IN_PLACE      UINT64_C(2) /* the tensor's input is its output */
#define HLT_MARK_BITS     2

/* The kind of a tensor's memory is a part of `what`. */
#define HLT_MEMORY_SHIFT 24
#define HLT_MEMORY_ANY   0xffu /* an allgather or alltoall without rows here: matches any kind */

/*
 * What a rank announces about a tensor. All members but `rows` and `wait` must be equal on all
 * ranks. wait: how many waits this rank had ended before it submitted the tensor. In a block `wait`
 * is shifted left by HLT_MARK_BITS; the lowest bits are flags. shape[0]: 1 + the number of
 * dimensions, or 0 without a shape. After it stand the dimensions; one that is too large is
 * HLT_DIM_LARGE. At most one is: the count tells such shapes apart.
 */
struct hlt_announcement {
    uint64_t name;     /* its hash */
    uint64_t what;     /* kind, type, operation, root: see hlt_tensor_what() */
    uint64_t count;    /* elements; allgather, alltoall: of one row */
    uint64_t prescale; /* bits of the double */
    uint64_t postscale;
    uint64_t rows;    /* allgather: of this rank; reduce_scatter: of all ranks */
    uint64_t wait;    /* see above */
    uint64_t group;   /* in a group call: a hash of all its tensors' announcements; else 0 */
    uint64_t members; /* of a group call: how many tensors; else 0 */
    uint32_t shape[1 + HALAY_DIMS_MAX]; /* see above */
};

/* What a rank contributes to a round. */
struct hlt_block {
    uint64_t count;  /* entries in use */
    uint64_t issued; /* in a replay: how many groups this rank has launched */
    struct hlt_announcement entries[HLT_ROUND_ENTRIES];
};

enum hlt_kind {
    HLT_KIND_ALLREDUCE = 1,
    HLT_KIND_BROADCAST,
    HLT_KIND_ALLGATHER,
    HLT_KIND_BARRIER,
    HLT_KIND_REDUCE_SCATTER,
    HLT_KIND_ALLTOALL,
    HLT_KIND_JOIN,
    HLT_KIND_WITHDRAW, /* only in a round: this rank's deadline for the name has passed */
    HLT_KIND_UNJOIN,   /* only in a round: this rank's deadline for its join has passed */
    HLT_KIND_QUESTION  /* only in a round: this rank has waited for long; see stall.c */
};

/* Packs these into hlt_announcement.what; the functions below read it. */
uint64_t hlt_tensor_what(int kind, halay_type_t type, halay_op_t op, int root);
int hlt_announcement_kind(const struct hlt_announcement *says);
halay_type_t hlt_announcement_type(const struct hlt_announcement *says);
halay_op_t hlt_announcement_op(const struct hlt_announcement *says);
uint32_t hlt_announcement_memory(const struct hlt_announcement *says);
/* The kind on which ranks agree. If all announced HLT_MEMORY_ANY it is the host's. */
uint32_t hlt_agreed_memory(const struct hlt_announcement *says);
/* 1 if two ranks' announcements of one name fit; 1 if their `what` does. HLT_MEMORY_ANY fits all.
 */
int hlt_announcement_alike(const struct hlt_announcement *a, const struct hlt_announcement *b);
int hlt_memory_alike(const struct hlt_announcement *a, const struct hlt_announcement *b);
/* An announcement with HLT_MEMORY_ANY takes the other's kind. */
void hlt_announcement_settle(struct hlt_announcement *says, const struct hlt_announcement *other);
/* reduce_scatter: how many elements of the result this rank gets. */
size_t hlt_announcement_share(int nranks, const struct hlt_announcement *says, int rank);
/* 1 if the tensor can be part of a fused group of at most `most` bytes. */
int hlt_fuse_takes(int nranks, const struct hlt_announcement *says, size_t most);
/* 1 if two tensors can be in one fused group. */
int hlt_fuse_alike(const struct hlt_announcement *a, const struct hlt_announcement *b);
/* How many mark elements follow the tensors of a fused group, to tell whether a rank was void. */
size_t hlt_fuse_marks(int nranks, halay_type_t type);

#endif
