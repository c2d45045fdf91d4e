/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kind of memory is a part of the call: where it is another one on one rank, every rank is told
 * of it at once, with both sides. A barrier has no memory. The header stays one cache line.
 */
#include <string.h>

#include "base/context.h"
#include "ranks.h"
#include "wire/wire.h"

enum { ALLREDUCE = 0, BROADCAST, ALLGATHER, GATHER, ALLTOALL, SEND, FORMS };
#define KIND    5
#define COUNT   3
#define SOON_NS 5000000000ull /* the deadline is 20 s */

struct trial {
    struct ranks_board board;
    enum { PLAIN, AGAIN } after;
};

static int call(int form, const int32_t *in, int32_t *out, halay_comm_t *comm, int rank)
{
    switch (form) {
    case ALLREDUCE:
        return halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm);
    case BROADCAST:
        return halay_broadcast(out, COUNT, HALAY_INT32, 0, comm);
    case ALLGATHER:
        return halay_allgather(in, out, COUNT, HALAY_INT32, comm);
    case GATHER:
        return halay_gather(in, out, COUNT, HALAY_INT32, 0, comm);
    case ALLTOALL:
        return halay_alltoall(in, out, COUNT, HALAY_INT32, comm);
    default:
        return rank == 0   ? halay_send(in, COUNT, HALAY_INT32, 1, comm)
               : rank == 1 ? halay_recv(out, COUNT, HALAY_INT32, 0, comm)
                           : 0;
    }
}

static void one(struct rank *r, int form, int wrong)
{
    struct trial *t = r->arg;
    int32_t in[COUNT * RANKS_MAX] = {0}, out[COUNT * RANKS_MAX], other[COUNT * RANKS_MAX];
    halay_verdict_t v = {.size = sizeof(v)};
    halay_comm_t *comm;
    char words[64];
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    if (t->after == AGAIN)
        CHECK(!halay_allgather(in, out, COUNT, HALAY_INT32, comm), "a right call");
    if (r->rank == wrong)
        r->context->devices[0].memory = KIND;
    CHECK(!halay_barrier(comm), "a barrier has no memory");
    const uint64_t start = ranks_now_ns();
    const int rc = call(form, in, other, comm, r->rank);
    CHECK(ranks_now_ns() - start < SOON_NS, "form %d: waited for the deadline", form);
    if (form != SEND || r->rank < 2) {
        CHECK(rc == HALAY_EMISMATCH, "form %d, rank %d (wrong: %d): %s", form, r->rank, wrong,
              halay_strerror(rc));
        CHECK(!halay_comm_verdict(comm, &v), "verdict");
        CHECK(v.rank == wrong || v.other == wrong, "blames %d and %d", v.rank, v.other);
        snprintf(words, sizeof(words), "of %d int32 in memory of kind %d", COUNT, KIND);
        CHECK(strstr(v.text, words), "not '%s': %s", words, v.text);
        snprintf(t->board.text[r->rank], sizeof(t->board.text[0]), "%s", v.text);
    }
    pthread_barrier_wait(&t->board.barrier);
    CHECK(form == SEND || !strcmp(t->board.text[r->rank], t->board.text[0]), "%s\n%s",
          t->board.text[r->rank], t->board.text[0]);
    r->context->devices[0].memory = HALAY_MEMORY_HOST;
    CHECK(!halay_allreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm), "afterwards");
    CHECK(!halay_comm_free(comm), "free");
    pthread_barrier_wait(&t->board.barrier);
}

static void all(struct rank *r)
{
    for (int form = 0; form < FORMS; form++)
        for (int wrong = 0; wrong < (form == SEND ? 2 : r->nranks); wrong++)
            one(r, form, wrong);
}

int main(void)
{
    struct hly_call_desc a = {.collective = HALAY_COLLECTIVE_COUNT - 1}, b = a;
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (unsigned kind = 1; kind < HALAY_MEMORY_KINDS; kind++) {
        b.memory = (uint8_t)(kind % HALAY_MEMORY_KINDS);
        CHECK(b.memory == kind && b.collective == a.collective, "kind %u", kind);
        CHECK(!hly_desc_equal(&a, &b), "kind %u is none", kind);
    }
    CHECK(sizeof(struct hly_header) == 64, "%zu", sizeof(struct hly_header));
    for (int n = 2; n <= 5; n++)
        for (int shm = 0; shm < 2; shm++) {
            struct trial t = {.after = n % 2 ? AGAIN : PLAIN};
            struct ranks_options o = {.nranks = n, .shm = shm};
            pthread_barrier_init(&t.board.barrier, NULL, (unsigned)n);
            ranks_run(&o, all, &t);
            pthread_barrier_destroy(&t.board.barrier);
        }
    return 0;
}
