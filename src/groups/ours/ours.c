/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ours.c - the table, and how a launch goes on: docs/decisions/0069. Members read the memory of all
 * and write their own alone. A launch has two rounds; only an allreduce does something in both.
 */
#include "groups/ours/ours.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "device/device_builtin.h"
#include "groups/ours/meeting.h"

#define ROUNDS   2
#define TOGETHER 64 /* elements that are not divided among members */

struct hly_ours {
    halay_device_t *device; /* NULL: not yet */
    int ordinal;
};

struct flight {
    uint64_t cookie;
    uint32_t kind;
    halay_type_t type;
    halay_op_t op;
};

/*
 * Invariants: launches ended .. launched - 1 are in flight, and all but the first of them have not
 * begun. A function behind a round's kernels, or the member itself where it has none, writes that
 * the round has ended.
 */
struct hly_ours_circle {
    struct hly_ours *ours;
    struct hly_meeting *meeting;
    struct hly_meeting_member *own;
    unsigned char id[HALAY_CIRCLE_ID_BYTES];
    uint32_t me, n;
    uint64_t launched, ended;
    struct flight flights[HLY_OURS_FLIGHTS];
    size_t *counts;                /* of each flight, of each member */
    uint32_t round, piece, flying; /* flying: kernels, or other work, that the device has */
    uint64_t target;               /* own->ended when this round has ended */
    bool begun, noted, failed;     /* noted: nothing of the round is to be launched any more */
    uint32_t pending;              /* that function will be called */
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ before there is a circle */

int hly_ours_open(int ordinal, struct hly_ours **ours)
{
    struct hly_ours *o = calloc(1, sizeof(*o));
    if (!o)
        return HALAY_ENOMEM;
    o->ordinal = ordinal;
    *ours = o;
    return HALAY_OK;
}

void hly_ours_close(struct hly_ours *o)
{
    if (!o)
        return;
    if (o->device)
        hly_device_cuda.close(o->device);
    free(o);
}

/* A process has its number in its name space alone. */
uint64_t hly_ours_reach(int ordinal)
{
    struct stat space = {0};
    if (stat("/proc/self/ns/pid", &space)) /* nor could it find a meeting */
        return 0;
    const uint64_t process = (uint64_t)space.st_ino << 32 ^ (uint64_t)(uint32_t)getpid();
    return (process << 8 ^ process >> 56 ^ (uint64_t)(uint32_t)ordinal) | UINT64_C(1) << 63;
}

static int ours_about(void *arg, halay_group_attr_t *attr)
{
    if (!arg || !attr || attr->size < sizeof(*attr))
        return HALAY_EINVAL;
    attr->memory = HALAY_MEMORY_CUDA;
    attr->captures = 0;
    snprintf(attr->name, sizeof(attr->name), "ours");
    return HALAY_OK;
}

static bool moves(uint32_t kind)
{
    return kind == HALAY_GROUP_ALLGATHER || kind == HALAY_GROUP_BROADCAST ||
           kind == HALAY_GROUP_ALLTOALL;
}

static int ours_query(void *arg, uint32_t kind, halay_type_t type, halay_op_t op)
{
    (void)arg;
    if (kind < HALAY_GROUP_REDUCE_SCATTER || kind > HALAY_GROUP_ALLTOALL || !halay_type_bytes(type))
        return HALAY_EUNSUPPORTED;
    return moves(kind) || (op != HALAY_AVERAGE && op < HALAY_OP_COUNT && halay_op_takes(op, type))
               ? HALAY_OK
               : HALAY_EUNSUPPORTED;
}

static int ours_invite(void *arg, unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    (void)arg;
    return hly_meeting_make(id);
}

static int device_open(struct hly_ours *o)
{
    struct hly_device_cuda_arg arg = {.ordinal = o->ordinal + 1};
    const int rc = o->device ? HALAY_OK : hly_device_cuda.open(&arg, NULL, &o->device);
    return rc == HALAY_OK || rc == HALAY_ENOMEM ? rc : HALAY_EDEVICE;
}

static int ours_open(void *arg, const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t me,
                     uint32_t n, halay_circle_t **circle)
{
    struct hly_ours_circle *c = calloc(1, sizeof(*c));
    size_t *counts = calloc((size_t)HLY_OURS_FLIGHTS * n, sizeof(*counts));
    int rc = c && counts ? device_open(arg) : HALAY_ENOMEM;
    if (!rc)
        rc = hly_meeting_enter(id, n, &c->meeting);
    if (rc) {
        if (me == 0)
            hly_meeting_shut(id);
        free(counts);
        free(c);
        return rc;
    }
    c->ours = arg;
    c->own = &c->meeting->member[me];
    c->counts = counts;
    c->me = me;
    c->n = n;
    memcpy(c->id, id, sizeof(c->id));
    *circle = (halay_circle_t *)c;
    return HALAY_OK;
}

/* ------------------------------------------------------------------ what a round does */

/* The elements of the whole that member j has, or reduces for all. */
struct run {
    size_t from, count;
};

static struct run run_of(const struct hly_ours_circle *c, const struct flight *f, uint32_t j)
{
    const size_t *count = c->counts + (size_t)(f - c->flights) * c->n;
    struct run run = {0, count[j]};
    if (f->kind != HALAY_GROUP_ALLREDUCE) {
        for (uint32_t i = 0; i < j; i++)
            run.from += count[i];
        return run;
    }
    const size_t even = (count[0] + c->n - 1) / c->n, all = count[0];
    const size_t part = (even + TOGETHER - 1) / TOGETHER * TOGETHER;
    run.from = part * j < all ? part * j : all;
    run.count = all - run.from < part ? all - run.from : part;
    return run;
}

/* Where member j has its input, or its output, from this element on. */
static char *place(const struct hly_ours_circle *c, const struct flight *f, uint32_t j, bool out,
                   size_t from)
{
    const struct hly_meeting_member *m = &c->meeting->member[j];
    const uint64_t at = out ? m->given[f - c->flights].out : m->given[f - c->flights].in;
    return (char *)(uintptr_t)(at + from * halay_type_bytes(f->type));
}

static bool reduces(const struct hly_ours_circle *c, const struct flight *f)
{
    return !moves(f->kind) && c->round == 0;
}

/* A reduction of n has one kernel for the first four and one for each three behind them. */
static uint32_t pieces_of(const struct hly_ours_circle *c, const struct flight *f)
{
    return !reduces(c, f) || c->n == 1 ? c->n : (c->n + 1) / 3;
}

static void fill_reduce(const struct hly_ours_circle *c, const struct flight *f, halay_work_t *work)
{
    const struct run run = run_of(c, f, c->me);
    const uint32_t first = 3 * c->piece + (c->piece > 0);
    work->dst = place(c, f, c->me, true, f->kind == HALAY_GROUP_ALLREDUCE ? run.from : 0);
    work->count = run.count;
    if (c->piece)
        work->src[work->nsrc++] = work->dst;
    for (uint32_t i = first; i < c->n && work->nsrc < HALAY_REDUCE_SOURCES; i++)
        work->src[work->nsrc++] = place(c, f, (c->me + i) % c->n, false, run.from);
}

/* Each member begins with another one. In an alltoall each gives this one another run. */
static void fill_copy(const struct hly_ours_circle *c, const struct flight *f, halay_work_t *work)
{
    const uint32_t j = (c->me + c->piece) % c->n;
    const struct run run = run_of(c, f, j);
    work->dst = place(c, f, c->me, true, run.from);
    const size_t given = f->kind == HALAY_GROUP_ALLTOALL ? run_of(c, f, c->me).from : 0;
    work->src[0] = moves(f->kind) ? place(c, f, j, false, given) : place(c, f, j, true, run.from);
    work->nsrc = 1;
    work->count = run.count;
}

static void note(void *arg)
{
    struct hly_ours_circle *c = arg;
    hly_meeting_write(c->meeting, &c->own->ended, c->target);
    __atomic_store_n(&c->own->reading, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&c->pending, 0, __ATOMIC_RELEASE); /* it may be freed now */
}

/* Launches what is left of the round. HALAY_EAGAIN: the device is full. */
static int round_launch(struct hly_ours_circle *c, const struct flight *f)
{
    for (; c->piece < pieces_of(c, f); c->piece++) {
        halay_work_t work = {.size = sizeof(work),
                             .type = f->type,
                             .op = moves(f->kind) ? HALAY_SUM : f->op,
                             .cookie = (uint64_t)(uintptr_t)c};
        if (reduces(c, f))
            fill_reduce(c, f, &work);
        else
            fill_copy(c, f, &work);
        const int rc = work.count ? hly_device_cuda.launch(c->ours->device, &work) : HALAY_OK;
        if (rc < 0)
            return rc;
        c->flying += rc == HALAY_INPROGRESS;
    }
    if (c->noted)
        return HALAY_OK;
    c->noted = true;
    __atomic_store_n(&c->pending, 1, __ATOMIC_RELAXED);
    const int rc = c->flying ? hly_device_cuda_after(c->ours->device, note, c) : HALAY_OK;
    if (rc)
        __atomic_store_n(&c->pending, 0, __ATOMIC_RELAXED);
    else if (!c->flying)
        note(c);
    return rc;
}

/* The partner of abort: one of both sees the other. */
static int round_begin(struct hly_ours_circle *c, const struct flight *f)
{
    const bool last = c->round + 1 == ROUNDS || f->kind != HALAY_GROUP_ALLREDUCE;
    __atomic_store_n(&c->own->reading, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->meeting->lost, __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&c->own->reading, 0, __ATOMIC_SEQ_CST);
        return HALAY_EDEVICE;
    }
    c->begun = true;
    c->noted = false;
    c->piece = 0;
    c->target = ROUNDS * c->ended + (last ? ROUNDS : c->round + 1);
    return HALAY_OK;
}

/* ------------------------------------------------------------------ launches */

static bool all_launched(const struct hly_ours_circle *c, uint64_t n)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (hly_meeting_read(c->meeting, &c->meeting->member[i].launched) < n)
            return false;
    return true;
}

static bool all_ended(const struct hly_ours_circle *c, uint64_t n)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (hly_meeting_read(c->meeting, &c->meeting->member[i].ended) < n)
            return false;
    return true;
}

static int ours_launch(halay_circle_t *circle, const halay_group_launch_t *l)
{
    struct hly_ours_circle *c = (struct hly_ours_circle *)circle;
    const uint64_t at = c->launched % HLY_OURS_FLIGHTS;
    if (l->stream)
        return HALAY_EUNSUPPORTED;
    if (c->failed)
        return HALAY_EDEVICE;
    if (c->launched - c->ended == HLY_OURS_FLIGHTS)
        return HALAY_EAGAIN;
    c->flights[at] = (struct flight){l->cookie, l->kind, l->type, l->op};
    memcpy(c->counts + at * c->n, l->count, c->n * sizeof(*l->count));
    c->own->given[at].in = (uint64_t)(uintptr_t)l->in;
    c->own->given[at].out = (uint64_t)(uintptr_t)l->out;
    hly_meeting_write(c->meeting, &c->own->launched, ++c->launched);
    return HALAY_INPROGRESS;
}

/* May its next round begin, or, behind the last one, it end? */
static bool may_go_on(const struct hly_ours_circle *c)
{
    return c->round ? all_ended(c, ROUNDS * c->ended + c->round) : all_launched(c, c->ended + 1);
}

/* The oldest launch. 1: it has ended; 0: not yet. What all have ended has, though the circle be
 * lost: other members have told so already. */
static int advance(struct hly_ours_circle *c)
{
    const struct flight *f = &c->flights[c->ended % HLY_OURS_FLIGHTS];
    for (;;) {
        int rc = c->begun ? round_launch(c, f) : HALAY_OK;
        if (rc)
            return rc == HALAY_EAGAIN ? 0 : rc;
        if (c->begun &&
            (c->flying || __atomic_load_n(&c->own->ended, __ATOMIC_ACQUIRE) < c->target))
            return 0;
        if (c->begun)
            c->round = (uint32_t)(c->target - ROUNDS * c->ended);
        c->begun = false;
        if (!may_go_on(c))
            return __atomic_load_n(&c->meeting->lost, __ATOMIC_ACQUIRE) ? HALAY_EDEVICE : 0;
        if (c->round == ROUNDS)
            return 1;
        rc = round_begin(c, f);
        if (rc)
            return rc;
    }
}

/* What the device has done, for any circle of the context. */
static int drain(struct hly_ours *o)
{
    halay_done_t done[16];
    const int n = hly_device_cuda.poll(o->device, done, 16);
    for (int i = 0; i < n; i++) {
        struct hly_ours_circle *c = (struct hly_ours_circle *)(uintptr_t)done[i].cookie;
        c->flying--;
        c->failed = c->failed || done[i].status;
    }
    return n;
}

static int ours_poll(halay_circle_t *circle, halay_group_done_t done[], int max)
{
    struct hly_ours_circle *c = (struct hly_ours_circle *)circle;
    const int drained = drain(c->ours);
    int n = 0, rc = c->failed ? HALAY_EDEVICE : 1;
    while (n < max && c->ended < c->launched && rc > 0) {
        rc = advance(c);
        if (rc <= 0)
            break;
        done[n++] =
            (halay_group_done_t){c->flights[c->ended++ % HLY_OURS_FLIGHTS].cookie, HALAY_OK};
        c->round = 0;
    }
    c->failed = c->failed || rc < 0;
    if (n == 0 && (c->failed || drained < 0))
        return HALAY_EDEVICE;
    return n;
}

/* ------------------------------------------------------------------ the end */

static uint64_t left_of(uint64_t until_ns)
{
    const uint64_t now = now_ns();
    return now < until_ns ? until_ns - now : 0;
}

/* Till the word is 0, or the patience ends. */
static bool await_zero(const uint32_t *word, uint64_t until_ns)
{
    const struct timespec pause = {.tv_nsec = 20000};
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST)) {
        if (!left_of(until_ns))
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static int ours_abort(halay_circle_t *circle, uint64_t patience_ns)
{
    struct hly_ours_circle *c = (struct hly_ours_circle *)circle;
    const uint64_t until = now_ns() + patience_ns;
    bool off = true;
    c->failed = true;
    __atomic_store_n(&c->meeting->lost, 1, __ATOMIC_SEQ_CST);
    for (; c->flying; c->flying--) /* a circle's pieces have one cookie */
        off = !hly_device_cuda.stop(c->ours->device, (uint64_t)(uintptr_t)c, left_of(until)) && off;
    if (off)
        __atomic_store_n(&c->own->reading, 0, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < c->n; i++)
        off = await_zero(&c->meeting->member[i].reading, until) && off;
    await_zero(&c->pending, until); /* a context that broke calls nothing any more */
    return off ? HALAY_OK : HALAY_EDEVICE;
}

/* While its function may still be called, all that it names stays. */
static void ours_close(halay_circle_t *circle, uint64_t patience_ns)
{
    struct hly_ours_circle *c = (struct hly_ours_circle *)circle;
    (void)patience_ns;
    if (!c)
        return;
    if (c->me == 0)
        hly_meeting_shut(c->id);
    if (__atomic_load_n(&c->pending, __ATOMIC_ACQUIRE))
        return;
    hly_meeting_leave(c->meeting, c->n);
    free(c->counts);
    free(c);
}

const halay_group_ops_t hly_group_ours = {
    .size = sizeof(halay_group_ops_t),
    .about = ours_about,
    .query = ours_query,
    .invite = ours_invite,
    .open = ours_open,
    .launch = ours_launch,
    .poll = ours_poll,
    .abort = ours_abort,
    .close = ours_close,
};
