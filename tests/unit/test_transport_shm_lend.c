/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_shm_lend.c - memory that peers map: lent, given back, taken back, recalled; copied
 * where it cannot be; what becomes of it when a process is killed.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rank.h"

#define BYTES ((size_t)1 << 20)
#define PART  ((size_t)32 << 10)

typedef struct region {
    uint8_t *memory;
    halay_mem_t *mem;
} region_t;

static region_t region_take(rank_t *rank, size_t bytes)
{
    region_t r = {NULL, NULL};
    void *memory = NULL;
    int rc = shm->alloc_mem(rank->transport, bytes, &memory, &r.mem);
    CHECK(rc == 0 && memory && r.mem, "%d: %s", rc, rank->log);
    r.memory = memory;
    for (size_t i = 0; i < bytes; i += 4096)
        CHECK(r.memory[i] == 0, "not zeroed");
    return r;
}

static void region_drop(rank_t *rank, region_t r, size_t bytes)
{
    shm->deregister_mem(rank->transport, r.mem);
    munmap(r.memory, bytes);
}

static int put(rank_t *rank, halay_ep_t *ep, const uint8_t *payload, size_t bytes, uint64_t cookie)
{
    uint64_t header[8] = {cookie, bytes};
    return shm->send(rank->transport, ep, 0, header, sizeof(header), payload, bytes, cookie);
}

/* The next event, polled by turns with the other end, which has none. */
static int next(rank_t *rank, rank_t *other, halay_event_t *event)
{
    halay_event_t none;
    for (uint64_t end = clock_ns() + 10000 * MS; clock_ns() < end;) {
        int n = shm->poll(rank->transport, event, 1);
        CHECK(n >= 0, "%d", n);
        if (n)
            return event->kind;
        n = other ? shm->poll(other->transport, &none, 1) : 0;
        CHECK(n == 0, "the other end: %d, kind %d", n, none.kind);
    }
    return 0;
}

static int give_back(rank_t *rank)
{
    return shm->give_back(rank->transport);
}

static const uint8_t *payload_of(const halay_event_t *event)
{
    return event->kind == HALAY_EVENT_LENT ? event->payload : (const uint8_t *)event->data + 64;
}

static void check_payload(const halay_event_t *event, uint64_t number, const void *want)
{
    uint64_t header[8];
    memcpy(header, event->data, sizeof(header));
    CHECK(event->bytes == sizeof(header) + header[1], "%zu bytes", event->bytes);
    CHECK(header[0] == number, "message %d, not %d", (int)header[0], (int)number);
    CHECK(!memcmp(payload_of(event), want, header[1]), "message %d: other bytes", (int)number);
}

/* Messages are copied until the peer maps the region; then one is lent, with this cookie. */
static void lend(rank_t *from, halay_ep_t *ep, rank_t *to, const uint8_t *payload, size_t bytes,
                 uint64_t cookie)
{
    halay_event_t event;
    for (uint64_t end = clock_ns() + 10000 * MS; clock_ns() < end; pause_ms(1)) {
        int rc = put(from, ep, payload, bytes, cookie);
        if (rc == HALAY_INPROGRESS)
            return;
        CHECK(rc == 0, "%d", rc);
        CHECK(next(to, from, &event) == HALAY_EVENT_MESSAGE, "not copied");
        check_payload(&event, cookie, payload);
        CHECK(shm->poll(from->transport, &event, 1) == 0, "kind %d", event.kind);
    }
    CHECK(0, "it is never lent");
}

typedef struct both {
    rank_t a, b;
    halay_ep_t *ab, *ba;
} both_t;

static void both_open_ring(both_t *p, const char *options)
{
    *p = (both_t){.a.options = options, .b.options = options};
    job_draw();
    rank_open(&p->a, 1);
    rank_open(&p->b, 2);
    p->ab = rank_connect(&p->a, 2);
    p->ba = rank_connect(&p->b, 1);
}

static void both_open(both_t *p)
{
    both_open_ring(p, NULL);
}

static void both_close(both_t *p)
{
    CHECK(p->a.logged[0] + p->a.logged[1] == 0, "%s", p->a.log);
    CHECK(p->b.logged[0] + p->b.logged[1] == 0, "%s", p->b.log);
    rank_close(&p->a);
    rank_close(&p->b);
}

/* A region of a's, of which b maps all and is lent a part. */
static region_t both_lend(both_t *p, size_t offset, uint64_t cookie)
{
    region_t r = region_take(&p->a, BYTES);
    lend(&p->a, p->ab, &p->b, r.memory + offset, PART, cookie);
    return r;
}

static void completes(void)
{
    both_t p;
    halay_event_t event;
    both_open(&p);
    region_t r = both_lend(&p, 64, 1);
    memset(r.memory, 7, BYTES);
    for (uint64_t i = 2; i < 500; i++) {
        CHECK(next(&p.b, &p.a, &event) == HALAY_EVENT_LENT, "kind %d", event.kind);
        check_payload(&event, i - 1, r.memory + 64);
        r.memory[64 + i] ^= 1; /* it is read in place */
        CHECK(payload_of(&event)[i] == r.memory[64 + i], "a copy");
        CHECK(shm->poll(p.a.transport, &event, 1) == 0, "complete while it is read");
        CHECK(give_back(&p.b) == 0, "give back");
        CHECK(next(&p.a, NULL, &event) == HALAY_EVENT_SENT && event.status == 0 &&
                  event.cookie == i - 1,
              "kind %d, %d", event.kind, event.status);
        CHECK(put(&p.a, p.ab, r.memory + 64, PART, i) == HALAY_INPROGRESS, "copied");
    }
    CHECK(put(&p.a, p.ab, r.memory, 100, 500) == 0, "what is short is copied");
    region_drop(&p.a, r, BYTES);
    both_close(&p);
}

/* Many under way at once, both ways; they come back in order. */
static void many(void)
{
    both_t p;
    halay_event_t event;
    both_open(&p);
    region_t r = both_lend(&p, 0, 0);
    uint64_t sent = 1, taken = 0, back = 0;
    for (int round = 0; round < 20000; round++) {
        int rc = HALAY_EAGAIN;
        if (round % 3 && sent - back < 64) /* so many are remembered */
            rc = put(&p.a, p.ab, r.memory + sent % 900, PART / 2, sent);
        CHECK(rc == HALAY_INPROGRESS || rc == HALAY_EAGAIN, "%d", rc);
        sent += rc == HALAY_INPROGRESS;
        if (round % 2 && shm->poll(p.b.transport, &event, 1) == 1) {
            CHECK(event.kind == HALAY_EVENT_LENT, "kind %d", event.kind);
            uint64_t number;
            memcpy(&number, event.data, sizeof(number));
            CHECK(number == taken++, "out of order");
        }
        if (round % 5 == 0 && shm->poll(p.a.transport, &event, 1) == 1)
            CHECK(event.kind == HALAY_EVENT_SENT && event.cookie == back++, "kind %d", event.kind);
    }
    CHECK(sent > 1000 && back <= taken && taken <= sent, "%d %d %d", (int)sent, (int)taken,
          (int)back);
    both_close(&p); /* with some of it lent: its region goes with the transport */
    munmap(r.memory, BYTES);
}

/* 10,000 regions come and go: the peer maps no more than one, and reads what is in the new one. */
static void regions(void)
{
    both_t p;
    halay_event_t event;
    both_open(&p);
    int before = 0, lent = 0;
    for (int i = 0; i < 10000; i++) {
        region_t r = region_take(&p.a, PART);
        memset(r.memory, i, PART);
        if (i == 100)
            before = descriptors();
        for (int k = 0; k < 3; k++) {
            int rc = put(&p.a, p.ab, r.memory, PART, (uint64_t)i);
            CHECK(rc >= 0, "%d", rc);
            CHECK(next(&p.b, &p.a, &event) != 0, "nothing comes");
            check_payload(&event, (uint64_t)i, r.memory);
            lent += event.kind == HALAY_EVENT_LENT;
            if (event.kind == HALAY_EVENT_LENT) {
                CHECK(give_back(&p.b) == 0, "give back");
                CHECK(next(&p.a, NULL, &event) == HALAY_EVENT_SENT, "kind %d", event.kind);
            }
            if (i % 100 == 0) {
                rank_quiet(&p.a, 1);
                rank_quiet(&p.b, 1);
            }
        }
        region_drop(&p.a, r, PART);
    }
    CHECK(lent > 50, "%d were lent", lent);
    for (int i = 0; i < 100; i++)
        rank_quiet(&p.b, 1);
    CHECK(descriptors() <= before, "%d descriptors, then %d", before, descriptors());
    both_close(&p);
}

/* More than there are slots for: HALAY_ENOMEM, told as a detail. */
static void slots(void)
{
    rank_t a = {0};
    region_t r[64];
    void *memory = NULL;
    halay_mem_t *mem;
    job_draw();
    rank_open(&a, 1);
    for (int i = 0; i < 64; i++)
        r[i] = region_take(&a, 4096);
    CHECK(shm->alloc_mem(a.transport, 4096, &memory, &mem) == HALAY_ENOMEM, "a 65th");
    CHECK(a.logged[2] == 1 && a.logged[0] + a.logged[1] == 0, "%s", a.log);
    region_drop(&a, r[20], 4096);
    r[20] = region_take(&a, 4096);
    CHECK(shm->alloc_mem(a.transport, (size_t)1 << 50, &memory, &mem) == HALAY_ENOMEM, "huge");
    for (int i = 0; i < 64; i++)
        region_drop(&a, r[i], 4096);
    rank_close(&a);
}

static void limited(void *arg)
{
    rank_t a = {0};
    void *memory = NULL;
    halay_mem_t *mem;
    struct rlimit limit;
    (void)arg;
    rank_open(&a, 1);
    CHECK(!getrlimit(RLIMIT_FSIZE, &limit), "limit");
    limit.rlim_cur = BYTES / 2;
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit), "limit");
    CHECK(shm->alloc_mem(a.transport, BYTES, &memory, &mem) == HALAY_ENOMEM, "beyond the limit");
    region_drop(&a, region_take(&a, BYTES / 4), BYTES / 4);
    limit.rlim_cur = limit.rlim_max;
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit), "limit");
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 3;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "limit");
    CHECK(shm->alloc_mem(a.transport, BYTES, &memory, &mem) == HALAY_ENOMEM, "no descriptor");
    rank_close(&a);
}

static void limits(void)
{
    job_draw();
    process_join(process_start(limited, NULL));
}

/* Taken back before the peer has looked: it comes to nothing there, and ends with an error here. */
static void recalled(void)
{
    both_t p;
    halay_event_t event;
    both_open(&p);
    region_t r = both_lend(&p, 0, 1);
    CHECK(put(&p.a, p.ab, r.memory + PART, PART, 2) == HALAY_INPROGRESS, "copied");
    region_drop(&p.a, r, BYTES);
    CHECK(put(&p.a, p.ab, (const uint8_t *)"a message that is copied", 24, 3) == 0, "send");
    for (int i = 0; i < 2; i++)
        CHECK(next(&p.a, NULL, &event) == HALAY_EVENT_SENT && event.status == HALAY_ETRANSPORT,
              "kind %d, %d", event.kind, event.status);
    CHECK(next(&p.b, &p.a, &event) == HALAY_EVENT_MESSAGE, "kind %d", event.kind);
    check_payload(&event, 3, "a message that is copied");
    rank_quiet(&p.b, 5);
    /* And while it is being read: whoever reads it is told before it uses it. */
    r = both_lend(&p, 0, 4);
    CHECK(next(&p.b, &p.a, &event) == HALAY_EVENT_LENT, "kind %d", event.kind);
    region_drop(&p.a, r, BYTES);
    CHECK(payload_of(&event)[PART - 1] == 0, "it is there as long as it is read");
    CHECK(give_back(&p.b) == HALAY_EPEER, "it was taken back meanwhile");
    CHECK(next(&p.a, NULL, &event) == HALAY_EVENT_SENT && event.status, "kind %d", event.kind);
    both_close(&p);
}

/* Linked with --wrap=realloc. */
static int no_memory;
void *__real_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes)
{
    return no_memory ? NULL : __real_realloc(at, bytes);
}

/* Nothing is lent whose end could not be told; what is lent ends, though there is no memory. */
static void without_memory(void)
{
    enum { LOANS = 64 };
    both_t p;
    halay_event_t event;
    both_open(&p);
    region_t r = both_lend(&p, 0, 0);
    no_memory = 1;
    uint64_t sent = 1;
    while (sent < LOANS && put(&p.a, p.ab, r.memory, PART, sent) == HALAY_INPROGRESS)
        sent++;
    CHECK(sent > 8, "%d", (int)sent);
    shm->disconnect(p.a.transport, p.ab);
    for (uint64_t back = 0; back < sent; back++)
        CHECK(next(&p.a, NULL, &event) == HALAY_EVENT_SENT && event.status == HALAY_EPEER,
              "%d of %d: kind %d", (int)back, (int)sent, event.kind);
    no_memory = 0;
    region_drop(&p.a, r, BYTES);
    both_close(&p);
}

/* A way that is given up ends what it has lent. */
static void given_up(void)
{
    both_t p;
    halay_event_t event;
    both_open(&p);
    region_t r = both_lend(&p, 0, 1);
    shm->disconnect(p.a.transport, p.ab);
    CHECK(next(&p.a, NULL, &event) == HALAY_EVENT_SENT && event.status == HALAY_EPEER &&
              event.cookie == 1,
          "kind %d", event.kind);
    rank_quiet(&p.b, 5);
    region_drop(&p.a, r, BYTES);
    both_close(&p);
}

/* ------------------------------------------------------------------ processes */

static void sleepy_reader(void *arg)
{
    rank_t b = {.asleep = 1};
    halay_event_t event;
    (void)arg;
    rank_open(&b, 2);
    for (int kind = 0; (kind = rank_wait(&b, 20000 * MS, &event)) != HALAY_EVENT_FAILED;) {
        CHECK(kind, "nothing comes");
        if (kind != HALAY_EVENT_LENT)
            continue;
        pause_ms(100);
        CHECK(give_back(&b) == 0, "give back");
    }
    rank_close(&b);
}

/* Only what comes back can wake it. */
static void wakes(void)
{
    rank_t a = {.asleep = 1};
    halay_event_t event;
    int lent = 0, slept = 0;
    job_draw();
    pid_t pid = process_start(sleepy_reader, NULL);
    rank_open(&a, 1);
    halay_ep_t *ep = rank_connect(&a, 2);
    region_t r = region_take(&a, BYTES);
    for (uint64_t end = clock_ns() + 15000 * MS; lent < 5 && clock_ns() < end;) {
        int rc = put(&a, ep, r.memory, PART, 1);
        if (rc != HALAY_INPROGRESS) {
            CHECK(rc == 0 || rc == HALAY_EAGAIN, "%d", rc);
            rank_wait(&a, MS, &event);
            continue;
        }
        lent++;
        uint64_t begun = clock_ns();
        while (shm->poll(a.transport, &event, 1) == 0)
            slept += rank_doze(&a);
        CHECK(event.kind == HALAY_EVENT_SENT && event.status == 0, "kind %d", event.kind);
        CHECK(clock_ns() - begun < 5000 * MS, "woken late");
    }
    CHECK(lent == 5 && slept > 0, "%d lent, %d sleeps", lent, slept);
    rank_close(&a);
    process_join(pid);
    munmap(r.memory, BYTES);
}

static void dying_reader(void *arg)
{
    rank_t b = {0};
    halay_event_t event;
    (void)arg;
    rank_open(&b, 2);
    while (rank_wait(&b, 20000 * MS, &event) != HALAY_EVENT_LENT)
        ;
    raise(SIGKILL);
}

/* Killed while it reads: what was lent ends, once. */
static void reader_killed(void)
{
    rank_t a = {0};
    halay_event_t event;
    int sent = 0, most = 0, failed = 0, status;
    job_draw();
    pid_t pid = process_start(dying_reader, NULL);
    rank_open(&a, 1);
    halay_ep_t *ep = rank_connect(&a, 2);
    region_t r = region_take(&a, BYTES);
    for (int lent = 0, rc; lent < 3; lent += rc == HALAY_INPROGRESS) {
        rc = put(&a, ep, r.memory, PART, 1 + (uint64_t)lent);
        if (rc == HALAY_EPEER)
            break;
        CHECK(rc == 0 || rc > 0 || rc == HALAY_EAGAIN, "%d", rc);
        sent += rc == HALAY_INPROGRESS;
        most = sent > most ? sent : most;
        if (rc != HALAY_INPROGRESS)
            pause_ms(1);
        while (rc != HALAY_INPROGRESS && shm->poll(a.transport, &event, 1) == 1) {
            failed += event.kind == HALAY_EVENT_FAILED;
            sent -= event.kind == HALAY_EVENT_SENT;
        }
    }
    while (sent || !failed) {
        int kind = rank_wait(&a, 20000 * MS, &event);
        CHECK(kind == HALAY_EVENT_SENT || kind == HALAY_EVENT_FAILED, "kind %d", kind);
        CHECK(kind != HALAY_EVENT_SENT || event.status == HALAY_EPEER, "%d", event.status);
        sent -= kind == HALAY_EVENT_SENT;
        failed += kind == HALAY_EVENT_FAILED;
    }
    CHECK(most > 0, "nothing was lent");
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "%#x", (unsigned)status);
    region_drop(&a, r, BYTES);
    rank_close(&a);
}

static void dying_owner(void *arg)
{
    rank_t a = {0};
    (void)arg;
    rank_open(&a, 1);
    halay_ep_t *ep = rank_connect(&a, 2);
    region_t r = region_take(&a, BYTES);
    memset(r.memory, 42, BYTES);
    for (int rc; (rc = put(&a, ep, r.memory, PART, 1)) != HALAY_INPROGRESS;) {
        halay_event_t event;
        CHECK(rc == 0 || rc == HALAY_EAGAIN, "%d", rc);
        rank_wait(&a, MS, &event);
    }
    raise(SIGKILL);
}

/* Its owner is killed: what it lent is there, and readable. */
static void owner_killed(void)
{
    rank_t b = {0};
    halay_event_t event;
    int kind, status, lent = 0;
    job_draw();
    pid_t pid = process_start(dying_owner, NULL);
    rank_open(&b, 2);
    while ((kind = rank_wait(&b, 20000 * MS, &event)) != HALAY_EVENT_FAILED) {
        CHECK(kind, "nothing comes");
        if (kind != HALAY_EVENT_LENT)
            continue;
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "%#x", (unsigned)status);
        for (size_t i = 0; i < PART; i++)
            CHECK(payload_of(&event)[i] == 42, "byte %zu", i);
        CHECK(give_back(&b) == 0, "give back");
        lent++;
    }
    CHECK(lent == 1, "%d were lent", lent);
    rank_close(&b);
}

int main(int argc, char **argv)
{
    static const shm_case_t cases[] = {
        {"completes", completes},
        {"many", many},
        {"regions", regions},
        {"slots", slots},
        {"limits", limits},
        {"recalled", recalled},
        {"given_up", given_up},
        {"without_memory", without_memory},
        {"wakes", wakes},
        {"reader_killed", reader_killed},
        {"owner_killed", owner_killed},
    };
    halay_transport_params_t params;
    rank_params(&(rank_t){0}, 1, &params); /* this process names the jobs */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name))
            continue;
        cases[i].run();
        printf("ok %s\n", cases[i].name);
        fflush(stdout);
    }
    return 0;
}
