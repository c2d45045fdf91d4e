/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device work of one rank that never finishes, ends with an error, or whose device breaks or cannot
 * be stopped: the call ends on all ranks, in time, with the same verdict, which names that rank; no
 * byte of the buffers changes afterwards. Where the device lives on, so does the communicator.
 */
#include <stdatomic.h>
#include <string.h>

#include "device/device_builtin.h"
#include "fated.h"
#include "ranks.h"

#define NRANKS   4
#define DEADLINE 1000000000ull
#define COUNT    20000

static const struct fate {
    const char *name;
    struct hly_device_late_arg arg;
    const char *text;
    bool late, lasts; /* it ends by the deadline only; the device is of use afterwards */
} fates[] = {
    {"never", {.never = 3}, "did not finish its work in time", true, true},
    {"never, asleep",
     {.never = 3, .delay_us_max = 500},
     "did not finish its work in time",
     true,
     true},
    {"fails", {.fails = 3}, "has failed in its work", false, true},
    {"fails, asleep", {.fails = 3, .delay_us_max = 500}, "has failed in its work", false, true},
    {"breaks", {.breaks = 3}, "has failed in its work", false, false},
    {"breaks, asleep", {.breaks = 3, .delay_us_max = 500}, "has failed in its work", false, false},
    {"stubborn", {.never = 3, .stubborn = true}, "may still change", true, false},
};

static atomic_int victim;

static void one(struct rank *r)
{
    struct ranks_board *board = r->arg;
    const struct fate *fate = &fates[board->code[NRANKS]];
    static int32_t in[NRANKS][COUNT], out[NRANKS][COUNT], copy[NRANKS][COUNT];
    int32_t *to = out[r->rank];
    halay_verdict_t v = {.size = sizeof(v)};
    uint64_t begin = 0;
    int rc = 0;
    for (int i = 0; i < COUNT; i++)
        in[r->rank][i] = r->rank + i;
    if (is_victim)
        atomic_store(&victim, r->rank);
    pthread_barrier_wait(&board->barrier);
    for (int call = 0; !rc && call < 8; call++) {
        memset(to, 0x5a, sizeof(out[0]));
        begin = ranks_now_ns();
        rc = halay_allreduce(in[r->rank], to, COUNT, HALAY_INT32, HALAY_SUM, r->world);
    }
    memcpy(copy[r->rank], to, sizeof(out[0]));
    const double took = (double)(ranks_now_ns() - begin) * 1e-9;
    CHECK(rc == HALAY_EDEVICE, "%s: rank %d got %s", fate->name, r->rank, halay_strerror(rc));
    CHECK(fate->late ? took < 4 : took < 0.9, "%s: after %.1f s", fate->name, took);
    CHECK(!halay_comm_verdict(r->world, &v) && v.rank == atomic_load(&victim) &&
              strstr(v.text, fate->text),
          "%s: rank %d says: %s", fate->name, r->rank, v.text);
    strcpy(board->text[r->rank], v.text);
    pthread_barrier_wait(&board->barrier);
    CHECK(!strcmp(board->text[0], v.text), "%s: %s; %s", fate->name, board->text[0], v.text);
    for (uint64_t until = ranks_now_ns() + 30000000; ranks_now_ns() < until;)
        halay_context_progress(r->context, 0);
    CHECK(!memcmp(copy[r->rank], to, sizeof(out[0])), "%s: it changed afterwards", fate->name);
    rc = halay_allreduce(in[r->rank], to, COUNT, HALAY_INT32, HALAY_SUM, r->world);
    CHECK(rc == (fate->lasts ? HALAY_OK : HALAY_EDEVICE), "%s: later: %s", fate->name,
          halay_strerror(rc));
    for (int i = 0; !rc && i < COUNT; i++)
        CHECK(to[i] == NRANKS * i + NRANKS * (NRANKS - 1) / 2, "%s: element %d", fate->name, i);
}

int main(void)
{
    halay_device_ops_t fated = hly_device_late;
    fated.open = fated_open;
    for (size_t f = 0; f < sizeof(fates) / sizeof(fates[0]); f++) {
        struct hly_device_late_arg arg = fates[f].arg;
        struct ranks_board board = {.code[NRANKS] = (int)f};
#ifdef __SANITIZE_ADDRESS__
        if (arg.stubborn) /* what it may write to is kept for ever */
            continue;
#endif
        struct ranks_options o = {
            .nranks = NRANKS, .device = &fated, .device_arg = &arg, .deadline_ns = DEADLINE};
        atomic_store(&opened, 0);
        pthread_barrier_init(&board.barrier, NULL, NRANKS);
        ranks_run(&o, one, &board);
        pthread_barrier_destroy(&board.barrier);
        printf("%s: all are told\n", fates[f].name);
        fflush(stdout);
    }
    return 0;
}
