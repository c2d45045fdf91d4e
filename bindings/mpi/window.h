/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.h - what the files window*.c share: one-sided communication. docs/decisions/mpi.md#0137.
 *
 * An origin sends its operations as orders over the window's own communicator. Each process with a
 * window has one thread that carries out the orders to its windows, in the order in which they come
 * from an origin. Memory that is mapped here, too (near), is read and written without a message.
 */
#ifndef HLY_MPI_WINDOW_H
#define HLY_MPI_WINDOW_H

#include <pthread.h>

#include "comm.h"
#include "type.h"

/* ---------------------------------------------------------------- orders */

/* Tags on the window's communicator. Answers have tags from _ANSWER on. */
enum {
    HLY_MPI_TAG_ORDER = 0,
    HLY_MPI_TAG_DATA,
    HLY_MPI_TAG_POST,
    HLY_MPI_TAG_COMPLETE,
    HLY_MPI_TAG_ANSWER = 16
};
enum hly_mpi_order_what {
    HLY_MPI_PUT = 1,
    HLY_MPI_GET,
    HLY_MPI_ACCUMULATE,
    HLY_MPI_GET_ACCUMULATE,
    HLY_MPI_SWAP, /* MPI_Compare_and_swap: data are the value to compare with, then the new one */
    HLY_MPI_FLUSH,
    HLY_MPI_LOCK,
    HLY_MPI_UNLOCK
};
struct hly_mpi_run { /* n pieces of memory, each of `bytes`, `stride` bytes apart */
    int64_t offset, bytes, stride, n;
};
/* A message: an order, its runs, and its data, if all that fits into HLY_MPI_ORDER_ROOM. Otherwise
 * the data follow in a message of their own. */
struct hly_mpi_order {
    uint8_t what, inlined;
    int16_t basic;  /* of an accumulate: the place of its basic type in hly_mpi_named */
    uint32_t op;    /* number in the standard's ABI */
    int32_t answer; /* tag; 0: none is wanted */
    int32_t mode;   /* MPI_LOCK_SHARED, ... */
    int64_t disp;   /* in bytes, from the window's base; of a dynamic window: the address */
    int64_t bytes;  /* in all runs */
    int64_t nruns;
};
#define HLY_MPI_REPLACE    0x3c /* numbers of operations that have no kernel */
#define HLY_MPI_NO_OP      0x3d
#define HLY_MPI_ORDER_ROOM 8192
#define HLY_MPI_RUNS_ROOM  ((HLY_MPI_ORDER_ROOM - sizeof(struct hly_mpi_order)) / 32)
/* Longer data are sent in parts. A multiple of the size of each basic type. */
#define HLY_MPI_PART_BYTES (INT64_C(480) * 2048)

/* Why a target has refused an order of this origin; the answer to _FLUSH and _UNLOCK. */
struct hly_mpi_refusal {
    int64_t mpi_class, disp, bytes; /* 0: none was refused */
};

/* ---------------------------------------------------------------- windows */

enum hly_mpi_epoch {
    HLY_MPI_NO_EPOCH,
    HLY_MPI_FENCED,
    HLY_MPI_STARTED,
    HLY_MPI_LOCKED,
    HLY_MPI_LOCKED_ALL
};
enum { HLY_MPI_HAS_LOCK = 1, HLY_MPI_UNCHECKED = 2, HLY_MPI_HAS_START = 4 }; /* of a target */

struct hly_mpi_win_peer {
    char *near; /* where its memory is in this process; NULL: it is not */
    int64_t size, disp_unit;
    uint8_t access; /* HLY_MPI_HAS_LOCK, ... */
    uint8_t dirty;  /* orders were sent that were not flushed */
    /* Of this process as a target: */
    uint8_t holds; /* the peer has a lock: MPI_LOCK_SHARED, ... */
    struct hly_mpi_refusal refusal;
};
struct hly_mpi_win_wait { /* an origin that waits for a lock */
    int rank, mode, answer;
};
struct hly_mpi_region { /* attached memory */
    uintptr_t at;
    int64_t bytes;
};
struct hly_mpi_gather { /* what a request of MPI_Rget, ... waits for */
    struct hly_mpi_win *win;
    int left, rc;
};
struct hly_mpi_fetch { /* a part that is to come: window_send.c */
    struct hly_mpi_fetch *next;
    halay_request_t *halay;
    struct hly_mpi_gather *gather; /* or NULL */
    int rank;
    bool awaited; /* a thread waits for it */
    char *room;   /* packed; NULL: it goes to where it belongs */
    void *buffer;
    int64_t count, from, bytes, disp;
    struct hly_mpi_type *type;
};

struct hly_mpi_win {
    struct hly_mpi_head head;
    struct hly_mpi_comm *comm; /* the window's own: a duplicate */
    struct hly_mpi_errhandler *errhandler;
    struct hly_mpi_attributes *attributes;
    struct hly_mpi_info *info;
    char name[128];
    void *base, *allocated; /* allocated: by malloc */
    int64_t size;
    int disp_unit, flavor, model; /* as attributes give them */
    struct hly_mpi_win_peer *peers;
    void *map; /* shared memory of all ranks, with a mutex for each; NULL: none */
    size_t map_bytes;

    /* As an origin. The mutex guards what follows; no call of Halay that waits is made with it. */
    pthread_mutex_t mutex;
    pthread_cond_t fetched;
    enum hly_mpi_epoch epoch;
    bool used;              /* operations were made since the fence */
    int nlocks, nulls;      /* locks; those of MPI_PROC_NULL */
    bool unchecked;         /* MPI_Win_lock_all with MPI_MODE_NOCHECK */
    int *started, nstarted; /* ranks */
    halay_request_t **posted;
    int nposted;
    bool is_posted;
    struct hly_mpi_fetch *fetches;
    int nfetches, fetch_rc;
    int answers;                  /* numbers their tags */
    pthread_mutex_t send_mutex;   /* an order and its data go out together */
    pthread_mutex_t region_mutex; /* guards the regions */
    struct hly_mpi_region *regions;
    int nregions, regions_room;

    /* As a target: of the thread that serves, under its lock. */
    pthread_mutex_t apply; /* accumulates, without `map` */
    struct hly_mpi_win *next;
    halay_request_t *listen;
    bool deaf; /* the communicator is broken */
    int shared, exclusive;
    struct hly_mpi_win_wait *waits;
    int nwaits;
    _Alignas(16) char room[HLY_MPI_ORDER_ROOM];
};

/* Is it a window? */
int hly_mpi_check_win(const char *function, const struct hly_mpi_win *win);

/* window_map.c: maps memory for all ranks, if they are of one node. Collective. *mapped is the same
 * on all ranks. contiguous: each rank's part begins where that of the rank before ends. */
int hly_mpi_win_map(const char *function, struct hly_mpi_win *win, bool contiguous, bool *mapped);
void hly_mpi_win_unmap(struct hly_mpi_win *win);
/* Locks and unlocks accumulates to the memory of a rank that is near. */
void hly_mpi_win_hold(struct hly_mpi_win *win, int rank);
void hly_mpi_win_let_go(struct hly_mpi_win *win, int rank);

/* window_region.c: are these bytes all attached? They may be of several regions. */
bool hly_mpi_win_is_attached(struct hly_mpi_win *win, uintptr_t at, int64_t bytes);

/* window_apply.c. Are all runs of the order in the window, or attached? */
bool hly_mpi_order_fits(struct hly_mpi_win *win, const struct hly_mpi_order *order,
                        const struct hly_mpi_run runs[]);
/* Bytes of data in an element of a named type; 1 for HLY_MPI_NONE. */
int64_t hly_mpi_basic_bytes(int basic);
/* Carries it out at this address. old: gets what was there, of those that fetch; or NULL. */
void hly_mpi_order_apply(struct hly_mpi_win *win, int rank, char *at,
                         const struct hly_mpi_order *order, const struct hly_mpi_run runs[],
                         const char *data, char *old);

/* window_serve.c: begins and ends to serve a window. */
int hly_mpi_serve(const char *function, struct hly_mpi_win *win);
void hly_mpi_serve_end(struct hly_mpi_win *win);
/* At the end of the job. */
void hly_mpi_windows_leave(void);

/* window_send.c: sends an order with its runs and data, which are copied or sent when it returns.
 * It returns a code of Halay's. */
int hly_mpi_win_send(struct hly_mpi_win *win, int rank, struct hly_mpi_order *order,
                     const struct hly_mpi_run runs[], const void *data, int64_t bytes);
/* Posts the receive of a part, before its order is sent with this tag for the answer. */
int hly_mpi_win_fetch(const char *function, struct hly_mpi_win *win,
                      const struct hly_mpi_fetch *wanted, int32_t *answer);
/* A request for parts: their gather is at its `kept`. It is done if there are none. */
int hly_mpi_gather_make(const char *function, struct hly_mpi_win *win, struct hly_mpi_request **r);
/* Waits until what was fetched from this rank (-1: any) is here. */
int hly_mpi_win_await(struct hly_mpi_win *win, int rank);
/* Sends an order without data to these ranks, and waits for their answers. */
int hly_mpi_win_ask(const char *function, struct hly_mpi_win *win, enum hly_mpi_order_what what,
                    int mode, const int ranks[], int n);
/* Ends all operations to this rank (-1: all) here and at the targets. */
int hly_mpi_win_flush_rank(const char *function, struct hly_mpi_win *win, int rank);

#endif
