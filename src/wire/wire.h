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

#include <halay/group.h>

#include "base/process.h"
#include "comm/call.h"

enum hly_kind {
    HLY_HELLO = 1, /* first to each peer: build and settings; comm is 0 */
    /* Bytes [offset, ...) of an edge's message, unannounced. No bytes of a message that has some:
     * an offer, so that the receiver can compare the calls. */
    HLY_EAGER,
    HLY_READY, /* receiver -> sender: where the edge's message goes (struct hly_ready) */
    HLY_PIECE, /* bytes [offset, ...) for the target `cookie` */
    /* A message of the agreement on a failing call (fault/call.c): struct hly_verdict_wire follows;
     * cookie: enum hly_agree_what; edge: as in struct hly_failing_message. */
    HLY_ALARM,
    HLY_REVOKE, /* receiver -> sender: stop writing to the target `cookie`, and say when you have */
    HLY_REVOKED, /* sender -> receiver: nothing is written to the target `cookie` any more */
    /* For relaxed broadcasts. Edge 0: I leave when you have ended all calls up to this one; 1: I
     * have ended them. */
    HLY_LEAVE,
    /* To a device communicator (exec/device_comm.h): edge is the channel, cookie its generation,
     * and struct hly_invitation follows. */
    HLY_INVITE,
    /* A message of the survivors' agreement `sequence` (fault/survivors.c): struct
     * hly_consensus_wire follows. */
    HLY_CONSENSUS,
    /* A message with a tag (wire/message.h); edge: enum hly_message_what. */
    HLY_MESSAGE,
    /* From a call that waits (fault/stall.c); cookie: hly_cookie_about(). Where is that rank? */
    HLY_QUERY,
    HLY_REPLY,   /* the answer; edge: enum hly_seen; call: the sender's, if it is in this call */
    HLY_MISSING, /* to the rank that logs the notice: that rank is missing; edge as in REPLY */
    HLY_KIND_END
};

/* Cookie of QUERY, REPLY and MISSING: a rank of the communicator, and how many calls it has made.
 * In a QUERY: 1 + its rank in the job. */
static inline uint64_t hly_cookie_about(int rank, uint32_t calls)
{
    return (uint64_t)calls << 32 | (uint32_t)rank;
}

struct hly_header {
    uint64_t comm;      /* communicator's id; 0: the process itself */
    uint64_t signature; /* hash of all that ranks compare of the call */
    uint32_t sequence;  /* of the call on its communicator */
    uint32_t edge;
    uint32_t from; /* sender's rank in the communicator (HELLO: in the world) */
    uint16_t kind;
    uint16_t segment; /* EAGER: low bits of the segment's number */
    uint64_t offset;
    uint64_t cookie; /* names the receiver's target; EAGER: bytes of the whole message */
    struct hly_call_desc call;
};
static_assert(sizeof(struct hly_header) == 64, "one cache line");

/* Sets sequence and edge in one store: a comparison by words would stall on two. */
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
    uint16_t segment; /* as in the header of an eager message */
    uint32_t key_bytes;
    uint64_t tag;    /* TAGGED */
    uint64_t bytes;  /* of the message, as the receiver expects it */
    uint64_t offset; /* PUT: in the memory that the key is of */
    uint8_t key[HLY_KEY_BYTES];
};

struct hly_invitation {
    uint64_t members; /* hash of their ranks */
    uint64_t memory;  /* HALAY_MEMORY_* */
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
};

/* Follows a REPLY: ranks that wait, each for the next one, which owes it a call or message. The
 * first is the sender, if that owes what the question is about. After one that waits for any rank
 * come those that owe it that. In a QUERY about a message: how its sender waits. */
#define HLY_BLOCKED_MOST 8
enum hly_blocked_in { HLY_IN_CALL, HLY_IN_RECV, HLY_IN_PROBE, HLY_IN_SEND };
struct hly_blocked {
    uint64_t comm;        /* its id */
    uint32_t sequence;    /* of the call */
    int32_t rank;         /* the rank that waits, by its number in the world */
    uint32_t nranks : 30; /* of the communicator */
    uint32_t in : 2;      /* enum hly_blocked_in */
    uint32_t wait;        /* number of this wait of its program, which cannot do anything else
                             meanwhile, and waits without a deadline; 0: it may */
    union {
        struct hly_call_desc call;
        struct {
            uint64_t number; /* RECV, PROBE: messages that have come from there; SEND: offer's id */
            int32_t peer;    /* in the communicator; HLY_ANY */
            int32_t tag;
        } message;
    };
    char name[24]; /* of the function that its program has called, without a 0 if it is so long;
                      empty: not known */
};
static_assert(sizeof(struct hly_blocked) == 64, "as many as a control message has room for");

#define HLY_CONSENSUS_RUNS 48

struct hly_consensus_wire {
    uint32_t what; /* enum hly_agree_what: agree/message.h */
    int32_t call;  /* enum hly_consensus_call */
    int32_t flag, code;
    uint32_t ballot; /* 1 + the coordinator that has proposed this value; 0: a rank's own value */
    uint16_t nfailed, nwithout; /* as in struct hly_packed: agree/runs.h */
    /* Two packed sets of ranks: known to the sender to have failed; left out of the value. */
    uint64_t sets[HLY_CONSENSUS_RUNS];
};

static inline size_t hly_consensus_bytes(int nranks)
{
    const size_t words = 2 * (((size_t)(unsigned)nranks + 63) / 64);
    return offsetof(struct hly_consensus_wire, sets) +
           sizeof(uint64_t) * (words < HLY_CONSENSUS_RUNS ? words : HLY_CONSENSUS_RUNS);
}

/* The first message, in all builds: so `kind` of its header and `build` stay where they are in all
 * versions. The rest is read only where the builds are equal. */
struct hly_hello {
    char build[32]; /* HLY_BUILD: version and id */
    uint64_t settings_hash;
    char settings[240]; /* what the hash is of, as text */
    halay_process_t process;
};

#endif
