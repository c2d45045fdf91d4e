/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - what travels between two processes: a header of one cache line, then a payload. All
 * ranks of a job have one byte order and one version (the hello compares), so structs travel as
 * they are.
 */
#ifndef HLY_WIRE_H
#define HLY_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum hly_kind {
    HLY_HELLO = 1, /* first on every way: version and settings; comm is 0 */
    HLY_EAGER,     /* bytes [offset, ...) of an edge's message, unannounced. No bytes of a message
                      that has some: an offer, so that the receiver can compare */
    HLY_READY,  /* receiver -> sender: this is where the edge's message goes (struct hly_ready) */
    HLY_PIECE,  /* bytes [offset, ...) for the landing `cookie` */
    HLY_ALARM,  /* this call has failed: struct hly_verdict_wire; passed on along the control graph
                 */
    HLY_ROUND,  /* round `edge` of the agreement on the verdict */
    HLY_REVOKE, /* receiver -> sender: the landing `cookie` is withdrawn, say when you are off it */
    HLY_REVOKED, /* sender -> receiver: no byte will be written to the landing `cookie` any more */
    HLY_ROOM,    /* my result of this call lies here (struct hly_ready): both.h */
    HLY_FILLED,  /* I write no more into yours */
    HLY_DOUBT,   /* I have been waiting for you in this call, in which I tell nobody anything */
    HLY_LEAVE,   /* edge 0: I would leave when you have ended this call and those before it; 1: I
                    have. series.h */
    HLY_KIND_END
};

/* A call, as far as ranks must agree on it; small enough to be in every header, so that both sides
 * of a mismatch can be printed. */
struct hly_brief {
    uint64_t count;
    uint32_t root;
    uint8_t collective;
    uint8_t type;
    uint8_t op;
    uint8_t flags; /* HLY_BRIEF_* */
};

enum {
    HLY_BRIEF_IN_PLACE = 1,
    HLY_BRIEF_VECTOR = 2,
    HLY_BRIEF_PAIR = 4,       /* send and receive: a broadcast of two ranks */
    HLY_BRIEF_LIST = 8,       /* comm_from_ranks: a barrier */
    HLY_BRIEF_SERIES = 0x10,  /* the same as the one before, and not to be heard of: series.h */
    HLY_BRIEF_ORDERED = 0x20, /* the operation does not commute */
    HLY_BRIEF_SCALED = 0x40,
    HLY_BRIEF_GROUP = 0x80 /* the head of several calls: a barrier */
};

/* Member by member: they have just been written, and a load of several would wait for that. */
static inline bool hly_brief_equal(const struct hly_brief *a, const struct hly_brief *b)
{
    return a->count == b->count && a->root == b->root && a->collective == b->collective &&
           a->type == b->type && a->op == b->op && a->flags == b->flags;
}

/* In brief.op: a user-defined operation, and the low bits of its number. */
#define HLY_BRIEF_USER 0x80u

struct hly_header {
    uint64_t comm;      /* communicator's id; 0: the process itself */
    uint64_t signature; /* hash of the call, counts vector and all */
    uint32_t sequence;  /* of the call on its communicator */
    uint32_t edge;
    uint32_t from; /* sender's rank in the communicator (HELLO: in the world) */
    uint16_t kind;
    uint16_t tile;   /* EAGER: of the call (layout.h), its low bits */
    uint64_t offset; /* EAGER: and HLY_PROMISE, both.h */
    uint64_t cookie; /* the receiver's landing; EAGER: bytes of the whole message */
    struct hly_brief call;
};
static_assert(sizeof(struct hly_header) == 64, "one cache line");

/* As one word: whoever compares it next by words would have to wait for two. */
static inline void hly_header_number(struct hly_header *h, uint32_t sequence, uint32_t edge)
{
    const uint32_t one = 1;
    const bool little = *(const uint8_t *)&one;
    const uint64_t both =
        little ? (uint64_t)edge << 32 | sequence : (uint64_t)sequence << 32 | edge;
    memcpy((char *)h + offsetof(struct hly_header, sequence), &both, sizeof(both));
}

enum hly_mode { HLY_STAGED = 1, HLY_PUT, HLY_TAGGED };

#define HLY_KEY_BYTES 48

struct hly_ready {
    uint16_t mode;
    uint16_t tile; /* as in the header of an eager message */
    uint32_t key_bytes;
    uint64_t tag;    /* TAGGED */
    uint64_t bytes;  /* that the receiver expects */
    uint64_t offset; /* PUT: in the memory of the key */
    uint8_t key[HLY_KEY_BYTES];
};

struct hly_hello {
    uint32_t version;
    uint32_t rank;
    uint64_t settings_hash;
    char settings[240]; /* what that is of, as text */
};

enum hly_cause {                     /* in the order in which they are believed */
                 HLY_CAUSE_PEER = 1, /* a process ended or cannot be reached */
                 HLY_CAUSE_SETTINGS,
                 HLY_CAUSE_ARGUMENT,
                 HLY_CAUSE_STATE,
                 HLY_CAUSE_MISMATCH,
                 HLY_CAUSE_LOCAL,  /* memory, plan, transport, on one rank */
                 HLY_CAUSE_ABSENT, /* alive perhaps, but has not made the call */
                 HLY_CAUSE_DEADLINE
};

/* A verdict: from these fields every rank writes the same text. Compared as in
 * hly_verdict_better. */
struct hly_verdict_wire {
    uint32_t cause;
    int32_t code;
    int32_t rank; /* at fault, in the communicator, or -1 */
    int32_t other;
    struct hly_brief call;       /* of `rank` */
    struct hly_brief other_call; /* of `other` */
    uint64_t of; /* 1 + the number of its call, where that was complete on some rank; else 0 */
    char host[64];
    char other_host[64];
    char detail[256];
};

#endif
