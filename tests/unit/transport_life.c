/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_life.c - cases of the contract test: how endpoints and ways come about, fail and go.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "transport_end.h"

#define LAST 4711 /* the number of a message that must come */

_Static_assert(sizeof(halay_transport_ops_t) <=
                   offsetof(halay_transport_ops_t, open) +
                       18 * sizeof(((halay_transport_ops_t *)NULL)->open),
               "the contract has at most 18 calls: each does one thing, and is needed");

static void check_table(struct end *end)
{
    const halay_transport_ops_t *ops = end->ops;

    EXPECT(end, ops->size == sizeof(*ops) && ops->name && ops->name[0], "size %zu", ops->size);
    EXPECT(end,
           ops->open && ops->close && ops->query && ops->address && ops->connect &&
               ops->disconnect && ops->sever && ops->register_mem && ops->alloc_mem &&
               ops->deregister_mem && ops->key && ops->send && ops->recv && ops->withdraw &&
               ops->put && ops->poll && ops->give_back && ops->arm,
           "a member is NULL");
    EXPECT(end, end->attr.size == sizeof(end->attr), "query changed size to %zu", end->attr.size);
    EXPECT(end, end->attr.message_bytes >= 1024, "message_bytes %zu", end->attr.message_bytes);
    EXPECT(end, end->attr.eager_bytes > 0, "eager_bytes %zu", end->attr.eager_bytes);
    EXPECT(end, end->attr.piece_bytes > 0, "piece_bytes %zu", end->attr.piece_bytes);
    EXPECT(end, !(end->attr.capabilities & ~255u), "capabilities %#x", end->attr.capabilities);
}

/* What is not offered says so. */
static void check_refusals(struct end *end, int to)
{
    const halay_transport_ops_t *ops = end->ops;
    uint8_t bytes[64] = {0};
    size_t key_bytes = 48;
    halay_mem_t *mem = NULL;
    void *memory = NULL;
    int fd = -1;
    const halay_mem_params_t params = {
        .size = sizeof(params), .address = bytes, .bytes = 64, .dmabuf = -1};

    if (!(end->attr.capabilities & HALAY_CAN_LEND)) {
        EXPECT(end, ops->alloc_mem(end->transport, 64, &memory, &mem) == HALAY_EUNSUPPORTED,
               "alloc_mem");
        EXPECT(end, ops->give_back(end->transport) == HALAY_EUNSUPPORTED, "give_back");
    }
    const halay_mem_params_t far = {.size = sizeof(far),
                                    .address = bytes,
                                    .bytes = 64,
                                    .kind = HALAY_MEMORY_CUDA,
                                    .dmabuf = -1};
    EXPECT(end, ops->register_mem(end->transport, &far, &mem) == HALAY_EUNSUPPORTED,
           "register_mem of a device's memory that is none");
    EXPECT(end,
           !(end->attr.capabilities & HALAY_CAN_DEVICE) || end->attr.capabilities & HALAY_CAN_PUT,
           "a device's memory, and no puts");
    if (!(end->attr.capabilities & HALAY_CAN_PUT)) {
        EXPECT(end, ops->register_mem(end->transport, &params, &mem) == HALAY_EUNSUPPORTED,
               "register_mem");
        EXPECT(end, ops->key(end->transport, mem, bytes, &key_bytes) == HALAY_EUNSUPPORTED, "key");
        EXPECT(end,
               ops->put(end->transport, end->ep[to], bytes, 8, bytes, 48, 0, 0, 0) ==
                   HALAY_EUNSUPPORTED,
               "put");
    }
    if (!(end->attr.capabilities & HALAY_CAN_LAND)) {
        EXPECT(end, ops->recv(end->transport, 1, bytes, 64, 0) == HALAY_EUNSUPPORTED, "recv");
        EXPECT(end, ops->withdraw(end->transport, 1) == HALAY_EUNSUPPORTED, "withdraw");
        EXPECT(end,
               ops->send(end->transport, end->ep[to], 1, NULL, 0, bytes, 8, 0) ==
                   HALAY_EUNSUPPORTED,
               "send");
    }
    if (!(end->attr.capabilities & HALAY_CAN_SLEEP)) {
        EXPECT(end, ops->arm(end->transport, &fd) == HALAY_EUNSUPPORTED, "arm");
    }
}

static void run_table(struct end *end)
{
    int right = (end->rank + 1) % end->world->n;
    halay_transport_t *first = end->transport;

    check_table(end);
    EXPECT(end, end_step(end) == 0, "something came before there was a way");
    end_connect(end, right);
    check_refusals(end, right);
    end->ops->disconnect(end->transport, NULL);
    end->ops->close(NULL);
    end_meet(end); /* the second one's address takes the place of the first one's */
    /* A second endpoint of the same process; the first one does not mind. */
    end->life[end->rank] = 1;
    if (end_open(end, NULL) == HALAY_OK) {
        EXPECT(end, end->transport != first, "two endpoints are one");
        end_step(end);
        end->ops->close(end->transport);
    }
    end->life[end->rank] = 0;
    end->transport = first;
    end_step(end);
}

static void on_message(struct end *end, const halay_event_t *event, int from)
{
    EXPECT(end, event->kind == HALAY_EVENT_MESSAGE, "kind %d", event->kind);
    if (event->kind == HALAY_EVENT_MESSAGE) {
        end->last |= end_check(end, event, from) == LAST;
        end->got++;
    }
}

/* The way is made before there is a peer; what waits for it is not refused. */
static void run_late_open(struct end *end)
{
    bool together;

    end->on_event = on_message;
    if (end->rank == 0) {
        end_open(end, NULL);
    }
    end_meet(end);
    together = end->world->address_bytes[0] > 0; /* no way without an address */
    if (end->rank > 0) {
        sleep_ms(together ? 0 : 30 + (unsigned)end->rank * 20);
        end_open(end, NULL);
    }
    if (together) {
        end_meet(end);
    }
    if (end->rank > 0) {
        end_connect(end, 0);
        end_message_now(end, 0, 1, 100, 0);
        while (end->got < 1 && alive(end, "the greeting of end 0")) {
            end_step(end);
        }
        return;
    }
    end_connect_all(end);
    for (int to = 1; to < end->world->n; to++) {
        end_message_now(end, to, 2, 200, 16);
    }
    while (end->got < (uint32_t)end->world->n - 1 && alive(end, "the late ones")) {
        end_step(end);
    }
}

/* Nobody has the id: FAILED by the deadline, also to who sleeps; once; then HALAY_EPEER. */
static void run_nobody(struct end *end)
{
    struct pollfd waiter = {.fd = -1, .events = POLLIN};
    bool sleeps = end->attr.capabilities & HALAY_CAN_SLEEP && !(end->rank & 1);
    int to = (end->rank + 1) % end->world->n;
    uint64_t began = now_ns(), took;
    int result;

    end->leaving = true;
    end->life[to] = 7;
    end_connect(end, to);
    result = end_message(end, to, 1, 100, 0);
    EXPECT(end, result == HALAY_EAGAIN, "send to nobody is %d", result);
    while (!end->failed[to] && alive(end, "FAILED of nobody")) {
        if (end_step(end) == 0 && sleeps && end->ops->arm(end->transport, &waiter.fd) == HALAY_OK) {
            EXPECT(end, poll(&waiter, 1, 5000) == 1, "it sleeps past the deadline");
        }
    }
    took = (now_ns() - began) / MS;
    EXPECT(end, took >= 200 && took < 3000, "FAILED after %llu ms for 300",
           (unsigned long long)took);
    result = end_message(end, to, 2, 100, 0);
    EXPECT(end, result == HALAY_EPEER, "send after FAILED is %d", result);
    end_linger(end, 50);
    end->ops->disconnect(end->transport, end->ep[to]);
    end->life[to] = 0;
    end->leaving = false;
}

/* End 1 has another secret: nobody reaches it, it reaches nobody, and the others do not care. */
static void run_secret(struct end *end)
{
    uint8_t other[16];
    uint32_t expected = end->rank == 1 ? 0 : (uint32_t)end->world->n - 2;

    memcpy(other, end->world->secret, sizeof(other));
    other[15] ^= 1;
    end->on_event = on_message;
    end_open(end, end->rank == 1 ? other : NULL);
    end_meet(end);
    end->leaving = true;
    end_connect_all(end);
    for (int to = 0; to < end->world->n; to++) {
        if (to == end->rank) {
            continue;
        }
        if (end->rank != 1 && to != 1) {
            end_message_now(end, to, 1, 100, 0);
            continue;
        }
        while (!end->failed[to] && alive(end, "the wrong secret to be found out")) {
            int result = end_message(end, to, 1, 100, 0);

            EXPECT(end, result == HALAY_EAGAIN || result == HALAY_EPEER, "send is %d", result);
            end_step(end);
        }
    }
    while (end->got < expected && alive(end, "those who know the secret")) {
        end_step(end);
    }
    end_meet(end);
    EXPECT(end, end->got == expected, "%u messages for %u", end->got, expected);
    for (int to = 0; to < end->world->n; to++) {
        int wrong = to != end->rank && (end->rank == 1 || to == 1);

        EXPECT(end, end->failed[to] == wrong, "%d FAILED of end %d", end->failed[to], to);
    }
}

/* The last end sends and closes: what it sent comes, then FAILED, once; then HALAY_EPEER. */
static void run_close(struct end *end)
{
    int last = end->world->n - 1, result;
    uint32_t many = rounds(end, 40);

    end->on_event = on_message;
    end_connect_all(end);
    for (int to = 0; to < end->world->n; to++) {
        if (to != end->rank) {
            end_message_now(end, to, 999, 20, 4);
        }
    }
    while (end->got < (uint32_t)last && alive(end, "greetings")) {
        end_step(end);
    }
    end_flush(end);
    end_meet(end);
    if (end->rank == last) {
        for (uint32_t i = 0; i < many * (uint32_t)last; i++) {
            end_message_now(end, (int)(i % (uint32_t)last), i, 100 + i, 8);
        }
        end_flush(end);
        end_close(end);
        end_meet(end);
        end_meet(end);
        return;
    }
    end->leaving = true;
    while ((end->got < (uint32_t)last + many || !end->failed[last]) &&
           alive(end, "the end of one")) {
        end_step(end);
    }
    end_flush(end);
    result = end_message(end, last, 1, 100, 8);
    EXPECT(end, result == HALAY_EPEER, "send to one who closed is %d", result);
    end_linger(end, 30);
    EXPECT(end, end->got == (uint32_t)last + many, "%u messages", end->got);
    end_meet(end);
    for (int r = 0; r < last; r++) {
        EXPECT(end, end->failed[r] == 0, "end %d failed too", r);
    }
    end_meet(end);
}

/* It closes with all it can hold under way. */
static void run_close_busy(struct end *end)
{
    int right = (end->rank + 1) % end->world->n, result = 0;

    end->on_event = on_message;
    end_connect(end, right);
    end_message_now(end, right, 1, 20, 0);
    while (end->got < 1 && alive(end, "the way")) {
        end_step(end);
    }
    end_meet(end);
    end->leaving = true;
    for (int i = 0; i < SLOTS && result >= 0; i++) {
        result = end_message(end, right, 2, end->attr.message_bytes, 8);
    }
    if (end->rank & 1) {
        end_linger(end, end_random(end, 4));
    }
    end_close(end);
}

/* Ways are given up with sends under way, which still end once; a new way works. */
static void run_disconnect(struct end *end)
{
    int right = (end->rank + 1) % end->world->n;
    uint32_t sent = 0;

    end->on_event = on_message;
    for (uint32_t round = 0; round < rounds(end, 50) && alive(end, "ways"); round++) {
        int result;

        end_connect(end, right);
        end_message_now(end, right, round, 100, 16);
        sent++;
        do {
            result = end_message(end, right, round, end->attr.message_bytes, 16);
            sent += result >= 0;
        } while (result >= 0 && sent % 7);
        end->ops->disconnect(end->transport, end->ep[right]);
        end->ep[right] = NULL;
        end_step(end);
    }
    end_connect(end, right);
    end_message_now(end, right, LAST, 300, 16);
    end_flush(end);
    while (!end->last && alive(end, "a message on the last way")) {
        end_step(end);
    }
    end_linger(end, 10);
}

#define SEVERED_BYTES ((size_t)16 << 20) /* more than sockets hold */

struct severed { /* end 0's and end 1's view of the other */
    uint8_t *memory, *copy;
    bool landed;     /* or withdrawn: the copy is of what there was then */
    uint32_t posted; /* at the other end */
};

static void on_severed(struct end *end, const halay_event_t *event, int from)
{
    struct severed *it = end->state;

    if (event->kind == HALAY_EVENT_LANDED) {
        EXPECT(end, !it->landed, "the second LANDED");
        it->landed = true;
        memcpy(it->copy, it->memory, SEVERED_BYTES);
    } else if (from < 2 && end->rank < 2) {
        it->posted++;
    } else {
        end_check(end, event, from);
        end->last = true;
    }
}

/* Either way the buffer is had back, and stays as it is then. */
static void landing_back(struct end *end, struct severed *it)
{
    if (!(end->attr.capabilities & HALAY_CAN_LAND)) {
        return;
    }
    if (!it->landed && end->ops->withdraw(end->transport, 9) == HALAY_OK) {
        it->landed = true;
        memcpy(it->copy, it->memory, SEVERED_BYTES);
    }
    while (!it->landed && alive(end, "LANDED after sever")) {
        end_step(end);
    }
    end_linger(end, 30);
    EXPECT(end, !memcmp(it->copy, it->memory, SEVERED_BYTES), "it lands after its LANDED");
}

/* Ends 0 and 1 send to each other; when end 1 stops polling, end 0 must be rid of it all the
 * same. */
static void sever_pair(struct end *end, struct severed *it)
{
    int other = 1 - end->rank, result = HALAY_OK;
    uint64_t until;

    if (end->attr.capabilities & HALAY_CAN_LAND) {
        do {
            result = end->ops->recv(end->transport, 9, it->memory, SEVERED_BYTES, 9);
        } while (result == HALAY_EAGAIN && end_step(end) >= 0 && alive(end, "to post"));
        EXPECT(end, result == HALAY_OK, "recv is %d", result);
    }
    end_message_now(end, other, 1, 100, 16);
    while (it->posted < 1 && alive(end, "the other's greeting")) {
        end_step(end);
    }
    atomic_fetch_add(&end->world->shared[2], 1);
    while (atomic_load(&end->world->shared[2]) < 2 && alive(end, "both greetings")) {
        end_step(end);
    }
    if (end->attr.capabilities & HALAY_CAN_LAND) {
        while (end_send(end, other, 9, NULL, 0, calloc(1, SEVERED_BYTES), SEVERED_BYTES) ==
                   HALAY_EAGAIN &&
               alive(end, "a long send")) {
            end_step(end);
        }
    }
    for (int i = 0; i < SLOTS && result >= 0; i++) {
        result = end_message(end, other, 2, end->attr.message_bytes, 16);
    }
    end->leaving = true;
    atomic_fetch_add(&end->world->shared[0], 1);
    while (end->rank == 1 && !atomic_load(&end->world->shared[1]) && alive(end, "sever")) {
        sleep_ms(1); /* it polls nothing meanwhile */
    }
    if (end->rank == 0) {
        while (atomic_load(&end->world->shared[0]) < 2 && alive(end, "end 1 to stand still")) {
            sleep_ms(1);
        }
        end_linger(end, 20);
        end->ops->sever(end->transport, end->ep[1]);
        until = now_ns() + 5000 * MS;
        landing_back(end, it);
        end_flush(end);
        while (!end->failed[1] && alive(end, "FAILED of who was severed")) {
            end_step(end);
        }
        EXPECT(end, now_ns() < until, "it took seconds to be rid of end 1");
        result = end_message(end, 1, 3, 100, 0);
        EXPECT(end, result == HALAY_EPEER, "send after sever is %d", result);
        end->ops->sever(end->transport, end->ep[1]); /* again: nothing */
        atomic_store(&end->world->shared[1], 1);
    }
    while (!end->failed[other] && alive(end, "FAILED of who severed")) {
        end_step(end);
    }
    landing_back(end, it);
    end_flush(end);
}

/* One end is rid of another one by force; the others do not notice. */
static void run_sever(struct end *end)
{
    struct severed it = {.memory = calloc(1, SEVERED_BYTES), .copy = malloc(SEVERED_BYTES)};
    int n = end->world->n;

    memset(it.memory, 0x5a, SEVERED_BYTES);
    end->state = &it;
    end->on_event = on_severed;
    end_connect_all(end);
    if (end->rank < 2) {
        sever_pair(end, &it);
    }
    end_meet(end);
    for (int to = 2; to < n; to++) {
        if (to != end->rank) {
            end_message_now(end, to, 7, 300, 16);
        }
    }
    while (end->rank >= 2 && !end->last && alive(end, "messages of the others")) {
        end_step(end);
    }
    end_meet(end);
    end_linger(end, 10);
    for (int r = 0; r < n; r++) {
        EXPECT(end, end->failed[r] == (r < 2 && end->rank == 1 - r), "%d FAILED of end %d",
               end->failed[r], r);
    }
    end_meet(end);
    end->on_event = NULL;
    free(it.memory);
    free(it.copy);
}

/* Many lives of one process; a peer of the last life is another one. */
static void run_reopen(struct end *end)
{
    end->on_event = on_message;
    for (uint32_t life = 0; life < rounds(end, 50) && alive(end, "lives"); life++) {
        end->leaving = false;
        for (int r = 0; r < end->world->n; r++) {
            end->life[r] = life;
            end->failed[r] = 0;
        }
        end->got = 0;
        end_open(end, NULL);
        end_meet(end);
        end_connect_all(end);
        for (int to = 0; to < end->world->n && alive(end, "sends"); to++) {
            if (to != end->rank) {
                end_message_now(end, to, life, 64, 64);
            }
        }
        while (end->got < (uint32_t)end->world->n - 1 && alive(end, "the others' messages")) {
            end_step(end);
        }
        end_flush(end);
        end_meet(end);
        end->leaving = true;
        end_meet(end);
        end_close(end);
        end_meet(end);
    }
}

const struct test_case transport_cases_life[] = {
    {.name = "table", .run = run_table, .may_log = true},
    {.name = "late_open", .run = run_late_open, .opens = true},
    {.name = "nobody", .run = run_nobody, .may_log = true, .deadline_ns = 300 * MS},
    {.name = "secret", .run = run_secret, .opens = true, .may_log = true, .deadline_ns = 800 * MS},
    {.name = "close", .run = run_close, .may_log = true},
    {.name = "close_busy", .run = run_close_busy, .may_log = true},
    {.name = "disconnect", .run = run_disconnect, .may_log = true},
    {.name = "sever", .run = run_sever, .may_log = true},
    {.name = "reopen", .run = run_reopen, .opens = true, .may_log = true},
    {0},
};
