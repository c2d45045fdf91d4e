/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group steps of one rank that never end, end with an error, are refused, or whose device
 * communicator breaks, does not open or cannot be stopped; at each launch of a call. The call ends
 * on all ranks, in time, with the same verdict; no byte of the buffers changes afterwards. Where
 * memory is quiet the communicator, or another one, is of use again: the next call succeeds. Of
 * several calls in flight a rank may have ended all before another one fails: its next call tells
 * it.
 *
 *   test_group_ends [FATE|sampled]   sampled: a third of each fate's cases, by a seed
 */
#include <string.h>

#include "group_double.h"
#include "ranks.h"

#define DEADLINE 2000000000ull
#define LONG     (15 * DEADLINE) /* of what ends sooner */
#define COUNT    3000
#define CALLS    6

static const struct fate {
    const char *name;
    struct group_double_arg arg;
    const char *text;
    bool late, quiet;  /* it ends by the deadline only; the device is of use afterwards */
    uint32_t launches; /* at which it is tried: the first so many */
} fates[] = {
    {"never", {.never = 1}, "in time", true, true, 3},
    {"fails", {.fails = 1}, "has failed in a collective", false, true, 5},
    {"refused", {.refused = 1}, "could not start", false, true, 5},
    {"breaks", {.breaks = 1}, "has failed", false, false, 4},
    {"stubborn", {.never = 1, .stubborn = true}, "may still change", true, false, 2},
    {"never-opens", {.never_opens = true}, "in time", true, true, 1},
    {"fails-to-open", {.fails_to_open = true}, "could not be opened", false, true, 1},
    {"refuses-to-open", {.refuses_to_open = true}, "could not be opened", false, true, 1},
    {"refuses-to-invite", {.refuses_to_invite = true}, "could not be opened", false, true, 1},
};

static const struct shape {
    const char *name;
    int nranks, victim;
    int node[8];
} shapes[] = {
    {"1x4", 4, 2, {0}}, {"2x3", 6, 0, {0, 0, 0, 1, 1, 1}}, {"unlike", 5, 3, {0, 1, 0, 1, 1}}};

struct board {
    struct ranks_board all;
    const struct fate *fate;
    int flying; /* calls at once */
    atomic_int failures;
    int first[8], later[8];
};

static int32_t in[8][CALLS][COUNT], out[8][CALLS][COUNT], copy[8][CALLS][COUNT];

/* All calls at once, or one after the other. The first error, and the verdict of that call. */
static int many(struct rank *r, int flying, int *first)
{
    halay_request_t *q[CALLS];
    int rc = 0;
    *first = CALLS;
    for (int i = 0; i < CALLS; i += flying) {
        for (int k = i; k < i + flying; k++)
            CHECK(!halay_iallreduce(in[r->rank][k], out[r->rank][k], COUNT, HALAY_INT32, HALAY_SUM,
                                    r->world, &q[k]),
                  "post");
        for (int k = i; k < i + flying; k++) {
            const int one = halay_request_wait(q[k]);
            if (!one || *first < CALLS)
                continue;
            rc = one;
            *first = k;
        }
        if (rc)
            return rc;
    }
    return rc;
}

static void one(struct rank *r)
{
    struct board *b = r->arg;
    const struct fate *fate = b->fate;
    halay_verdict_t v = {.size = sizeof(v)};
    int first;
    for (int k = 0; k < CALLS; k++)
        for (int i = 0; i < COUNT; i++)
            in[r->rank][k][i] = r->rank * 1000 + i + k;
    memset(out[r->rank], 0x5a, sizeof(out[0]));
    pthread_barrier_wait(&b->all.barrier);
    const uint64_t begin = ranks_now_ns();
    const int rc = many(r, b->flying, &first);
    const double took = (double)(ranks_now_ns() - begin) * 1e-9;
    memcpy(copy[r->rank], out[r->rank], sizeof(out[0]));
    CHECK(took < (fate->late || b->flying > 1 ? 8 : 25), "%s: after %.1f s", fate->name, took);
    b->all.code[r->rank] = rc;
    CHECK(!halay_comm_verdict(r->world, &v), "verdict");
    strcpy(b->all.text[r->rank], rc ? v.text : "");
    pthread_barrier_wait(&b->all.barrier);
    bool same = true;
    for (int i = 0; i < r->nranks; i++)
        same = same && b->all.code[i] == rc;
    CHECK(same || b->flying > 1, "%s: rank %d got %s, rank 0 %s", fate->name, r->rank,
          halay_strerror(rc), halay_strerror(b->all.code[0]));
    if (b->flying == 1)
        CHECK(!strcmp(b->all.text[0], b->all.text[r->rank]), "%s: %s; %s", fate->name,
              b->all.text[0], v.text);
    CHECK(!rc || b->flying > 1 || strstr(v.text, fate->text), "%s: %s", fate->name, v.text);
    for (int k = 0; k < first; k++) /* those before it are right */
        for (int i = 0; i < COUNT; i++)
            CHECK(out[r->rank][k][i] ==
                      r->nranks * (i + k) + 1000 * r->nranks * (r->nranks - 1) / 2,
                  "%s: call %d, element %d", fate->name, k, i);
    for (uint64_t until = ranks_now_ns() + 20000000; ranks_now_ns() < until;)
        halay_context_progress(r->context, 0);
    CHECK(!memcmp(copy[r->rank], out[r->rank], sizeof(out[0])), "%s: it changed afterwards",
          fate->name);
    atomic_fetch_add(&b->failures, rc != 0);
    pthread_barrier_wait(&b->all.barrier);
    b->first[r->rank] = first;
    if (b->flying > 1 && same)
        return;
    const int later =
        halay_allreduce(in[r->rank][0], out[r->rank][0], COUNT, HALAY_INT32, HALAY_SUM, r->world);
    b->later[r->rank] = later;
    for (int i = 0; !later && i < COUNT; i++)
        CHECK(out[r->rank][0][i] == r->nranks * i + 1000 * r->nranks * (r->nranks - 1) / 2,
              "%s: later, element %d", fate->name, i);
    pthread_barrier_wait(&b->all.barrier);
    CHECK(later == b->later[0], "%s: later: %s", fate->name, halay_strerror(later));
    CHECK(same || later == HALAY_EDEVICE, "%s: later: %s", fate->name, halay_strerror(later));
    bool alike = same; /* else some had ended that call well, and the communicator is broken */
    for (int i = 0; i < r->nranks; i++)
        alike = alike && b->first[i] == first;
    CHECK(!later || !alike || !fate->quiet, "%s: later: %s", fate->name, halay_strerror(later));
}

/* false: the launch is one that there is not. */
static bool attempt(const struct shape *s, const struct fate *fate, uint32_t launch, int flying,
                    uint32_t delay)
{
    static struct group_double_arg args[8];
    static struct board board;
    void *at[8];
    for (int i = 0; i < s->nranks; i++) {
        args[i] = (struct group_double_arg){0};
        if (i == (fate->arg.refuses_to_invite ? 0 : s->victim))
            args[i] = fate->arg;
        args[i].seed = (uint64_t)(i + 1);
        args[i].delay_polls_max = delay;
        args[i].never = args[i].never ? launch : 0;
        args[i].fails = args[i].fails ? launch : 0;
        args[i].refused = args[i].refused ? launch : 0;
        args[i].breaks = args[i].breaks ? launch : 0;
        at[i] = &args[i];
    }
    /* Of several calls the others may have ended all, and be in no call when one fails. */
    const bool waits = fate->late || flying > 1;
    struct ranks_options o = {.nranks = s->nranks,
                              .group = &group_double,
                              .group_args = at,
                              .node_of_rank = s->node,
                              .algorithm = "allreduce=two_level_group",
                              .deadline_ns = waits ? DEADLINE : LONG};
    board.fate = fate;
    board.flying = flying;
    atomic_store(&board.failures, 0);
    pthread_barrier_init(&board.all.barrier, NULL, (unsigned)s->nranks);
    ranks_run(&o, one, &board);
    pthread_barrier_destroy(&board.all.barrier);
    CHECK(!group_double_left(), "%s: device communicators are left", fate->name);
    printf("%s, %s, launch %u, %d at once: %s\n", s->name, fate->name, launch, flying,
           atomic_load(&board.failures) ? board.all.text[0] : "no failure");
    fflush(stdout);
    return atomic_load(&board.failures) > 0;
}

int main(int argc, char **argv)
{
    const bool sampled = argc > 1 && !strcmp(argv[1], "sampled");
    uint64_t seed = 7;
    for (size_t f = 0; f < sizeof(fates) / sizeof(fates[0]); f++) {
        if (argc > 1 && !sampled && strcmp(argv[1], fates[f].name))
            continue;
#ifdef __SANITIZE_ADDRESS__
        if (fates[f].arg.stubborn) /* what it may write to is kept for ever */
            continue;
#endif
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (uint32_t launch = 1; launch <= fates[f].launches; launch++)
                for (int flying = 1; flying <= CALLS; flying += CALLS - 1)
                    CHECK((sampled && ranks_random(&seed) % 3) ||
                              attempt(&shapes[s], &fates[f], launch, flying, launch % 2 ? 0 : 6),
                          "%s: launch %u does not fail", fates[f].name, launch);
    }
    return 0;
}
