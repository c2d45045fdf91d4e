/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_tcp_stream.c - what travels on the connections: everything mixed, both ways and
 * byte for byte; two calls at once; peers that do not read, that end in the middle, that talk
 * nonsense. Both ends are in one process here, so that it is known who does what when.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../../common/keys.h"
#include "net_rank.h"
#include "tcp_fake.h"
#include "tcp_stream.h"

/* Until a way is there in both directions. */
static void pair_open(rank_t *a, rank_t *b, halay_ep_t **to_b, halay_ep_t **to_a)
{
    halay_event_t event;
    rank_open(a, 1, 20000 * MS);
    rank_open(b, 2, 20000 * MS);
    *to_b = rank_connect(a, 2, &b->address);
    *to_a = rank_connect(b, 1, &a->address);
    for (int i = 0; i < 2; i++) {
        rank_t *from = i ? b : a, *to = i ? a : b;
        int rc;
        while ((rc = net->send(from->transport, i ? *to_a : *to_b, 0, NULL, 0, "hi", 2, 0)) ==
               HALAY_EAGAIN)
            CHECK(rank_wait(a, MS / 5, &event) + rank_wait(b, MS / 5, &event) == 0, "kind");
        CHECK(rc == 0, "send: %d", rc);
        rank_expect(to, HALAY_EVENT_MESSAGE, 5000 * MS, &event);
    }
}

static void pair_close(rank_t *a, rank_t *b)
{
    net->close(a->transport);
    rank_expect_failed(b, 1000 * MS, "closed its end");
    net->close(b->transport);
    CHECK(a->warnings + a->errors + b->warnings + b->errors == 0, "%s%s", a->log, b->log);
}

static int descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder, "opendir");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* ------------------------------------------------------------------ everything mixed */

enum { WINDOW = 8, MIXED = 4000, LARGEST = 300000 };

typedef struct landing {
    int posted;
    uint32_t seed;
    size_t bytes, room;
    uint8_t *buffer;
} landing_t;

/* One direction. What is sent stays until it has gone. */
typedef struct flow {
    rank_t *from, *to;
    halay_ep_t *ep;
    landing_t landings[WINDOW];
    uint8_t *flying[WINDOW];
    uint64_t sent, came, landed, withdrawn, partly; /* partly: SENT had to come */
} flow_t;

static uint8_t byte_of(uint32_t seed, size_t i)
{
    return (uint8_t)((seed * 2654435761u + (uint32_t)i * 40503u) >> 13);
}

static void content_check(const uint8_t *data, size_t bytes, uint32_t seed, size_t from)
{
    for (size_t i = from; i < bytes; i++)
        CHECK(data[i] == byte_of(seed, i), "byte %zu of %zu", i, bytes);
}

static size_t some_bytes(unsigned *seed, size_t most)
{
    static const size_t edges[] = {0,     1,     7,     8,     9,     991,   992,   993,
                                   2015,  2016,  2017,  8191,  8192,  65535, 65536, 65537,
                                   65792, 65784, 65785, 65776, 99999, 262144};
    size_t edge = edges[(size_t)rand_r(seed) % (sizeof(edges) / sizeof(edges[0]))];
    size_t bytes = rand_r(seed) % 3 == 0 ? edge : (size_t)rand_r(seed) % 3000;
    return rand_r(seed) % 50 == 0 ? (size_t)rand_r(seed) % most : bytes < most ? bytes : most;
}

static int slot_free(uint8_t *const slots[WINDOW])
{
    for (int i = 0; i < WINDOW; i++) {
        if (!slots[i])
            return i;
    }
    return -1;
}

/* Its first 8 bytes say what the others are. */
static void message_send(flow_t *flow, unsigned *seed)
{
    const size_t most = (64 << 10) + 256;
    size_t bytes = some_bytes(seed, most), header = (size_t)rand_r(seed) % 65;
    uint8_t *data = malloc(most);
    uint32_t says[2] = {(uint32_t)flow->sent + 1, (uint32_t)bytes};
    header = header < bytes ? header : bytes;
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_of(says[0], i);
    memcpy(data, says, bytes < 8 ? 0 : 8);
    int rc = net->send(flow->from->transport, flow->ep, 0, data, header, data + header,
                       bytes - header, 0);
    CHECK(rc == HALAY_OK || rc == HALAY_EAGAIN, "send: %d", rc);
    flow->sent += rc == HALAY_OK;
    memset(data, 0xdd, most);
    free(data);
}

/* Posts, and sends to it; now and then it is withdrawn in between. */
static void landing_send(flow_t *flow, unsigned *seed)
{
    int i = 0, s = slot_free(flow->flying);
    while (i < WINDOW && flow->landings[i].posted)
        i++;
    if (i == WINDOW || s < 0)
        return;
    landing_t *l = &flow->landings[i];
    uint64_t tag = (flow->sent + 1) << 8 | (unsigned)i;
    *l = (landing_t){1, (uint32_t)rand_r(seed), some_bytes(seed, LARGEST), 0, NULL};
    l->room = l->bytes + (size_t)rand_r(seed) % 20;
    l->buffer = malloc(l->room + 1);
    memset(l->buffer, 0xa5, l->room + 1);
    int rc = net->recv(flow->to->transport, tag, l->buffer, l->room, (uint64_t)i);
    CHECK(rc == 0, "recv: %d", rc);
    uint8_t *data = malloc(l->bytes + 1);
    for (size_t k = 0; k < l->bytes; k++)
        data[k] = byte_of(l->seed, k);
    int withdraws = rand_r(seed) % 4 == 0;
    if (withdraws)
        CHECK(net->withdraw(flow->to->transport, tag) == 0, "withdraw");
    rc = net->send(flow->from->transport, flow->ep, tag, NULL, 0, data, l->bytes, (uint64_t)s);
    CHECK(rc >= 0 || rc == HALAY_EAGAIN, "send: %d", rc);
    if (rc == HALAY_EAGAIN && !withdraws)
        CHECK(net->withdraw(flow->to->transport, tag) == 0, "withdraw");
    flow->sent += rc >= 0;
    flow->partly += rc == HALAY_INPROGRESS;
    if (rc == HALAY_INPROGRESS)
        flow->flying[s] = data;
    else
        free(data);
    if (withdraws || rc == HALAY_EAGAIN) {
        for (size_t k = 0; k <= l->room; k++)
            CHECK(l->buffer[k] == 0xa5, "it was withdrawn, and byte %zu changed", k);
        free(l->buffer);
        l->posted = 0;
        flow->withdrawn += rc >= 0;
    }
}

static void on_landed(flow_t *flow, const halay_event_t *event)
{
    landing_t *l = &flow->landings[event->cookie];
    CHECK(event->cookie < WINDOW && l->posted && event->status == 0 && event->bytes == l->bytes,
          "%zu bytes, status %d", event->bytes, event->status);
    content_check(l->buffer, l->bytes, l->seed, 0);
    for (size_t i = l->bytes; i <= l->room; i++)
        CHECK(l->buffer[i] == 0xa5, "beside");
    free(l->buffer);
    l->posted = 0;
    flow->landed++;
}

static void on_message(flow_t *flow, const halay_event_t *event)
{
    uint32_t says[2];
    CHECK((uintptr_t)event->data % 8 == 0, "%p", event->data);
    flow->came++;
    if (event->bytes < 8)
        return;
    memcpy(says, event->data, 8);
    CHECK(says[1] == event->bytes, "%zu bytes for %u", event->bytes, says[1]);
    content_check(event->data, event->bytes, says[0], 8);
}

/* in: to this rank; out: from it. */
static int mixed_poll(flow_t *in, flow_t *out, unsigned *seed)
{
    halay_event_t events[16];
    int max = 1 + rand_r(seed) % 16;
    int n = net->poll(in->to->transport, events, max);
    CHECK(n >= 0 && n <= max, "poll: %d", n);
    for (int i = 0; i < n; i++) {
        switch (events[i].kind) {
        case HALAY_EVENT_MESSAGE:
            on_message(in, &events[i]);
            break;
        case HALAY_EVENT_LANDED:
            on_landed(in, &events[i]);
            break;
        case HALAY_EVENT_SENT:
            CHECK(events[i].status == 0 && out->flying[events[i].cookie], "SENT %d",
                  events[i].status);
            memset(out->flying[events[i].cookie], 0xdd, 1);
            free(out->flying[events[i].cookie]);
            out->flying[events[i].cookie] = NULL;
            break;
        default:
            CHECK(0, "kind %d: %s", events[i].kind, events[i].text);
        }
    }
    return n;
}

static int flow_rests(const flow_t *flow)
{
    for (int i = 0; i < WINDOW; i++) {
        if (flow->flying[i])
            return 0;
    }
    return flow->came + flow->landed + flow->withdrawn == flow->sent;
}

void mixed(void)
{
    rank_t a = {0}, b = {0};
    flow_t flow[2] = {{.from = &a, .to = &b}, {.from = &b, .to = &a}};
    unsigned seed = 4;
    pair_open(&a, &b, &flow[0].ep, &flow[1].ep);
    uint64_t until = clock_ns() + 60000 * MS;
    while (flow[0].sent < MIXED || flow[1].sent < MIXED || !flow_rests(&flow[0]) ||
           !flow_rests(&flow[1])) {
        int d = rand_r(&seed) % 2;
        for (int burst = rand_r(&seed) % 12; burst > 0 && flow[d].sent < MIXED; burst--) {
            if (rand_r(&seed) % 4 == 0)
                landing_send(&flow[d], &seed);
            else
                message_send(&flow[d], &seed);
        }
        mixed_poll(&flow[d], &flow[!d], &seed);
        CHECK(clock_ns() < until, "%llu and %llu were sent", (unsigned long long)flow[0].sent,
              (unsigned long long)flow[1].sent);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(flow[i].landed > 0 && flow[i].withdrawn > 0 && flow[i].partly > 0, "too easy");
        printf("%llu messages, %llu landed, %llu withdrawn, %llu not at once\n",
               (unsigned long long)flow[i].came, (unsigned long long)flow[i].landed,
               (unsigned long long)flow[i].withdrawn, (unsigned long long)flow[i].partly);
    }
    pair_close(&a, &b);
}

/* ------------------------------------------------------------------ two calls at once */

/* Each sends from its first moment on. Nothing is lost or comes twice; one connection stays. */
static void both_call_once(unsigned seed, int before)
{
    enum { MANY = 40 };
    rank_t a = {0}, b = {0};
    halay_event_t event;
    uint64_t next[2] = {0}, came[2] = {0}, until = clock_ns() + 10000 * MS;
    rank_open(&a, seed % 2 ? 1 : 3, 20000 * MS);
    rank_open(&b, 2, 20000 * MS);
    rank_t *rank[2] = {&a, &b};
    halay_ep_t *ep[2];
    ep[0] = rank_connect(&a, 2, &b.address);
    ep[1] = rank_connect(&b, seed % 2 ? 1 : 3, &a.address);
    while (came[0] < MANY || came[1] < MANY) {
        int i = rand_r(&seed) % 2;
        int rc = HALAY_EAGAIN;
        if (next[i] < MANY)
            rc = net->send(rank[i]->transport, ep[i], 0, NULL, 0, &next[i], 8, 0);
        CHECK(rc == 0 || rc == HALAY_EAGAIN, "send: %d", rc);
        next[i] += rc == 0;
        i = rand_r(&seed) % 2;
        int n = net->poll(rank[i]->transport, &event, 1);
        CHECK(n == 0 || (n == 1 && event.kind == HALAY_EVENT_MESSAGE), "%d: kind %d", n,
              event.kind);
        came[i] += (uint64_t)n;
        CHECK(clock_ns() < until, "messages are lost");
    }
    for (int i = 0; i < 40; i++)
        CHECK(rank_wait(&a, MS / 4, &event) + rank_wait(&b, MS / 4, &event) == 0, "kind");
    int mine = descriptors() - before;
    CHECK(mine == 2 * 4 + 2, "%d descriptors: more or less than one connection", mine);
    pair_close(&a, &b);
    CHECK(descriptors() == before, "descriptors are left");
}

void both_call(void)
{
    int before = descriptors();
    for (unsigned i = 0; i < 30; i++)
        both_call_once(i + 1, before);
}

/* ------------------------------------------------------------------ who does not read */

/* Stands still for longer than a dead host would be given: that is no failure. */
void patient(void)
{
    enum { BYTES = 32 << 20 };
    rank_t a = {0}, b = {0};
    halay_ep_t *to_a, *to_b;
    halay_event_t event;
    uint8_t *from = malloc(BYTES), *to = malloc(BYTES);
    pair_open(&a, &b, &to_b, &to_a);
    for (size_t i = 0; i < BYTES; i++)
        from[i] = byte_of(3, i);
    CHECK(net->recv(b.transport, 5, to, BYTES, 9) == 0, "recv");
    CHECK(net->send(a.transport, to_b, 5, NULL, 0, from, BYTES, 8) == HALAY_INPROGRESS, "send");
    CHECK(rank_wait(&a, 8000 * MS, &event) == 0, "kind %d %s", event.kind, a.text);
    uint64_t until = clock_ns() + 20000 * MS;
    while ((a.sent == 0 || b.landed == 0) && clock_ns() < until) {
        rank_wait(&b, MS, &event);
        rank_wait(&a, MS, &event);
    }
    CHECK(a.failed + b.failed == 0 && a.sent == 1 && b.landed_bytes == BYTES, "%s%s", a.text,
          b.text);
    content_check(to, BYTES, 3, 0);
    pair_close(&a, &b);
    free(from);
    free(to);
}

/* Who was refused because the other end does not read is woken when it does. */
void refused_wakes(void)
{
    rank_t a = {0}, b = {0};
    halay_ep_t *to_a, *to_b;
    halay_event_t event;
    struct pollfd nap = {.events = POLLIN};
    static uint8_t bytes[8192];
    uint64_t sent = 0, came = 0, until = clock_ns() + 20000 * MS;
    int rc;
    pair_open(&a, &b, &to_b, &to_a);
    while ((rc = net->send(a.transport, to_b, 0, NULL, 0, bytes, sizeof(bytes), 0)) == 0)
        sent++;
    CHECK(rc == HALAY_EAGAIN, "send: %d", rc);
    while (net->poll(a.transport, &event, 1) == 0 && net->arm(a.transport, &nap.fd) == HALAY_EAGAIN)
        CHECK(clock_ns() < until, "arm");
    CHECK(net->send(a.transport, to_b, 0, NULL, 0, bytes, sizeof(bytes), 0) == HALAY_EAGAIN,
          "send");
    CHECK(net->arm(a.transport, &nap.fd) == HALAY_EAGAIN || poll(&nap, 1, 50) == 0, "it is woken");
    net->poll(a.transport, &event, 1);
    net->send(a.transport, to_b, 0, NULL, 0, bytes, sizeof(bytes), 0);
    while (net->arm(a.transport, &nap.fd) == HALAY_EAGAIN)
        net->poll(a.transport, &event, 1);
    while (came < sent && rank_wait(&b, 100 * MS, &event) == HALAY_EVENT_MESSAGE)
        came++;
    CHECK(poll(&nap, 1, 1000) == 1, "it sleeps on");
    while (came < sent) {
        rank_wait(&a, MS, &event);
        came += rank_wait(&b, MS, &event) == HALAY_EVENT_MESSAGE;
        CHECK(clock_ns() < until, "%llu of %llu", (unsigned long long)came,
              (unsigned long long)sent);
    }
    pair_close(&a, &b);
}

/* ------------------------------------------------------------------ who ends in the middle */

/* What is under way ends once, with an error, then the peer has failed. */
void cut(void)
{
    enum { BYTES = 32 << 20 };
    rank_t a = {0}, b = {0};
    halay_ep_t *to_a, *to_b;
    halay_event_t event;
    uint8_t *from = calloc(1, BYTES), *to = calloc(1, BYTES);
    pair_open(&a, &b, &to_b, &to_a);
    CHECK(net->recv(a.transport, 6, to, BYTES, 1) == 0, "recv");
    CHECK(net->send(a.transport, to_b, 5, NULL, 0, from, BYTES, 8) == HALAY_INPROGRESS, "send");
    CHECK(net->send(b.transport, to_a, 6, NULL, 0, from, BYTES, 8) == HALAY_INPROGRESS, "send");
    uint64_t until = clock_ns() + 5000 * MS;
    for (int i = 0; i < 3; i++)
        CHECK(rank_wait(&a, MS, &event) == 0, "kind %d", event.kind);
    int rc = net->withdraw(a.transport, 6);
    CHECK(rc == HALAY_INPROGRESS, "withdraw in the middle: %d", rc);
    net->close(b.transport);
    while (a.failed == 0 || a.sent == 0 || a.landed == 0) {
        int kind = rank_wait(&a, 10 * MS, &event);
        CHECK(kind != HALAY_EVENT_SENT || event.status == HALAY_EPEER, "SENT %d", event.status);
        CHECK(clock_ns() < until, "%d failed, %d sent, %d landed", a.failed, (int)a.sent,
              (int)a.landed);
    }
    CHECK(rank_wait(&a, 50 * MS, &event) == 0 && a.failed + a.sent + a.landed == 3, "twice");
    CHECK(a.landed_status == HALAY_EPEER || a.landed_bytes == BYTES, "LANDED %d", a.landed_status);
    CHECK(net->send(a.transport, to_b, 0, NULL, 0, "x", 1, 0) == HALAY_EPEER, "send");
    net->close(a.transport);
    free(from);
    free(to);
}

/* More than was posted for: none of it lands, and what follows is in step. */
void too_large(void)
{
    rank_t a = {0}, b = {0};
    halay_ep_t *to_a, *to_b;
    halay_event_t event;
    static uint8_t from[100001], to[17];
    pair_open(&a, &b, &to_b, &to_a);
    for (size_t bytes = 16; bytes < sizeof(from); bytes = bytes * 7 + 3) {
        memset(to, 0xa5, sizeof(to));
        CHECK(net->recv(b.transport, 5, to, 16, bytes) == 0, "recv");
        CHECK(send_now(&a, to_b, 5, from, bytes) >= 0, "send");
        CHECK(send_now(&a, to_b, 0, "on", 2) >= 0, "send");
        int fits = bytes <= 16, came = 0;
        b.landed = 0;
        while (came == 0 || b.landed == 0) { /* in any order */
            int kind = rank_wait(&b, 5000 * MS, &event);
            CHECK(kind == HALAY_EVENT_MESSAGE || kind == HALAY_EVENT_LANDED, "kind %d", kind);
            came += kind == HALAY_EVENT_MESSAGE;
            if (kind == HALAY_EVENT_LANDED)
                CHECK(event.cookie == bytes && event.status == (fits ? 0 : HALAY_EINVAL) &&
                          event.bytes == (fits ? bytes : 0),
                      "status %d, %zu bytes", event.status, event.bytes);
        }
        CHECK(to[16] == 0xa5 && to[0] == (fits ? 0 : 0xa5), "it landed");
        while (rank_wait(&a, MS, &event) == HALAY_EVENT_SENT)
            ;
    }
    pair_close(&a, &b);
}

/* ------------------------------------------------------------------ who leaves when it has all */

/*
 * All that was sent has landed, and its receiver leaves. SENT of each comes before FAILED, though
 * this end takes one event a poll, and looks for ends long before the last.
 */
void leaves(void)
{
    enum { MANY = HLY_TCP_TICK + 10, FIRST = 16 << 20 };
    rank_t a = {0}, b = {0};
    halay_ep_t *to_a, *to_b;
    halay_event_t event;
    uint8_t *from = calloc(1, FIRST), *to = malloc(FIRST);
    uint64_t until = clock_ns() + 20000 * MS;
    pair_open(&a, &b, &to_b, &to_a);
    for (uint64_t i = 0; i < MANY; i++) { /* the first fills the socket; the others wait behind */
        const size_t bytes = i ? 16 : FIRST;
        CHECK(net->recv(b.transport, 5 + i, to, bytes, i) == 0, "recv");
        int rc = net->send(a.transport, to_b, 5 + i, NULL, 0, from, bytes, i);
        CHECK(rc == HALAY_INPROGRESS, "send %llu: %d", (unsigned long long)i, rc);
    }
    while (b.landed < MANY && clock_ns() < until) {
        while (rank_wait(&b, 0, &event))
            ;
        if (b.landed < MANY)
            rank_wait(&a, 0, &event);
    }
    CHECK(a.sent + HLY_TCP_TICK < MANY, "too easy: %llu are told", (unsigned long long)a.sent);
    net->close(b.transport);
    while (a.failed == 0 && clock_ns() < until)
        rank_wait(&a, MS, &event);
    CHECK(a.failed == 1 && a.sent == MANY, "lost behind %llu of %d that were sent: %s",
          (unsigned long long)a.sent, MANY, a.text);
    net->close(a.transport);
    free(from);
    free(to);
}

/* ------------------------------------------------------------------ who talks nonsense */

/* Of frames whose seal is right. mark: another than frames have; 0: theirs. */
static size_t frame_make(fake_t *fake, unsigned mark, int kind, uint64_t bytes, uint64_t tag,
                         uint8_t *said)
{
    hly_tcp_frame_t frame = hly_tcp_frame(&fake->link.out_seal, kind, bytes, tag, 0);
    if (mark) {
        const uint64_t words[4] = {fake->link.out_seal.count,
                                   (frame.word << 8 >> 8) | (uint64_t)mark << 56, tag, 0};
        frame.word = words[1];
        frame.seal = hly_sip(fake->link.out_seal.key, words, 4);
    }
    fake->link.out_seal.count++;
    memcpy(said, &frame, sizeof(frame));
    return sizeof(frame);
}

static void nonsense_end(rank_t *a, fake_t *fake, const void *said, size_t bytes, const char *text)
{
    if (bytes)
        give(fake->fd, said, bytes);
    else
        shutdown(fake->fd, SHUT_WR);
    rank_expect_failed(a, 1000 * MS, text);
    fake_end(fake);
    net->close(a->transport);
}

void nonsense(void)
{
    const struct {
        unsigned mark;
        int kind;
        uint64_t bytes, tag;
    } said[] = {
        {0, 0, 0, 0},
        {0, 5, 0, 0},
        {0x4d, 1, 8, 0},
        {0, 1, 8, 1},                 /* a message with a tag */
        {0, 2, 8, 0},                 /* one for a landing buffer without */
        {0, 1, (64 << 10) + 257, 0},  /* one that is too large */
        {0, 1, UINT64_C(1) << 47, 0}, /* one that is very large */
        {0, 3, 8, 0},                 /* a notice with bytes */
        {0, 4, 8, 0},
    };
    uint8_t bytes[2 * sizeof(hly_tcp_frame_t)] = {0};
    fake_t fake;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]) + 4; i++) {
        size_t n = 0, k = i - sizeof(said) / sizeof(said[0]);
        rank_t a = {0};
        const char *text = "makes no sense";
        rank_open(&a, 1, 20000 * MS);
        fake_meet(&fake, &a, SEAL_HEADERS);
        if (i < sizeof(said) / sizeof(said[0])) {
            n = frame_make(&fake, said[i].mark, said[i].kind, said[i].bytes, said[i].tag, bytes);
        } else if (k == 0) {
            text = "ended";
        } else if (k == 1) {
            n = frame_make(&fake, 0, FRAME_RETIRE, 0, 0, bytes);
            n += frame_make(&fake, 0, FRAME_RETIRE, 0, 0, bytes + n);
        } else if (k == 2) {
            n = frame_make(&fake, 0, FRAME_GOODBYE, 0, 0, bytes);
            text = "closed its end";
        } else {
            memset(bytes, 0, n = sizeof(hly_tcp_frame_t));
            text = "lacks its seal";
        }
        nonsense_end(&a, &fake, bytes, n, text);
    }
}
