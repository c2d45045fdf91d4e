/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_memory.c - cases of the contract test: bytes that the transport writes into memory, by
 * landing and by put. Memory that is not the target must stay as it is; so must a target that was
 * withdrawn.
 */
#include <stdlib.h>
#include <string.h>

#include "transport_end.h"

#define GUARD   64
#define FILL    0xa5
#define WINDOW  6
#define ASK     0x61736b21u
#define KEY_MAX 48

static bool is_filled(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != FILL) {
            return false;
        }
    }
    return true;
}

static uint8_t *filled(size_t size)
{
    uint8_t *bytes = malloc(size + !size);

    memset(bytes, FILL, size);
    return bytes;
}

static uint8_t *contents(uint32_t seed, size_t size)
{
    uint8_t *bytes = malloc(size + !size);

    for (size_t i = 0; i < size; i++) {
        bytes[i] = content(seed, i);
    }
    return bytes;
}

/* ------------------------------------------------------------------ landing */

/* "Send me content `seed` of `size` bytes under this tag." */
struct ask {
    uint32_t magic, seed;
    uint64_t tag, size;
};

struct landing_end {
    struct ask todo[ENDS_MAX * WINDOW];
    int todo_for[ENDS_MAX * WINDOW];
    int ntodo;
    struct {
        bool posted;
        uint8_t *memory; /* GUARD, room, GUARD */
        size_t room, size;
        uint32_t seed;
    } buffer[WINDOW];
    uint32_t landed, failed, asked;
};

static void on_landing(struct end *end, const halay_event_t *event, int from)
{
    struct landing_end *it = end->state;
    size_t b = event->cookie;

    if (event->kind == HALAY_EVENT_MESSAGE) {
        EXPECT(end, event->bytes == sizeof(struct ask) && it->ntodo < ENDS_MAX * WINDOW,
               "%zu bytes from %d", event->bytes, from);
        if (event->bytes == sizeof(struct ask) && it->ntodo < ENDS_MAX * WINDOW) {
            it->todo_for[it->ntodo] = from;
            memcpy(&it->todo[it->ntodo++], event->data, sizeof(struct ask));
        }
        return;
    }
    EXPECT(end, event->kind == HALAY_EVENT_LANDED && b < WINDOW && it->buffer[b].posted,
           "kind %d, cookie %zu: not posted", event->kind, b);
    if (event->kind != HALAY_EVENT_LANDED || b >= WINDOW || !it->buffer[b].posted) {
        return;
    }
    it->buffer[b].posted = false;
    it->landed++;
    it->failed += event->status != 0;
    if (event->status == 0) {
        const uint8_t *at = it->buffer[b].memory + GUARD;
        size_t size = it->buffer[b].size, room = it->buffer[b].room;

        EXPECT(end, event->bytes == size, "%zu bytes landed for %zu", event->bytes, size);
        EXPECT(end, is_content(at, size, it->buffer[b].seed), "%zu bytes differ", size);
        EXPECT(end,
               is_filled(it->buffer[b].memory, GUARD) && is_filled(at + size, room - size + GUARD),
               "bytes beside %zu of %zu changed", size, room);
    }
    free(it->buffer[b].memory);
    it->buffer[b].memory = NULL;
}

/* Posts buffer b and asks `from` to send to it. False: full, nothing is posted. */
static bool post(struct end *end, int b, int from, uint32_t i, size_t size, size_t slack)
{
    struct landing_end *it = end->state;
    struct ask ask = {ASK, end_random(end, UINT32_MAX), (uint64_t)(end->rank + 1) << 32 | (i + 1),
                      size};
    int result;

    if (it->asked - atomic_load(&end->world->shared[ENDS_MAX + end->rank]) >= WINDOW) {
        return false; /* those who were asked are slow */
    }
    it->buffer[b].memory = filled(GUARD + size + slack + GUARD);
    result = end->ops->recv(end->transport, ask.tag, it->buffer[b].memory + GUARD, size + slack,
                            (uint64_t)b);
    EXPECT(end, result == HALAY_OK || result == HALAY_EAGAIN, "recv is %d", result);
    if (result != HALAY_OK) {
        free(it->buffer[b].memory);
        it->buffer[b].memory = NULL;
        return false;
    }
    it->asked++;
    it->buffer[b].posted = true;
    it->buffer[b].room = size + slack;
    it->buffer[b].size = size;
    it->buffer[b].seed = ask.seed;
    do {
        uint8_t *payload = malloc(sizeof(ask));

        memcpy(payload, &ask, sizeof(ask));
        result = end_send(end, from, 0, NULL, 0, payload, sizeof(ask));
        if (result == HALAY_EAGAIN) {
            end_step(end);
        }
    } while (result == HALAY_EAGAIN && alive(end, "to ask"));
    return true;
}

/* Tries once to send what was asked for. */
static void serve(struct end *end)
{
    struct landing_end *it = end->state;

    for (int t = 0; t < it->ntodo; t++) {
        const struct ask *ask = &it->todo[t];
        int result;

        EXPECT(end, ask->magic == ASK && ask->size < 1 << 24, "no ask: %#x", ask->magic);
        if (ask->magic != ASK || ask->size >= 1 << 24) {
            return;
        }
        result = end_send(end, it->todo_for[t], ask->tag, NULL, 0, contents(ask->seed, ask->size),
                          ask->size);
        if (result >= 0) {
            atomic_fetch_add(&end->world->shared[ENDS_MAX + it->todo_for[t]], 1);
            it->ntodo--;
            it->todo[t] = it->todo[it->ntodo];
            it->todo_for[t] = it->todo_for[it->ntodo];
            t--;
        }
    }
    end_step(end);
}

/* All are ready when all say so; until then each serves the others. */
static void serve_all(struct end *end, const char *what)
{
    struct landing_end *it = end->state;

    atomic_fetch_add(&end->world->shared[0], 1);
    while ((atomic_load(&end->world->shared[0]) < (unsigned)end->world->n || it->ntodo > 0) &&
           alive(end, what)) {
        serve(end);
    }
    end_flush(end);
    end_meet(end);
}

static void drop_buffers(struct end *end)
{
    struct landing_end *it = end->state;

    end->on_event = NULL;
    for (int b = 0; b < WINDOW; b++) {
        free(it->buffer[b].memory);
    }
    free(it);
}

static size_t some_size(struct end *end)
{
    switch (end_random(end, 4)) {
    case 0:
        return end_random(end, 17);
    case 1:
        return end_random(end, 4097);
    case 2:
        return end->attr.message_bytes - 2 + end_random(end, 5);
    default:
        return end_random(end, 200000);
    }
}

static void run_land(struct end *end)
{
    struct landing_end *it = calloc(1, sizeof(*it));
    uint32_t many = rounds(end, 200), posted = 0;

    end->state = it;
    end->on_event = on_landing;
    end_connect_all(end);
    while (it->landed < many && alive(end, "landings")) {
        int b = (int)end_random(end, WINDOW), n = end->world->n;
        int from = (end->rank + 1 + (int)end_random(end, (uint32_t)n - 1)) % n;

        if (posted < many && !it->buffer[b].posted) {
            posted += post(end, b, from, posted, some_size(end), end_random(end, 3) * 100);
        }
        serve(end);
    }
    serve_all(end, "the others' landings");
    end_linger(end, 10);
    EXPECT(end, it->landed == many && it->failed == 0, "%u landed, %u failed", it->landed,
           it->failed);
    drop_buffers(end);
}

/* Withdrawn at any time: either no byte changes from then on, or LANDED comes. */
static void run_withdraw(struct end *end)
{
    struct landing_end *it = calloc(1, sizeof(*it));
    uint32_t many = rounds(end, 200), withdrawn = 0, landed = 0;

    end->state = it;
    end->on_event = on_landing;
    end_connect_all(end);
    for (uint32_t i = 0; i < many && alive(end, "withdrawals"); i++) {
        int from = (end->rank + 1) % end->world->n, result;
        size_t size = some_size(end), all = size + 2 * GUARD;
        uint8_t *copy;

        if (!post(end, 0, from, i, size, 0)) {
            serve(end);
            i--;
            continue;
        }
        for (uint32_t wait = end_random(end, 3) * end_random(end, 30);
             wait > 0 && it->buffer[0].posted; wait--) {
            serve(end);
        }
        if (!it->buffer[0].posted) {
            landed++;
            continue;
        }
        result = end->ops->withdraw(end->transport, (uint64_t)(end->rank + 1) << 32 | (i + 1));
        EXPECT(end, result == HALAY_OK || result == HALAY_INPROGRESS, "withdraw is %d", result);
        if (result == HALAY_INPROGRESS) {
            while (it->buffer[0].posted && alive(end, "what is landing")) {
                serve(end);
            }
            landed++;
            continue;
        }
        withdrawn++;
        it->buffer[0].posted = false;
        copy = malloc(all);
        memcpy(copy, it->buffer[0].memory, all);
        for (int wait = 0; wait < 40; wait++) {
            serve(end);
        }
        EXPECT(end, !memcmp(copy, it->buffer[0].memory, all), "written after it was withdrawn");
        free(copy);
        free(it->buffer[0].memory);
        it->buffer[0].memory = NULL;
    }
    serve_all(end, "the others' withdrawals");
    end_linger(end, 10);
    EXPECT(end, it->landed == landed && it->failed == 0, "%u landed for %u, %u failed", it->landed,
           landed, it->failed);
    EXPECT(end, withdrawn > 0 || many < 100, "nothing was ever withdrawn");
    drop_buffers(end);
}

/* ------------------------------------------------------------------ puts */

static const size_t put_size[] = {0,  1,   2,    3,    7,     8,     9,     64,
                                  65, 100, 4096, 8191, 16385, 65536, 200000};

#define PUTS (sizeof(put_size) / sizeof(put_size[0]))
#define GAP  3

struct put_end {
    uint8_t *memory;
    size_t bytes;
    halay_mem_t *mem;
    uint8_t key[ENDS_MAX][KEY_MAX];
    size_t key_bytes[ENDS_MAX];
    uint32_t nkeys, immediates;
    bool seen[ENDS_MAX][PUTS];
    bool loose; /* the immediates are not checked */
};

/* Where put number k of end `from` goes: the same for all. */
static size_t put_offset(int from, size_t k)
{
    size_t before = 0, all = 0;

    for (size_t i = 0; i < PUTS; i++) {
        before += i < k ? put_size[i] + GAP : 0;
        all += put_size[i] + GAP;
    }
    return (size_t)from * all + before;
}

static uint32_t put_seed(int from, int to, size_t k)
{
    return (uint32_t)(from * 10007 + to * 101 + (int)k + 1);
}

static void on_put(struct end *end, const halay_event_t *event, int from)
{
    struct put_end *it = end->state;
    size_t k = event->immediate;

    if (event->kind == HALAY_EVENT_MESSAGE) {
        EXPECT(end, event->bytes > 0 && event->bytes <= KEY_MAX && !it->key_bytes[from],
               "a key of %zu bytes from %d", event->bytes, from);
        if (event->bytes <= KEY_MAX) {
            memcpy(it->key[from], event->data, event->bytes);
            it->key_bytes[from] = event->bytes;
            it->nkeys++;
        }
        return;
    }
    EXPECT(end, event->kind == HALAY_EVENT_IMMEDIATE, "kind %d", event->kind);
    it->immediates++;
    if (it->loose || event->kind != HALAY_EVENT_IMMEDIATE) {
        return;
    }
    EXPECT(end, k < PUTS && !it->seen[from][k], "immediate %zu from %d", k, from);
    if (k < PUTS) {
        it->seen[from][k] = true;
        EXPECT(
            end,
            is_content(it->memory + put_offset(from, k), put_size[k], put_seed(from, end->rank, k)),
            "%zu bytes from %d are not what was put when its immediate came", put_size[k], from);
    }
}

static void give_key(struct end *end, int to, const halay_mem_t *mem)
{
    uint8_t key[KEY_MAX];
    size_t bytes = sizeof(key);
    int result = end->ops->key(end->transport, mem, key, &bytes);

    EXPECT(end, result == HALAY_OK && bytes > 0 && bytes <= sizeof(key), "key is %d", result);
    do {
        uint8_t *payload = malloc(sizeof(key));

        memcpy(payload, key, sizeof(key));
        result = end_send(end, to, 0, NULL, 0, payload, bytes);
        if (result == HALAY_EAGAIN) {
            end_step(end);
        }
    } while (result == HALAY_EAGAIN && alive(end, "to give a key"));
}

/* One put, tried until it goes; false: refused. */
static bool put_now(struct end *end, int to, uint32_t seed, size_t bytes, uint64_t offset,
                    uint32_t immediate)
{
    struct put_end *it = end->state;
    int result;

    do {
        result = end_put(end, to, contents(seed, bytes), bytes, it->key[to], it->key_bytes[to],
                         offset, immediate);
        if (result == HALAY_EAGAIN) {
            end_step(end);
        }
    } while (result == HALAY_EAGAIN && alive(end, "a put"));
    return result == HALAY_INPROGRESS;
}

static struct put_end *start_puts(struct end *end, size_t bytes)
{
    struct put_end *it = calloc(1, sizeof(*it));

    end->state = it;
    end->on_event = on_put;
    it->bytes = bytes;
    it->memory = filled(bytes);
    return it;
}

static void drop_puts(struct end *end)
{
    struct put_end *it = end->state;

    end->on_event = NULL;
    free(it->memory);
    free(it);
}

static int target_show(struct end *end, struct put_end *it, size_t offset, size_t bytes)
{
    const halay_mem_params_t params = {
        .size = sizeof(params), .address = it->memory + offset, .bytes = bytes, .dmabuf = -1};
    return end->ops->register_mem(end->transport, &params, &it->mem);
}

/* All put to all; each byte is there when the immediate comes, and no other byte changes. */
static void run_put(struct end *end)
{
    int n = end->world->n;
    uint32_t all = (uint32_t)((size_t)(n - 1) * PUTS);
    struct put_end *it = start_puts(end, put_offset(n, 0));
    int result = target_show(end, it, 0, it->bytes);

    EXPECT(end, result == HALAY_OK, "register_mem is %d", result);
    end_connect_all(end);
    for (int to = 0; to < n && result == HALAY_OK; to++) {
        if (to != end->rank) {
            give_key(end, to, it->mem);
        }
    }
    while (it->nkeys < (uint32_t)n - 1 && alive(end, "keys")) {
        end_step(end);
    }
    for (size_t i = 0; i < PUTS * (size_t)n && alive(end, "puts"); i++) {
        size_t k = (i / (size_t)n + (size_t)end->rank) % PUTS;
        int to = (int)(i % (size_t)n);

        if (to != end->rank) {
            bool sent = put_now(end, to, put_seed(end->rank, to, k), put_size[k],
                                put_offset(end->rank, k), (uint32_t)k);

            EXPECT(end, sent, "a put of %zu bytes is refused", put_size[k]);
        }
    }
    end_flush(end);
    while (it->immediates < all && alive(end, "immediates")) {
        end_step(end);
    }
    end_meet(end);
    end_linger(end, 10);
    EXPECT(end, it->immediates == all, "%u immediates for %u", it->immediates, all);
    EXPECT(end, end->refused == 0 && end->completed >= all, "%llu puts failed",
           (unsigned long long)end->refused);
    for (int from = 0; from < n; from++) {
        for (size_t k = 0; k < PUTS; k++) {
            const uint8_t *at = it->memory + put_offset(from, k);
            size_t size = put_size[k];

            EXPECT(end,
                   from == end->rank ? is_filled(at, size)
                                     : is_content(at, size, put_seed(from, end->rank, k)),
                   "%zu bytes of %d changed later", size, from);
            EXPECT(end, is_filled(at + size, GAP), "bytes after %zu of %d changed", size, from);
        }
    }
    end_meet(end);
    end->ops->deregister_mem(end->transport, it->mem);
    drop_puts(end);
}

/* Beyond the registered bytes, or with a key that is none: the sender is told, no byte changes. */
static void run_put_bounds(struct end *end)
{
    const size_t bytes = 1000;
    const struct {
        uint64_t offset;
        size_t bytes;
    } bad[] = {{bytes - 4, 8}, {bytes, 1}, {0, bytes + 1}, {UINT64_MAX - 3, 8}, {1u << 31, 1}};
    int right = (end->rank + 1) % end->world->n;
    int left = (end->rank + end->world->n - 1) % end->world->n, result;
    struct put_end *it = start_puts(end, bytes + 2 * GUARD);
    uint64_t refused = 0;

    it->loose = true;
    result = target_show(end, it, GUARD, bytes);
    EXPECT(end, result == HALAY_OK, "register_mem is %d", result);
    end_connect_all(end);
    give_key(end, left, it->mem);
    while (it->nkeys < 1 && alive(end, "a key")) {
        end_step(end);
    }
    end_flush(end);
    end->leaving = true; /* hardware may give up the connection, before all have met here, too */
    end_meet(end);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        refused += !put_now(end, right, 1, bad[i].bytes, bad[i].offset, 1);
    }
    memset(it->key[right], 0x5c, it->key_bytes[right]);
    refused += !put_now(end, right, 1, 8, 0, 1);
    end_flush(end);
    refused += end->refused;
    EXPECT(end, refused == 1 + sizeof(bad) / sizeof(bad[0]), "%llu were refused",
           (unsigned long long)refused);
    end_meet(end);
    end_linger(end, 10);
    EXPECT(end, it->immediates == 0, "%u immediates of bad puts", it->immediates);
    EXPECT(end, is_filled(it->memory, it->bytes), "bytes changed");
    end_meet(end);
    end->ops->deregister_mem(end->transport, it->mem);
    drop_puts(end);
}

/* End 0 deregisters in the middle of everything. */
static void deregister_target(struct end *end, struct put_end *it, uint32_t round)
{
    uint32_t after = end_random(end, 30);
    uint8_t *copy = malloc(it->bytes);

    for (int to = 1; to < end->world->n; to++) {
        give_key(end, to, it->mem);
    }
    while (it->immediates < after && alive(end, "puts")) {
        end_step(end);
    }
    for (uint32_t step = end_random(end, 20); step-- > 0;) {
        end_step(end);
    }
    end->ops->deregister_mem(end->transport, it->mem);
    memcpy(copy, it->memory, it->bytes);
    atomic_store(&end->world->shared[0], round + 1);
    end_linger(end, 5);
    EXPECT(end, !memcmp(copy, it->memory, it->bytes), "written after deregister_mem");
    end_meet(end); /* all have stopped */
    EXPECT(end, !memcmp(copy, it->memory, it->bytes), "written after deregister_mem");
    free(copy);
}

/* The others put until one fails, which must be soon after it was deregistered. */
static void deregister_source(struct end *end, struct put_end *it, uint32_t round)
{
    const size_t bytes = 5000;
    uint64_t completed = end->completed, refused = end->refused;
    bool sent = true;

    while (it->nkeys < 1 && alive(end, "the key")) {
        end_step(end);
    }
    end_flush(end);
    completed = end->completed;
    while (atomic_load(&end->world->shared[0]) <= round && alive(end, "to deregister")) {
        sent = put_now(end, 0, 1, bytes, bytes * (uint64_t)end->rank, 1);
        end_step(end);
    }
    end_flush(end);
    atomic_fetch_add(&end->world->shared[end->rank], (unsigned)(end->completed - completed));
    refused = end->refused;
    sent = put_now(end, 0, 1, bytes, bytes * (uint64_t)end->rank, 1);
    end_flush(end);
    EXPECT(end, !sent || end->refused == refused + 1, "a put succeeds after deregister_mem");
    it->nkeys = 0;
    memset(it->key_bytes, 0, sizeof(it->key_bytes));
    end_meet(end);
}

/* Where a late put ends the connection, the next round is of another life. */
static void live_anew(struct end *end)
{
    end->leaving = true;
    end_meet(end);
    end_close(end);
    end_meet(end);
    for (int r = 0; r < end->world->n; r++) {
        end->life[r]++;
        end->failed[r] = 0;
    }
    end_open(end, NULL);
    end_meet(end);
    end_connect_all(end);
}

static void run_deregister(struct end *end)
{
    struct put_end *it = start_puts(end, 5000 * (size_t)end->world->n);
    bool breaks = end->world->body->flags & TRANSPORT_BODY_BREAKS;
    uint32_t done;

    it->loose = true;
    end_connect_all(end);
    for (uint32_t round = 0; round < rounds(end, 30) && alive(end, "rounds"); round++) {
        done = 0;
        if (breaks) {
            live_anew(end);
        }
        end_meet(end);
        if (end->rank > 0) {
            deregister_source(end, it, round);
            end_meet(end);
            continue;
        }
        it->immediates = 0;
        for (int r = 1; r < end->world->n; r++) {
            atomic_store(&end->world->shared[r], 0);
        }
        EXPECT(end, target_show(end, it, 0, it->bytes) == HALAY_OK, "register_mem");
        deregister_target(end, it, round);
        for (int r = 1; r < end->world->n; r++) {
            done += atomic_load(&end->world->shared[r]);
        }
        while (it->immediates < done && alive(end, "the immediates of puts that succeeded")) {
            end_step(end);
        }
        end_linger(end, 2);
        /* One that the sender was told to have failed may have arrived. */
        EXPECT(end, breaks ? it->immediates >= done : it->immediates == done,
               "%u immediates of %u puts", it->immediates, done);
        end_meet(end);
    }
    end_meet(end);
    drop_puts(end);
}

const struct test_case transport_cases_memory[] = {
    {.name = "land", .run = run_land, .needs = HALAY_CAN_LAND},
    {.name = "withdraw", .run = run_withdraw, .needs = HALAY_CAN_LAND, .may_log = true},
    {.name = "put", .run = run_put, .needs = HALAY_CAN_PUT},
    {.name = "put_bounds", .run = run_put_bounds, .needs = HALAY_CAN_PUT, .may_log = true},
    {.name = "deregister", .run = run_deregister, .needs = HALAY_CAN_PUT, .may_log = true},
    {0},
};
