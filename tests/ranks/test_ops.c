/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of the user: products of 2 x 2 matrices, which do not commute, in the order of ranks,
 * by every planner that claims to keep it; those that do not are refused with a reason. One that
 * commutes, by all planners. And what is wrong with one on one rank is an error on all.
 *
 *   test_ops PLANNERS|ERRORS [RANKS]   without, 1 to 9
 */
#include <halay/plan.h>
#include <pthread.h>
#include <string.h>

#include "device/device_builtin.h"
#include "ranks.h"

struct job {
    uint32_t planner;
    bool scattered;
};

struct board { /* what each rank got */
    pthread_barrier_t barrier;
    int code[RANKS_MAX];
    char text[RANKS_MAX][512];
};

/* Row by row, modulo 2^32: any operands give a result, and only the right order gives this one. */
static void multiply(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                     const void *right)
{
    const size_t n = count * halay_type_bytes(type) / 16;
    const uint32_t *a = left, *b = right;
    uint32_t *c = dst;
    CHECK(arg == NULL && count * halay_type_bytes(type) % 16 == 0, "%zu elements", count);
    for (size_t i = 0; i < n; i++, a += 4, b += 4, c += 4) {
        c[0] = a[0] * b[0] + a[1] * b[2];
        c[1] = a[0] * b[1] + a[1] * b[3];
        c[2] = a[2] * b[0] + a[3] * b[2];
        c[3] = a[2] * b[1] + a[3] * b[3];
    }
}

/* A struct of 24 bytes: a sum, a maximum, a bitwise or. */
static void merge(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                  const void *right)
{
    const size_t n = count * halay_type_bytes(type) / 24;
    const int64_t *a = left, *b = right;
    int64_t *c = dst;
    CHECK(*(int *)arg == 42, "the argument");
    for (size_t i = 0; i < n; i++, a += 3, b += 3, c += 3) {
        c[0] = (int64_t)((uint64_t)a[0] + (uint64_t)b[0]);
        c[1] = a[1] > b[1] ? a[1] : b[1];
        c[2] = a[2] | b[2];
    }
}

static void fill(uint64_t *words, size_t n, int rank, uint64_t salt)
{
    uint64_t seed = salt * 1000 + (uint64_t)rank;
    for (size_t i = 0; i < n; i++)
        words[i] = ranks_random(&seed) >> 1;
}

struct user {
    halay_op_t op;
    halay_op_fn *fn;
    void *arg;
    halay_type_t type;
    size_t group, group_bytes;
};

/* The result of ranks 0 .. nranks - 1, serially. */
static void serial(const struct user *u, int nranks, size_t ngroups, uint64_t salt, void *want)
{
    size_t bytes = ngroups * u->group_bytes;
    uint64_t *next = malloc(bytes + 1), *sum = malloc(bytes + 1);
    CHECK(next && sum, "no memory");
    fill(want, bytes / 8, 0, salt);
    for (int r = 1; r < nranks; r++) {
        fill(next, bytes / 8, r, salt);
        memcpy(sum, want, bytes);
        u->fn(u->arg, u->type, ngroups * u->group, want, sum, next);
    }
    free(sum);
    free(next);
}

/* One call, and the number of ranks whose product this one gets; 0: none. */
static int make(const struct rank *r, const struct user *u, halay_collective_t collective,
                const void *in, void *out, size_t count, int *upto)
{
    const int root = r->nranks / 2;
    *upto = r->nranks;
    switch (collective) {
    case HALAY_REDUCE_SCATTER:
        return halay_reduce_scatter(in, out, count, u->type, u->op, r->world);
    case HALAY_REDUCE:
        *upto = r->rank == root ? r->nranks : 0;
        return halay_reduce(in, out, count, u->type, u->op, root, r->world);
    case HALAY_SCAN:
        *upto = r->rank + 1;
        return halay_scan(in, out, count, u->type, u->op, r->world);
    case HALAY_EXSCAN:
        *upto = r->rank;
        return halay_exscan(in, out, count, u->type, u->op, r->world);
    default:
        return halay_allreduce(in, out, count, u->type, u->op, r->world);
    }
}

static int call(const struct rank *r, const struct user *u, halay_collective_t collective,
                size_t ngroups, bool in_place)
{
    bool cut = collective == HALAY_REDUCE_SCATTER;
    size_t all = ngroups * (cut ? (size_t)r->nranks : 1), bytes = all * u->group_bytes;
    size_t own = cut ? (size_t)r->rank * ngroups * u->group_bytes : 0;
    char *in = malloc(bytes + 1), *out = malloc(bytes + 1), *want = malloc(bytes + 1);
    int upto;
    CHECK(in && out && want, "no memory");
    if (collective == HALAY_REDUCE && r->rank != r->nranks / 2)
        in_place = false; /* the root's own affair */
    memset(out, 0x5a, bytes);
    fill((uint64_t *)(in_place ? out : in), bytes / 8, r->rank, ngroups);
    int rc = make(r, u, collective, in_place ? HALAY_IN_PLACE : in, out, ngroups * u->group, &upto);
    if (!rc && upto > 0) {
        serial(u, upto, all, ngroups, want);
        CHECK(!memcmp(out, want + own, ngroups * u->group_bytes),
              "rank %d of %d: %s of %zu groups of %zu %s%s", r->rank, r->nranks,
              halay_collective_name(collective), ngroups, u->group, halay_type_name(u->type),
              in_place ? ", in place" : "");
    }
    free(in);
    free(out);
    free(want);
    return rc;
}

static void by_planner(struct rank *r)
{
    static int answer = 42;
    const struct job *job = r->arg;
    const halay_planner_info_t *info = halay_planner_get(job->planner);
    static const size_t sizes[] = {0, 1, 2, 7, 33, 1000};
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    struct user users[] = {
        {0, multiply, NULL, HALAY_UINT32, 4, 16},
        {0, multiply, NULL, HALAY_UINT8, 16, 16},
        {0, merge, &answer, HALAY_UINT8, 24, 24},
        {0, merge, &answer, HALAY_INT64, 3, 24},
    };
    for (size_t u = 0; u < 4; u++)
        CHECK(!halay_op_create(r->context, users[u].fn, users[u].arg, users[u].group,
                               users[u].fn == merge, &users[u].op),
              "create");
    for (size_t u = 0; u < 4; u++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            for (int in_place = 0; in_place < 2; in_place++) {
                const char *why;
                const halay_planner_call_t c = {.nranks = (uint32_t)r->nranks,
                                                .count = UINT64_MAX,
                                                .in_place = (uint32_t)in_place,
                                                .commutative = users[u].fn == merge,
                                                .scattered = job->scattered};
                int rc =
                    call(r, &users[u], (halay_collective_t)info->collective, sizes[s], in_place);
                /* Where no device has group steps, others are chosen if the operation commutes. */
                if (halay_planner_serves(job->planner, &c, &why) ||
                    (info->restrictions & HALAY_PLANNER_GROUP && c.commutative)) {
                    CHECK(rc == HALAY_OK, "%s, %d ranks: %s", info->name, r->nranks,
                          halay_strerror(rc));
                    continue;
                }
                CHECK(rc == HALAY_EUNSUPPORTED, "%s, %d ranks: %s", info->name, r->nranks,
                      halay_strerror(rc));
                CHECK(!halay_comm_verdict(r->world, &verdict) && strstr(verdict.text, why) &&
                          strstr(verdict.text, info->name),
                      "no reason: %s", verdict.text);
            }
    for (size_t u = 0; u < 4; u++)
        CHECK(!halay_op_free(r->context, users[u].op), "free");
}

static void planners(int only)
{
    static const int nodes[9] = {0, 0, 0, 1, 1, 2, 3, 3, 3}, mixed[9] = {0, 1, 0, 2, 1, 0, 0, 1, 3};
    struct hly_device_late_arg late = {.seed = 9, .delay_polls_max = 4, .capacity = 3};
    for (uint32_t planner = 0; planner < halay_planner_count(); planner++) {
        const halay_planner_info_t *info = halay_planner_get(planner);
        char algorithm[96];
        if (!halay_collective_reduces((halay_collective_t)info->collective))
            continue;
        snprintf(algorithm, sizeof(algorithm), "%s=%s",
                 halay_collective_name((halay_collective_t)info->collective), info->name);
        for (int p = 1; p <= 9; p++)
            for (int how = 0; how < 3; how++) {
                const int *node_of_rank = how == 0 ? NULL : how == 1 ? nodes : mixed;
                struct job job = {planner, how == 2 && p > 2};
                struct ranks_options o = {.nranks = p,
                                          .algorithm = algorithm,
                                          .node_of_rank = node_of_rank,
                                          .device = how ? &hly_device_late : NULL,
                                          .device_arg = how ? &late : NULL};
                if (!only || only == p)
                    ranks_run(&o, by_planner, &job);
            }
    }
}

/* Chosen by the library: short and long, on one node and on several. */
static void chosen(struct rank *r)
{
    struct user u = {0, multiply, NULL, HALAY_INT32, 4, 16};
    CHECK(!halay_op_create(r->context, multiply, NULL, 4, 0, &u.op), "create");
    for (size_t n = 1; n <= 40000; n *= 7)
        for (int c = 0; c < HALAY_COLLECTIVE_COUNT; c++)
            if (halay_collective_reduces((halay_collective_t)c) && c != HALAY_REDUCE_SCATTER)
                CHECK(!call(r, &u, (halay_collective_t)c, n, n % 2), "%s of %zu",
                      halay_collective_name((halay_collective_t)c), n);
    int rc = call(r, &u, HALAY_REDUCE_SCATTER, 3, false);
    CHECK(rc == HALAY_OK || rc == HALAY_EUNSUPPORTED, "reduce_scatter: %s", halay_strerror(rc));
}

/* Each rank makes its local operations in an order of its own, between numbered ones. */
static void in_any_order(struct rank *r)
{
    static int answer = 42;
    struct user users[] = {{0, multiply, NULL, HALAY_INT32, 4, 16},
                           {0, merge, &answer, HALAY_UINT8, 24, 24}};
    halay_op_t others[9];
    for (int i = 0; i < 1 + r->rank % 9; i++)
        CHECK(!halay_op_create(r->context, multiply, NULL, 4, 0, &others[i]), "create");
    for (int i = 0; i < 2; i++) {
        struct user *u = &users[(i + r->rank) % 2];
        CHECK(!halay_op_create(r->context, u->fn, u->arg, u->group,
                               HALAY_OP_LOCAL | (u->fn == merge ? HALAY_OP_COMMUTATIVE : 0),
                               &u->op),
              "create");
    }
    for (int i = 0; i < 20; i++) /* equal calls are kept: the function must not be */
        for (int u = 0; u < 2; u++)
            CHECK(!call(r, &users[u], HALAY_ALLREDUCE, 3, i % 2), "local operation %d", u);
    for (int i = 0; i < 2; i++)
        CHECK(!halay_op_free(r->context, users[i].op), "free");
    for (int i = 0; i < 1 + r->rank % 9; i++)
        CHECK(!halay_op_free(r->context, others[i]), "free");
}

/* ---------------------------------------------------------------- mistakes */

enum mistake { FREED, FOREIGN, NONE_SUCH, NUMBER, FLAG, GROUP, COUNT, LARGE, KIND, MISTAKES };

static const int codes[MISTAKES] = {HALAY_ESTATE,    HALAY_EINVAL,    HALAY_EINVAL,
                                    HALAY_EMISMATCH, HALAY_EMISMATCH, HALAY_EMISMATCH,
                                    HALAY_EINVAL,    HALAY_EINVAL,    HALAY_EMISMATCH};

/* The operation that this rank will use, made wrong. local: HALAY_OP_LOCAL or 0. */
static halay_op_t spoil(struct rank *r, enum mistake m, bool wrong, int local, size_t *count,
                        halay_op_t made[2])
{
    halay_op_t op, other;
    size_t group = m == LARGE && wrong ? 4000 : m == GROUP && wrong ? 2 : 4;
    int properties = m == FLAG && wrong ? local | HALAY_OP_COMMUTATIVE : local;
    if (m == KIND && wrong)
        properties ^= HALAY_OP_LOCAL;
    CHECK(!halay_op_create(r->context, multiply, NULL, group, properties, &op), "create");
    CHECK(!halay_op_create(r->context, multiply, NULL, 4, local, &other), "create");
    made[0] = op;
    made[1] = other;
    if (!wrong || m == FLAG || m == GROUP)
        return op;
    if (m == FREED)
        CHECK(!halay_op_free(r->context, op), "free");
    if (m == COUNT)
        *count -= 1;
    if (m == LARGE)
        *count = 4000;
    if (m == FOREIGN)
        return (halay_op_t)(op ^ 0x100000); /* of another epoch */
    if (m == NONE_SUCH)
        return (halay_op_t)(op + 1000);
    return m == NUMBER ? other : op;
}

static void one_mistake(struct rank *r, enum mistake m, int wrong, int local)
{
    const int code = m == NUMBER && local ? HALAY_OK : codes[m]; /* a local number may differ */
    struct board *b = r->arg;
    uint32_t in[4000] = {1, 2, 3, 4}, out[4000];
    size_t count = 8;
    halay_verdict_t v = {.size = sizeof(v)};
    halay_op_t made[2], op = spoil(r, m, r->rank == wrong, local, &count, made);
    b->code[r->rank] = halay_allreduce(in, out, count, HALAY_UINT32, op, r->world);
    CHECK(!code || !halay_comm_verdict(r->world, &v), "verdict");
    memcpy(b->text[r->rank], v.text, sizeof(v.text));
    pthread_barrier_wait(&b->barrier);
    for (int k = 0; k < r->nranks; k++)
        CHECK(b->code[k] == code && !strcmp(b->text[k], b->text[0]),
              "mistake %d of rank %d of %d: rank %d got %s: %s", (int)m, wrong, r->nranks, k,
              halay_strerror(b->code[k]), b->text[k]);
    CHECK(!code || code == HALAY_EMISMATCH || v.rank == wrong, "blames %d", v.rank);
    bool freed = m == FREED && r->rank == wrong;
    CHECK(halay_op_free(r->context, made[0]) == (freed ? HALAY_ESTATE : HALAY_OK), "free");
    CHECK(!halay_op_free(r->context, made[1]), "free");
    pthread_barrier_wait(&b->barrier);
}

static void errors(struct rank *r)
{
    halay_op_t op, many[200];
    int n = 0;
    for (int m = 0; m < MISTAKES; m++)
        for (int wrong = 0; r->nranks > 1 && wrong < r->nranks; wrong++)
            for (int local = 0; local <= HALAY_OP_LOCAL; local += HALAY_OP_LOCAL)
                one_mistake(r, (enum mistake)m, wrong, local);
    CHECK(halay_op_create(NULL, multiply, NULL, 1, 1, &op) == HALAY_EINVAL, "no context");
    CHECK(halay_op_create(r->context, NULL, NULL, 1, 1, &op) == HALAY_EINVAL, "no function");
    CHECK(halay_op_create(r->context, multiply, NULL, 0, 1, &op) == HALAY_EINVAL, "no group");
    CHECK(halay_op_create(r->context, multiply, NULL, 5000, 1, &op) == HALAY_EINVAL, "large");
    CHECK(halay_op_create(r->context, multiply, NULL, 1, 1, NULL) == HALAY_EINVAL, "no result");
    CHECK(halay_op_create(r->context, multiply, NULL, 1, 4, &op) == HALAY_EINVAL, "no property");
    CHECK(halay_op_free(r->context, HALAY_SUM) == HALAY_EINVAL, "not the user's");
    CHECK(!halay_op_create(r->context, multiply, NULL, 4, 0, &op) && op >= HALAY_OP_USER, "create");
    uint32_t x[4] = {1, 2, 3, 4};
    halay_request_t *request;
    CHECK(!halay_iallreduce(HALAY_IN_PLACE, x, 4, HALAY_UINT32, op, r->world, &request), "post");
    CHECK(halay_op_free(r->context, op) == HALAY_ESTATE, "freed in use");
    CHECK(!halay_request_wait(request), "wait");
    CHECK(!halay_op_free(r->context, op), "free");
    CHECK(halay_op_free(r->context, op) == HALAY_ESTATE, "freed twice");
    while (n < 200 && !halay_op_create(r->context, multiply, NULL, 4, 0, &many[n]))
        n++;
    CHECK(n < 200 && halay_op_create(r->context, multiply, NULL, 4, 0, &op) == HALAY_ENOMEM,
          "no end of them");
    CHECK(!halay_op_free(r->context, many[0]) &&
              !halay_op_create(r->context, multiply, NULL, 4, 0, &op) && op != many[0],
          "a number was used again");
}

int main(int argc, char **argv)
{
    static const int nodes[9] = {0, 0, 0, 1, 1, 2, 3, 3, 3};
    const int only = argc > 2 ? atoi(argv[2]) : 0;
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    CHECK(argc > 1, "usage: test_ops PLANNERS|ERRORS [RANKS]");
    if (!strcmp(argv[1], "PLANNERS"))
        planners(only);
    for (int p = 1; p <= 9; p++) {
        struct board board;
        struct ranks_options o = {.nranks = p, .shm = p % 2, .node_of_rank = p % 2 ? NULL : nodes};
        pthread_barrier_init(&board.barrier, NULL, (unsigned)p);
        if (!only || only == p)
            ranks_run(&o, strcmp(argv[1], "ERRORS") ? chosen : errors, &board);
        if (!only || only == p)
            ranks_run(&o, in_any_order, &board);
        pthread_barrier_destroy(&board.barrier);
    }
    return 0;
}
