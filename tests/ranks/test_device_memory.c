/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls in memory that the processor cannot touch: that of the late device, whose pages crash who
 * does. They give the bits that they give in host memory, without messages and with them. It is a
 * mismatch if ranks pass memory of different kinds, a wrong argument if a rank passes two.
 */
#define _GNU_SOURCE /* MAP_FIXED_NOREPLACE */
#include <halay/training.h>
#include <string.h>
#include <sys/mman.h>

#include "base/context.h"
#include "device/device_builtin.h"
#include "ranks.h"

#define COUNT   301
#define BYTES   (COUNT * sizeof(int32_t))
#define NRANKS  4             /* at most */
#define SOON_NS 5000000000ull /* the deadline is 20 s */

static struct hly_device *late_of(struct rank *r)
{
    CHECK(r->context->ndevices == 2, "%d devices", r->context->ndevices);
    CHECK(r->context->devices[0].memory == HALAY_MEMORY_HOST, "the first is not the host");
    return &r->context->devices[1];
}

static int32_t *take(struct rank *r, size_t bytes)
{
    const struct hly_device *late = late_of(r);
    void *at;
    CHECK(!late->ops->alloc(late->handle, HALAY_PLACE_OWN, bytes, 64, &at), "alloc");
    return at;
}

static void drop(struct rank *r, void *at)
{
    late_of(r)->ops->free(late_of(r)->handle, HALAY_PLACE_OWN, at);
}

static void copy(struct rank *r, void *to, const void *from, size_t bytes, uint32_t direction)
{
    const struct hly_device *late = late_of(r);
    const halay_work_t w = {.size = sizeof(w),
                            .dst = to,
                            .src = {from},
                            .count = bytes,
                            .type = HALAY_UINT8,
                            .nsrc = 1,
                            .direction = direction};
    halay_done_t done;
    CHECK(late->ops->launch(late->handle, &w) == HALAY_INPROGRESS, "copy");
    while (late->ops->poll(late->handle, &done, 1) == 0)
        ;
    CHECK(!done.status, "copy");
}

/* ---------------------------------------------------------------- the same bits */

enum {
    ALLREDUCE,
    IN_PLACE,
    AVERAGE,
    PRESCALED,
    POSTSCALED,
    USER,
    REDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    SCAN,
    EXSCAN,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    GATHER,
    SCATTER,
    SCATTER_IN_PLACE,
    ALLTOALL,
    ALLTOALLV,
    PERSISTENT,
    GROUP,
    BARRIER,
    FORMS
};

static void take_left(void *arg, halay_type_t type, size_t count, void *dst, const void *left,
                      const void *right)
{
    (void)arg;
    (void)right;
    memcpy(dst, left, count * halay_type_bytes(type));
}

static int started_twice(const int32_t *in, int32_t *out, halay_comm_t *comm)
{
    halay_request_t *q;
    int rc = halay_allreduce_init(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm, &q);
    for (int i = 0; i < 2 && !rc; i++) {
        rc = halay_request_start(q);
        rc = rc ? rc : halay_request_wait(q);
    }
    CHECK(!halay_request_free(q), "free");
    return rc;
}

static int grouped(const int32_t *in, int32_t *out, halay_comm_t *comm)
{
    halay_request_t *q, *member;
    CHECK(!halay_group_begin(comm), "group");
    int rc = halay_iallreduce(in, out, COUNT, HALAY_INT32, HALAY_SUM, comm, &member);
    CHECK(!rc && !halay_group_end(comm, &q), "group");
    return halay_request_wait(q);
}

static const size_t counts[NRANKS] = {COUNT, COUNT, COUNT, COUNT};

static int call_reducing(int form, const int32_t *in, int32_t *out, halay_op_t user,
                         halay_comm_t *comm)
{
    const halay_type_t type = HALAY_INT32;
    switch (form) {
    case ALLREDUCE:
        return halay_allreduce(in, out, COUNT, type, HALAY_SUM, comm);
    case IN_PLACE:
        return halay_allreduce(HALAY_IN_PLACE, out, COUNT, type, HALAY_SUM, comm);
    case AVERAGE:
        return halay_allreduce(in, out, COUNT, type, HALAY_AVERAGE, comm);
    case PRESCALED:
        return halay_allreduce_scaled(in, out, COUNT, type, HALAY_SUM, 3, 1, comm);
    case POSTSCALED:
        return halay_allreduce_scaled(in, out, COUNT, type, HALAY_SUM, 1, 0.5, comm);
    case USER:
        return halay_allreduce(in, out, COUNT, type, user, comm);
    case REDUCE:
        return halay_reduce(in, out, COUNT, type, HALAY_SUM, 0, comm);
    case REDUCE_SCATTER:
        return halay_reduce_scatter(in, out, COUNT, type, HALAY_SUM, comm);
    case REDUCE_SCATTERV:
        return halay_reduce_scatterv(HALAY_IN_PLACE, out, counts, type, HALAY_SUM, comm);
    case SCAN:
        return halay_scan(in, out, COUNT, type, HALAY_SUM, comm);
    default:
        return halay_exscan(HALAY_IN_PLACE, out, COUNT, type, HALAY_SUM, comm);
    }
}

static int call(int form, const int32_t *in, int32_t *out, halay_op_t user, halay_comm_t *comm)
{
    const halay_type_t type = HALAY_INT32;
    switch (form) {
    case BROADCAST:
        return halay_broadcast(out, COUNT, type, 0, comm);
    case ALLGATHER:
        return halay_allgather(in, out, COUNT, type, comm);
    case ALLGATHERV:
        return halay_allgatherv(in, out, counts, NULL, type, comm);
    case GATHER:
        return halay_gather(in, out, COUNT, type, 0, comm);
    case SCATTER:
        return halay_scatter(in, out, COUNT, type, 0, comm);
    case SCATTER_IN_PLACE:
        return halay_scatter(HALAY_IN_PLACE, out, COUNT, type, 0, comm);
    case ALLTOALL:
        return halay_alltoall(in, out, COUNT, type, comm);
    case ALLTOALLV:
        return halay_alltoallv(in, counts, NULL, out, counts, NULL, type, comm);
    case PERSISTENT:
        return started_twice(in, out, comm);
    case GROUP:
        return grouped(in, out, comm);
    case BARRIER:
        return halay_barrier(comm);
    default:
        return call_reducing(form, in, out, user, comm);
    }
}

/* The same call with host memory and with the device's, again and again. In place, a
 * reduce_scatterv may leave anything behind its result. */
static void same(struct rank *r)
{
    enum { ALL = COUNT * NRANKS };
    int32_t in[ALL], out[ALL], want[ALL], *there_in = take(r, sizeof(in)),
                                          *there_out = take(r, sizeof(out));
    halay_op_t user;
    CHECK(!halay_op_create(r->context, take_left, NULL, 1, false, &user), "op");
    for (int i = 0; i < ALL; i++)
        in[i] = 7 * i - 100 * (r->rank + 1);
    for (int again = 0; again < 3; again++)
        for (int form = 0; form < FORMS; form++) {
            for (int i = 0; i < ALL; i++)
                want[i] = out[i] = 11 * i + again + r->rank;
            copy(r, there_in, in, sizeof(in), HALAY_FROM_HOST);
            copy(r, there_out, out, sizeof(out), HALAY_FROM_HOST);
            int rc = call(form, in, want, user, r->world);
            CHECK(!rc, "form %d in host memory: %s", form, halay_strerror(rc));
            rc = call(form, there_in, there_out, user, r->world);
            CHECK(!rc, "form %d: %s", form, halay_strerror(rc));
            copy(r, out, there_out, sizeof(out), HALAY_TO_HOST);
            CHECK(!memcmp(out, want, form == REDUCE_SCATTERV ? BYTES : sizeof(out)),
                  "form %d: other bits than in host memory", form);
        }
    drop(r, there_in);
    drop(r, there_out);
}

/* An equal call is found again, but not where its memory has become another kind since. */
static void again(struct rank *r)
{
    halay_counters_t before = {.size = sizeof(before)}, after = before;
    int32_t in[COUNT] = {0}, *out = take(r, BYTES), *there = take(r, BYTES);
    copy(r, there, in, BYTES, HALAY_FROM_HOST);
    CHECK(!call(ALLREDUCE, there, out, HALAY_SUM, r->world), "the first");
    CHECK(!halay_context_counters(r->context, &before), "counters");
    for (int i = 0; i < 3; i++)
        CHECK(!call(ALLREDUCE, there, out, HALAY_SUM, r->world), "again");
    CHECK(!halay_context_counters(r->context, &after), "counters");
    CHECK(after.repeated - before.repeated == 3, "%llu of 3 were found again",
          (unsigned long long)(after.repeated - before.repeated));
    drop(r, there);
    drop(r, out);
    for (int i = 0; i < 2; i++)
        CHECK(mmap(i ? there : out, BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (i ? there : out),
              "mmap");
    for (int i = 0; i < COUNT; i++)
        there[i] = i;
    CHECK(!call(ALLREDUCE, there, out, HALAY_SUM, r->world), "now of the host");
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == i * r->nranks, "element %d is %d", i, out[i]);
    munmap(there, BYTES);
    munmap(out, BYTES);
}

/* ---------------------------------------------------------------- wrong memory */

enum { ONE, ALL_BUT_ONE, TWO_KINDS, CASES };

static const struct {
    int code;
    const char *words;
} ends[CASES] = {{HALAY_EMISMATCH, "of 301 int32 in memory of kind 7"},
                 {HALAY_EMISMATCH, "of 301 int32 in memory of kind 7"},
                 {HALAY_EINVAL, "in memory of two kinds"}};

static bool is_there(int which, int rank, int odd)
{
    return (which == ALL_BUT_ONE) == (rank != odd);
}

/* Its input, its output: each here or there. */
static void one(struct rank *r, int which, int odd, int form, int32_t *there[2])
{
    struct ranks_board *board = r->arg;
    int32_t here[2][COUNT * RANKS_MAX];
    halay_verdict_t v = {.size = sizeof(v)};
    const bool goes = is_there(which, r->rank, odd);
    int32_t *in = goes ? there[0] : here[0];
    int32_t *out = goes && which != TWO_KINDS ? there[1] : here[1];
    memset(here, 0, sizeof(here));
    const uint64_t start = ranks_now_ns();
    const int rc = call(form, in, out, HALAY_SUM, r->world);
    CHECK(ranks_now_ns() - start < SOON_NS, "case %d, form %d: waited for the deadline", which,
          form);
    CHECK(rc == ends[which].code, "case %d, form %d, rank %d (odd: %d): %s", which, form, r->rank,
          odd, halay_strerror(rc));
    CHECK(!halay_comm_verdict(r->world, &v), "verdict");
    CHECK(strstr(v.text, ends[which].words), "not '%s': %s", ends[which].words, v.text);
    CHECK(v.rank == odd || v.other == odd, "blames %d and %d", v.rank, v.other);
    snprintf(board->text[r->rank], sizeof(board->text[0]), "%s", v.text);
    pthread_barrier_wait(&board->barrier);
    CHECK(!strcmp(board->text[0], v.text), "%s\n%s", board->text[0], v.text);
    CHECK(!call(form, here[0], here[1], HALAY_SUM, r->world), "afterwards");
    pthread_barrier_wait(&board->barrier);
}

static void together(struct rank *r)
{
    static const int forms[] = {ALLREDUCE, ALLGATHER, ALLTOALL, PERSISTENT};
    int32_t *there[2] = {take(r, RANKS_MAX * BYTES), take(r, RANKS_MAX * BYTES)};
    for (int which = 0; which < CASES; which++)
        for (int odd = 0; odd < r->nranks; odd++)
            for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
                one(r, which, odd, forms[f], there);
    drop(r, there[0]);
    drop(r, there[1]);
}

/* What is not the host's is said to be so, and not registered; a trainer takes no tensor of two
 * kinds. */
static void kinds(struct rank *r)
{
    int32_t here[4] = {0}, *there = take(r, sizeof(here));
    halay_range_t range;
    halay_trainer_t *trainer;
    halay_ticket_t ticket;
    uint32_t kind = 77;
    CHECK(!halay_mem_kind(r->context, here, sizeof(here), &kind) && kind == 0, "here");
    CHECK(!halay_mem_kind(r->context, there, sizeof(here), &kind) && kind == 7, "there");
    CHECK(!halay_mem_kind(r->context, there, 0, &kind) && kind == 7, "a byte");
    CHECK(halay_mem_kind(r->context, there, 5000, &kind) == HALAY_EINVAL, "more than there is");
    CHECK(halay_mem_kind(r->context, NULL, 1, &kind) == HALAY_EINVAL, "none");
    CHECK(halay_mem_kind(r->context, here, 1, NULL) == HALAY_EINVAL, "no answer");
    CHECK(halay_mem_register(r->context, there, sizeof(here), &range) == HALAY_EUNSUPPORTED, "r");
    CHECK(!halay_mem_register(r->context, here, sizeof(here), &range), "here");
    CHECK(!halay_mem_deregister(r->context, range), "deregister");
    CHECK(!halay_trainer_create(r->context, r->world, &trainer), "trainer");
    for (int i = 0; i < 2; i++)
        CHECK(halay_trainer_allreduce(trainer, "a", i ? here : there, i ? there : here, 4,
                                      HALAY_INT32, HALAY_SUM, 1, 1, &ticket) == HALAY_EINVAL,
              "a tensor of two kinds");
    halay_trainer_destroy(trainer);
    drop(r, there);
}

int main(void)
{
    struct hly_device_late_arg arg = {.own_memory = true, .delay_polls_max = 3, .capacity = 2};
    struct ranks_options o = {.nranks = 1, .device = &hly_device_late, .device_arg = &arg};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    for (o.nranks = 1; o.nranks <= NRANKS; o.nranks++)
        for (int asleep = 0; asleep < 2; asleep++) {
            arg.delay_us_max = asleep ? 200 : 0;
            ranks_run(&o, same, NULL);
            ranks_run(&o, kinds, NULL);
            ranks_run(&o, again, NULL);
        }
    for (o.nranks = 2; o.nranks <= NRANKS; o.nranks++)
        for (int shm = 0; shm < 2; shm++) {
            struct ranks_board board = {.code = {0}};
            o.shm = shm;
            pthread_barrier_init(&board.barrier, NULL, (unsigned)o.nranks);
            ranks_run(&o, together, &board);
            pthread_barrier_destroy(&board.barrier);
        }
    return 0;
}
