/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators that ranks make in different orders, or that some ranks do not make: every rank
 * gets an error that says so, by the deadline, and what can go on afterwards does.
 */
#include <stdatomic.h>
#include <string.h>

#include "ranks.h"

#define DEADLINE_NS 1500000000ull
#define GRACE_NS    30000000000ull /* no hang: in which ranks agree, on a loaded machine */

static void good(int rc, const char *what)
{
    CHECK(rc == 0, "%s: %s", what, halay_strerror(rc));
}

static void check_text(halay_comm_t *comm, int code, const char *wanted)
{
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    good(halay_comm_verdict(comm, &verdict), "verdict");
    CHECK(verdict.code == code, "%d, not %d: %s", verdict.code, code, verdict.text);
    CHECK(strstr(verdict.text, wanted), "not '%s': %s", wanted, verdict.text);
}

static void still_works(const struct rank *r)
{
    int32_t one = 1, sum = 0;
    good(halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, r->world), "the world");
    CHECK(sum == r->nranks, "%d", sum);
}

/* Rank 0 makes a dup before the split, the others do not. */
static void dup_before_split(struct rank *r)
{
    halay_comm_t *parent, *dup = NULL, *split;
    good(halay_comm_dup(r->world, &parent), "dup");
    if (r->rank == 0)
        good(halay_comm_dup(parent, &dup), "dup");
    CHECK(halay_comm_split(parent, 0, 0, &split) == HALAY_EMISMATCH, "it was not noticed");
    check_text(parent, HALAY_EMISMATCH, "comm_split and has made other communicators");
    if (r->rank)
        good(halay_comm_dup(parent, &dup), "dup, late");
    good(halay_comm_split(parent, 0, 0, &split), "split, now that all have made the same");
    good(halay_barrier(split), "on it");
    good(halay_comm_free(split), "free");
    good(halay_comm_free(dup), "free");
    good(halay_comm_free(parent), "free");
    still_works(r);
}

/* The same kinds, in another order; from_ranks compares, too. */
static void node_before_dup(struct rank *r)
{
    const int ranks[] = {0, 1};
    halay_comm_t *parent, *a, *b, *two;
    good(halay_comm_dup(r->world, &parent), "dup");
    good(r->rank ? halay_comm_split_node(parent, &a) : halay_comm_dup(parent, &a), "first");
    good(r->rank ? halay_comm_dup(parent, &b) : halay_comm_split_node(parent, &b), "second");
    CHECK(halay_comm_from_ranks(parent, ranks, 2, &two) == HALAY_EMISMATCH, "not noticed");
    check_text(parent, HALAY_EMISMATCH, "has made other communicators");
    good(halay_comm_free(a), "free");
    good(halay_comm_free(b), "free");
    good(halay_comm_free(parent), "free");
    still_works(r);
}

/* One rank splits, the others gather: two calls, though the same numbers go to and fro. */
static void split_or_gather(struct rank *r)
{
    halay_comm_t *split;
    int32_t mine[2] = {0, 0}, all[2 * RANKS_MAX];
    const int rc = r->rank == r->nranks - 1 ? halay_comm_split(r->world, 0, 0, &split)
                                            : halay_allgather(mine, all, 2, HALAY_INT32, r->world);
    CHECK(rc == HALAY_EMISMATCH, "%s", halay_strerror(rc));
    check_text(r->world, HALAY_EMISMATCH, "comm_split");
    still_works(r);
}

static void by_the_deadline(int rc, uint64_t started, const char *what)
{
    const uint64_t took = ranks_now_ns() - started;
    CHECK(rc == HALAY_ETIMEOUT, "%s: %s", what, halay_strerror(rc));
    CHECK(took < DEADLINE_NS + GRACE_NS, "%s: after %.1f s", what, (double)took * 1e-9);
}

/* Nothing compares what was made: each calls on the one that it has made first. */
static void calls_on_others(struct rank *r)
{
    halay_comm_t *parent, *first;
    int32_t one = 1, sum;
    good(halay_comm_dup(r->world, &parent), "dup");
    good(halay_comm_set_deadline(parent, DEADLINE_NS), "deadline");
    good(r->rank ? halay_comm_split_node(parent, &first) : halay_comm_dup(parent, &first), "make");
    const uint64_t started = ranks_now_ns();
    const int rc = halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, first);
    by_the_deadline(rc, started, "on different communicators");
    check_text(first, HALAY_ETIMEOUT, "must make communicators of one parent in the same order");
    still_works(r);
}

/* One rank does not come to the split. */
static void absent(struct rank *r)
{
    static atomic_int told;
    halay_comm_t *parent, *split;
    good(halay_comm_dup(r->world, &parent), "dup");
    good(halay_comm_set_deadline(parent, DEADLINE_NS), "deadline");
    const uint64_t started = ranks_now_ns();
    if (r->rank != 1) {
        by_the_deadline(halay_comm_split(parent, 0, 0, &split), started, "without rank 1");
        check_text(parent, HALAY_ETIMEOUT, "rank 1 of");
        atomic_fetch_add(&told, 1);
    } else {
        while (atomic_load(&told) < r->nranks - 1)
            good(halay_context_progress(r->context, 10000000), "progress");
        atomic_store(&told, 0);
    }
}

int main(void)
{
    static void (*const cases[])(struct rank *) = {dup_before_split, node_before_dup,
                                                   split_or_gather, calls_on_others, absent};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (int n = 2; n <= 5; n += 3)
            for (int shm = 0; shm < 2; shm++) {
                struct ranks_options o = {.nranks = n, .shm = shm};
                ranks_run(&o, cases[c], NULL);
            }
    return 0;
}
