/* SPDX-License-Identifier: Apache-2.0 */
/* group_double.c - see group_double.h. One mutex for all that ranks share. */
#include "group_double.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halay/device.h>

#include "device/device_builtin.h"
#include "ranks.h"

#define MEMBERS_MAX 64

#define RULE(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "group double: a rule is broken: %s: ", #condition);                   \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum state { AWAY = 0, LAUNCHED, BEGUN, DONE };

/* The n-th collective of a meeting. */
struct op {
    uint32_t kind;
    halay_type_t type;
    halay_op_t op;
    size_t count[MEMBERS_MAX];
    bool known;
    uint32_t ndone;
    struct part {
        enum state state;
        void *out;
        const void *in;
        char *given; /* its input, once it has begun */
        uint64_t cookie;
        uint32_t polls; /* till the next state */
        int status;
        bool never;
    } part[MEMBERS_MAX];
};

struct meeting {
    struct meeting *next;
    uint64_t number; /* in the id */
    uint32_t n, opened, closed, aborted;
    uint64_t launched[MEMBERS_MAX];
    struct op **ops;
    uint64_t nops, room;
};

struct halay_circle {
    struct meeting *meeting;
    struct group_double_arg *arg;
    halay_device_t *host;
    uint32_t me, open_polls;
    uint64_t done; /* launches that have ended */
    bool opened, aborted, never_opens, fails_to_open;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct meeting *meetings;
static uint64_t numbers;

static uint32_t delay(struct group_double_arg *arg)
{
    arg->seed = arg->seed * 6364136223846793005u + 1442695040888963407u;
    return arg->delay_polls_max ? (uint32_t)(arg->seed >> 33) % (arg->delay_polls_max + 1) : 0;
}

static bool moves(const struct op *op)
{
    return op->kind == HALAY_GROUP_ALLGATHER || op->kind == HALAY_GROUP_BROADCAST ||
           op->kind == HALAY_GROUP_ALLTOALL;
}

static bool exchanges(const struct op *op)
{
    return op->kind == HALAY_GROUP_ALLTOALL;
}

/* ---------------------------------------------------------------- meetings */

/* All have launched alike; but where a call has failed, what ended without a member that gives
 * nothing to it may lack that member. */
static void check_launches(const struct meeting *m)
{
    for (uint64_t o = 0; o < m->nops; o++)
        for (uint32_t i = 0; i < m->n; i++)
            RULE(o < m->launched[i] || (moves(m->ops[o]) && !m->ops[o]->count[i]),
                 "member %u has launched %llu, another one %llu", i,
                 (unsigned long long)m->launched[i], (unsigned long long)m->nops);
}

static void meeting_free(struct meeting *m)
{
    struct meeting **at = &meetings;
    if (!m->aborted && m->opened == m->n)
        check_launches(m);
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    for (uint64_t o = 0; o < m->nops; o++) {
        for (uint32_t i = 0; m->ops[o] && i < m->n; i++)
            free(m->ops[o]->part[i].given);
        free(m->ops[o]);
    }
    free(m->ops);
    free(m);
}

static struct op *op_of(struct meeting *m, uint64_t order)
{
    RULE(order <= m->nops, "launch %llu of %llu", (unsigned long long)order,
         (unsigned long long)m->nops);
    if (order < m->nops)
        return m->ops[order];
    if (m->nops == m->room) {
        m->room = m->room ? 2 * m->room : 64;
        m->ops = realloc(m->ops, m->room * sizeof(struct op *));
    }
    struct op *op = m->ops ? calloc(1, sizeof(*op)) : NULL;
    RULE(op, "no memory");
    m->ops[m->nops++] = op;
    return op;
}

static int double_about(void *arg, halay_group_attr_t *attr)
{
    const struct group_double_arg *a = arg;
    attr->memory = a && a->there ? HALAY_MEMORY_TEST : HALAY_MEMORY_HOST;
    attr->captures = 1;
    snprintf(attr->name, sizeof(attr->name), "%s", a && a->name ? a->name : "double");
    return HALAY_OK;
}

static int double_query(void *arg, uint32_t kind, halay_type_t type, halay_op_t op)
{
    (void)arg;
    const bool moves = kind == HALAY_GROUP_ALLGATHER || kind == HALAY_GROUP_BROADCAST ||
                       kind == HALAY_GROUP_ALLTOALL;
    return moves || (op != HALAY_AVERAGE && halay_op_takes(op, type)) ? HALAY_OK
                                                                      : HALAY_EUNSUPPORTED;
}

static int double_invite(void *arg, unsigned char id[HALAY_CIRCLE_ID_BYTES])
{
    struct group_double_arg *a = arg;
    if (a->refuses_to_invite && !a->failed) {
        a->failed = true;
        return HALAY_EDEVICE;
    }
    memset(id, 0x5a, HALAY_CIRCLE_ID_BYTES);
    pthread_mutex_lock(&lock);
    const uint64_t number = ++numbers;
    pthread_mutex_unlock(&lock);
    memcpy(id, &number, sizeof(number));
    return HALAY_OK;
}

static struct meeting *meeting_of(uint64_t number, uint32_t n)
{
    struct meeting *m = meetings;
    while (m && m->number != number)
        m = m->next;
    if (!m) {
        m = calloc(1, sizeof(*m));
        RULE(m, "no memory");
        m->number = number;
        m->n = n;
        m->next = meetings;
        meetings = m;
    }
    RULE(m->n == n, "device communicators of %u and %u members have one id", m->n, n);
    return m;
}

static int double_open(void *arg, const unsigned char id[HALAY_CIRCLE_ID_BYTES], uint32_t me,
                       uint32_t n, halay_circle_t **dcomm)
{
    struct group_double_arg *a = arg;
    uint64_t number;
    if (a->refuses_to_open && !a->failed) {
        a->failed = true;
        return HALAY_EDEVICE;
    }
    memcpy(&number, id, sizeof(number));
    RULE(me < n && n <= MEMBERS_MAX && number && id[HALAY_CIRCLE_ID_BYTES - 1] == 0x5a,
         "a wrong id, or member %u of %u", me, n);
    halay_circle_t *c = calloc(1, sizeof(*c));
    RULE(c && !hly_device_host.open(NULL, NULL, &c->host), "no memory");
    c->arg = a;
    c->me = me;
    c->open_polls = delay(a);
    c->never_opens = a->never_opens && !a->failed;
    c->fails_to_open = a->fails_to_open && !a->failed;
    a->failed |= c->never_opens || c->fails_to_open;
    a->opened++;
    pthread_mutex_lock(&lock);
    c->meeting = meeting_of(number, n);
    c->meeting->opened++;
    pthread_mutex_unlock(&lock);
    *dcomm = c;
    return HALAY_INPROGRESS;
}

/* ---------------------------------------------------------------- launches */

static size_t before(const struct op *op, uint32_t member)
{
    size_t at = 0;
    for (uint32_t i = 0; i < member && op->kind != HALAY_GROUP_ALLREDUCE; i++)
        at += op->count[i];
    return at;
}

static size_t whole(const struct op *op, uint32_t n)
{
    return op->kind == HALAY_GROUP_ALLREDUCE ? op->count[0] : before(op, n);
}

static void check_overlap(const struct op *op, const halay_group_launch_t *l, uint32_t me)
{
    const size_t e = halay_type_bytes(l->type), own = op->count[me] * e;
    const size_t at = before(op, me) * e, all = whole(op, l->n) * e;
    const char *in = l->in, *out = l->out;
    const size_t nin = moves(op) && !exchanges(op) ? own : all, nout = moves(op) ? all : own;
    if (!nin || !nout || in + nin <= out || out + nout <= in)
        return;
    RULE(!exchanges(op) && (moves(op) ? in == out + at : out == in + at),
         "kind %u: its operands overlap wrongly", op->kind);
}

static void compare(struct op *op, const halay_group_launch_t *l, uint32_t me)
{
    if (!op->known) {
        op->known = true;
        op->kind = l->kind;
        op->type = l->type;
        op->op = l->op;
        memcpy(op->count, l->count, l->n * sizeof(*l->count));
    }
    RULE(op->kind == l->kind && op->type == l->type && (moves(op) || op->op == l->op),
         "member %u launches kind %u type %u op %u, another one %u, %u, %u", me, l->kind, l->type,
         l->op, op->kind, op->type, op->op);
    RULE(!memcmp(op->count, l->count, l->n * sizeof(*l->count)), "member %u has other counts", me);
    for (uint32_t i = 0; i < l->n && exchanges(op); i++)
        RULE(l->count[i] == l->count[0], "an alltoall of runs of %zu and %zu", l->count[0],
             l->count[i]);
    check_overlap(op, l, me);
}

static int double_launch(halay_circle_t *c, const halay_group_launch_t *l)
{
    struct meeting *m = c->meeting;
    struct group_double_arg *a = c->arg;
    RULE(c->opened && !c->aborted && l->n == m->n && l->cookie && l->size == sizeof(*l),
         "it is not open, or has another number of members");
    if (a->capacity && m->launched[c->me] - c->done >= a->capacity)
        return HALAY_EAGAIN;
    a->launched++;
    if (a->launched == a->refused) {
        a->failed = true;
        return HALAY_EDEVICE;
    }
    pthread_mutex_lock(&lock);
    RULE(l->order == m->launched[c->me], "member %u launches number %llu after %llu", c->me,
         (unsigned long long)l->order, (unsigned long long)m->launched[c->me]);
    struct op *op = op_of(m, m->launched[c->me]++);
    compare(op, l, c->me);
    op->part[c->me] = (struct part){.state = LAUNCHED,
                                    .out = l->out,
                                    .in = l->in,
                                    .cookie = l->cookie,
                                    .polls = delay(a),
                                    .status = a->launched == a->fails ? HALAY_EDEVICE : HALAY_OK,
                                    .never = a->launched == a->never || a->launched == a->breaks};
    a->failed |= a->launched == a->fails || op->part[c->me].never;
    pthread_mutex_unlock(&lock);
    return HALAY_INPROGRESS;
}

static void begin(struct op *op, uint32_t me, uint32_t n, bool there)
{
    const bool own = moves(op) && !exchanges(op);
    const size_t bytes = (own ? op->count[me] : whole(op, n)) * halay_type_bytes(op->type);
    struct part *p = &op->part[me];
    p->given = malloc(bytes + 1);
    RULE(p->given, "no memory");
    if (bytes && there)
        ranks_there_get(p->given, (void *)(uintptr_t)p->in, bytes);
    else if (bytes)
        memcpy(p->given, p->in, bytes);
    p->state = BEGUN;
}

static bool givers_have_begun(const struct op *op, uint32_t n)
{
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        if (!moves(op) || op->count[i])
            all = all && op->part[i].state >= BEGUN;
    return all;
}

static void reduce(const halay_circle_t *c, const struct op *op, uint32_t n, char *out)
{
    const size_t e = halay_type_bytes(op->type), count = op->count[c->me];
    const size_t at = op->kind == HALAY_GROUP_REDUCE_SCATTER ? before(op, c->me) * e : 0;
    halay_work_t work = {.size = sizeof(work),
                         .dst = out,
                         .src = {op->part[0].given + at},
                         .count = count,
                         .type = op->type,
                         .op = op->op,
                         .nsrc = 1};
    RULE(hly_device_host.launch(c->host, &work) == HALAY_OK, "copy");
    for (uint32_t i = 1; i < n; i++) {
        work.src[0] = out;
        work.src[1] = op->part[i].given + at;
        work.nsrc = 2;
        RULE(hly_device_host.launch(c->host, &work) == HALAY_OK, "reduce");
    }
}

static void finish(const halay_circle_t *c, struct op *op, uint32_t n)
{
    struct part *p = &op->part[c->me];
    const size_t e = halay_type_bytes(op->type);
    const size_t bytes = (moves(op) ? whole(op, n) : op->count[c->me]) * e;
    char *out = c->arg->there ? malloc(bytes + 1) : p->out;
    RULE(out || !bytes, "no memory, or none to write to");
    if (!p->status && moves(op)) {
        for (uint32_t i = 0; i < n; i++)
            if (op->count[i])
                memcpy(out + before(op, i) * e,
                       op->part[i].given + (exchanges(op) ? before(op, c->me) * e : 0),
                       op->count[i] * e);
    } else if (!p->status && bytes) {
        reduce(c, op, n, out);
    }
    if (c->arg->there && !p->status && bytes)
        ranks_there_put(p->out, out, bytes);
    if (c->arg->there)
        free(out);
    p->state = DONE;
    if (++op->ndone < n)
        return;
    for (uint32_t i = 0; i < n; i++) {
        free(op->part[i].given);
        op->part[i].given = NULL;
    }
}

/* One step of the oldest launch. true: it has ended. */
static bool move_on(halay_circle_t *c)
{
    const uint32_t n = c->meeting->n;
    struct op *op = c->meeting->ops[c->done];
    struct part *p = &op->part[c->me];
    if (p->never)
        return false;
    if (p->polls) {
        p->polls--;
        return false;
    }
    if (p->state == LAUNCHED) {
        begin(op, c->me, n, c->arg->there);
        p->polls = delay(c->arg);
    }
    if (p->polls || !givers_have_begun(op, n))
        return false;
    finish(c, op, n);
    return true;
}

static int double_poll(halay_circle_t *c, halay_group_done_t done[], int max)
{
    struct meeting *m = c->meeting;
    int n = 0;
    RULE(!c->aborted && max > 0, "it is polled after its abort");
    if (c->arg->breaks && c->arg->launched >= c->arg->breaks)
        return HALAY_EDEVICE;
    pthread_mutex_lock(&lock);
    if (!c->opened && c->fails_to_open) {
        done[n++] = (halay_group_done_t){HALAY_CIRCLE_OPENED, HALAY_EDEVICE};
        c->fails_to_open = false;
        c->never_opens = true;
    } else if (!c->opened && !c->never_opens && m->opened == m->n) {
        c->opened = c->open_polls == 0;
        c->open_polls -= c->open_polls > 0;
        if (c->opened)
            done[n++] = (halay_group_done_t){HALAY_CIRCLE_OPENED, HALAY_OK};
    }
    while (n < max && c->done < m->launched[c->me] && move_on(c)) {
        const struct part *p = &m->ops[c->done++]->part[c->me];
        done[n++] = (halay_group_done_t){p->cookie, p->status};
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static int double_abort(halay_circle_t *c, uint64_t timeout_ns)
{
    RULE(!c->aborted && timeout_ns, "it is aborted twice, or without timeout");
    pthread_mutex_lock(&lock);
    c->aborted = true;
    c->meeting->aborted++;
    pthread_mutex_unlock(&lock);
    c->arg->aborted++;
    return c->arg->stubborn && c->arg->failed ? HALAY_EDEVICE : HALAY_OK;
}

static int double_close(halay_circle_t *c, uint64_t timeout_ns)
{
    (void)timeout_ns;
    if (!c)
        return HALAY_OK;
    struct meeting *m = c->meeting;
    c->arg->closed++;
    pthread_mutex_lock(&lock);
    RULE(c->aborted || (c->opened && c->done == m->launched[c->me]),
         "it is closed with something in flight");
    if (++m->closed == m->opened)
        meeting_free(m);
    pthread_mutex_unlock(&lock);
    hly_device_host.close(c->host);
    free(c);
    return HALAY_OK;
}

int group_double_left(void)
{
    int n = 0;
    pthread_mutex_lock(&lock);
    for (const struct meeting *m = meetings; m; m = m->next)
        n++;
    pthread_mutex_unlock(&lock);
    return n;
}

const halay_group_ops_t group_double = {
    .size = sizeof(halay_group_ops_t),
    .about = double_about,
    .query = double_query,
    .invite = double_invite,
    .open = double_open,
    .launch = double_launch,
    .poll = double_poll,
    .abort = double_abort,
    .close = double_close,
};
