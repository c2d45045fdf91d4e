/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_said.c - an error that another rank tells of, with numbers that there are not: the call ends
 * on all ranks with an error that names who said it, and the next one is good.
 */
#include <string.h>

#include "fault/fault.h"
#include "ranks.h"
#include "run/run.h"
#include "wire/match.h"

static void meet(struct rank *r)
{
    struct ranks_board *b = r->arg;
    pthread_barrier_wait(&b->barrier);
}

/* As if rank 1 had sent it. */
static void say(struct rank *r, const struct hly_verdict_wire *v)
{
    const struct hly_header h = {.comm = r->world->id,
                                 .sequence = r->world->next_sequence - 1,
                                 .from = 1,
                                 .kind = HLY_ALARM};
    char message[sizeof(h) + sizeof(*v)];
    const halay_event_t event = {.kind = HALAY_EVENT_MESSAGE,
                                 .peer = hly_peer_id(r->context, 1),
                                 .data = message,
                                 .bytes = sizeof(message)};
    memcpy(message, &h, sizeof(h));
    memcpy(message + sizeof(h), v, sizeof(*v));
    hly_lock(r->context);
    hly_wire_take(r->context, &r->context->transports[0], &event);
    hly_hand_on(r->context);
    hly_unlock(r->context);
}

static void one(struct rank *r, const struct hly_verdict_wire *v, bool right)
{
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    halay_request_t *request;
    int64_t x = 1, sum = 0;
    const struct hly_slot *slot = &r->world->slots[r->world->next_sequence % HLY_SLOTS];
    meet(r);
    if (r->rank == 0) {
        CHECK(!halay_iallreduce(&x, &sum, 1, HALAY_INT64, HALAY_SUM, r->world, &request), "post");
        say(r, v);
    }
    meet(r);
    if (r->rank) { /* it hears first: else the call could be good here */
        while (!slot->fault || !slot->fault->verdict.cause)
            CHECK(!halay_context_progress(r->context, 1000000), "progress");
        CHECK(!halay_iallreduce(&x, &sum, 1, HALAY_INT64, HALAY_SUM, r->world, &request), "post");
    }
    int rc = halay_request_wait(request);
    CHECK(!halay_comm_verdict(r->world, &verdict), "verdict");
    CHECK(rc < 0 && verdict.code == rc && verdict.rank == 1, "%d: %s", rc, verdict.text);
    CHECK(right || strstr(verdict.text, "no sense"), "%s", verdict.text);
    meet(r);
    CHECK(!halay_allreduce(&x, &sum, 1, HALAY_INT64, HALAY_SUM, r->world) && sum == 2, "next");
}

static void all(struct rank *r)
{
    const struct hly_verdict_wire good = {
        .cause = HLY_CAUSE_ARGUMENT, .code = HALAY_EINVAL, .rank = 1, .other = -1};
    static const int ranks[] = {-2, 2, 1 << 20, INT32_MAX, INT32_MIN};
    struct hly_verdict_wire v = good;
    one(r, &v, true);
    for (int i = 0; i < 5; i++) {
        v = good;
        v.rank = ranks[i];
        one(r, &v, false);
        v = good;
        v.other = ranks[i];
        one(r, &v, false);
    }
    for (uint32_t cause = 0; cause < 300; cause += 99) {
        v = good;
        v.cause = cause;
        one(r, &v, false);
    }
    for (int i = 0; i < 4; i++) {
        static const uint64_t since[] = {1000, (uint64_t)1 << 31, (uint64_t)1 << 40, UINT64_MAX};
        v = good;
        v.of = since[i];
        one(r, &v, false);
    }
    for (int code = 0; code < 2; code++) { /* they would be no error */
        v = good;
        v.code = code;
        one(r, &v, false);
    }
}

int main(void)
{
    struct ranks_board board;
    struct ranks_options o = {.nranks = 2};
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    pthread_barrier_init(&board.barrier, NULL, 2);
    for (int shm = 0; shm < 2; shm++) {
        o.shm = shm;
        ranks_run(&o, all, &board);
    }
    pthread_barrier_destroy(&board.barrier);
    return 0;
}
