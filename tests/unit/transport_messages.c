/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_messages.c - cases of the contract test: untagged messages, and sleeping until they
 * come.
 */
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "transport_end.h"

#define NUMBERS    4096 /* numbers of messages between two ends */
#define SMALL      16   /* below it a message has no number */
#define HEAD_BYTES 64

/* What an end got: each numbered message once, and so many small ones of each size. */
struct tally {
    uint8_t seen[ENDS_MAX][NUMBERS];
    uint32_t small[ENDS_MAX][SMALL];
    uint32_t from[ENDS_MAX], total;
};

static void on_message(struct end *end, const halay_event_t *event, int from)
{
    struct tally *tally = end->state;
    uint32_t number;

    EXPECT(end, event->kind == HALAY_EVENT_MESSAGE, "kind %d", event->kind);
    if (event->kind != HALAY_EVENT_MESSAGE) {
        return;
    }
    number = end_check(end, event, from);
    tally->total++;
    tally->from[from]++;
    if (number == NO_NUMBER) {
        tally->small[from][event->bytes]++;
        return;
    }
    EXPECT(end, number < NUMBERS && !tally->seen[from][number]++, "message %u from %d came twice",
           number, from);
}

static struct tally *start(struct end *end)
{
    struct tally *tally = calloc(1, sizeof(*tally));

    end->state = tally;
    end->on_event = on_message;
    return tally;
}

/* Until `many` have come; then for a while, that none comes too many. */
static void finish(struct end *end, uint32_t many)
{
    struct tally *tally = end->state;

    while (tally->total < many && alive(end, "messages")) {
        end_step(end);
    }
    end_flush(end);
    end_meet(end);
    end_linger(end, 10);
    EXPECT(end, tally->total == many, "%u messages for %u", tally->total, many);
    end_meet(end);
    end->on_event = NULL;
    free(tally);
}

static size_t sizes(const struct end *end, size_t size[64])
{
    const size_t most = end->attr.message_bytes, eager = end->attr.eager_bytes;
    const size_t wanted[] = {31,   32,        33,    63,        64,       65,       127,      128,
                             129,  255,       256,   257,       500,      512,      1000,     1023,
                             1024, eager - 1, eager, eager + 1, most / 2, most - 9, most - 1, most};
    size_t n = 0;

    for (; n <= 20; n++) {
        size[n] = n;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (wanted[i] <= most) {
            size[n++] = wanted[i];
        }
    }
    return n;
}

/* Every size, every split into header and payload, between all ends at once. */
static void run_messages(struct end *end)
{
    size_t size[64], nsizes = sizes(end, size);
    struct tally *tally = start(end);
    uint32_t number = 0, small[SMALL] = {0};

    end_connect_all(end);
    for (size_t s = 0; s < nsizes; s++) {
        const size_t split[] = {0, 1, 8, HEAD_BYTES, size[s] / 2, size[s]};

        for (size_t h = 0; h < sizeof(split) / sizeof(split[0]); h++, number++) {
            if (split[h] > size[s]) {
                continue;
            }
            if (size[s] < SMALL) {
                small[size[s]]++;
            }
            for (int i = 1; i < end->world->n; i++) {
                int to = (end->rank + i) % end->world->n;

                end_message_now(end, to, number, size[s], split[h]);
            }
        }
        end_step(end);
    }
    number = 0;
    for (size_t s = 0; s < nsizes; s++) {
        number += 3 + (size[s] >= 1) + (size[s] >= 8) + (size[s] >= HEAD_BYTES);
    }
    while (tally->total < number * (uint32_t)(end->world->n - 1) && alive(end, "all sizes")) {
        end_step(end);
    }
    for (int from = 0; from < end->world->n; from++) {
        uint32_t all = from == end->rank ? 0 : 1;

        EXPECT(end, all == 0 || memcmp(tally->small[from], small, sizeof(small)) == 0,
               "small messages from %d: other sizes than were sent", from);
        EXPECT(end, tally->from[from] == all * number, "%u from %d for %u", tally->from[from], from,
               number);
    }
    finish(end, number * (uint32_t)(end->world->n - 1));
}

/* Many senders, one receiver who is now and then away. */
static void run_many_to_one(struct end *end)
{
    uint32_t many = rounds(end, 2000);
    struct tally *tally = start(end);

    if (end->rank == 0) {
        while (tally->total < many * (uint32_t)(end->world->n - 1) && alive(end, "senders")) {
            end_step(end);
            if (end_random(end, 500) == 0) {
                sleep_ms(1);
            }
        }
        finish(end, many * (uint32_t)(end->world->n - 1));
        return;
    }
    end_connect(end, 0);
    for (uint32_t i = 0; i < many; i++) {
        size_t size = SMALL + end_random(end, 300);

        end_message_now(end, 0, i, size, end_random(end, (uint32_t)size + 1));
    }
    finish(end, 0);
}

/* All fill all queues and poll nothing, then drain: nothing is lost, and it goes on. */
static void run_flood(struct end *end)
{
    int right = (end->rank + 1) % end->world->n, result = HALAY_OK;
    int left = (end->rank + end->world->n - 1) % end->world->n;
    struct tally *tally = start(end);
    uint32_t sent = 1, more = rounds(end, 500);

    end_connect(end, right);
    end_message_now(end, right, 0, 64, 16);
    while (tally->total < 1 && alive(end, "the first message")) {
        end_step(end);
    }
    end_meet(end);
    /* The numbers end long before a million: small messages go on without. */
    while (result >= 0 && sent < 1000000 && alive(end, "a full queue")) {
        bool numbered = sent + more < NUMBERS;

        result = end_message(end, right, sent, numbered ? 64 : 15, 8);
        sent += result >= 0;
    }
    EXPECT(end, result == HALAY_EAGAIN, "%u messages went into a queue nobody reads: %d", sent,
           result);
    /* Nobody reads before all are full: who drains could be faster than who fills. */
    atomic_fetch_add(&end->world->shared[ENDS_MAX], 1);
    while (atomic_load(&end->world->shared[ENDS_MAX]) < (unsigned)end->world->n &&
           alive(end, "the others' full queues")) {
        sleep_ms(1);
    }
    for (uint32_t i = 0; i < more; i++, sent++) {
        end_message_now(end, right, NUMBERS - more + i, 40, 0);
    }
    atomic_store(&end->world->shared[end->rank], sent);
    while (!atomic_load(&end->world->shared[left]) && alive(end, "the left one's count")) {
        end_step(end);
    }
    finish(end, atomic_load(&end->world->shared[left]));
}

/* Polls once; if there was nothing, sleeps until there is. Counts sleeps; a lost wake-up fails. */
static void step_or_sleep(struct end *end, uint32_t *sleeps)
{
    struct pollfd waiter = {.fd = -1, .events = POLLIN};
    int result;

    if (end_poll(end) != 0) {
        return;
    }
    result = end->ops->arm(end->transport, &waiter.fd);
    EXPECT(end, result == HALAY_OK || result == HALAY_EAGAIN, "arm is %d", result);
    if (result == HALAY_OK) {
        result = poll(&waiter, 1, 20000);
        EXPECT(end, result == 1, "no wake-up within 20 s");
        ++*sleeps;
    }
}

static void run_ping_pong(struct end *end)
{
    int other = end->rank ^ 1;
    uint32_t many = rounds(end, 2000), sleeps = 0;
    struct tally *tally = start(end);

    if (other >= end->world->n) {
        end_meet(end);
        finish(end, 0);
        return;
    }
    end_connect(end, other);
    end_message_now(end, other, NUMBERS - 1, 64, 0);
    while (tally->total < 1 && alive(end, "the way")) {
        end_step(end);
    }
    end_flush(end);
    end_meet(end);
    for (uint32_t i = 0; i < many; i++) {
        if (end->rank & 1) {
            end_message_now(end, other, i, 16 + i % 100, 16);
        }
        while (tally->total < i + 2 && alive(end, "a pong")) {
            step_or_sleep(end, &sleeps);
        }
        /* No yield: beside busy processes it would cost a time slice. */
        for (uint64_t until = now_ns() + end_random(end, 40000); now_ns() < until;) {
        }
        if (!(end->rank & 1)) {
            end_message_now(end, other, i, 16 + i % 100, 0);
        }
        if (!alive(end, "ping-pong")) {
            break;
        }
    }
    EXPECT(end, sleeps > 0 || end->world->body->flags & TRANSPORT_BODY_SLOW, "it never slept");
    finish(end, many + 1);
}

/* One sleeper, woken by many at any time. */
static void run_wake_by_many(struct end *end)
{
    uint32_t many = rounds(end, 150), sleeps = 0;
    uint32_t all = many * (uint32_t)(end->world->n - 1);
    struct tally *tally = start(end);

    if (end->rank == 0) {
        while (tally->total < all && alive(end, "the senders")) {
            step_or_sleep(end, &sleeps);
        }
        finish(end, all);
        return;
    }
    end_connect(end, 0);
    for (uint32_t i = 0; i < many && alive(end, "to wake"); i++) {
        end_message_now(end, 0, i, 16 + end_random(end, 100), 16);
        end_flush(end);
        sleep_ms(end_random(end, 3));
    }
    finish(end, 0);
}

/* With nothing to do the descriptor stays silent, and stays the same. */
static void run_idle(struct end *end)
{
    struct pollfd waiter = {.fd = -1, .events = POLLIN};
    int silent = 0, first = -1;
    struct tally *tally = start(end);

    end_connect_all(end);
    for (int to = 0; to < end->world->n; to++) {
        if (to != end->rank) {
            end_message_now(end, to, 1, 100, 8);
        }
    }
    while (tally->total < (uint32_t)end->world->n - 1 && alive(end, "greetings")) {
        end_step(end);
    }
    end_flush(end);
    end_meet(end);
    for (int i = 0; i < 10; i++) {
        int result;

        while ((result = end->ops->arm(end->transport, &waiter.fd)) == HALAY_EAGAIN &&
               alive(end, "rest")) {
            end_step(end);
        }
        EXPECT(end, result == HALAY_OK, "arm is %d", result);
        first = first < 0 ? waiter.fd : first;
        EXPECT(end, waiter.fd == first, "descriptor %d, then %d", first, waiter.fd);
        silent += poll(&waiter, 1, 20) == 0;
    }
    EXPECT(end, silent >= 5, "%d of 10 sleeps with nothing to do were silent", silent);
    finish(end, (uint32_t)end->world->n - 1);
}

const struct test_case transport_cases_messages[] = {
    {.name = "messages", .run = run_messages},
    {.name = "many_to_one", .run = run_many_to_one},
    {.name = "flood", .run = run_flood},
    {.name = "ping_pong", .run = run_ping_pong, .needs = HALAY_CAN_SLEEP},
    {.name = "wake_by_many", .run = run_wake_by_many, .needs = HALAY_CAN_SLEEP},
    {.name = "idle", .run = run_idle, .needs = HALAY_CAN_SLEEP},
    {0},
};
