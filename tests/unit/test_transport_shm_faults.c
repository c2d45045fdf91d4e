/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_shm_faults.c - strangers at the socket, peers that scribble, and too little of
 * everything. Looks inside the transport.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "../../common/keys.h"
#include "../../transports/shm/shm.h"
#include "shm_rank.h"

/* The authors' vectors for SipHash-2-4-128, key 00 01 .. 0f: no input, and 00 01 .. 07. */
static void siphash(void)
{
    static const uint8_t none[16] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                     0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
    uint8_t key[16], bytes[8];
    uint64_t word, out[2], other[2];
    for (int i = 0; i < 16; i++)
        key[i] = (uint8_t)i;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)i;
    memcpy(&word, bytes, 8);
    hly_sip_long(key, &word, 0, out);
    CHECK(memcmp(out, none, 16) == 0, "%llx", (unsigned long long)out[0]);
    hly_sip_long(key, &word, 1, other);
    CHECK(memcmp(other, none, 16) != 0, "the input does not matter");
}

/* ------------------------------------------------------------------ at the socket */

static int call_raw(const rank_t *rank, uint64_t id)
{
    struct sockaddr_un address;
    socklen_t length = hly_shm_name(rank->transport, (halay_peer_id_t){7, id}, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0, "connect");
    return fd;
}

/* The other end hangs up. */
static void expect_hangup(rank_t *rank, int fd)
{
    char byte;
    uint64_t begun = clock_ns();
    halay_event_t event;
    for (;;) {
        CHECK(rank_wait(rank, 1, &event) == 0, "%s", rank->text);
        ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            break;
        CHECK(n < 0 && errno == EAGAIN, "it was answered");
        CHECK(clock_ns() - begun < 10000 * MS, "it was not dropped");
    }
    close(fd);
}

/* A real peer gets through. */
static void works_still(rank_t *b)
{
    static uint64_t id = 100;
    rank_t c = {0};
    rank_open(&c, ++id);
    halay_ep_t *ep = rank_connect(&c, 2);
    message_send(&c, ep, 77, 5000);
    rank_expect(b, 77);
    shm->disconnect(c.transport, ep);
    rank_quiet(b, 1);
    rank_close(&c);
}

static void garbage(void)
{
    rank_t b = {0};
    char text[70000];
    job_draw();
    rank_open(&b, 2);
    int before = descriptors();
    memset(text, 'x', sizeof(text));
    static const size_t sizes[] = {
        1,    8, sizeof(hly_shm_hello_t) - 1, sizeof(hly_shm_hello_t), sizeof(hly_shm_hello_t) + 1,
        70000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int fd = call_raw(&b, 2);
        CHECK(send(fd, text, sizes[i], MSG_NOSIGNAL) == (ssize_t)sizes[i], "send");
        expect_hangup(&b, fd);
    }
    close(call_raw(&b, 2));
    CHECK(b.logged[1] == 1 && b.logged[0] == 0, "%d %d", b.logged[1], b.logged[0]);
    CHECK(strstr(b.log, "was dropped"), "%s", b.log);
    works_still(&b);
    CHECK(descriptors() == before, "%d descriptors, then %d", before, descriptors());
    rank_close(&b);
}

/* More than have seats, and they say nothing: peers get through, and they are put out. */
static void silent(void)
{
    enum { MANY = HLY_SHM_GUESTS + 40 };
    rank_t b = {.asleep = 1};
    int fd[MANY];
    job_draw();
    rank_open(&b, 2);
    int before = descriptors();
    for (int i = 0; i < MANY; i++)
        fd[i] = call_raw(&b, 2);
    works_still(&b);
    uint64_t begun = clock_ns();
    for (int i = 0; i < MANY; i++)
        expect_hangup(&b, fd[i]);
    uint64_t took = clock_ns() - begun;
    CHECK(took > 500 * MS && took < 5000 * MS, "%llu ms", (unsigned long long)(took / MS));
    CHECK(b.logged[1] == 1, "%d", b.logged[1]);
    works_still(&b);
    CHECK(descriptors() == before, "%d descriptors, then %d", before, descriptors());
    rank_close(&b);
}

/* They come, say rubbish and go, as fast as a process can: a rank that polls lets few of them in,
 * wakes up for few, and hears a peer that comes among them. */
static void flooded(void)
{
    enum { MANY = 1000 };
    for (int asleep = 0; asleep < 2; asleep++) {
        rank_t b = {.asleep = asleep};
        halay_event_t event;
        job_draw();
        rank_open(&b, 2);
        int before = descriptors();
        uint64_t open_ns = 0;
        for (int i = 0; i < MANY; i++) {
            int fd = call_raw(&b, 2);
            CHECK(send(fd, "GET /", 5, MSG_NOSIGNAL) == 5, "send");
            close(fd);
        }
        uint64_t begun = clock_ns();
        works_still(&b);
        uint64_t took = clock_ns() - begun;
        const uint64_t least = (MANY - HLY_MEET_STRANGERS - HLY_SHM_ROUNDS) * HLY_MEET_STRANGER_NS;
        CHECK(took > least * 9 / 10, "a thousand strangers were let in within %llu ms",
              (unsigned long long)(took / MS));
        CHECK(took < 10000 * MS, "a peer came in after %llu ms", (unsigned long long)(took / MS));
        while (b.transport->gate.open_ns > open_ns) { /* it opens again */
            open_ns = b.transport->gate.open_ns;
            CHECK(rank_wait(&b, 100 * MS, &event) == 0, "%s", b.text);
        }
        works_still(&b);
        CHECK(descriptors() == before, "%d descriptors, then %d", before, descriptors());
        rank_close(&b);
    }
}

enum {
    RIGHT,
    SECRET,
    LAST_OF_SECRET,
    KIND,
    MAGIC,
    NOT_ME,
    RING_ODD,
    RING_HUGE,
    RING_SMALL,
    RING_LONGER,
    NO_MEMFD,
    UNSEALED,
    NO_RING_IN_IT,
    FEW_FDS,
    ONE_FD_MORE,
    MANY_FDS,
    HELLOS
};

static int memory_for(int what, size_t bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)(HLY_SHM_HEAD + bytes)) == 0, "memfd");
    uint64_t head[2] = {what == NO_RING_IN_IT ? 0 : HLY_SHM_MAGIC, bytes};
    CHECK(pwrite(fd, head, sizeof(head), 0) == sizeof(head), "pwrite");
    if (what != UNSEALED)
        CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seal");
    return fd;
}

/* Of the right kind, and then some. */
static void send_more(int socket, const hly_shm_hello_t *hello, const int fds[], int n)
{
    char room[CMSG_SPACE(200 * sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec part = {(void *)(uintptr_t)hello, sizeof(*hello)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room};
    message.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
    for (int i = 0; i < n; i++)
        memcpy(CMSG_DATA(head) + (size_t)i * sizeof(int), &fds[i % HLY_SHM_FDS], sizeof(int));
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*hello), "send %d", n);
}

static void hello_once(rank_t *b, int what)
{
    hly_shm_hello_t hello;
    size_t bytes = 65536;
    hly_shm_hello_fill(b->transport, HLY_SHM_HELLO, (halay_peer_id_t){7, 2}, &hello);
    hello.from = (halay_peer_id_t){8, (uint64_t)what};
    hello.secret[0] ^= what == SECRET;
    hello.secret[15] ^= what == LAST_OF_SECRET;
    hello.kind = what == KIND ? HLY_SHM_ANSWER : HLY_SHM_HELLO;
    hello.magic ^= what == MAGIC;
    hello.to.lo ^= what == NOT_ME;
    hello.ring_bytes = what == RING_ODD      ? bytes - 64
                       : what == RING_HUGE   ? (uint64_t)1 << 63
                       : what == RING_SMALL  ? 4096
                       : what == RING_LONGER ? bytes * 2
                                             : bytes;
    int fd = call_raw(b, 2), fds[HLY_SHM_FDS];
    fds[HLY_SHM_FD_PROCESS] = hly_shm_pidfd(getpid());
    fds[HLY_SHM_FD_WAKE] = eventfd(0, EFD_CLOEXEC);
    fds[HLY_SHM_FD_RING] = what == NO_MEMFD ? eventfd(0, EFD_CLOEXEC) : memory_for(what, bytes);
    int n = what == FEW_FDS ? 2 : HLY_SHM_FDS;
    if (what == ONE_FD_MORE || what == MANY_FDS)
        send_more(fd, &hello, fds, what == MANY_FDS ? 200 : HLY_SHM_FDS + 1);
    else
        CHECK(hly_shm_hello_send(fd, &hello, fds, n) == 0, "send");
    for (int i = 0; i < HLY_SHM_FDS; i++)
        close(fds[i]);
    if (what != RIGHT) {
        expect_hangup(b, fd);
        return;
    }
    halay_event_t event;
    CHECK(rank_wait(b, 5 * MS, &event) == 0, "%s", b->text);
    CHECK(hly_shm_hello_recv(fd, &hello, fds, 2) == 1, "the right hello got no answer");
    CHECK(hello.kind == HLY_SHM_ANSWER && hello.pid == (uint32_t)getpid(), "answer");
    close(fds[0]);
    close(fds[1]);
    close(fd);
}

static void hellos(void)
{
    rank_t b = {0};
    job_draw();
    rank_open(&b, 2);
    hello_once(&b, RIGHT); /* so the wrong ones are wrong in what they say they are */
    int before = descriptors();
    for (int what = RIGHT + 1; what < HELLOS; what++)
        hello_once(&b, what);
    CHECK(b.logged[1] == 1 && b.logged[0] == 1, "%d %d", b.logged[1], b.logged[0]);
    works_still(&b);
    CHECK(descriptors() == before, "%d descriptors, then %d", before, descriptors());
    rank_close(&b);
}

/* ------------------------------------------------------------------ scribblers */

static void scribble_once(uint64_t word, int advance)
{
    rank_t a = {.options = "ring=8192"}, b = {0};
    job_draw();
    rank_open(&a, 1);
    rank_open(&b, 2);
    halay_ep_t *ep = rank_connect(&a, 2);
    for (int i = 0; i < advance; i++) {
        message_send(&a, ep, (uint32_t)i, 1000);
        rank_expect(&b, (uint32_t)i);
    }
    atomic_store(&hly_shm_ring_cell(&ep->ring)->word, word);
    rank_expect_failed(&b, 5000 * MS, 1, "overwritten");
    CHECK(b.status == HALAY_ETRANSPORT, "%d", b.status);
    rank_expect_failed(&a, 5000 * MS, 2, "closed its end");
    rank_quiet(&b, 2);
    works_still(&b);
    rank_close(&a);
    rank_close(&b);
}

static void scribbles(void)
{
    const size_t most = hly_shm_ring_message(8192 - 1);
    scribble_once(hly_shm_ring_word(2, 0, 8), 3);           /* another message's number */
    scribble_once(hly_shm_ring_word(5, 0, 8), 3);           /* the next one's */
    scribble_once(hly_shm_ring_word(1, 0, 8), 70);          /* of two laps before */
    scribble_once(hly_shm_ring_word(4, 0xff, most + 1), 3); /* longer than a message may be */
    scribble_once(hly_shm_ring_word(4, 0, most - 8), 3);    /* with its header */
    scribble_once(hly_shm_ring_word(8, 0xff, (1u << 28) - 1), 7);
    scribble_once(UINT64_MAX, 5);
}

static void heads(void)
{
    static const uint64_t values[] = {UINT64_MAX, 1ull << 40, 1ull << 63, 8192 + 64};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        rank_t a = {.options = "ring=8192"}, b = {0};
        halay_event_t event;
        int rc;
        job_draw();
        rank_open(&a, 1);
        rank_open(&b, 2);
        halay_ep_t *ep = rank_connect(&a, 2);
        CHECK(rank_wait(&b, 1 * MS, &event) == 0, "%s", b.text);
        atomic_store(&ep->ring.shared->head, values[i]);
        for (uint32_t k = 0; (rc = message_try(&a, ep, k, 1000)) == 0; k++)
            CHECK(k < 10, "the ring is never full");
        CHECK(rc == HALAY_EPEER, "%d", rc);
        rank_expect_failed(&a, 5000 * MS, 2, "overwritten");
        rank_close(&a);
        rank_close(&b);
    }
}

/* Random words at random places, written while they are read: no access outside of the ring. */
static void fuzz(void)
{
    uint64_t state = 88172645463325252u, sum = 0;
    int failures = 0;
    for (int round = 0; round < 300; round++) {
        rank_t a = {.options = "ring=8192"}, b = {0};
        halay_event_t event;
        job_draw();
        rank_open(&a, 1);
        rank_open(&b, 2);
        halay_ep_t *ep = rank_connect(&a, 2);
        CHECK(rank_wait(&b, 1, &event) == 0, "%s", b.text);
        for (uint32_t i = 0; i < 200 && !b.failed; i++) {
            (void)message_try(&a, ep, i, 8 + state % 1900);
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            uint64_t word = state >> 11 << (state % 3 * 16);
            if (i % 4 == 0) /* a plausible one */
                word = hly_shm_ring_word(ep->ring.number + 1 + state % 2, state >> 40 & 0xff,
                                         state % 2200);
            atomic_store(&ep->ring.shared->cells[(state >> 20) % HLY_SHM_CELLS].word, word);
            while (shm->poll(b.transport, &event, 1) == 1) {
                b.failed += event.kind == HALAY_EVENT_FAILED;
                const uint8_t *data = event.data;
                for (size_t k = 0; event.kind == HALAY_EVENT_MESSAGE && k < event.bytes; k++)
                    sum += data[k];
            }
        }
        failures += b.failed;
        CHECK(b.failed <= 1, "told twice");
        rank_close(&a);
        rank_close(&b);
    }
    CHECK(failures > 100 && sum > 0, "%d", failures);
}

/* ------------------------------------------------------------------ headers as far as they are new
 */

typedef struct sent {
    uint64_t words[64];
    size_t header, bytes;
} sent_t;

static uint64_t dice(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 16;
}

/* Like the one before it in some words of the header; now and then with a header of another size.
 */
static void vary(sent_t *message, const sent_t *before, uint64_t *state)
{
    uint64_t keeps = dice(state) & dice(state);
    if (dice(state) % 2)
        keeps = ~(UINT64_C(1) << dice(state) % 8); /* as mostly */
    message->header = dice(state) % 8 ? 64 : dice(state) % 16 * 8;
    message->bytes = message->header + dice(state) % (dice(state) % 2 ? 60 : 300);
    for (size_t i = 0; i < 64; i++)
        message->words[i] = i < 8 && keeps >> i & 1 ? before->words[i] : dice(state);
}

/* The usual way only where it can be gone. */
static int send_either(hly_shm_ring_t *out, const sent_t *m, int tries_usual)
{
    const uint8_t *payload = (const uint8_t *)m->words + m->header;
    const size_t bytes = m->bytes - m->header;
    uint64_t need;
    int wake;
    if (tries_usual && m->header == HLY_SHM_LINE &&
        hly_shm_ring_send_usual(out, m->words, payload, bytes, &wake))
        return 1;
    return hly_shm_ring_send(out, m->words, m->header, payload, bytes, 0, &need, &wake);
}

static int take_either(hly_shm_ring_t *in, uint64_t die, const void **data, size_t *bytes,
                       int *usual)
{
    const size_t most = die & 2 ? HLY_SHM_BESIDE : hly_shm_ring_message(in->mask) - HLY_SHM_LINE;
    const uint64_t word = hly_shm_ring_look(in);
    if (die & 1 && word && hly_shm_ring_take_usual(in, word, most, data, bytes)) {
        ++*usual;
        return 1;
    }
    return hly_shm_ring_take(in, data, bytes);
}

/* Both ends of one ring, with this many messages behind them. */
static void headers_after(uint64_t number)
{
    enum { SENT = 2 * HLY_SHM_CELLS };
    static sent_t sent[SENT];
    uint64_t state = 88172645463325252u + number, first = 0, next = 0;
    hly_shm_ring_t out, in;
    const char *why;
    const void *data;
    size_t bytes;
    int fd, rc, usual = 0;
    CHECK(hly_shm_ring_create(HLY_SHM_RING_MIN, &out, &fd, &why) == 0, "%s", why);
    CHECK(hly_shm_ring_map(fd, HLY_SHM_RING_MIN, &in, &why) == 0, "%s", why);
    close(fd);
    out.number = out.taken = in.number = in.taken = number;
    atomic_store(&out.shared->taken, number);
    for (uint64_t n = number - HLY_SHM_CELLS; number && n != number; n++)
        atomic_store(&out.shared->cells[n % HLY_SHM_CELLS].word, hly_shm_ring_word(n + 1, 0, 0));
    for (int round = 0; round < 3000; round++) {
        for (uint64_t most = next + 1 + dice(&state) % 80;; next++) {
            sent_t *m = &sent[next % SENT];
            vary(m, &sent[(next - 1) % SENT], &state);
            rc = next == most ? 0 : send_either(&out, m, dice(&state) % 2);
            if (rc != 1)
                break;
        }
        CHECK(rc == 0, "message %d: %d", (int)next, rc);
        for (uint64_t left = dice(&state) % 80; left && first < next; left--, first++) {
            const sent_t *m = &sent[first % SENT];
            if (hly_shm_ring_holds(&in))
                hly_shm_ring_release(&in);
            CHECK(take_either(&in, dice(&state), &data, &bytes, &usual) == 1,
                  "message %d is not there", (int)first);
            CHECK(bytes == m->bytes && !memcmp(data, m->words, bytes), "message %d", (int)first);
        }
        if (first == next)
            CHECK(hly_shm_ring_take(&in, &data, &bytes) == 0, "one too many");
    }
    CHECK(next > 10000 && usual > 1000, "%d messages, %d usual ones", (int)next, usual);
    hly_shm_ring_unmap(&in);
    hly_shm_ring_unmap(&out);
}

/* The short way ends where there is no cell left, and goes on when one is free. */
static void short_until_full(void)
{
    uint64_t header[HLY_SHM_WORDS] = {1, 2, 3, 4, 5, 6, 7, 8}, sent = 0, taken = 0;
    hly_shm_ring_t out, in;
    const char *why;
    const void *data;
    size_t bytes;
    int fd, wake;
    CHECK(hly_shm_ring_create(HLY_SHM_RING_MIN, &out, &fd, &why) == 0, "%s", why);
    CHECK(hly_shm_ring_map(fd, HLY_SHM_RING_MIN, &in, &why) == 0, "%s", why);
    close(fd);
    out.lines[1] = in.lines[1] = 2; /* or it does not fit */
    for (int lap = 0; lap < 5; lap++) {
        uint64_t need;
        for (header[2] = sent; sent - taken <= HLY_SHM_CELLS; header[2] = ++sent)
            if (!hly_shm_ring_send_usual(&out, header, NULL, 0, &wake))
                break;
        CHECK(sent - taken == HLY_SHM_CELLS, "%d messages in the cells", (int)(sent - taken));
        for (; taken < sent; taken++) {
            CHECK(hly_shm_ring_take(&in, &data, &bytes) == 1, "message %d", (int)taken);
            CHECK(bytes == sizeof(header) && ((const uint64_t *)data)[2] == taken &&
                      ((const uint64_t *)data)[7] == 8,
                  "message %d is another", (int)taken);
        }
        hly_shm_ring_release(&in);
        header[2] = sent;
        CHECK(!hly_shm_ring_send_usual(&out, header, NULL, 0, &wake), "it looked for room");
        CHECK(hly_shm_ring_send(&out, header, sizeof(header), NULL, 0, 0, &need, &wake) == 1,
              "room");
        sent++;
    }
    hly_shm_ring_unmap(&in);
    hly_shm_ring_unmap(&out);
}

static void headers(void)
{
    short_until_full();
    headers_after(0);
    headers_after((1u << 28) - 1000); /* where the numbers begin again */
}

/* ------------------------------------------------------------------ too little of everything */

static void limit(int which, rlim_t value)
{
    struct rlimit limit;
    CHECK(getrlimit(which, &limit) == 0, "getrlimit");
    limit.rlim_cur = value;
    CHECK(setrlimit(which, &limit) == 0, "setrlimit");
}

static void connect_must_fail(rank_t *rank, const char *text)
{
    halay_ep_t *ep = NULL;
    int rc = shm->connect(rank->transport, (halay_peer_id_t){7, 2}, NULL, 0, &ep);
    CHECK(rc == HALAY_ENOMEM && !ep, "%d", rc);
    CHECK(rank->logged[0] == 1 && strstr(rank->log, text), "'%s' is not in '%s'", text, rank->log);
}

static void small_files(void *arg)
{
    rank_t a = {0};
    (void)arg;
    rank_open(&a, 1);
    limit(RLIMIT_FSIZE, 100000);
    connect_must_fail(&a, "file size"); /* and no SIGXFSZ */
    rank_close(&a);
    a.options = "ring=65536";
    rank_open(&a, 1);
    rank_connect(&a, 2);
    rank_close(&a);
}

static void small_memory(void *arg)
{
    rank_t a = {.options = "ring=67108864"};
    long pages = 0;
    (void)arg;
    rank_open(&a, 1);
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1, "statm");
    fclose(file);
    limit(RLIMIT_AS, (rlim_t)pages * 4096 + (32u << 20));
    connect_must_fail(&a, "mmap");
    rank_close(&a);
}

static void few_descriptors(void *arg)
{
    rank_t a = {0}, b = {0};
    halay_transport_params_t params;
    (void)arg;
    int top = dup(0); /* all below are taken */
    CHECK(top >= 0, "dup");
    for (int few = 0; few < 5; few++) {
        limit(RLIMIT_NOFILE, (rlim_t)(top + few));
        rank_params(&a, 1, &params);
        a.logged[0] = 0;
        CHECK(shm->open(&params, &a.transport) == HALAY_ENOMEM, "open with %d", few);
        CHECK(a.logged[0] == 1 && strstr(a.log, "ulimit -n"), "%s", a.log);
    }
    limit(RLIMIT_NOFILE, (rlim_t)(top + 40));
    a.logged[0] = 0;
    rank_open(&a, 1);
    rank_open(&b, 2);
    halay_ep_t *ep = rank_connect(&b, 1);
    message_send(&b, ep, 3, 100);
    int next = dup(0);
    limit(RLIMIT_NOFILE, (rlim_t)next);
    close(next);
    limit(RLIMIT_NOFILE, (rlim_t)next);
    connect_must_fail(&a, "ring");
    halay_event_t event;
    int rc = 0;
    for (int i = 0; i < 100000 && rc == 0; i++)
        rc = shm->poll(a.transport, &event, 1);
    CHECK(rc == HALAY_ENOMEM && a.logged[0] == 2 && strstr(a.log, "ulimit -n"), "%d %s", rc, a.log);
    limit(RLIMIT_NOFILE, (rlim_t)(top + 40));
    rank_expect(&a, 3);
    rank_close(&a);
    rank_close(&b);
}

static void answerer(void *arg)
{
    rank_t b = {0};
    halay_event_t event;
    (void)arg;
    rank_open(&b, 2);
    for (int i = 0; i < 2000 && !b.failed; i++)
        rank_wait(&b, 5 * MS, &event);
    CHECK(b.failed == 1, "nobody came");
    rank_close(&b);
}

/* The answer's descriptors find no room. */
static void answer_cut(void *arg)
{
    rank_t a = {0};
    (void)arg;
    pid_t pid = process_start(answerer, NULL);
    rank_open(&a, 1);
    halay_ep_t *ep = rank_connect(&a, 2);
    halay_event_t event;
    while (ep->state == WAY_CALLING)
        CHECK(rank_wait(&a, 0, &event) == 0, "%s", a.text);
    CHECK(ep->state == WAY_GREETED, "answered already");
    int next = dup(0);
    close(next);
    limit(RLIMIT_NOFILE, (rlim_t)next);
    rank_expect_failed(&a, 5000 * MS, 2, "ulimit -n");
    rank_close(&a);
    process_join(pid);
}

static void limits(void)
{
    static void (*const bodies[])(void *) = {small_files, few_descriptors, small_memory};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]) - (size_t)sanitized(); i++) {
        job_draw();
        process_join(process_start(bodies[i], NULL));
    }
}

static void answer_without_room(void)
{
    job_draw();
    process_join(process_start(answer_cut, NULL));
}

const shm_case_t shm_fault_cases[] = {{"siphash", siphash},
                                      {"garbage", garbage},
                                      {"silent", silent},
                                      {"flooded", flooded},
                                      {"hellos", hellos},
                                      {"scribbles", scribbles},
                                      {"heads", heads},
                                      {"fuzz", fuzz},
                                      {"headers", headers},
                                      {"limits", limits},
                                      {"answer_without_room", answer_without_room},
                                      {0}};
