/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared_gpu.c - the table, and how a launch goes on: docs/decisions/group-steps.md#0069. A launch
 * is done in slices, and a slice in steps: each member copies its data into its slab (GIVE); takes
 * from all slabs what it is to have, or reduces it (TAKE); and, of an allreduce, takes the other
 * parts of the result (SPREAD). Members read the slabs of all, and write their own alone.
 *
 * A member begins TAKE and SPREAD when all have ended the step before. GIVE waits for nobody: a
 * slab has two halves, and before a member ends a slice all have ended the one before it.
 */
#include "groups/shared_gpu/shared_gpu.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "groups/shared_gpu/meeting.h"

#define HALF_BYTES  (16u << 20)
#define LEAST_MPS   (64u << 10)
#define LEAST_TURNS (4u << 20)
#define ELEMENT_MAX 16u /* bytes */
#define EVEN        64  /* elements: parts are whole numbers of them, where they can be */

enum { GIVE, TAKE, SPREAD };

struct hly_shared_gpu {
    halay_device_t *device; /* NULL: not yet */
    int ordinal;
    size_t half_bytes;
    struct hly_shared_gpu_dcomm *closed; /* whose slabs others may be reading */
    char why[192];
};

struct flight {
    uint64_t cookie;
    uint32_t kind;
    halay_type_t type;
    halay_op_t op;
    char *out;
    const char *in;
    size_t slices;
};

/* Invariant: launches ended .. launched - 1 are in flight; the first of them is at `slice` and
 * `step`, and the others have not begun. */
struct hly_shared_gpu_dcomm {
    struct hly_shared_gpu *library;
    struct hly_shared_gpu_dcomm *next; /* of the closed */
    struct hly_meeting *meeting;
    struct hly_meeting_member *own;
    char **slab; /* of each member, here; NULL: not opened yet */
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
    uint32_t me, n;
    uint64_t launched, ended, steps; /* steps: that this member has ended */
    struct flight flights[HLY_SHARED_GPU_FLIGHTS];
    size_t *counts; /* of each flight, of each member */
    size_t slice;
    uint32_t step, half, piece, flying; /* flying: kernels that the device has */
    bool begun, failed;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The first reason counts: what follows is of its making. Returns the code. */
static int fails(struct hly_shared_gpu *o, int code, const char *what)
{
    const char *device = o->device ? hly_device_cuda.why(o->device) : "";
    if (!o->why[0])
        snprintf(o->why, sizeof(o->why), "%s%s%.90s. HALAY_NCCL_LIBRARY=off has calls staged", what,
                 *device ? ": " : "", device);
    return code;
}

static const char *ours_why(void *arg)
{
    return ((const struct hly_shared_gpu *)arg)->why;
}

/* ------------------------------------------------------------------ before one is opened */

int hly_shared_gpu_open(int ordinal, size_t half_bytes, struct hly_shared_gpu **library)
{
    struct hly_shared_gpu *o = calloc(1, sizeof(*o));
    if (!o)
        return HALAY_ENOMEM;
    o->ordinal = ordinal;
    o->half_bytes = half_bytes ? half_bytes : HALF_BYTES;
    *library = o;
    return HALAY_OK;
}

static uint64_t mix(uint64_t word, uint64_t with)
{
    word = (word ^ with) * UINT64_C(0x9e3779b97f4a7c15);
    return word ^ word >> 29;
}

/* A process has its number in its name space alone. */
static uint64_t space_of(const char *path)
{
    struct stat space = {0};
    return stat(path, &space) ? 0 : (uint64_t)space.st_ino;
}

/* Can memory of this device be shared with other processes? */
static bool shares(halay_device_t *device)
{
    unsigned char handle[HLY_CUDA_HANDLE_BYTES];
    void *memory;
    if (hly_device_cuda.alloc(device, HALAY_PLACE_OWN, 256, 256, &memory))
        return false;
    const int rc = hly_device_cuda_share(device, memory, handle);
    hly_device_cuda.free(device, HALAY_PLACE_OWN, memory);
    return !rc;
}

uint64_t hly_shared_gpu_reach(halay_device_t *device)
{
    unsigned char uuid[HLY_CUDA_UUID_BYTES];
    uint64_t half[2], place, word = space_of("/proc/self/ns/pid");
    int ordinal;
    if (!word || hly_device_cuda_gpu(device, &ordinal, &place))
        return 0; /* nor could it find a meeting */
    /* Nobody may look into a process that must not leave a core. */
    if (prctl(PR_GET_DUMPABLE) == 1 && !hly_device_cuda_uuid(device, uuid) && shares(device)) {
        memcpy(half, uuid, sizeof(half));
        word = mix(mix(mix(word, space_of("/proc/self/ns/ipc")), half[0]), half[1]);
    } else { /* threads of one process are left */
        word = mix(mix(word, (uint64_t)getpid()), 1 + (uint64_t)(uint32_t)ordinal);
    }
    return word | UINT64_C(1) << 63;
}

/* A GPU takes turns between processes, for some 0.3 ms each, if they do not share a context by MPS.
 */
uint64_t hly_shared_gpu_least(halay_device_t *device)
{
    return hly_device_cuda_mps(device) ? LEAST_MPS : LEAST_TURNS;
}

static int ours_about(void *arg, halay_group_attr_t *attr)
{
    if (!arg || !attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->memory = HALAY_MEMORY_CUDA;
    attr->captures = 0;
    snprintf(attr->name, sizeof(attr->name), "Halay's kernels");
    return HALAY_OK;
}

static int ours_query(void *arg, uint32_t kind, halay_type_t type, halay_op_t op)
{
    (void)arg;
    if (kind < HALAY_GROUP_REDUCE_SCATTER || kind > HALAY_GROUP_ALLTOALL || !halay_type_bytes(type))
        return HALAY_EUNSUPPORTED;
    return halay_group_moves(kind) ||
                   (op != HALAY_AVERAGE && op < HALAY_OP_COUNT && halay_op_takes(op, type))
               ? HALAY_OK
               : HALAY_EUNSUPPORTED;
}

static int ours_invite(void *arg, unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    (void)arg;
    return hly_meeting_make(id);
}

/* ------------------------------------------------------------------ slabs */

static int device_open(struct hly_shared_gpu *o)
{
    struct hly_device_cuda_arg arg = {.ordinal = o->ordinal + 1};
    const int rc = o->device ? HALAY_OK : hly_device_cuda.open(&arg, NULL, &o->device);
    return rc == HALAY_OK       ? rc
           : rc == HALAY_ENOMEM ? fails(o, rc, "no memory on the GPU for another device object")
                                : fails(o, HALAY_EDEVICE, "the GPU cannot be opened once more");
}

/* This member's, and what the others need of it. Whoever cannot open it says so. */
static int slab_make(struct hly_shared_gpu_dcomm *c)
{
    void *at;
    struct hly_shared_gpu *o = c->library;
    const int rc = hly_device_cuda.alloc(o->device, HALAY_PLACE_OWN, 2 * o->half_bytes, 256, &at);
    if (rc)
        return fails(
            o, rc == HALAY_ENOMEM ? rc : HALAY_EDEVICE,
            "each communicator takes 32 MiB of the GPU's memory a rank, and there are none");
    c->slab[c->me] = at;
    c->own->slab = (uint64_t)(uintptr_t)at;
    c->own->process = getpid();
    hly_device_cuda_share(o->device, at, c->own->handle);
    return HALAY_OK;
}

/* When all have ended a step, so that all are there. */
static int slabs_open(struct hly_shared_gpu_dcomm *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct hly_meeting_member *m = &c->meeting->member[i];
        void *at = (void *)(uintptr_t)m->slab;
        if (c->slab[i])
            continue;
        if (m->process != c->own->process &&
            hly_device_cuda_open_shared(c->library->device, m->handle, &at))
            return fails(c->library, HALAY_EDEVICE, "another process's memory cannot be opened");
        c->slab[i] = at;
    }
    return HALAY_OK;
}

static void slabs_close(struct hly_shared_gpu_dcomm *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (i != c->me && c->slab[i] && c->meeting->member[i].process != c->own->process)
            hly_device_cuda_close_shared(c->library->device, c->slab[i]);
    __atomic_store_n(&c->own->left, 1, __ATOMIC_SEQ_CST);
}

static bool all_are(const struct hly_shared_gpu_dcomm *c,
                    bool (*are)(const struct hly_shared_gpu_dcomm *c, struct hly_meeting_member *m))
{
    for (uint32_t i = 0; i < c->n; i++)
        if (i != c->me && !are(c, &c->meeting->member[i]))
            return false;
    return true;
}

static bool has_caught_up(const struct hly_shared_gpu_dcomm *c, struct hly_meeting_member *m)
{
    return hly_meeting_read(c->meeting, &m->ended) >= c->steps;
}

static bool has_left(const struct hly_shared_gpu_dcomm *c, struct hly_meeting_member *m)
{
    (void)c;
    return __atomic_load_n(&m->left, __ATOMIC_SEQ_CST);
}

/* Needs this rank's slab no more for what this rank has ended. */
static bool has_taken(const struct hly_shared_gpu_dcomm *c, struct hly_meeting_member *m)
{
    return has_caught_up(c, m) || has_left(c, m);
}

static bool reads_not(const struct hly_shared_gpu_dcomm *c, struct hly_meeting_member *m)
{
    (void)c;
    return !__atomic_load_n(&m->reading, __ATOMIC_SEQ_CST);
}

/* Waits until all are, or the timeout ends. */
static bool await(const struct hly_shared_gpu_dcomm *c, uint64_t timeout_ns,
                  bool (*are)(const struct hly_shared_gpu_dcomm *c, struct hly_meeting_member *m))
{
    const struct timespec pause = {.tv_nsec = 20000};
    const uint64_t until_ns = now_ns() + timeout_ns;
    bool all = all_are(c, are);
    for (; !all && now_ns() < until_ns; all = all_are(c, are))
        nanosleep(&pause, NULL);
    return all;
}

static void dcomm_free(struct hly_shared_gpu_dcomm *c)
{
    if (c->slab[c->me])
        hly_device_cuda.free(c->library->device, HALAY_PLACE_OWN, c->slab[c->me]);
    hly_meeting_leave(c->meeting, c->n);
    free(c->slab);
    free(c->counts);
    free(c);
}

/* Frees closed device communicators that all have left; with timeout, all. */
static void sweep(struct hly_shared_gpu *o, uint64_t timeout_ns)
{
    struct hly_shared_gpu_dcomm **at = &o->closed;
    while (*at) {
        struct hly_shared_gpu_dcomm *c = *at;
        if (timeout_ns && !all_are(c, has_left)) {
            __atomic_store_n(&c->own->shut, 1, __ATOMIC_SEQ_CST);
            await(c, timeout_ns, reads_not);
        } else if (!all_are(c, has_left)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        dcomm_free(c);
    }
}

void hly_shared_gpu_close(struct hly_shared_gpu *o)
{
    if (!o)
        return;
    sweep(o, HLY_SHARED_GPU_CLOSE_NS);
    if (o->device)
        hly_device_cuda.close(o->device);
    free(o);
}

static int ours_open(void *arg, const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t me,
                     uint32_t n, halay_circle_t **dcomm)
{
    struct hly_shared_gpu *o = arg;
    struct hly_shared_gpu_dcomm *c = calloc(1, sizeof(*c));
    size_t *counts = calloc((size_t)HLY_SHARED_GPU_FLIGHTS * n, sizeof(*counts));
    char **slab = calloc(n, sizeof(*slab));
    const bool fits = n <= o->half_bytes / ELEMENT_MAX; /* a part of each member, in a slab */
    int rc = c && counts && slab && fits ? device_open(o) : HALAY_ENOMEM;
    if (rc)
        goto free_memory;
    sweep(o, 0);
    o->why[0] = '\0';
    rc = hly_meeting_enter(id, n, &c->meeting);
    if (rc) {
        fails(o, rc,
              "shared memory of the first rank of the node cannot be opened: is its process "
              "there, and may this user see it?");
        goto free_memory;
    }
    c->library = o;
    c->own = &c->meeting->member[me];
    c->counts = counts;
    c->slab = slab;
    c->me = me;
    c->n = n;
    memcpy(c->id, id, sizeof(c->id));
    rc = slab_make(c);
    if (rc)
        goto leave;
    *dcomm = (halay_circle_t *)c;
    return HALAY_OK;

leave:
    hly_meeting_leave(c->meeting, n);
free_memory:
    if (me == 0)
        hly_meeting_shut(id);
    free(slab);
    free(counts);
    free(c);
    return rc;
}

/* ------------------------------------------------------------------ what a step does */

/* The elements of the whole that member j has, or reduces for all. */
struct run {
    size_t from, count;
};

static struct run run_of(const struct hly_shared_gpu_dcomm *c, const struct flight *f, uint32_t j)
{
    const size_t *count = c->counts + (size_t)(f - c->flights) * c->n;
    struct run run = {0, count[j]};
    if (f->kind != HALAY_GROUP_ALLREDUCE) {
        for (uint32_t i = 0; i < j; i++)
            run.from += count[i];
        return run;
    }
    const size_t even = (count[0] + c->n - 1) / c->n, all = count[0];
    const size_t part = (even + EVEN - 1) / EVEN * EVEN;
    run.from = part * j < all ? part * j : all;
    run.count = all - run.from < part ? all - run.from : part;
    return run;
}

/* Does each member give a part to each other one? Else each gives its own run. */
static bool gives_parts(const struct flight *f)
{
    return f->kind != HALAY_GROUP_ALLGATHER && f->kind != HALAY_GROUP_BROADCAST;
}

/* Elements of a run that one slice has, at most. */
static size_t room_of(const struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    assert(c->n > 0);
    const size_t all = c->library->half_bytes / halay_type_bytes(f->type);
    const size_t room = gives_parts(f) ? all / c->n : all;
    assert(room > 0); /* open has made sure */
    return room > EVEN ? room - room % EVEN : room;
}

static size_t slices_of(const struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    const size_t room = room_of(c, f);
    size_t longest = 0;
    for (uint32_t j = 0; j < c->n; j++) {
        const size_t count = run_of(c, f, j).count;
        longest = count > longest ? count : longest;
    }
    return (longest + room - 1) / room;
}

/* What this slice has of the run, in the whole. */
static struct run slice_of(const struct hly_shared_gpu_dcomm *c, const struct flight *f, uint32_t j)
{
    const size_t room = room_of(c, f), from = c->slice * room;
    struct run run = run_of(c, f, j);
    const size_t left = run.count > from ? run.count - from : 0;
    return (struct run){run.from + from, left < room ? left : room};
}

/* Where part j of what this member gives lies in its slab. */
static char *place(const struct hly_shared_gpu_dcomm *c, const struct flight *f, uint32_t member,
                   uint32_t j)
{
    const size_t part = gives_parts(f) ? j * room_of(c, f) : 0;
    return c->slab[member] + c->half * c->library->half_bytes + part * halay_type_bytes(f->type);
}

static uint32_t steps_of(const struct flight *f)
{
    return f->kind == HALAY_GROUP_ALLREDUCE ? SPREAD + 1 : TAKE + 1;
}

static bool reduces(const struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    return !halay_group_moves(f->kind) && c->step == TAKE;
}

/* A reduction of n has one kernel for the first four and one for each three after them. Copies are
 * lists. */
static uint32_t pieces_of(const struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    if (reduces(c, f))
        return c->n == 1 ? 1 : (c->n + 1) / 3;
    if (c->step == GIVE && !gives_parts(f))
        return 1;
    return (c->n + HALAY_LIST_PARTS - 1) / HALAY_LIST_PARTS;
}

static int launch_reduce(const struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    const struct run run = slice_of(c, f, c->me);
    const bool spreads = f->kind == HALAY_GROUP_ALLREDUCE;
    const uint32_t first = 3 * c->piece + (c->piece > 0);
    const size_t at = c->slice * room_of(c, f); /* of the own run */
    halay_work_t work = {.size = sizeof(work),
                         .type = f->type,
                         .op = f->op,
                         .count = run.count,
                         .cookie = (uint64_t)(uintptr_t)c};
    work.dst = spreads ? place(c, f, c->me, c->me) : f->out + at * halay_type_bytes(f->type);
    if (c->piece)
        work.src[work.nsrc++] = work.dst;
    for (uint32_t i = first; i < c->n && work.nsrc < HALAY_REDUCE_SOURCES; i++)
        work.src[work.nsrc++] = place(c, f, (c->me + i) % c->n, c->me);
    return run.count ? hly_device_cuda.launch(c->library->device, &work) : HALAY_OK;
}

/* Part j of a copying step. */
static halay_part_t part_of(const struct hly_shared_gpu_dcomm *c, const struct flight *f,
                            uint32_t j)
{
    const size_t e = halay_type_bytes(f->type);
    const struct run run = slice_of(c, f, j);
    halay_part_t part = {.count = run.count, .factor = 1.0};
    if (c->step == GIVE) { /* an own run is alone in `in` */
        part.dst = place(c, f, c->me, j);
        part.src = f->in + (gives_parts(f) ? run.from : c->slice * room_of(c, f)) * e;
    } else {
        part.dst = f->out + run.from * e;
        part.src = place(c, f, j, f->kind == HALAY_GROUP_ALLTOALL ? c->me : j);
    }
    return part;
}

static int launch_copies(const struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    const bool own = c->step == GIVE && !gives_parts(f); /* its run alone */
    const uint32_t first = own ? c->me : c->piece * HALAY_LIST_PARTS;
    halay_part_t part[HALAY_LIST_PARTS];
    uint32_t n = 0;
    for (uint32_t j = first; j < (own ? first + 1 : c->n) && j - first < HALAY_LIST_PARTS; j++) {
        part[n] = part_of(c, f, j);
        n += part[n].count > 0;
    }
    return n ? hly_device_cuda.launch_list(c->library->device, part, n, f->type,
                                           (uint64_t)(uintptr_t)c)
             : HALAY_OK;
}

/* Launches what is left of the step. HALAY_EAGAIN: the device is full. */
static int step_launch(struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    for (; c->piece < pieces_of(c, f); c->piece++) {
        const int rc = reduces(c, f) ? launch_reduce(c, f) : launch_copies(c, f);
        if (rc < 0)
            return rc;
        c->flying += rc == HALAY_INPROGRESS;
    }
    return HALAY_OK;
}

static bool is_shut(const struct hly_shared_gpu_dcomm *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (__atomic_load_n(&c->meeting->member[i].shut, __ATOMIC_SEQ_CST))
            return true;
    return false;
}

/* The partner of sweep: one of both sees the other. */
static int step_begin(struct hly_shared_gpu_dcomm *c)
{
    c->begun = true;
    c->piece = 0;
    if (c->step == GIVE)
        return HALAY_OK;
    __atomic_store_n(&c->own->reading, 1, __ATOMIC_SEQ_CST);
    const int rc = is_shut(c) ? HALAY_EDEVICE : slabs_open(c);
    if (rc)
        __atomic_store_n(&c->own->reading, 0, __ATOMIC_SEQ_CST);
    return rc;
}

static void step_end(struct hly_shared_gpu_dcomm *c, const struct flight *f)
{
    c->begun = false;
    hly_meeting_write(c->meeting, &c->own->ended, ++c->steps);
    __atomic_store_n(&c->own->reading, 0, __ATOMIC_SEQ_CST);
    if (++c->step < steps_of(f))
        return;
    c->step = GIVE;
    c->half = !c->half;
    c->slice++;
}

/* ------------------------------------------------------------------ launches */

static int ours_launch(halay_circle_t *dcomm, const halay_group_launch_t *l)
{
    struct hly_shared_gpu_dcomm *c = (struct hly_shared_gpu_dcomm *)dcomm;
    const uint64_t at = c->launched % HLY_SHARED_GPU_FLIGHTS;
    if (l->stream)
        return HALAY_EUNSUPPORTED;
    if (c->failed)
        return HALAY_EDEVICE;
    if (c->launched - c->ended == HLY_SHARED_GPU_FLIGHTS)
        return HALAY_EAGAIN;
    c->flights[at] = (struct flight){l->cookie, l->kind, l->type, l->op, l->out, l->in, 0};
    memcpy(c->counts + at * c->n, l->count, c->n * sizeof(*l->count));
    c->flights[at].slices = slices_of(c, &c->flights[at]);
    c->launched++;
    return HALAY_INPROGRESS;
}

/* The oldest launch. 1: it has ended; 0: not yet. A member that need not wait ends it, even if the
 * device communicator is lost: other members may have told so already. */
static int advance(struct hly_shared_gpu_dcomm *c)
{
    const struct flight *f = &c->flights[c->ended % HLY_SHARED_GPU_FLIGHTS];
    for (;;) {
        int rc = c->begun ? step_launch(c, f) : HALAY_OK;
        if (rc)
            return rc == HALAY_EAGAIN ? 0 : fails(c->library, rc, "no work can be put on the GPU");
        if (c->begun && c->flying)
            return 0;
        if (c->begun)
            step_end(c, f);
        if (c->slice == f->slices)
            return 1;
        if (c->step != GIVE && !all_are(c, has_caught_up))
            return __atomic_load_n(&c->meeting->lost, __ATOMIC_ACQUIRE)
                       ? fails(c->library, HALAY_EDEVICE, "another rank of the node has given up")
                       : 0;
        rc = step_begin(c);
        if (rc)
            return rc;
    }
}

/* What the device has done, for any device communicator of the context. */
static int drain(struct hly_shared_gpu *o)
{
    halay_done_t done[16];
    const int n = hly_device_cuda.poll(o->device, done, 16);
    for (int i = 0; i < n; i++) {
        struct hly_shared_gpu_dcomm *c = (struct hly_shared_gpu_dcomm *)(uintptr_t)done[i].cookie;
        c->flying--;
        if (done[i].status)
            c->failed = fails(o, true, "work on the GPU has failed");
    }
    return n;
}

static int ours_poll(halay_circle_t *dcomm, halay_group_done_t done[], int max)
{
    struct hly_shared_gpu_dcomm *c = (struct hly_shared_gpu_dcomm *)dcomm;
    const int drained = drain(c->library);
    if (c->library->closed)
        sweep(c->library, 0);
    if (drained < 0)
        fails(c->library, drained, "the GPU has failed");
    int n = 0, rc = c->failed ? HALAY_EDEVICE : 1;
    while (n < max && c->ended < c->launched && rc > 0) {
        rc = advance(c);
        if (rc <= 0)
            break;
        done[n++] =
            (halay_group_done_t){c->flights[c->ended++ % HLY_SHARED_GPU_FLIGHTS].cookie, HALAY_OK};
        c->slice = 0;
    }
    c->failed = c->failed || rc < 0;
    if (n == 0 && (c->failed || drained < 0))
        return HALAY_EDEVICE;
    return n;
}

/* ------------------------------------------------------------------ the end */

/* Kernels that cannot be stopped read slabs yet, and so `reading` stays. */
static int ours_abort(halay_circle_t *dcomm, uint64_t timeout_ns)
{
    struct hly_shared_gpu_dcomm *c = (struct hly_shared_gpu_dcomm *)dcomm;
    const uint64_t until_ns = now_ns() + timeout_ns;
    bool off = true;
    c->failed = true;
    __atomic_store_n(&c->meeting->lost, 1, __ATOMIC_SEQ_CST);
    for (; c->flying; c->flying--) { /* a device communicator's pieces have one cookie */
        const uint64_t now = now_ns(), left = now < until_ns ? until_ns - now : 0;
        off = !hly_device_cuda.stop(c->library->device, (uint64_t)(uintptr_t)c, left) && off;
    }
    if (off)
        __atomic_store_n(&c->own->reading, 0, __ATOMIC_SEQ_CST);
    return off ? HALAY_OK : HALAY_EDEVICE;
}

/* The slab stays until the others have left. */
static int ours_close(halay_circle_t *dcomm, uint64_t timeout_ns)
{
    struct hly_shared_gpu_dcomm *c = (struct hly_shared_gpu_dcomm *)dcomm;
    if (!c)
        return HALAY_OK;
    if (c->me == 0)
        hly_meeting_shut(c->id);
    await(c, timeout_ns, has_taken);
    if (!__atomic_load_n(&c->own->reading, __ATOMIC_SEQ_CST))
        slabs_close(c);
    c->next = c->library->closed;
    c->library->closed = c;
    sweep(c->library, 0);
    return HALAY_OK;
}

const halay_group_ops_t hly_group_shared_gpu = {
    .size = sizeof(halay_group_ops_t),
    .about = ours_about,
    .query = ours_query,
    .invite = ours_invite,
    .open = ours_open,
    .launch = ours_launch,
    .poll = ours_poll,
    .abort = ours_abort,
    .close = ours_close,
    .why = ours_why,
};
