/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_cuda_overlap.c - fused groups in memory of a GPU overlap, and nobody waits for the
 * GPU, over the double of CUDA's driver. A GPU that is halted shows it: whatever stands in its
 * streams has been put there by a thread that did not wait. Then errors while moves are under way.
 */
#include "training_cuda.h"

enum { TENSORS = 4, GROUPS = 2, STEPS = 10 }; /* a group is two of them: fusion below */
static const char fusion[] = "24000";         /* of all four buffers: a group is 6,000 bytes */

/* What a rank has: inputs and outputs in the GPU's memory, and one tensor of the host's. */
struct own {
    void *in[TENSORS], *out[TENSORS];
    float host[N];
    halay_ticket_t tickets[TENSORS], host_ticket;
};

static struct own *own_make(void)
{
    struct own *own = calloc(1, sizeof(*own));
    CHECK(own, "memory");
    for (int t = 0; t < TENSORS; t++) {
        own->in[t] = gpu_alloc(N * 4);
        own->out[t] = gpu_alloc(N * 4);
    }
    return own;
}

static void own_free(struct own *own)
{
    for (int t = 0; t < TENSORS; t++) {
        if (own->in[t])
            gpu_free(own->in[t]);
        if (own->out[t])
            gpu_free(own->out[t]);
    }
    free(own);
}

static halay_ticket_t submit(struct rank *rank, const char *name, const void *in, void *out,
                             double prescale, double postscale)
{
    halay_ticket_t ticket;
    int rc = halay_trainer_allreduce(rank->trainer, name, in, out, N, HALAY_FLOAT32, HALAY_SUM,
                                     prescale, postscale, &ticket);
    CHECK(!rc, "submit %s: %s", name, halay_strerror(rc));
    return ticket;
}

/* The host's tensor first, so that its group is the first of the programme. */
static void begin(struct rank *rank, struct own *own)
{
    char name[16];
    for (int i = 0; i < N; i++)
        own->host[i] = value(rank->rank, 7, i);
    own->host_ticket = submit(rank, "host", own->host, own->host, 1, 1);
    for (int t = 0; t < TENSORS; t++) {
        fill(own->in[t], rank->rank, t, N);
        snprintf(name, sizeof(name), "t%d", t);
        own->tickets[t] = submit(rank, name, own->in[t], own->out[t], 1, 2);
    }
}

static void end(struct rank *rank, struct own *own, int host_too)
{
    if (host_too)
        finish(rank, own->host_ticket, 0);
    for (int t = 0; t < TENSORS; t++)
        finish(rank, own->tickets[t], 0);
    for (int t = 0; t < TENSORS; t++)
        want_sums(own->out[t], rank->nranks, t, N, 2);
    for (int i = 0; i < N; i++)
        CHECK(own->host[i] == sum(rank->nranks, 7, i), "element %d of the host's", i);
}

static void steps(struct rank *rank, struct own *own, int count)
{
    for (int s = 0; s < count; s++) {
        begin(rank, own);
        end(rank, own, 1);
    }
}

/* ------------------------------------------------------------------ no error */

/* No synchronising call, and no other one in which the processor waits, in replayed steps. */
static void steady(struct rank *rank)
{
    struct own *own = own_make();
    steps(rank, own, 12);
    meet(rank);
    const halay_trainer_counters_t was = counters(rank);
    const struct cuda_double_counts before = cuda_double_counts();
    steps(rank, own, STEPS);
    const halay_trainer_counters_t now = counters(rank);
    meet(rank);
    const struct cuda_double_counts after = cuda_double_counts();
    CHECK(now.cycles >= was.cycles + STEPS - 1 && now.control_rounds == was.control_rounds,
          "no replay");
    CHECK(now.fused_calls == was.fused_calls + (GROUPS + 1) * STEPS, "%d fused calls",
          (int)(now.fused_calls - was.fused_calls));
    CHECK(after.launched >= before.launched + 2 * GROUPS * STEPS, "no launches");
    CHECK(after.synchronized == before.synchronized && after.waited == before.waited &&
              after.pageable == before.pageable,
          "the processor has waited for the GPU: %d, %d, %d",
          (int)(after.synchronized - before.synchronized), (int)(after.waited - before.waited),
          (int)(after.pageable - before.pageable));
    meet(rank);
    own_free(own);
}

/* All ranks have submitted a step, and the GPU, which is halted, has all packs before it. */
static void halt_and_begin(struct rank *rank, struct own *own)
{
    static uint64_t before;
    meet(rank);
    if (!rank->rank) {
        before = cuda_double_counts().launched;
        cuda_double_halt(1);
    }
    meet(rank);
    begin(rank, own);
    const uint64_t start_ns = clock_ns(CLOCK_MONOTONIC),
                   want = (uint64_t)GROUPS * (uint64_t)rank->nranks;
    while (cuda_double_counts().launched - before < want) {
        CHECK(clock_ns(CLOCK_MONOTONIC) - start_ns < UINT64_C(5000000000),
              "%d packs of %d are launched", (int)(cuda_double_counts().launched - before),
              (int)want);
        usleep(1000);
    }
    CHECK(cuda_double_counts().launched - before == want, "more than the packs");
    meet(rank);
}

static void go_on(struct rank *rank)
{
    meet(rank);
    if (!rank->rank)
        cuda_double_halt(0);
}

/* The second group is packed before the first one's collective has ended, which cannot begin; and
 * what is in the host's memory ends meanwhile. */
static void overlap(struct rank *rank)
{
    struct own *own = own_make();
    steps(rank, own, 12);
    const uint64_t rounds = counters(rank).control_rounds;
    for (int s = 0; s < 3; s++) {
        halt_and_begin(rank, own);
        finish(rank, own->host_ticket, 0);
        for (int t = 0; t < TENSORS; t++)
            CHECK(!halay_trainer_poll(rank->trainer, own->tickets[t]), "%d is done too early", t);
        go_on(rank);
        end(rank, own, 0);
    }
    CHECK(counters(rank).control_rounds == rounds, "rounds in a replay");
    meet(rank);
    own_free(own);
}

/* Values that are rounded: the bits are those of the same tensors in the host's memory. */
static void bits(struct rank *rank)
{
    struct own *own = own_make();
    static float host[RANKS_MAX][TENSORS][N];
    halay_ticket_t tickets[TENSORS];
    char name[16];
    for (int s = 0; s < 15; s++) {
        for (int t = 0; t < TENSORS; t++) {
            float *in = inside(own->in[t], N * 4), *copy = host[rank->rank][t];
            for (int i = 0; i < N; i++)
                copy[i] = in[i] = (float)(draw(&rank->seed) % 1000003) / 7919.0f;
            snprintf(name, sizeof(name), "t%d", t);
            own->tickets[t] = submit(rank, name, own->in[t], own->out[t], 0.3, 1.7);
        }
        for (int t = 0; t < TENSORS; t++) {
            snprintf(name, sizeof(name), "h%d", t);
            float *copy = host[rank->rank][t];
            tickets[t] = submit(rank, name, copy, copy, 0.3, 1.7);
        }
        for (int t = 0; t < TENSORS; t++) {
            finish(rank, own->tickets[t], 0);
            finish(rank, tickets[t], 0);
            const void *out = inside(own->out[t], N * 4), *want = host[rank->rank][t];
            CHECK(!memcmp(out, want, N * 4), "step %d, tensor %d: other bits than the host's", s,
                  t);
        }
    }
    meet(rank);
    own_free(own);
}

/* The last rank joins while the others' moves are under way; what it sends are zeros. */
static void joins(struct rank *rank)
{
    struct own *own = own_make();
    halay_ticket_t ticket = 0;
    const int last = rank->nranks - 1;
    steps(rank, own, 12);
    meet(rank);
    if (!rank->rank)
        cuda_double_halt(1);
    meet(rank);
    if (rank->rank < last)
        begin(rank, own);
    else
        CHECK(!halay_trainer_join(rank->trainer, &ticket), "join");
    usleep(20000);
    go_on(rank);
    if (rank->rank < last) {
        finish(rank, own->host_ticket, 0);
        for (int t = 0; t < TENSORS; t++) {
            finish(rank, own->tickets[t], 0);
            want_sums(own->out[t], last, t, N, 2);
        }
        CHECK(!halay_trainer_join(rank->trainer, &ticket), "join");
    }
    finish(rank, ticket, 0);
    steps(rank, own, 2);
    meet(rank);
    own_free(own);
}

/* ------------------------------------------------------------------ errors */

/* All tensors end with an error within the deadline, and their memory is the program's again. */
static void all_fail(struct rank *rank, struct own *own, int code, const char *word)
{
    char text[1024];
    const uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
    for (int t = 0; t < TENSORS; t++) {
        int rc = halay_trainer_wait(rank->trainer, own->tickets[t], text, sizeof(text));
        CHECK(rc == code && strstr(text, word), "rank %d, tensor %d: %d: %s", rank->rank, t, rc,
              text);
        halay_trainer_release(rank->trainer, own->tickets[t]);
    }
    halay_trainer_release(rank->trainer, own->host_ticket);
    CHECK(clock_ns(CLOCK_MONOTONIC) - start_ns < UINT64_C(10000000000), "as late as the deadline");
}

/* The GPU's context dies while moves are under way. */
static void fault(struct rank *rank)
{
    struct own *own = own_make();
    steps(rank, own, 12);
    halt_and_begin(rank, own);
    if (!rank->rank)
        cuda_double_break(700);
    all_fail(rank, own, HALAY_EDEVICE, "device");
    meet(rank);
    if (!rank->rank) {
        cuda_double_break(0);
        cuda_double_halt(0);
    }
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
    meet(rank);
    own_free(own);
}

/* The last rank dies while moves are under way, which end before the tensors do. */
static void dies(struct rank *rank)
{
    struct own *own = own_make();
    char who[32];
    const int last = rank->nranks - 1;
    snprintf(who, sizeof(who), "rank %d", last);
    steps(rank, own, 12);
    halt_and_begin(rank, own);
    if (rank->rank == last)
        halay_inproc_kill(rank->ranks->hub_rank[last].hub, last);
    usleep(30000);
    for (int t = 0; t < TENSORS && rank->rank != last; t++)
        CHECK(!halay_trainer_poll(rank->trainer, own->tickets[t]), "the GPU still reads tensor %d",
              t);
    go_on(rank);
    if (rank->rank != last)
        all_fail(rank, own, HALAY_EPEER, who);
    halay_trainer_destroy(rank->trainer);
    rank->trainer = NULL;
    meet(rank);
    own_free(own);
}

/* A result's memory is freed while the tensor is out: this is an error of that rank alone. */
static void freed_result(struct rank *rank)
{
    struct own *own = own_make();
    const int last = rank->nranks - 1;
    steps(rank, own, 12);
    halt_and_begin(rank, own);
    if (rank->rank == last) {
        gpu_free(own->out[1]);
        own->out[1] = NULL;
    }
    go_on(rank);
    finish(rank, own->host_ticket, 0);
    for (int t = 0; t < TENSORS; t++) {
        const int lost = rank->rank == last && t < 2; /* of its group */
        finish(rank, own->tickets[t], lost ? HALAY_EINVAL : 0);
        if (!lost)
            want_sums(own->out[t], rank->nranks, t, N, 2);
    }
    if (rank->rank == last)
        own->out[1] = gpu_alloc(N * 4);
    meet(rank);
    steps(rank, own, 2);
    meet(rank);
    own_free(own);
}

/* An input's memory is freed before the group is packed: all ranks are told why, and go on. */
static void freed_input(struct rank *rank)
{
    struct own *own = own_make();
    char text[1024];
    const int last = rank->nranks - 1;
    halay_ticket_t ticket[2] = {0};
    for (int t = 0; t < 2; t++)
        fill(own->in[t], rank->rank, t, N);
    if (rank->rank != last)
        meet(rank);
    ticket[0] = submit(rank, "a", own->in[0], own->out[0], 1, 1);
    ticket[1] = submit(rank, "b", own->in[1], own->out[1], 1, 1);
    if (rank->rank == last) { /* the others have not submitted, so nothing is packed yet */
        gpu_free(own->in[0]);
        own->in[0] = NULL;
        meet(rank);
    }
    int rc = halay_trainer_wait(rank->trainer, ticket[0], text, sizeof(text));
    CHECK(rc == HALAY_EINVAL && strstr(text, "freed"), "%d: %s", rc, text);
    halay_trainer_release(rank->trainer, ticket[0]);
    halay_trainer_release(rank->trainer, ticket[1]);
    if (rank->rank == last)
        own->in[0] = gpu_alloc(N * 4);
    steps(rank, own, 3);
    meet(rank);
    own_free(own);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {.name = "steady", .body = steady, .sizes = {1, 3}, .fusion = fusion},
        {.name = "overlap", .body = overlap, .sizes = {1, 3}, .fusion = fusion},
        {.name = "bits", .body = bits, .sizes = {2, 3}, .fusion = fusion},
        {.name = "joins", .body = joins, .sizes = {3}, .fusion = fusion},
        {.name = "fault", .body = fault, .sizes = {1, 3}, .fusion = fusion},
        {.name = "dies", .body = dies, .sizes = {3}, .fusion = fusion},
        {.name = "freed_result", .body = freed_result, .sizes = {2}, .fusion = fusion},
        {.name = "freed_input", .body = freed_input, .sizes = {3}, .fusion = fusion},
        {0}};
    setenv("HALAY_NCCL_LIBRARY", "off", 1); /* their kernels would count, too */
    cuda_double_settings()->delay_us = 200;
    gpu_begin();
    int rc = run_cases(cases, argc, argv);
    gpu_end();
    return rc;
}
