/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.h - the object that owns all others.
 *
 *   context -> transports, devices, bootstrap, peers, certificates, communicators
 *   comm    -> ranks, plan cache, call cache, window of calls
 *   request -> one call in that window, with the plan that it runs
 *
 * Everything below is protected by context->mutex, except the members marked constant. A
 * function named hly_* expects the mutex to be held unless it says otherwise.
 */
#ifndef HLY_CONTEXT_H
#define HLY_CONTEXT_H

#include <stdatomic.h>

#include <halay/boot.h>
#include <halay/device.h>
#include <halay/group.h>
#include <halay/plan.h>

#include "base/base.h"
#include "base/mutex.h"
#include "base/record.h"

#define HLY_CONTEXT_MAGIC 0x48414c59u
#define HLY_COMM_TABLE    256 /* buckets */
#define HLY_GONE_IDS      64
#define HLY_DEVICES       2
#define HLY_LOST_IDS      64
#define HLY_DEATHS_TOLD   16
/* A call that begins after that. */
#define HLY_LOST_TEXT "its transport has failed; its first error on stderr says why"

struct hly_kept {                 /* rows of halay-bench calibrate: start/kept.c */
    halay_selection_t *selection; /* while it is not known whether all ranks have the same */
    bool looked, used;
    char path[512], why[768]; /* why: not */
};

struct hly_settings {
    uint64_t deadline_ns;
    uint64_t start_deadline_ns; /* HALAY_START_DEADLINE */
    uint64_t notice_ns;         /* HALAY_STALL; 0: no notices */
    uint64_t stop_timeout_ns;   /* HALAY_STOP_TIMEOUT */
    uint64_t link_timeout_ns;   /* HALAY_LINK_TIMEOUT */
    int level;                  /* HALAY_DEBUG */
    char isa[16];               /* halay_config_t's; empty: the best */
    char transport[32];         /* HALAY_TRANSPORT */
    char plugin_dir[256];
    char algorithm[512];
    char rows[256];               /* HALAY_SELECTION */
    halay_selection_t *selection; /* of algorithm and rows; or what was kept */
    struct hly_kept kept;
    bool explain;                    /* HALAY_EXPLAIN */
    bool gpudirect;                  /* HALAY_GPUDIRECT */
    char nccl[256];                  /* HALAY_NCCL_LIBRARY: a file */
    char record[256];                /* HALAY_RECORD: a folder */
    bool no_nccl, no_shared_gpu;     /* =own, =off; and =off */
    uint64_t shared_gpu_least_bytes; /* =own:BYTES; 0: the GPU says it */
};

struct hly_group_library {        /* of group steps: a library of device collectives */
    const halay_group_ops_t *ops; /* NULL: there is none */
    void *arg;
    char name[32];
    bool captures; /* its collectives may go into graphs */
};

struct hly_device { /* a kind of memory, and who reduces and copies in it */
    const halay_device_ops_t *ops;
    halay_device_t *handle;
    uint32_t works; /* pieces of work that it holds, and group steps that are not done */
    uint8_t memory; /* HALAY_MEMORY_*: its kind. Constant, as the next two are */
    bool touchable; /* the processor may read and write it */
    bool sleeps;    /* arm gives a descriptor */
    bool lost;      /* it takes no work any more */
    bool runs_on;   /* some could not be stopped: it may still write */
    struct hly_group_library library; /* that the program has named, for its memory. Constant */
    uint32_t group_steps;             /* of its works */
    uint32_t marks;                   /* of its works: in streams of the program */
};

/* The threads that wait in a context: run/waiting.c. */
struct hly_waited { /* a thread of the program that has waited for long; on its stack */
    struct hly_waited *next;
    halay_comm_t *comm;
    halay_request_t *request; /* NULL: a probe for this source and tag */
    int from, tag;
    uint64_t since_ns, deadline_ns;
    uint32_t number;  /* of this wait: 1, 2, ...; 0: it is in no list */
    const char *name; /* of the function that the program has called; or NULL */
    char *why;        /* it is to end with an error: its text; or NULL */
};

struct hly_waiters {
    bool leader;           /* a thread sleeps on the descriptors */
    bool rearm;            /* the leader has been woken because another thread polled */
    bool called;           /* hly_wake(): the leader returns to its caller */
    bool woken;            /* the next sleep is skipped */
    int pollers;           /* threads that poll in a loop */
    int followers;         /* threads that sleep until hly_mutex_call() */
    int wake_fd;           /* wakes the leader */
    uint32_t backoff;      /* log2 of how much sooner waits sleep than they normally do */
    uint8_t yields;        /* ranks of ours share this processor: learnt; 0: none known to */
    uint64_t try_ns;       /* when to try again whether that still holds */
    uint64_t retry_ns;     /* the interval between two such tries */
    int (*ask)(void *arg); /* of halay_local_on_wait(); NULL: nobody is asked */
    void *ask_arg;
    struct hly_waited *waited; /* threads that have waited for long: the first one first */
    uint32_t waits;            /* number of the last of such waits */
    const char *(*name)(void); /* of halay_local_on_name(); or NULL */
    bool one_at_a_time;        /* while a call of the program waits it makes no other */
    uint64_t interrupted_ns;   /* when it last wanted a call to end; 0: never */
    bool reported;             /* this rank has logged it */
};

struct hly_nccl_here { /* NCCL and shared_gpu, which the context opens by itself:
                          run/group_library.c */
    bool looked, warned;
    int version;    /* of NCCL; 0: there is none */
    uint64_t place; /* of the GPU */
    uint64_t reach; /* whom shared_gpu can reach; 0: nobody */
    uint64_t least; /* bytes of a call from which on shared_gpu is used */
    struct hly_group_library nccl, shared_gpu;
    struct hly_nccl_ask *left; /* with memory that a transport may write */
    char why[288];
};

struct hly_death_told { /* a verdict that this rank has said for others: fault/verdict.c */
    int rank;           /* of the job */
    uint32_t cause;     /* enum hly_cause: dead, or stopped */
};

struct halay_context {
    uint32_t magic;
    struct hly_mutex mutex;
    struct hly_waiters waiters;
    volatile uint32_t *alive; /* 1; on a page that the kernel wipes in a forked child */
    struct hly_settings settings;
    halay_boot_info_t info; /* constant after init */
    const halay_boot_ops_t *boot_ops;
    halay_boot_t *boot;
    bool leaves;                            /* the job, for good: halay_leave() */
    struct hly_transport *transports;       /* constant after init, except their counters */
    int ntransports;                        /* 0 with one rank */
    struct hly_device devices[HLY_DEVICES]; /* the first one is that of host memory */
    int ndevices;
    struct hly_nccl_here nccl;
    void *plugins[4]; /* dlopened */
    int nplugins;
    int ncpus; /* processors for the ranks of this node */
    int dealt; /* halayrun has bound rank r to the processor r modulo this; 0: nobody has */
    size_t cache_bytes; /* of the last-level cache; a guess where nobody knows */

    struct hly_peer **peer_table; /* hash of ids, power of two */
    uint32_t peer_mask, npeers;
    struct hly_link busy_peers; /* with messages that their transport could not take yet */
    struct hly_link comms;
    uint32_t ncomms;
    halay_comm_t *comm_table[HLY_COMM_TABLE];
    struct hly_link messages;     /* of communicators with messages: wire/message.h */
    struct hly_link dcomms;       /* of communicators with group steps: exec/device_comm.h */
    struct hly_link freed_comms;  /* calls on them can still fail on all ranks */
    struct hly_link unused_comms; /* their memory */
    uint32_t nfreed;
    uint64_t gone_ids[HLY_GONE_IDS]; /* of communicators whose memory was freed */
    uint32_t ngone;
    halay_comm_t *world;
    struct hly_link requests;        /* running or failing */
    struct hly_link requests_unused; /* free memory of requests */
    struct hly_link posted;          /* requests that the program has not waited for yet */
    struct hly_link orphans;         /* unexpected messages of communicators not made yet */
    uint32_t norphans;
    size_t orphan_bytes;
    uint64_t longest_ns;             /* of the deadlines that communicators were given */
    uint64_t lost_ids[HLY_LOST_IDS]; /* communicators not made yet that lost an orphan, */
    uint64_t lost_ns;                /* the last one then */
    uint32_t nlost;                  /* more than fit in lost_ids: then all count as lost */
    bool handing;                    /* hly_hand_on() is running */
    struct hly_link news, news_unused, news_reserved; /* events for those above wire/: news.h */
    struct hly_news *news_stock;
    struct hly_link sends_unused,
        sends_flying;                   /* flying: control messages that a transport holds */
    struct hly_target *targets;         /* of announced messages: wire/rendezvous.h */
    uint32_t ntargets, target_free;     /* target_free: index + 1; 0: none */
    struct hly_range *ranges;           /* registration cache, or NULL */
    uint32_t nranges;                   /* entries used so far */
    uint64_t ranges_used;               /* how often those of devices were */
    bool scratch_refused;               /* registrations ran out of memory: scratch gets none */
    const struct hly_transport *lender; /* holds the LENT event being taken in, or NULL */
    bool lost;                          /* a transport has failed: every call ends at once */
    struct hly_death_told deaths_told[HLY_DEATHS_TOLD]; /* the last ones */
    uint32_t ndeaths_told;
    uint32_t survivors; /* agreements of survivors that are under way: fault/survivors.h */
    uint32_t outlived;  /* agreements on calls that are complete here: fault/ */
    uint64_t alarms;    /* failed calls so far; marks who was told (peer->alarm) */
    struct hly_certificate *certificates;
    struct hly_op *user_ops;
    uint32_t nuser_ops, user_ops_made;
    uint64_t now_ns, timer_ns; /* last look at the clock; next look at deadlines */
    uint64_t listened_ns;      /* when this rank last read all that had come */
    bool listening;            /* calls wait for the next such time: exec/listen.h */
    uint32_t polls;            /* since the last look at the clock */
    halay_counters_t counters;
    struct hly_record record;      /* the flight record */
    struct hly_returned *returned; /* run/returned.c; NULL: no call ever returns before its end */
    uint64_t loads_seen; /* libraries that the process had loaded when devices were looked for */
};

/* isa: as for halay_device_ops_t.open. */
int hly_device_open(const halay_device_ops_t *ops, void *arg, const char *isa,
                    struct hly_device *device);
/* Opens the devices whose driver the program has loaded meanwhile. */
void hly_devices_look(halay_context_t *context);
struct hly_memory_seen {
    uint32_t kind;
    uint64_t id[2]; /* of each buffer's allocation: halay_memory_t */
};
/*
 * What memory `at` names with so many bytes each; NULL and HALAY_IN_PLACE name none. A buffer
 * without bytes counts only if both have none. HALAY_EINVAL: it is of two kinds, or not there;
 * another code: its device cannot be used. The text says so; without one (NULL) it is not looked
 * whether the host's memory is there.
 */
int hly_memory_look(const halay_context_t *context, const void *const at[2], const size_t bytes[2],
                    struct hly_memory_seen *seen, char *text, size_t text_bytes);
/* The device that works in memory of this kind. */
struct hly_device *hly_device_of(halay_context_t *context, uint32_t kind);

static inline void hly_lock(halay_context_t *context)
{
    hly_mutex_lock(&context->mutex);
}

static inline void hly_unlock(halay_context_t *context)
{
    hly_mutex_unlock(&context->mutex);
}

/* hly_wake(), where somebody sleeps; and whoever is about to will not. */
static inline void hly_wake_if_asleep(halay_context_t *context)
{
    context->waiters.called = context->waiters.woken = true;
    if (context->waiters.leader || context->waiters.followers)
        hly_wake(context);
}

/* The program has wanted a wait to end: halay_local_on_wait(). What is revoked later than in a
 * second is so for another reason. */
static inline bool hly_interrupted(const halay_context_t *context)
{
    const uint64_t at_ns = context->waiters.interrupted_ns;
    return at_ns && hly_now_ns() - at_ns < UINT64_C(1000000000);
}

static inline bool hly_forked(const halay_context_t *context)
{
    return *context->alive == 0;
}

/* Locks the context for a public call. An error: it cannot be used, and is not locked. */
int hly_context_enter(halay_context_t *context);

#endif
