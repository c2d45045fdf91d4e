/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_body.c - runs the cases, and what they have in common (transport_end.h).
 */
#include <assert.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "transport_end.h"

#define MESSAGE_MAGIC 0x68616c79u
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sleep_ms(unsigned ms)
{
    const struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&time, NULL);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint32_t end_random(struct end *end, uint32_t below)
{
    return (uint32_t)(mix(end->rng++) % below);
}

void end_fail(struct world *world, int rank, int line, const char *condition, const char *format,
              ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (atomic_fetch_add(&world->failures, 1) < 8) {
        printf("  %s: end %d, line %d: %s: %s\n", world->test->name, rank, line, condition, text);
        fflush(stdout);
    }
}

bool alive(struct end *end, const char *what)
{
    if (atomic_load(&end->world->failures)) {
        return false;
    }
    EXPECT(end, now_ns() < end->world->guard_ns, "out of time: %s", what);
    return atomic_load(&end->world->failures) == 0;
}

uint32_t rounds(const struct end *end, uint32_t many)
{
    const uint32_t share = end->world->body->flags & TRANSPORT_BODY_SLOW ? 10 : SANITIZED ? 4 : 1;

    return (many + share - 1) / share;
}

halay_peer_id_t end_id(const struct world *world, int rank, uint32_t life)
{
    uint64_t job;

    memcpy(&job, world->job, sizeof(job));
    return (halay_peer_id_t){mix(job + world->serial * 1000 + life), mix(job) + (uint64_t)rank};
}

static void on_log(void *arg, int level, const char *text)
{
    struct end *end = arg;

    EXPECT(end, text && text[0], "an empty message was logged");
    EXPECT(end, level >= 0 && level <= 3, "level %d", level);
    EXPECT(end, level > 0 || end->world->test->may_log, "error logged: %s", text);
}

int end_open(struct end *end, const uint8_t *secret)
{
    const struct transport_body *body = end->world->body;
    bool slow = body->flags & TRANSPORT_BODY_SLOW;
    halay_transport_params_t params = {.size = sizeof(params)};
    uint8_t address[256];
    size_t bytes = sizeof(address);
    int result;

    params.self = end_id(end->world, end->rank, end->life[end->rank]);
    memcpy(params.job, end->world->job, sizeof(params.job));
    memcpy(params.secret, secret ? secret : end->world->secret, sizeof(params.secret));
    params.deadline_ns = end->world->test->deadline_ns;
    params.deadline_ns += params.deadline_ns ? 0 : (slow ? 30000 : 15000) * MS;
    params.options = body->options;
    params.log = on_log;
    params.log_arg = end;
    params.arg = body->arg_of ? body->arg_of(body->user, end->rank) : NULL;
    result = end->ops->open(&params, &end->transport);
    EXPECT(end, result == HALAY_OK, "open is %d", result);
    if (result) {
        end->transport = NULL;
        return result;
    }
    end->attr = (halay_transport_attr_t){.size = sizeof(end->attr)};
    result = end->ops->query(end->transport, &end->attr);
    EXPECT(end, result == HALAY_OK, "query is %d", result);
    result = end->ops->address(end->transport, address, &bytes);
    EXPECT(end, result == HALAY_OK && bytes <= sizeof(address), "address is %d, %zu bytes", result,
           bytes);
    if (bytes > 0 && bytes <= sizeof(address)) { /* else nobody needs to wait for it */
        memcpy(end->world->address[end->rank], address, bytes);
        end->world->address_bytes[end->rank] = bytes;
    }
    return result;
}

/* What is under way when an end is closed is over; only now may its memory go. */
void end_close(struct end *end)
{
    end->ops->close(end->transport);
    end->transport = NULL;
    for (int i = 0; i < SLOTS; i++) {
        free(end->slot[i].payload);
        end->slot[i] = (struct slot){.generation = end->slot[i].generation + 1};
    }
    memset(end->ep, 0, sizeof(end->ep));
}

void end_connect(struct end *end, int to)
{
    struct world *world = end->world;
    int result = end->ops->connect(end->transport, end_id(world, to, end->life[to]),
                                   world->address[to], world->address_bytes[to], &end->ep[to]);

    EXPECT(end, result == HALAY_OK, "connect to end %d is %d", to, result);
}

void end_connect_all(struct end *end)
{
    for (int to = 0; to < end->world->n; to++) {
        if (to != end->rank) {
            end_connect(end, to);
        }
    }
}

static void on_complete(struct end *end, const halay_event_t *event)
{
    struct slot *slot = &end->slot[(uint32_t)event->cookie % SLOTS];

    EXPECT(end,
           slot->busy && slot->put == (event->kind == HALAY_EVENT_PUT) &&
               slot->generation == event->cookie >> 32 && (uint32_t)event->cookie < SLOTS,
           "kind %d with cookie %#llx, which is not under way", event->kind,
           (unsigned long long)event->cookie);
    EXPECT(end, event->status <= 0, "status %d", event->status);
    if (slot->busy) {
        memset(slot->payload, 0xdd, slot->bytes);
        free(slot->payload);
        end->completed += event->status == 0;
        end->refused += event->status != 0;
        *slot = (struct slot){.generation = slot->generation + 1};
    }
}

static int who(const struct end *end, const halay_event_t *event)
{
    for (int r = 0; r < end->world->n; r++) {
        halay_peer_id_t id = end_id(end->world, r, end->life[r]);

        if (id.hi == event->peer.hi && id.lo == event->peer.lo) {
            return r;
        }
    }
    return -1;
}

static void on_event(struct end *end, const halay_event_t *event)
{
    int from;

    switch (event->kind) {
    case HALAY_EVENT_SENT:
    case HALAY_EVENT_PUT:
        on_complete(end, event);
        return;
    case HALAY_EVENT_FAILED:
        from = who(end, event);
        EXPECT(end, event->status < 0 && event->text && event->text[0], "status %d, text %s",
               event->status, event->text ? event->text : "NULL");
        EXPECT(end, end->leaving || atomic_load(&end->world->failures), "end %d failed: %s", from,
               event->text);
        if (from >= 0) {
            EXPECT(end, ++end->failed[from] == 1, "the second FAILED of end %d", from);
        }
        return;
    case HALAY_EVENT_LANDED:
        EXPECT(end, end->on_event, "LANDED, and nothing was posted");
        from = -1; /* peer is not promised */
        break;
    default:
        EXPECT(end, event->kind == HALAY_EVENT_MESSAGE || event->kind == HALAY_EVENT_IMMEDIATE,
               "kind %d", event->kind);
        from = who(end, event);
        EXPECT(end, from >= 0, "kind %d from nobody known", event->kind);
        EXPECT(end, end->on_event, "an event of kind %d from %d", event->kind, from);
    }
    if (end->on_event && (from >= 0 || event->kind == HALAY_EVENT_LANDED)) {
        end->on_event(end, event, from);
    }
}

int end_poll(struct end *end)
{
    halay_event_t events[POLL_MAX];
    int max = 1 + (int)end_random(end, POLL_MAX);
    int n = end->ops->poll(end->transport, events, max);

    EXPECT(end, n >= 0 && n <= max, "poll for %d is %d", max, n);
    for (int i = 0; i < n && i < max; i++) {
        on_event(end, &events[i]);
    }
    return n;
}

int end_step(struct end *end)
{
    int n = end_poll(end);

    if (n == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
    }
    return n;
}

void end_linger(struct end *end, unsigned ms)
{
    uint64_t until = now_ns() + ms * MS;

    while (now_ns() < until) {
        end_step(end);
    }
}

static void meet(struct end *end, bool polls)
{
    unsigned all = ++end->meetings * (unsigned)end->world->n;

    atomic_fetch_add(&end->world->meetings, 1);
    while (atomic_load(&end->world->meetings) < all && alive(end, "to meet the others")) {
        if (polls) {
            end_step(end);
        } else {
            sleep_ms(1);
        }
    }
}

void end_meet(struct end *end)
{
    meet(end, end->transport != NULL);
}

void end_flush(struct end *end)
{
    int busy;

    do {
        end_step(end);
        busy = 0;
        for (int i = 0; i < SLOTS; i++) {
            busy += end->slot[i].busy;
        }
    } while (busy && alive(end, "completions"));
}

uint8_t content(uint32_t seed, size_t i)
{
    uint32_t x = seed * 2654435761u + (uint32_t)i * 40503u;

    return (uint8_t)(x >> 8 ^ x >> 19);
}

bool is_content(const uint8_t *bytes, size_t size, uint32_t seed)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != content(seed, i)) {
            return false;
        }
    }
    return true;
}

/* -1: all are busy. */
static int free_slot(struct end *end)
{
    for (int i = 0; i < SLOTS; i++) {
        if (!end->slot[i].busy) {
            return i;
        }
    }
    return -1;
}

static void take(struct end *end, int s, bool put, uint8_t *payload, size_t bytes, int result)
{
    struct slot *slot = &end->slot[s];

    EXPECT(end,
           result == HALAY_OK || result == HALAY_INPROGRESS || result == HALAY_EAGAIN ||
               result == HALAY_EPEER || end->world->test->may_log,
           "a post is %d", result);
    if (result == HALAY_INPROGRESS) {
        *slot = (struct slot){true, put, slot->generation, payload, bytes};
        return;
    }
    if (bytes) {
        memset(payload, 0xdd, bytes);
    }
    free(payload);
}

int end_send(struct end *end, int to, uint64_t tag, const void *header, size_t header_bytes,
             uint8_t *payload, size_t payload_bytes)
{
    int s = free_slot(end), result = HALAY_EAGAIN;

    if (s < 0) {
        free(payload);
        return result;
    }
    result = end->ops->send(end->transport, end->ep[to], tag, header, header_bytes, payload,
                            payload_bytes, (uint64_t)end->slot[s].generation << 32 | (uint32_t)s);
    take(end, s, false, payload, payload_bytes, result);
    return result;
}

int end_put(struct end *end, int to, uint8_t *payload, size_t bytes, const void *key,
            size_t key_bytes, uint64_t offset, uint32_t immediate)
{
    int s = free_slot(end), result = HALAY_EAGAIN;

    if (s < 0) {
        free(payload);
        return result;
    }
    result = end->ops->put(end->transport, end->ep[to], payload, bytes, key, key_bytes, offset,
                           immediate, (uint64_t)end->slot[s].generation << 32 | (uint32_t)s);
    take(end, s, true, payload, bytes, result);
    return result;
}

static uint32_t seed_of(int from, int to, uint32_t number, size_t size)
{
    return (uint32_t)mix((uint64_t)from << 56 ^ (uint64_t)to << 48 ^ (uint64_t)number << 24 ^ size);
}

int end_message(struct end *end, int to, uint32_t number, size_t size, size_t header_bytes)
{
    const uint32_t head[4] = {MESSAGE_MAGIC ^ (uint32_t)to, (uint32_t)end->rank, number,
                              (uint32_t)size};
    uint32_t seed = seed_of(end->rank, to, size < sizeof(head) ? NO_NUMBER : number, size);
    uint8_t *all = malloc(size + 1);
    uint8_t *header = malloc(header_bytes + !header_bytes);
    uint8_t *payload = malloc(size - header_bytes + (size == header_bytes));
    int result;

    assert(all && header && payload && header_bytes <= size);
    for (size_t i = 0; i < size; i++) {
        all[i] = content(seed, i);
    }
    if (size >= sizeof(head)) {
        memcpy(all, head, sizeof(head));
    }
    memcpy(header, all, header_bytes);
    memcpy(payload, all + header_bytes, size - header_bytes);
    free(all);
    result = end_send(end, to, 0, header_bytes ? header : NULL, header_bytes, payload,
                      size - header_bytes);
    memset(header, 0xee, header_bytes);
    free(header);
    return result;
}

void end_message_now(struct end *end, int to, uint32_t number, size_t size, size_t header_bytes)
{
    int result;

    while ((result = end_message(end, to, number, size, header_bytes)) == HALAY_EAGAIN &&
           alive(end, "a send")) {
        end_step(end);
    }
    EXPECT(end, result >= 0 || result == HALAY_EAGAIN, "send to end %d is %d", to, result);
}

uint32_t end_check(struct end *end, const halay_event_t *event, int from)
{
    const uint8_t *bytes = event->data;
    uint32_t head[4] = {0, 0, NO_NUMBER, 0};
    size_t at = event->bytes < sizeof(head) ? 0 : sizeof(head), i;
    uint32_t seed;

    EXPECT(end, (uintptr_t)event->data % 8 == 0, "data at %p", event->data);
    if (at) {
        memcpy(head, bytes, sizeof(head));
        EXPECT(end,
               head[0] == (MESSAGE_MAGIC ^ (uint32_t)end->rank) && head[1] == (uint32_t)from &&
                   head[3] == event->bytes,
               "%zu bytes from %d say: %#x, from %u, %u bytes", event->bytes, from, head[0],
               head[1], head[3]);
    }
    seed = seed_of(from, end->rank, head[2], event->bytes);
    for (i = at; i < event->bytes && bytes[i] == content(seed, i); i++) {
    }
    EXPECT(end, i >= event->bytes, "message %u of %zu bytes from %d differs at %zu", head[2],
           event->bytes, from, i);
    return head[2];
}

static void *end_thread(void *arg)
{
    struct end *end = arg;
    const struct test_case *test = end->world->test;

    if (!test->opens) {
        end_open(end, NULL);
    }
    meet(end, false); /* who has met the others may send: what a poll finds then is the case's */
    if (alive(end, "to open")) {
        test->run(end);
    }
    if (end->transport && alive(end, "to end")) {
        end_flush(end);
    }
    end_meet(end);
    end->leaving = true; /* once all know that all is done, any may close */
    end_meet(end);
    if (end->transport) {
        end_close(end);
    }
    return NULL;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    while (folder && readdir(folder)) {
        n++;
    }
    if (folder) {
        closedir(folder);
    }
    return n;
}

static int run_case(struct world *world, const struct test_case *test)
{
    pthread_t thread[ENDS_MAX];
    int before = count_descriptors(), after;

    world->test = test;
    world->serial++;
    world->guard_ns = now_ns() + 120000 * MS;
    atomic_store(&world->failures, 0);
    atomic_store(&world->meetings, 0);
    memset(world->ends, 0, (size_t)world->n * sizeof(*world->ends));
    for (int r = 0; r < world->n; r++) {
        atomic_store(&world->shared[r], 0);
        atomic_store(&world->shared[ENDS_MAX + r], 0);
        world->address_bytes[r] = 0;
        world->ends[r].world = world;
        world->ends[r].ops = world->body->ops;
        world->ends[r].rank = r;
        world->ends[r].rng = world->serial * 1000 + (uint64_t)r * 0x9e3779b97f4a7c15u;
    }
    for (int r = 0; r < world->n; r++) {
        int result = pthread_create(&thread[r], NULL, end_thread, &world->ends[r]);

        if (result) {
            printf("no thread: %s\n", strerror(result));
            abort();
        }
    }
    for (int r = 0; r < world->n; r++) {
        pthread_join(thread[r], NULL);
    }
    after = count_descriptors();
    if (after != before) {
        end_fail(world, -1, __LINE__, "descriptors", "%d before, %d after", before, after);
    }
    return atomic_load(&world->failures);
}

/* What it offers, by an endpoint that is opened and closed at once. */
static int offers(struct world *world, uint32_t *capabilities)
{
    static const struct test_case probe = {.name = "probe"};
    struct end *end = &world->ends[0];

    memset(end, 0, sizeof(*end));
    world->test = &probe;
    end->world = world;
    end->ops = world->body->ops;
    if (end_open(end, NULL)) {
        return 1;
    }
    *capabilities = end->attr.capabilities;
    end_close(end);
    return atomic_load(&world->failures);
}

static int run_cases(struct world *world, const struct test_case *test, const char *only,
                     uint32_t capabilities, int *ran)
{
    int bad = 0;

    for (; test->name; test++) {
        uint64_t start = now_ns();
        int failures;

        if (only && strcmp(only, test->name)) {
            continue;
        }
        if (test->needs & ~capabilities) {
            printf("skip %s: not offered\n", test->name);
            continue;
        }
        if (!strcmp(test->name, "secret") && !(world->body->flags & TRANSPORT_BODY_SECRET)) {
            printf("skip %s: secrets are not looked at here\n", test->name);
            continue;
        }
        failures = run_case(world, test);
        printf("%s %s (%llu ms)\n", failures ? "FAIL" : "ok  ", test->name,
               (unsigned long long)((now_ns() - start) / MS));
        fflush(stdout);
        bad += failures != 0;
        ++*ran;
    }
    return bad;
}

int transport_body_run(const struct transport_body *body, const char *only)
{
    struct world world = {.body = body, .n = body->n};
    uint32_t capabilities = 0;
    int ran = 0, bad;

    if (body->n < 2 || body->n > ENDS_MAX || getrandom(world.job, 16, 0) != 16 ||
        getrandom(world.secret, 16, 0) != 16) {
        return 1;
    }
    world.ends = calloc((size_t)body->n, sizeof(*world.ends));
    assert(world.ends);
    bad = offers(&world, &capabilities);
    if (!bad) {
        bad += run_cases(&world, transport_cases_life, only, capabilities, &ran);
        bad += run_cases(&world, transport_cases_messages, only, capabilities, &ran);
        bad += run_cases(&world, transport_cases_memory, only, capabilities, &ran);
    }
    free(world.ends);
    return bad ? 1 : ran ? 0 : 77;
}
