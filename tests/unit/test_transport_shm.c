/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_shm.c - the transport between the processes of a node: the contract with threads
 * (transport_body), then real processes. Deaths and bad peers are in the files beside this one.
 *
 *   test_unit_transport_shm [case]
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_rank.h"
#include "transport_body.h"

/* ------------------------------------------------------------------ the contract, with threads */

static void contract(int n, const char *options)
{
    struct transport_body body = {
        .ops = shm, .n = n, .options = options, .flags = TRANSPORT_BODY_SECRET};
    CHECK(transport_body_run(&body, NULL) == 0, "%d ends, %s", n, options ? options : "");
}

static void contract_two(void)
{
    contract(2, NULL);
}

static void contract_five(void)
{
    contract(5, NULL);
}

static void contract_small_ring(void)
{
    contract(3, "ring=8192");
}

/* ------------------------------------------------------------------ two processes */

typedef struct pair {
    const char *options;
    int asleep, rounds;
    size_t most;
} pair_t;

static size_t size_of(uint32_t number, size_t most)
{
    uint32_t x = number * 2654435761u;
    return 8 + (x >> 7) % ((number % 16 == 0 ? most : 200) - 7);
}

static void ping(const pair_t *pair, uint64_t self, uint64_t other)
{
    rank_t rank = {.options = pair->options, .asleep = pair->asleep};
    rank_open(&rank, self);
    halay_ep_t *ep = rank_connect(&rank, other);
    for (uint32_t i = 0; i < (uint32_t)pair->rounds; i++) {
        if (self == 1)
            message_send(&rank, ep, i, size_of(i, pair->most));
        rank_expect(&rank, i);
        if (self == 2)
            message_send(&rank, ep, i, size_of(i, pair->most));
    }
    shm->disconnect(rank.transport, ep);
    CHECK(rank.failed == 0 && rank.logged[0] + rank.logged[1] == 0, "%s%s", rank.text, rank.log);
    rank_close(&rank);
}

static void pong(void *arg)
{
    ping(arg, 2, 1);
}

static void ping_pong(pair_t pair)
{
    job_draw();
    pid_t pid = process_start(pong, &pair);
    ping(&pair, 1, 2);
    process_join(pid);
}

static void ping_pong_awake(void)
{
    ping_pong((pair_t){.rounds = sanitized() ? 20000 : 100000, .most = 16320});
}

static void ping_pong_asleep(void)
{
    ping_pong((pair_t){.asleep = 1, .rounds = 5000, .most = 16320});
}

static void ping_pong_small_ring(void)
{
    ping_pong((pair_t){.options = "ring=8192", .rounds = 10000, .most = 1984});
}

/* ------------------------------------------------------------------ a stream, both asleep when
 * idle */

static void stream_in(void *arg)
{
    const pair_t *pair = arg;
    rank_t rank = {.asleep = pair->asleep};
    rank_open(&rank, 2);
    for (uint32_t i = 0; i < (uint32_t)pair->rounds; i++) {
        if (i % 512 == 0)
            pause_ms(2); /* let the ring run full */
        rank_expect(&rank, i);
    }
    rank_expect_failed(&rank, 20000 * MS, 1, "closed its end");
    rank_close(&rank);
}

/* A sender that found the ring full sleeps until there is room: it must be woken. */
static void stream_out(pair_t *pair)
{
    rank_t rank = {.options = pair->options, .asleep = pair->asleep};
    halay_event_t event;
    rank_open(&rank, 1);
    halay_ep_t *ep = rank_connect(&rank, 2);
    int full = 0;
    for (uint32_t i = 0; i < (uint32_t)pair->rounds;) {
        if (message_try(&rank, ep, i, size_of(i, pair->most)) == 0) {
            i++;
            continue;
        }
        full++;
        CHECK(rank_wait(&rank, 0, &event) == 0, "%s", rank.text);
        if (pair->asleep)
            rank_doze(&rank);
    }
    CHECK(full > 0, "the ring was never full");
    rank_close(&rank);
}

static void stream(pair_t pair)
{
    job_draw();
    pid_t pid = process_start(stream_in, &pair);
    stream_out(&pair);
    process_join(pid);
}

static void stream_awake(void)
{
    stream((pair_t){.rounds = 20000, .most = 65472});
}

static void stream_asleep(void)
{
    stream((pair_t){.options = "ring=16384", .asleep = 1, .rounds = 20000, .most = 4032});
}

/* Nothing but the wake-up for room ends the sender's sleep: the way is open, and nothing comes
 * back. */
static void room_reader(void *arg)
{
    rank_t rank = {.asleep = 1};
    (void)arg;
    rank_open(&rank, 2);
    rank_expect(&rank, 0);
    pause_ms(200);
    for (uint32_t i = 1; i < 9; i++)
        rank_expect(&rank, i);
    rank_expect_failed(&rank, 20000 * MS, 1, "closed its end");
    rank_close(&rank);
}

static void room_wakes(void)
{
    rank_t rank = {.options = "ring=8192", .asleep = 1};
    halay_event_t event;
    job_draw();
    pid_t pid = process_start(room_reader, NULL);
    rank_open(&rank, 1);
    halay_ep_t *ep = rank_connect(&rank, 2);
    message_send(&rank, ep, 0, 1900);
    rank_quiet(&rank, 50);
    int sleeps = 0;
    for (uint32_t i = 1; i < 9;) {
        if (message_try(&rank, ep, i, 1900) == 0) {
            i++;
            continue;
        }
        CHECK(rank_wait(&rank, 0, &event) == 0, "%s", rank.text);
        sleeps += rank_doze(&rank);
    }
    CHECK(sleeps > 0, "it never slept");
    rank_close(&rank);
    process_join(pid);
}

/* ------------------------------------------------------------------ many processes */

enum { CROWD = 5, CROWD_MESSAGES = 3000 };

static void crowd_rank(void *arg)
{
    uint64_t self = (uint64_t)(uintptr_t)arg;
    rank_t rank = {.options = "ring=16384"};
    halay_ep_t *ep[CROWD + 1] = {0};
    uint32_t out[CROWD + 1] = {0}, in[CROWD + 1] = {0}, left = (CROWD - 1) * CROWD_MESSAGES;
    halay_event_t event[8];
    rank_open(&rank, self);
    for (uint64_t r = 1; r <= CROWD; r++)
        ep[r] = r == self ? NULL : rank_connect(&rank, r);
    for (uint32_t sent = 0; left > 0 || sent < (CROWD - 1) * CROWD_MESSAGES;) {
        for (uint64_t r = 1; r <= CROWD; r++) {
            if (r == self || out[r] == CROWD_MESSAGES)
                continue;
            int rc = message_try(&rank, ep[r], out[r], size_of(out[r] + (uint32_t)self, 4032));
            CHECK(rc == 0 || rc == HALAY_EAGAIN, "%d", rc);
            out[r] += rc == 0;
            sent += rc == 0;
        }
        int n = shm->poll(rank.transport, event, 8);
        CHECK(n >= 0, "%d", n);
        for (int i = 0; i < n; i++) {
            uint64_t from = event[i].peer.lo;
            if (event[i].kind == HALAY_EVENT_FAILED) {
                CHECK(in[from] == CROWD_MESSAGES && out[from] == CROWD_MESSAGES, "%s",
                      event[i].text);
                continue;
            }
            CHECK(message_check(&event[i]) == in[from], "from %d", (int)from);
            CHECK(event[i].bytes == size_of(in[from] + (uint32_t)from, 4032), "size");
            in[from]++;
            left--;
        }
    }
    rank_close(&rank);
}

static void crowd(void)
{
    pid_t pid[CROWD];
    job_draw();
    for (uintptr_t i = 0; i < CROWD; i++)
        pid[i] = process_start(crowd_rank, (void *)(i + 1));
    for (int i = 0; i < CROWD; i++)
        process_join(pid[i]);
}

/* ------------------------------------------------------------------ life */

/* 1,000 lives: nothing is left behind. A third are never polled, a third never connected to. */
static void lives(void)
{
    int before = 0;
    long memory = 0;
    for (int i = 0; i < 1000; i++) {
        rank_t a = {0}, b = {0};
        job_draw();
        if (i == 100) {
            before = descriptors();
            memory = resident_kib();
        }
        rank_open(&a, 1);
        rank_open(&b, 2);
        halay_ep_t *ab = rank_connect(&a, 2), *ba = i % 3 ? rank_connect(&b, 1) : NULL;
        message_send(&a, ab, 1, 1000);
        if (i % 2)
            rank_expect(&b, 1);
        if (ba)
            message_send(&b, ba, 2, 60000);
        if (i % 2 && ba)
            rank_expect(&a, 2);
        if (i % 5 == 0)
            shm->disconnect(a.transport, ab);
        rank_close(i % 7 ? &a : &b);
        rank_close(i % 7 ? &b : &a);
    }
    CHECK(descriptors() == before, "%d descriptors, then %d", before, descriptors());
    CHECK(sanitized() || resident_kib() < memory + 512, "%ld KiB, then %ld", memory,
          resident_kib());
}

/* Ways come and go on one pair of endpoints: every message arrives, nobody is told of a failure. */
static void ways(void)
{
    rank_t a = {0}, b = {0};
    int before = 0;
    job_draw();
    rank_open(&a, 1);
    rank_open(&b, 2);
    for (uint32_t i = 0; i < 300; i++) {
        if (i == 10)
            before = descriptors();
        halay_ep_t *ep = rank_connect(&a, 2);
        message_send(&a, ep, i, 100);
        if (i % 2) {
            rank_expect(&b, i);
            shm->disconnect(a.transport, ep);
        } else {
            shm->disconnect(a.transport, ep);
            rank_expect(&b, i);
        }
    }
    halay_ep_t *two[2] = {rank_connect(&a, 2), rank_connect(&a, 2)};
    message_send(&a, two[0], 7, 100);
    rank_expect(&b, 7);
    message_send(&a, two[1], 8, 100);
    rank_expect(&b, 8);
    shm->disconnect(a.transport, two[0]);
    message_send(&a, two[1], 9, 100);
    rank_expect(&b, 9);
    shm->disconnect(a.transport, two[1]);
    rank_quiet(&a, 5);
    rank_quiet(&b, 5);
    CHECK(descriptors() <= before, "%d descriptors, then %d", before, descriptors());
    shm->disconnect(a.transport, NULL);
    shm->close(NULL);
    rank_close(&a);
    rank_close(&b);
}

/* To oneself, as to anyone. */
static void self(void)
{
    rank_t a = {.asleep = 1};
    job_draw();
    rank_open(&a, 1);
    halay_ep_t *ep = rank_connect(&a, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        message_send(&a, ep, i, size_of(i, 65472));
        rank_expect(&a, i);
    }
    shm->disconnect(a.transport, ep);
    rank_close(&a);
}

static void late_reader(void *arg)
{
    int kind = *(const int *)arg;
    rank_t rank = {.asleep = kind == 1};
    rank_open(&rank, 2);
    pause_ms(150);
    for (uint32_t i = 0; i < 3; i++)
        rank_expect(&rank, i);
    if (kind != 2) /* a way that was given up says nothing of its process */
        rank_expect_failed(&rank, 20000 * MS, 1, "closed its end");
    rank_close(&rank);
}

/* What was accepted for a peer that has not polled yet is delivered, though the sender has left. */
static void late(void)
{
    for (int kind = 0; kind < 3; kind++) {
        rank_t a = {0};
        job_draw();
        pid_t pid = process_start(late_reader, &kind);
        rank_open(&a, 1);
        halay_ep_t *ep = rank_connect(&a, 2);
        for (uint32_t i = 0; i < 3; i++)
            message_send(&a, ep, i, 500);
        if (kind == 2)
            shm->disconnect(a.transport, ep);
        rank_close(&a);
        process_join(pid);
    }
}

/* Nobody is there: nothing is taken, so close has nothing to wait for. */
static void never(void)
{
    rank_t a = {0};
    job_draw();
    rank_open(&a, 1);
    CHECK(message_try(&a, rank_connect(&a, 2), 1, 100) == HALAY_EAGAIN, "taken");
    uint64_t begun = clock_ns();
    rank_close(&a);
    CHECK(clock_ns() - begun < 500 * MS, "close waited");
}

/* Bytes of the rings that this process has open. */
static size_t ring_bytes(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t sum = 0;
    CHECK(dir, "/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[64] = "";
        struct stat stat;
        if (readlinkat(dirfd(dir), entry->d_name, name, sizeof(name) - 1) > 0 &&
            strstr(name, "halay-ring") && !fstatat(dirfd(dir), entry->d_name, &stat, 0))
            sum += (size_t)stat.st_size;
    }
    closedir(dir);
    return sum;
}

/* A rank with ways to all others of its node has at most 4 MiB of shared memory. */
static void memory(void)
{
    static const int more[] = {24, 31, 32, 64, 128, 256, 257};
    for (int i = 2; i < 18 + (int)(sizeof(more) / sizeof(more[0])); i++) {
        const int n = i < 18 ? i : more[i - 18];
        rank_t a = {0};
        halay_transport_params_t params;
        halay_transport_attr_t attr = {.size = sizeof(attr)};
        job_draw();
        rank_params(&a, 1, &params);
        params.local_nranks = n;
        CHECK(shm->open(&params, &a.transport) == 0, "%s", a.log);
        CHECK(shm->query(a.transport, &attr) == 0, "query");
        for (int k = 1; k < n; k++)
            rank_connect(&a, 1 + (uint64_t)k);
        const size_t bytes = ring_bytes();
        CHECK(bytes <= 4u << 20, "%d ranks: %zu", n, bytes);
        CHECK(bytes >= 1u << 20 || n < 3, "%d ranks: %zu", n, bytes);
        const size_t most = n > 2 && n <= 8 ? 65536 : 32768;
        CHECK(n > 31 || attr.eager_bytes == most, "%d: %zu", n, attr.eager_bytes);
        CHECK(attr.eager_bytes <= attr.message_bytes - 64, "%d: a header", n);
        rank_close(&a);
    }
}

static void answers(void)
{
    rank_t a = {.options = "ring=100000"};
    halay_transport_attr_t attr = {.size = sizeof(attr)};
    size_t bytes = 100;
    halay_mem_t *mem;
    const halay_mem_params_t memory = {
        .size = sizeof(memory), .address = &bytes, .bytes = 8, .dmabuf = -1};
    job_draw();
    rank_open(&a, 1);
    CHECK(shm->query(a.transport, &attr) == 0, "query");
    CHECK(attr.capabilities ==
                  (HALAY_CAN_SLEEP | HALAY_CAN_CACHE | HALAY_CAN_LEND | HALAY_CAN_WATCH) &&
              attr.message_bytes == 32768 + 2048 - 64,
          "%zu", attr.message_bytes);
    CHECK(attr.eager_bytes <= attr.message_bytes && attr.piece_bytes <= attr.message_bytes, "attr");
    CHECK(shm->address(a.transport, NULL, &bytes) == 0 && bytes == 0, "address");
    CHECK(shm->recv(a.transport, 1, &bytes, 8, 0) == HALAY_EUNSUPPORTED, "recv");
    CHECK(shm->withdraw(a.transport, 1) == HALAY_EUNSUPPORTED, "withdraw");
    CHECK(shm->register_mem(a.transport, &memory, &mem) == HALAY_EUNSUPPORTED, "register_mem");
    halay_ep_t *ep = rank_connect(&a, 2);
    CHECK(shm->send(a.transport, ep, 1, NULL, 0, "x", 1, 0) == HALAY_EUNSUPPORTED, "tag");
    CHECK(shm->send(a.transport, ep, 0, NULL, 0, "x", attr.message_bytes + 1, 0) == HALAY_EINVAL,
          "too long");
    CHECK(shm->send(a.transport, ep, 0, "x", SIZE_MAX, "x", 2, 0) == HALAY_EINVAL, "overflow");
    CHECK(shm->put(a.transport, ep, "x", 1, "k", 1, 0, 0, 0) == HALAY_EUNSUPPORTED, "put");
    rank_close(&a);
    static const char *const wrong[] = {"ring",    "ring=",  "ring=x",           "ring=1x",
                                        "ring=-1", "pong=1", "ring=99999999999", "ring=4096,x=1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        halay_transport_params_t params;
        a.options = wrong[i];
        a.logged[0] = 0;
        rank_params(&a, 1, &params);
        CHECK(shm->open(&params, &a.transport) == HALAY_EINVAL, "%s", wrong[i]);
        CHECK(a.logged[0] == 1 && strstr(a.log, "ring=BYTES"), "%s", a.log);
    }
}

static const shm_case_t cases[] = {{"contract_two", contract_two},
                                   {"contract_five", contract_five},
                                   {"contract_small_ring", contract_small_ring},
                                   {"answers", answers},
                                   {"memory", memory},
                                   {"ping_pong_awake", ping_pong_awake},
                                   {"ping_pong_asleep", ping_pong_asleep},
                                   {"ping_pong_small_ring", ping_pong_small_ring},
                                   {"stream_awake", stream_awake},
                                   {"stream_asleep", stream_asleep},
                                   {"room_wakes", room_wakes},
                                   {"crowd", crowd},
                                   {"lives", lives},
                                   {"ways", ways},
                                   {"self", self},
                                   {"late", late},
                                   {"never", never},
                                   {0}};

static int named_files(void)
{
    int n = 0;
    DIR *dir = opendir("/dev/shm");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += strstr(entry->d_name, "halay") != NULL;
    if (dir)
        closedir(dir);
    return n;
}

static int run(const shm_case_t *table, const char *only)
{
    int n = 0;
    for (; table->name; table++) {
        if (only && strcmp(only, table->name) != 0)
            continue;
        int before = descriptors();
        uint64_t begun = clock_ns();
        table->run();
        CHECK(descriptors() == before, "%s: %d descriptors, then %d", table->name, before,
              descriptors());
        CHECK(waitpid(-1, NULL, WNOHANG) < 0, "%s left a process", table->name);
        printf("%-24s %6llu ms\n", table->name, (unsigned long long)((clock_ns() - begun) / MS));
        fflush(stdout);
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    int before = named_files();
    rank_t none = {0};
    halay_transport_params_t params;
    rank_params(&none, 0, &params); /* the job's first process is this one */
    int n = run(cases, only) + run(shm_death_cases, only) + run(shm_fault_cases, only);
    CHECK(n > 0, "there is no case '%s'", only);
    CHECK(named_files() == before, "something was left in /dev/shm");
    printf("%d cases passed\n", n);
    return 0;
}
