/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_put.c - puts over a real queue pair between two machines, through the transport contract.
 * Run on both by verbs.sh, which gives NODE_ID, NODE_DIR (a folder that both see) and NODE_ADDRS.
 *
 *   verbs_put check                contents of puts and messages; latency, bandwidth, registration
 *   verbs_put contents             the first half of it
 *   verbs_put kill-target          node 1, the target of puts, is killed in the middle of them
 *   verbs_put kill-source          node 1, which puts, is killed
 *   verbs_put cut                  node 1's network loses all from some moment on (CARD: that of
 *                                  this card)
 *   verbs_put late                 node 1 takes its memory back while node 0 puts into it
 *   verbs_put under                node 0 takes memory back from which it puts
 *   verbs_put given-up             node 0's large packets vanish unsent; it gives the way up
 *   verbs_put refused              the other cannot be reached: FAILED says why, by DEADLINE_S
 *   verbs_put open                 opens and closes; exit status 1: it cannot
 *
 * With kill and cut node 0 must be told within 10 s, once, and no operation may be left hanging.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <halay/transport.h>

#include "../check.h"

enum { MIB = 1 << 20, GUARD = 64, WINDOW = 4, PINGS = 100, STREAM = 32, MESSAGES = 400 };
/* Of the transport, on Soft-RoCE. */
enum { INLINE = 192, APART = 8 << 10, BOUNCE = 64 << 10, PARTED = 128 << 10 };

extern const halay_transport_ops_t halay_transport_v7_verbs;
static const halay_transport_ops_t *const ops = &halay_transport_v7_verbs;

/* One end. */
static struct {
    int me;
    halay_transport_t *transport;
    halay_transport_attr_t attr;
    halay_ep_t *ep;
    uint8_t *memory; /* GUARD, 1 MiB, GUARD: what the peer puts into */
    halay_mem_t *mem;
    const uint8_t *kept; /* 1 MiB that is registered, from which puts go; or NULL */
    uint8_t key[48];
    size_t key_bytes;
    unsigned immediates, puts, refused, messages, bytes, met, meetings, failed, sleeps;
    uint32_t immediate;
    int checks; /* messages are numbered: they are checked */
    char text[256];
    char counters[768]; /* what the transport said of itself */
} end;

/* What was asked of the transport, and what that has to cost. */
static struct {
    uint64_t messages, puts, put_bytes, apart, bounced_bytes, kept, registered, cut;
} did;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void on_log(void *arg, int level, const char *text)
{
    (void)arg;
    printf("log %d: %s\n", level, text);
    if (strstr(text, " counters: "))
        snprintf(end.counters, sizeof(end.counters), "%s", text);
}

/* The linker gives the transport this one in place of its own: with WRONG_MARK set, node 1 takes
 * the rails between the two for others than node 0 does. */
uint64_t __real_hly_verbs_map_hash(const void *mine, const void *its, int lower, const void *lanes,
                                   int n);
uint64_t __wrap_hly_verbs_map_hash(const void *mine, const void *its, int lower, const void *lanes,
                                   int n);
uint64_t __wrap_hly_verbs_map_hash(const void *mine, const void *its, int lower, const void *lanes,
                                   int n)
{
    const uint64_t hash = __real_hly_verbs_map_hash(mine, its, lower, lanes, n);
    return getenv("WRONG_MARK") ? hash + (uint64_t)end.me : hash;
}

static uint8_t content(unsigned seed, size_t i)
{
    return (uint8_t)((seed * 2654435761u + (uint32_t)i * 40503u) >> 11);
}

static void fill(uint8_t *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = content(seed, i);
}

static void compare(const uint8_t *bytes, size_t size, unsigned seed, const char *what)
{
    for (size_t i = 0; i < size; i++)
        CHECK(bytes[i] == content(seed, i), "%s: byte %zu of %zu differs", what, i, size);
}

static void on_event(const halay_event_t *event)
{
    switch (event->kind) {
    case HALAY_EVENT_MESSAGE:
        if (event->bytes == 0) {
            end.met++;
            return;
        }
        if (end.checks)
            compare(event->data, event->bytes, end.messages, "message");
        else if (event->bytes <= sizeof(end.key))
            memcpy(end.key, event->data, end.key_bytes = event->bytes);
        end.messages++;
        end.bytes += (unsigned)event->bytes;
        return;
    case HALAY_EVENT_IMMEDIATE:
        end.immediates++;
        end.immediate = event->immediate;
        return;
    case HALAY_EVENT_PUT:
        end.puts++;
        end.refused += event->status != 0;
        return;
    case HALAY_EVENT_FAILED:
        end.failed++;
        snprintf(end.text, sizeof(end.text), "%s", event->text);
        return;
    default:
        CHECK(0, "an event of kind %d", event->kind);
    }
}

static int step(void)
{
    halay_event_t events[16];
    int n = ops->poll(end.transport, events, 16);
    CHECK(n >= 0, "poll is %d", n);
    for (int i = 0; i < n; i++)
        on_event(&events[i]);
    return n;
}

/* Polls, and sleeps when there is nothing. */
static void step_or_sleep(void)
{
    struct pollfd waiter = {.events = POLLIN};
    if (step() > 0 || ops->arm(end.transport, &waiter.fd) != HALAY_OK)
        return;
    CHECK(poll(&waiter, 1, 20000) == 1, "no wake-up within 20 s");
    end.sleeps++;
}

static void wait_for(const unsigned *count, unsigned many)
{
    while (*count < many) {
        CHECK(!end.failed, "the peer failed: %s", end.text);
        step_or_sleep();
    }
}

static void say(const void *payload, size_t bytes)
{
    int rc;
    while ((rc = ops->send(end.transport, end.ep, 0, NULL, 0, payload, bytes, 0)) == HALAY_EAGAIN)
        step_or_sleep();
    CHECK(rc == HALAY_OK, "send is %d: %s", rc, end.text);
    did.messages++;
}

static int put(const void *payload, size_t bytes, uint32_t immediate)
{
    int rc;
    while ((rc = ops->put(end.transport, end.ep, payload, bytes, end.key, end.key_bytes, 0,
                          immediate, immediate)) == HALAY_EAGAIN)
        step();
    if (rc != HALAY_INPROGRESS)
        return rc;
    did.puts++;
    did.put_bytes += bytes;
    did.apart += bytes > APART;
    did.cut += bytes > PARTED;
    if (bytes > INLINE && payload == end.kept)
        did.kept++;
    else if (bytes > INLINE && bytes <= BOUNCE)
        did.bounced_bytes += bytes;
    else
        did.registered += bytes > BOUNCE; /* or it shares one */
    return rc;
}

/* Both are here. What is counted from here on was set to 0 before: the other may be ahead. */
static void meet(void)
{
    say("", 0);
    wait_for(&end.met, ++end.meetings);
}

/* ------------------------------------------------------------------ opening */

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    CHECK(value, "%s is not set: this runs under verbs.sh", name);
    return value;
}

/* Writes mine into the folder that both see, and waits for the other's. */
static size_t exchange(const void *mine, size_t bytes, void *other, size_t room)
{
    char path[512], hidden[600];
    size_t got = 0;
    snprintf(path, sizeof(path), "%s/address.%d", variable("NODE_DIR"), end.me);
    snprintf(hidden, sizeof(hidden), "%s.new", path);
    FILE *file = fopen(hidden, "w");
    CHECK(file && fwrite(mine, 1, bytes, file) == bytes && fclose(file) == 0, "%s", hidden);
    CHECK(rename(hidden, path) == 0, "%s", path);
    snprintf(path, sizeof(path), "%s/address.%d", variable("NODE_DIR"), !end.me);
    for (int tries = 0; got == 0 && tries < 600; tries++) {
        usleep(50000);
        file = fopen(path, "r");
        got = file ? fread(other, 1, room, file) : 0;
        if (file)
            fclose(file);
    }
    CHECK(got > 0, "no address of the other");
    return got;
}

/* As a bootstrap does. */
static void listen_here(halay_transport_params_t *params)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof(at);
    char name[2][64];
    CHECK(sscanf(variable("NODE_ADDRS"), "%63s %63s", name[0], name[1]) == 2 &&
              inet_pton(AF_INET, name[end.me], &at.sin_addr) == 1,
          "NODE_ADDRS");
    params->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(bind(params->listen_fd, (struct sockaddr *)&at, length) == 0 &&
              listen(params->listen_fd, 8) == 0 &&
              getsockname(params->listen_fd, (struct sockaddr *)&at, &length) == 0,
          "listen");
    params->listen_address.family = AF_INET;
    params->listen_address.port = at.sin_port;
    memcpy(params->listen_address.ip, &at.sin_addr, 4);
}

/* listens: else the transport has to. */
static void open_here(int listens)
{
    const char *deadline_s = getenv("DEADLINE_S");
    halay_transport_params_t params = {
        .size = sizeof(params),
        .self = {7, (uint64_t)end.me},
        .secret = "between us",
        .deadline_ns = (deadline_s ? strtoull(deadline_s, NULL, 10) : 15) * 1000000000,
        .log = on_log};
    params.self.lo = (uint64_t)end.me;
    if (listens)
        listen_here(&params);
    CHECK(ops->open(&params, &end.transport) == HALAY_OK, "open");
    end.attr.size = sizeof(end.attr);
    CHECK(ops->query(end.transport, &end.attr) == HALAY_OK, "query");
}

static void connect_there(void)
{
    uint8_t mine[64], other[64];
    size_t bytes = sizeof(mine);
    CHECK(ops->address(end.transport, mine, &bytes) == HALAY_OK, "address");
    bytes = exchange(mine, bytes, other, sizeof(other));
    CHECK(ops->connect(end.transport, (halay_peer_id_t){7, !end.me}, other, bytes, &end.ep) == 0,
          "connect");
}

static halay_mem_t *kept(void *memory, size_t bytes)
{
    halay_mem_t *mem;
    const halay_mem_params_t params = {
        .size = sizeof(params), .address = memory, .bytes = bytes, .dmabuf = -1};
    CHECK(ops->register_mem(end.transport, &params, &mem) == 0, "register");
    did.registered++;
    return mem;
}

static void meet_there(void)
{
    uint8_t mine[64];
    size_t key_bytes = sizeof(end.key);
    connect_there();
    end.memory = malloc(MIB + 2 * GUARD);
    memset(end.memory, 0xa5, MIB + 2 * GUARD);
    end.mem = kept(end.memory + GUARD, MIB);
    CHECK(ops->key(end.transport, end.mem, mine, &key_bytes) == 0 && key_bytes <= 48, "key");
    say(mine, key_bytes);
    wait_for(&end.messages, 1);
    CHECK(end.key_bytes == key_bytes, "a key of %zu bytes", end.key_bytes);
}

/* ------------------------------------------------------------------ check */

/* Each in turn puts; the other looks at every byte when the immediate comes. */
static void check_puts(int registered)
{
    static const size_t sizes[] = {8, MIB, 1, 0, 128, 129, 4097, MIB - 3};
    uint8_t *source = malloc(MIB);
    halay_mem_t *mem = registered ? kept(source, MIB) : NULL;
    end.kept = registered ? source : NULL;
    for (uint32_t k = 0; k < 2 * sizeof(sizes) / sizeof(sizes[0]); k++) {
        size_t size = sizes[k / 2];
        unsigned immediates = end.immediates, puts = end.puts;
        memset(end.memory + GUARD, 0xa5, MIB);
        fill(source, size, k);
        meet();
        if ((int)(k % 2) == end.me) {
            CHECK(put(source, size, UINT32_MAX - k) == HALAY_INPROGRESS, "put of %zu", size);
            wait_for(&end.puts, puts + 1);
        } else {
            wait_for(&end.immediates, immediates + 1);
            CHECK(end.immediate == UINT32_MAX - k, "immediate %#x", end.immediate);
            compare(end.memory + GUARD, size, k, "put");
            for (size_t i = 0; i < MIB + 2 * GUARD; i++)
                CHECK((i >= GUARD && i < GUARD + size) || end.memory[i] == 0xa5, "beside: %zu", i);
        }
        meet();
    }
    CHECK(end.refused == 0 && end.immediates == end.puts, "%u, %u", end.immediates, end.puts);
    CHECK(put(source, MIB + 1, 0) == HALAY_EINVAL, "beyond the end");
    printf("puts of 8 B, 1 MiB and six other sizes from %s memory, both ways: every byte right\n",
           registered ? "registered" : "any");
    ops->deregister_mem(end.transport, mem);
    end.kept = NULL;
    free(source);
}

/* Both ways at once, every size class; one connection keeps the order, so they are numbered. */
static void check_messages(void)
{
    uint8_t bytes[8192];
    unsigned all = 0;
    end.messages = end.bytes = end.sleeps = 0;
    end.checks = 1;
    meet();
    for (unsigned i = 0; i < MESSAGES; i++) {
        size_t size = i % 10 == 0 ? end.attr.message_bytes - i % 3 : 1 + i * 7 % 300;
        fill(bytes, size, i);
        say(bytes, size);
        all += (unsigned)size;
    }
    wait_for(&end.messages, MESSAGES);
    CHECK(end.bytes == all, "%u bytes for %u", end.bytes, all);
    printf("%d messages each way, %u bytes: every byte right, slept %u times\n", MESSAGES, all,
           end.sleeps);
}

static void measure_latency(void (*wait)(void), const char *how)
{
    uint64_t word = 0;
    end.immediates = 0;
    meet();
    double begun = now_us();
    for (unsigned i = 0; i < PINGS; i++) {
        if (end.me == 0)
            CHECK(put(&word, 8, i) == HALAY_INPROGRESS, "put");
        while (end.immediates <= i)
            wait();
        CHECK(end.immediate == i, "immediate %u for %u", end.immediate, i);
        if (end.me == 1)
            CHECK(put(&word, 8, i) == HALAY_INPROGRESS, "put");
    }
    if (end.me == 0)
        printf("put of 8 B, %s: %.1f us one way (half of %d round trips)\n", how,
               (now_us() - begun) / PINGS / 2, PINGS);
}

static void step_or_yield(void)
{
    if (step() == 0)
        sched_yield();
}

static void measure_bandwidth(void)
{
    uint8_t *source = malloc(MIB);
    fill(source, MIB, 77);
    end.immediates = end.puts = 0;
    meet();
    double begun = now_us();
    for (unsigned i = 0; end.me == 0 && i < STREAM; i++) {
        CHECK(put(source, MIB, i) == HALAY_INPROGRESS, "put");
        wait_for(&end.puts, i < WINDOW ? 0 : i - WINDOW + 1);
    }
    wait_for(end.me ? &end.immediates : &end.puts, STREAM);
    if (end.me == 0)
        printf("put of 1 MiB, %d at a time: %.1f MB/s\n", WINDOW,
               STREAM * (double)MIB / (now_us() - begun));
    else
        compare(end.memory + GUARD, MIB, 77, "the last put");
    meet();
    free(source);
}

static void measure_registration(size_t bytes)
{
    uint8_t *memory = malloc(bytes);
    double best = 1e12, best_back = 1e12;
    halay_mem_t *mem;
    memset(memory, 1, bytes);
    for (int i = 0; i < 5; i++) {
        double begun = now_us();
        mem = kept(memory, bytes);
        double middle = now_us();
        ops->deregister_mem(end.transport, mem);
        best = middle - begun < best ? middle - begun : best;
        best_back = now_us() - middle < best_back ? now_us() - middle : best_back;
    }
    printf("register %zu KiB: %.0f us, deregister: %.0f us\n", bytes >> 10, best, best_back);
    free(memory);
}

static void measure(void)
{
    measure_latency(step_or_yield, "polling");
    measure_latency(step_or_sleep, "sleeping");
    measure_bandwidth();
    if (end.me == 0) {
        measure_registration(8 << 10);
        measure_registration(MIB);
        measure_registration(64 * MIB);
    }
}

static void check(int measures)
{
    check_puts(0);
    check_puts(1);
    check_messages();
    if (measures)
        measure();
    meet();
    /* Node 1 is told that node 0 leaves, not the other way round. */
    for (double begun = now_us(); end.me == 0 && now_us() - begun < 1e6;)
        step();
    while (end.me == 1 && !end.failed)
        step_or_sleep();
}

/* ------------------------------------------------------------------ faults */

/* Node 1 goes, or its network, after some puts; node 0 goes on until it is told. */
static void fault(const char *mode)
{
    int source = !strcmp(mode, "kill-source") ? 1 : 0, rc = HALAY_INPROGRESS;
    uint8_t *bytes = calloc(1, MIB);
    unsigned posted = 0, *count = end.me == source ? &end.puts : &end.immediates;
    end.puts = end.immediates = 0;
    meet();
    double last = now_us();
    while (!end.failed && now_us() - last < 12e6) {
        unsigned before = *count;
        if (end.me == source && posted - end.puts < WINDOW && rc == HALAY_INPROGRESS)
            posted += (rc = put(bytes, MIB, 0)) == HALAY_INPROGRESS;
        step();
        last = *count > before && !end.refused ? now_us() : last;
        if (end.me == 1 && *count >= 6 && strcmp(mode, "cut") != 0)
            raise(SIGKILL);
        if (end.me == 1 && *count >= 6)
            exit(system(
                "tc qdisc add dev ${CARD-eth0} root netem loss 100% || exit 1\n"
                "for i in $(seq 140); do [ -e \"$NODE_DIR/told\" ] && break; sleep 0.1; done"));
    }
    double took = (now_us() - last) / 1e6;
    CHECK(end.failed == 1 && took < 10, "FAILED %u times, after %.1f s", end.failed, took);
    for (double begun = now_us(); now_us() - begun < 1e6;)
        step();
    CHECK(end.failed == 1, "FAILED %u times", end.failed);
    CHECK(end.puts == posted, "%u puts complete of %u", end.puts, posted);
    CHECK(put(bytes, 8, 0) == HALAY_EPEER, "a put after FAILED");
    printf("%s: FAILED %.2f s after the last sign of life: %s; %u of %u puts were refused\n", mode,
           took, end.text, end.refused, posted);
    CHECK(system("touch \"$NODE_DIR/told\"") == 0, "touch");
    free(bytes);
}

/* Node 1 takes its memory back: not a byte of it changes any more, and both hear that it ends. */
static void late(void)
{
    uint8_t *bytes = malloc(MIB), *copy = malloc(MIB + 2 * GUARD);
    unsigned posted = 0;
    end.puts = end.immediates = 0;
    meet();
    for (double begun = now_us(); end.me == 0 && !end.failed && now_us() - begun < 30e6;) {
        memset(bytes, (int)posted, MIB);
        if (put(bytes, MIB, 0) == HALAY_INPROGRESS)
            posted++;
        do
            step();
        while (end.puts < posted);
    }
    if (end.me == 1) {
        while (end.immediates < 3)
            step();
        usleep(20000);
        ops->deregister_mem(end.transport, end.mem);
        end.mem = NULL;
        memcpy(copy, end.memory, MIB + 2 * GUARD);
        for (double begun = now_us(); now_us() - begun < 1e6;) {
            step();
            CHECK(!memcmp(copy, end.memory, MIB + 2 * GUARD), "written after deregister_mem");
        }
    }
    for (double begun = now_us(); !end.failed && now_us() - begun < 20e6;)
        step();
    CHECK(end.failed == 1, "FAILED %u times", end.failed);
    CHECK(end.puts == posted && end.refused == (end.me == 0), "%u puts of %u, %u refused", end.puts,
          posted, end.refused);
    printf("late: the connection ended (%s), no byte changed\n", end.text);
    free(bytes);
    free(copy);
}

/* Node 0 takes the source of its puts back: all of them end, and so does the connection. */
static void under(void)
{
    uint8_t *bytes = calloc(1, MIB);
    unsigned posted = 0;
    end.puts = 0;
    meet();
    if (end.me == 0) {
        halay_mem_t *mem = kept(bytes, MIB);
        for (posted = 0; posted < WINDOW; posted++)
            CHECK(put(bytes, MIB, 0) == HALAY_INPROGRESS, "put");
        ops->deregister_mem(end.transport, mem);
    }
    for (double begun = now_us(); now_us() - begun < 20e6 && (!end.failed || end.puts != posted);)
        step();
    CHECK(end.failed == 1 && end.puts == posted, "FAILED %u times, %u puts of %u", end.failed,
          end.puts, posted);
    printf("under: %u of %u puts were refused: %s\n", end.refused, posted, end.text);
    free(bytes);
}

/*
 * A put that the driver tries for ever ends all the same when its way is given up. HALAY_VERBS says
 * mtu=256: Soft-RoCE tries in interrupts, and a slow machine does nothing else if its packets are
 * large.
 */
static void given_up(void)
{
    uint8_t *bytes = calloc(1, MIB);
    double begun = now_us();
    end.puts = 0;
    meet();
    if (end.me == 0) {
        CHECK(system("tc qdisc add dev eth0 root tbf rate 1gbit burst 300 latency 100ms") == 0,
              "tc");
        CHECK(put(bytes, MIB, 0) == HALAY_INPROGRESS, "put");
        ops->disconnect(end.transport, end.ep);
        end.ep = NULL;
    }
    while (now_us() - begun < 30e6 && (!end.failed || end.puts != (end.me == 0)))
        step();
    CHECK(end.failed == 1 && end.puts == (end.me == 0) && end.refused == end.puts,
          "FAILED %u times, %u of %u puts were refused", end.failed, end.refused, end.puts);
    printf("given-up: over after %.1f s: %s\n", (now_us() - begun) / 1e6, end.text);
    free(bytes);
}

/* The two networks do not meet: said by the deadline, with what was tried. */
static void refused(void)
{
    double begun = now_us();
    while (!end.failed && now_us() - begun < 40e6)
        step_or_sleep();
    CHECK(end.failed == 1, "FAILED %u times: %s", end.failed, end.text);
    CHECK(ops->send(end.transport, end.ep, 0, NULL, 0, "x", 1, 0) == HALAY_EPEER, "a send after");
    printf("refused after %.1f s: %s\n", (now_us() - begun) / 1e6, end.text);
}

/* ------------------------------------------------------------------ counters */

static uint64_t counter(const char *name)
{
    char whole[64];
    snprintf(whole, sizeof(whole), " %s ", name);
    const char *at = strstr(end.counters, whole);
    CHECK(at, "no counter '%s' in '%s'", name, end.counters);
    return strtoull(at + strlen(whole), NULL, 10);
}

/*
 * Two requests try each lane. A message is one request, a put one more than its WRITEs if its
 * immediate is apart; each has one doorbell. A large put is that once a lane. What is signalled
 * completes. At the end there may be one request more a lane, to know that all others are done.
 */
static void check_counters(void)
{
    uint64_t credits = counter("credits"), requests = counter("requests");
    uint64_t lanes = counter("lanes"), more = (lanes - 1) * did.cut;
    uint64_t expected = 2 * lanes + did.messages + credits + did.puts + did.apart + 2 * more;
    uint64_t last = requests - expected;
    CHECK(last <= lanes, "%llu requests for %llu", (unsigned long long)requests,
          (unsigned long long)expected);
    CHECK(counter("doorbells") == expected - lanes - did.apart - more + last, "doorbells");
    CHECK(counter("messages") == did.messages && counter("puts") == did.puts, "messages, puts");
    CHECK(counter("put_bytes") == did.put_bytes, "put_bytes");
    CHECK(counter("bounced_bytes") == did.bounced_bytes, "bounced_bytes");
    CHECK(counter("kept") == did.kept, "kept");
    CHECK(counter("registered") + counter("shared") == did.registered, "registered, shared");
    CHECK(counter("sent") == counter("signalled"), "completions");
    CHECK(counter("signalled") >= did.puts + 2 * lanes + more && counter("signalled") < requests,
          "signalled");
    CHECK(counter("connections") == 1, "connections");
    CHECK(counter("cut") == (lanes > 1 ? did.cut : 0), "cut");
    printf("counters: as the formulas say\n");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    CHECK(argc == 2, "usage: verbs_put "
                     "check|contents|kill-target|kill-source|cut|late|under|given-up|refused|open");
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(100);
    end.me = atoi(variable("NODE_ID"));
    open_here(end.me == 1 || !strcmp(mode, "refused"));
    if (!strcmp(mode, "refused"))
        connect_there();
    else if (strcmp(mode, "open") != 0)
        meet_there();
    const int checks = !strcmp(mode, "check") || !strcmp(mode, "contents");
    if (checks)
        check(!strcmp(mode, "check"));
    else if (!strcmp(mode, "late"))
        late();
    else if (!strcmp(mode, "under"))
        under();
    else if (!strcmp(mode, "given-up"))
        given_up();
    else if (!strcmp(mode, "refused"))
        refused();
    else if (strcmp(mode, "open") != 0)
        fault(mode);
    ops->deregister_mem(end.transport, end.mem);
    ops->disconnect(end.transport, end.ep);
    ops->close(end.transport);
    free(end.memory);
    if (checks)
        check_counters();
    return 0;
}
