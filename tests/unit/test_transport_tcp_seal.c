/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_transport_tcp_seal.c - what somebody on the way does to frames ends the connection, and
 * nothing wrong is given to anybody.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../../common/keys.h"
#include "tcp_fake.h"
#include "tcp_stream.h"
#include "transport_body.h"

enum { FRAME = 32, BYTES = 24, ALL = FRAME + BYTES };

/* The authors' vectors for key 00 01 .. 0f: no input, and 00 01 .. 0e; and pieces of any length. */
static void vectors(void)
{
    uint8_t key[16], bytes[64];
    for (int i = 0; i < 16; i++)
        key[i] = (uint8_t)i;
    for (int i = 0; i < 64; i++)
        bytes[i] = (uint8_t)i;
    struct hly_piece none = {bytes, 0}, some = {bytes, 15};
    CHECK(hly_sip_pieces(key, &none, 1) == UINT64_C(0x726fdb47dd0e0e31), "no input");
    CHECK(hly_sip(key, NULL, 0) == UINT64_C(0x726fdb47dd0e0e31), "no words");
    CHECK(hly_sip_pieces(key, &some, 1) == UINT64_C(0xa129ca6149be45e5), "15 bytes");
    uint64_t words[8];
    memcpy(words, bytes, 64);
    for (size_t all = 0; all <= 64; all++) {
        struct hly_piece one = {bytes, all};
        uint64_t right = hly_sip_pieces(key, &one, 1);
        CHECK(all % 8 || hly_sip(key, words, (int)all / 8) == right, "%zu bytes as words", all);
        for (size_t i = 0; i <= all; i++)
            for (size_t k = i; k <= all; k++) {
                const struct hly_piece three[3] = {
                    {bytes, i}, {bytes + i, k - i}, {bytes + k, all - k}};
                CHECK(hly_sip_pieces(key, three, 3) == right, "%zu, %zu of %zu", i, k, all);
            }
    }
}

static void rank_open_sealed(rank_t *rank, int seal)
{
    setenv("HALAY_TCP_SEAL", seal == SEAL_PAYLOAD ? "payload" : "headers", 1);
    rank_open(rank, 1, 20000 * MS);
}

/* A good message, what the test says, a good one: the first comes, and then it ends. */
static void ends(int seal, const uint8_t *said, size_t bytes, fake_t *fake, rank_t *rank)
{
    uint8_t frame[ALL], good[BYTES] = "good";
    halay_event_t event;
    (void)seal;
    give(fake->fd, said, bytes);
    give(fake->fd, frame, fake_frame(fake, FRAME_MESSAGE, 0, good, BYTES, frame));
    rank_expect_failed(rank, 5000 * MS, "lacks its seal");
    CHECK(strstr(rank->text, "127.0.0.1:") || strstr(rank->text, "unknown"), "%s", rank->text);
    CHECK(rank_wait(rank, 10 * MS, &event) == 0 && rank->errors == 0, "%s", rank->log);
    fake_end(fake);
    net->close(rank->transport);
}

static void begins(int seal, fake_t *fake, rank_t *rank, uint8_t first[ALL])
{
    const uint8_t good[BYTES] = "first";
    halay_event_t event;
    *rank = (rank_t){0};
    rank_open_sealed(rank, seal);
    fake_meet(fake, rank, seal);
    give(fake->fd, first, fake_frame(fake, FRAME_MESSAGE, 0, good, BYTES, first));
    rank_expect(rank, HALAY_EVENT_MESSAGE, 5000 * MS, &event);
    CHECK(event.bytes == BYTES && memcmp(event.data, good, BYTES) == 0, "%zu bytes", event.bytes);
}

static void flipped(void)
{
    uint8_t first[ALL], frame[ALL];
    const uint8_t data[BYTES] = "second";
    fake_t fake;
    rank_t rank;
    for (int seal = SEAL_HEADERS; seal <= SEAL_PAYLOAD; seal++) {
        for (size_t i = 0; i < (seal == SEAL_PAYLOAD ? ALL : FRAME); i += i < FRAME ? 1 : 3) {
            begins(seal, &fake, &rank, first);
            size_t bytes = fake_frame(&fake, FRAME_MESSAGE, 0, data, BYTES, frame);
            frame[i] ^= (uint8_t)(1u << i % 8);
            ends(seal, frame, bytes, &fake, &rank);
        }
    }
}

/* Said again, left out, the other way about, of another connection, made without the key. */
static void moved(void)
{
    uint8_t first[ALL], other[ALL], two[2 * ALL];
    const uint8_t data[BYTES] = "second";
    fake_t fake, side;
    rank_t rank, beside;
    for (int seal = SEAL_HEADERS; seal <= SEAL_PAYLOAD; seal++) {
        begins(seal, &fake, &rank, first);
        ends(seal, first, ALL, &fake, &rank);

        begins(seal, &fake, &rank, first);
        fake_frame(&fake, FRAME_MESSAGE, 0, data, BYTES, other);
        ends(seal, NULL, 0, &fake, &rank);

        begins(seal, &fake, &rank, first);
        fake_frame(&fake, FRAME_MESSAGE, 0, data, BYTES, two + ALL);
        fake_frame(&fake, FRAME_MESSAGE, 0, "third", 5, two);
        ends(seal, two, 2 * FRAME + 8 + BYTES, &fake, &rank);

        begins(seal, &side, &beside, other);
        fake_frame(&side, FRAME_MESSAGE, 0, data, BYTES, other);
        begins(seal, &fake, &rank, first);
        ends(seal, other, ALL, &fake, &rank);
        fake_end(&side);
        net->close(beside.transport);

        begins(seal, &fake, &rank, first);
        memset(&fake.link.out_seal.key, 7, sizeof(fake.link.out_seal.key));
        fake_frame(&fake, FRAME_GOODBYE, 0, data, 0, other);
        ends(seal, other, FRAME, &fake, &rank);
    }
}

/* What a rank has said comes back to it, as the first that its peer says. */
static void echoed(void)
{
    uint8_t frame[ALL];
    fake_t fake;
    rank_t rank = {0};
    halay_event_t event;
    rank_open_sealed(&rank, SEAL_HEADERS);
    fake_meet(&fake, &rank, SEAL_HEADERS);
    halay_ep_t *ep = rank_connect(&rank, 2, &rank.address);
    CHECK(send_now(&rank, ep, 0, "twenty-four bytes of it.", BYTES) == 0, "send");
    CHECK(rank_wait(&rank, 10 * MS, &event) == 0, "kind %d", event.kind);
    take(fake.fd, frame, ALL);
    give(fake.fd, frame, ALL);
    rank_expect_failed(&rank, 5000 * MS, "lacks its seal");
    fake_end(&fake);
    net->close(rank.transport);
}

typedef struct said {
    hly_meet_message_t message;
    hly_tcp_tell_t tell;
} said_t;

/* {7, 1} calls {7, 2}, which answers what it has answered before, where that is kept. Returns how
 * that ends: 0: they have met. */
static int answered(int listens, const halay_address_t *where, said_t *answer)
{
    enum { ALL_SAID = sizeof(hly_meet_message_t) + sizeof(hly_tcp_tell_t) };
    static const uint8_t ours[16] = "between us";
    const hly_meet_greeting_t greeting = {.magic = HLY_TCP_MAGIC, .nonce = "the same"};
    rank_t rank = {0};
    halay_event_t event;
    hly_meet_keys_t keys;
    said_t hello;
    rank_open_sealed(&rank, SEAL_HEADERS);
    halay_ep_t *ep = rank_connect(&rank, 2, where);
    int fd = accept(listens, NULL, NULL);
    give(fd, &greeting, sizeof(greeting));
    CHECK(rank_wait(&rank, 20 * MS, &event) == 0, "kind %d", event.kind);
    take(fd, &hello, ALL_SAID);
    hly_meet_keys_make(ours, &greeting, hello.message.nonce, hello.message.from, hello.message.to,
                       1, &keys);
    if (answer->message.magic == 0) {
        answer->message = (hly_meet_message_t){.magic = HLY_TCP_MAGIC,
                                               .kind = MEET_ANSWER,
                                               .tells = sizeof(answer->tell),
                                               .from = hello.message.to,
                                               .to = hello.message.from};
        hly_meet_prove(keys.out, &answer->message, offsetof(hly_meet_message_t, mac), &answer->tell,
                       sizeof(answer->tell), answer->message.mac);
    }
    if (answer->message.kind == MEET_GOODBYE) { /* this rank leaves before it is answered */
        hly_tcp_seal_t seal;
        hly_tcp_frame_t frame, right;
        net->close(rank.transport);
        take(fd, &frame, sizeof(frame));
        hly_tcp_seal_make(keys.in, &seal);
        right = hly_tcp_frame(&seal, FRAME_GOODBYE, 0, 0, 0);
        CHECK(memcmp(&frame, &right, sizeof(frame)) == 0, "no goodbye follows the hello");
        close(fd);
        return 0;
    }
    give(fd, answer, ALL_SAID);
    rank_wait(&rank, 50 * MS, &event);
    int rc = rank.failed ? 1 : net->send(rank.transport, ep, 0, NULL, 0, "x", 1, 0);
    CHECK(rc == 0 || strstr(rank.text, "another secret"), "%d %s", rc, rank.text);
    close(fd);
    net->close(rank.transport);
    return rc;
}

/* Who listens in another's place says what that one has said to the same caller once. */
static void answer_replayed(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(name);
    said_t answer = {0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (struct sockaddr *)&name, bytes) == 0 && listen(fd, 8) == 0 &&
              getsockname(fd, (struct sockaddr *)&name, &bytes) == 0,
          "listen");
    const halay_address_t where = {.family = AF_INET, .port = name.sin_port, .ip = {127, 0, 0, 1}};
    CHECK(answered(fd, &where, &answer) == 0, "they do not meet");
    CHECK(answered(fd, &where, &answer) == 1, "an old answer is taken");
    answer.message.kind = MEET_GOODBYE;
    answered(fd, &where, &answer);
    close(fd);
}

/* The bytes of a landing are changed: it ends with an error, then the peer has failed. */
static void landing_changed(void)
{
    enum { MUCH = 200001 };
    static uint8_t data[MUCH], frame[FRAME + MUCH + 7], buffer[MUCH];
    uint8_t first[ALL];
    halay_event_t event;
    fake_t fake;
    rank_t rank;
    for (size_t i = 0; i < MUCH; i++)
        data[i] = (uint8_t)(i * 7);
    for (int wrong = 0; wrong < 4; wrong++) {
        static const size_t at[4] = {0, FRAME, FRAME + MUCH / 2, FRAME + MUCH - 1};
        begins(SEAL_PAYLOAD, &fake, &rank, first);
        CHECK(net->recv(rank.transport, 5, buffer, MUCH, 9) == 0, "recv");
        size_t bytes = fake_frame(&fake, FRAME_TAGGED, 5, data, MUCH, frame);
        if (wrong)
            frame[at[wrong]] ^= 4;
        for (size_t given = 0; given < bytes;) { /* it is read meanwhile */
            ssize_t n = send(fake.fd, frame + given, bytes - given, MSG_DONTWAIT);
            given += n > 0 ? (size_t)n : 0;
            if (given < bytes)
                CHECK(rank_wait(&rank, MS, &event) == 0, "kind %d", event.kind);
        }
        rank_expect(&rank, HALAY_EVENT_LANDED, 5000 * MS, &event);
        CHECK(event.status == (wrong ? HALAY_ETRANSPORT : HALAY_OK), "status %d", event.status);
        if (wrong)
            rank_expect_failed(&rank, 5000 * MS, "lacks its seal");
        else
            CHECK(event.bytes == MUCH && memcmp(buffer, data, MUCH) == 0, "wrong bytes");
        fake_end(&fake);
        net->close(rank.transport);
    }
}

/* One rank seals the payload, the other does not: both say so. A setting that is none is refused.
 */
static void seals_differ(void)
{
    rank_t a = {0}, b = {0};
    halay_event_t event;
    rank_open_sealed(&a, SEAL_HEADERS);
    setenv("HALAY_TCP_SEAL", "payload", 1);
    rank_open(&b, 2, 20000 * MS);
    rank_connect(&b, 1, &a.address);
    uint64_t until = clock_ns() + 5000 * MS;
    while (a.failed + b.failed < 2 && clock_ns() < until) {
        rank_wait(&a, MS, &event);
        rank_wait(&b, MS, &event);
    }
    CHECK(a.failed == 1 && strstr(a.text, "HALAY_TCP_SEAL=payload, and this rank headers"), "%s",
          a.text);
    CHECK(b.failed == 1 && strstr(b.text, "HALAY_TCP_SEAL=headers, and this rank payload"), "%s",
          b.text);
    net->close(a.transport);
    net->close(b.transport);
    setenv("HALAY_TCP_SEAL", "everything", 1);
    rank_t c = {0};
    CHECK(rank_try(&c, 3, 0, NULL) == HALAY_EINVAL && strstr(c.log, "'everything'"), "%s", c.log);
}

/* All that the transport does, with its payload sealed. */
static void payload(void)
{
    struct transport_body body = {.ops = net, .n = 3, .flags = TRANSPORT_BODY_SECRET};
    setenv("HALAY_TCP_SEAL", "payload", 1);
    CHECK(transport_body_run(&body, NULL) == 0, "the contract");
    mixed();
    cut();
    too_large();
}

const struct net_case tcp_seal_cases[] = {
    {"vectors", vectors},
    {"flipped", flipped},
    {"moved", moved},
    {"echoed", echoed},
    {"answer_replayed", answer_replayed},
    {"landing_changed", landing_changed},
    {"seals_differ", seals_differ},
    {"payload", payload},
};
const size_t tcp_seal_ncases = sizeof(tcp_seal_cases) / sizeof(tcp_seal_cases[0]);
