/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_end.h - inside the contract test: a world of ends, one thread each, and what all cases
 * need: numbered messages whose content tells sender, receiver, number and size.
 *
 * Each end is used by its own thread alone, but for what is atomic. The ends share the world.
 */
#ifndef HALAY_TESTS_TRANSPORT_END_H
#define HALAY_TESTS_TRANSPORT_END_H

#include <stdatomic.h>
#include <stdbool.h>

#include "transport_body.h"

#define ENDS_MAX  16
#define SLOTS     24 /* sends and puts that one end has under way */
#define POLL_MAX  16
#define MS        1000000ull
#define NO_NUMBER UINT32_MAX /* of a message too small to carry one */

struct world;
struct end;

struct test_case {
    const char *name;
    void (*run)(struct end *end);
    uint32_t needs;       /* HALAY_CAN_* */
    bool opens;           /* run opens its end itself */
    bool may_log;         /* errors are provoked: level 0 may be logged */
    uint64_t deadline_ns; /* params.deadline_ns; 0: much */
};

struct world {
    const struct transport_body *body;
    const struct test_case *test;
    int n;
    uint64_t serial; /* of the case: ids differ */
    uint8_t job[16], secret[16];
    uint64_t guard_ns; /* when all must be over */
    atomic_int failures;
    atomic_uint meetings;
    atomic_uint shared[2 * ENDS_MAX]; /* for the case */
    uint8_t address[ENDS_MAX][256];
    size_t address_bytes[ENDS_MAX];
    struct end *ends;
};

/* One send or put under way. Its memory is freed as soon as it is ours again: ASan sees
 * late reads. */
struct slot {
    bool busy;
    bool put;
    uint32_t generation;
    uint8_t *payload;
    size_t bytes;
};

struct end {
    struct world *world;
    const halay_transport_ops_t *ops;
    int rank;
    uint32_t life[ENDS_MAX]; /* which of their ids the ends have; its own too */
    halay_transport_t *transport;
    halay_transport_attr_t attr;
    halay_ep_t *ep[ENDS_MAX];
    struct slot slot[SLOTS];
    uint64_t rng;
    unsigned meetings;
    bool leaving; /* FAILED of peers is expected */
    int failed[ENDS_MAX];
    uint64_t completed, refused; /* slots that ended with status 0, and others */
    void (*on_event)(struct end *end, const halay_event_t *event, int from);
    void *state;  /* of the case */
    uint32_t got; /* messages, where the case has no state */
    bool last;    /* and the one that it waits for */
};

/* Records a failure and goes on; loops end because alive() is false then. */
#define EXPECT(end, condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            end_fail((end)->world, (end)->rank, __LINE__, #condition, __VA_ARGS__);                \
        }                                                                                          \
    } while (0)

void end_fail(struct world *world, int rank, int line, const char *condition, const char *format,
              ...) __attribute__((format(printf, 5, 6)));

uint64_t now_ns(void);
void sleep_ms(unsigned ms);
uint32_t end_random(struct end *end, uint32_t below); /* 0 to below - 1 */

/* No failure yet and not out of time (which is one: `what` is late). */
bool alive(struct end *end, const char *what);
/* A tenth of it where faults are injected. */
uint32_t rounds(const struct end *end, uint32_t many);

halay_peer_id_t end_id(const struct world *world, int rank, uint32_t life);
/* With the id of its present life; secret NULL: the world's. */
int end_open(struct end *end, const uint8_t *secret);
void end_close(struct end *end);
/* To end `to` in its present life. */
void end_connect(struct end *end, int to);
void end_connect_all(struct end *end);

/* One poll; handles SENT, PUT and FAILED, and gives the rest to on_event. Returns how many
 * events. */
int end_poll(struct end *end);
/* As end_poll; where nothing has come, others get the processor. By a sleep: a yield beside busy
 * processes costs a time slice each. */
int end_step(struct end *end);
/* Polls for so long. */
void end_linger(struct end *end, unsigned ms);
/* Polls until all ends are here. */
void end_meet(struct end *end);
/* Polls until no send and no put of its own is under way. */
void end_flush(struct end *end);

/* Byte i of content number `seed`. */
uint8_t content(uint32_t seed, size_t i);
bool is_content(const uint8_t *bytes, size_t size, uint32_t seed);

/*
 * One attempt. payload: malloc'd, taken over on success and HALAY_EAGAIN alike. Result of send/put;
 * HALAY_INPROGRESS: its slot is busy.
 */
int end_send(struct end *end, int to, uint64_t tag, const void *header, size_t header_bytes,
             uint8_t *payload, size_t payload_bytes);
int end_put(struct end *end, int to, uint8_t *payload, size_t bytes, const void *key,
            size_t key_bytes, uint64_t offset, uint32_t immediate);
/* A numbered message, one attempt. */
int end_message(struct end *end, int to, uint32_t number, size_t size, size_t header_bytes);
/* The same until it is sent. */
void end_message_now(struct end *end, int to, uint32_t number, size_t size, size_t header_bytes);
/* Checks a message of end_message; its number, or NO_NUMBER. */
uint32_t end_check(struct end *end, const halay_event_t *event, int from);

/* The cases, each list ended by one without a name. */
extern const struct test_case transport_cases_messages[];
extern const struct test_case transport_cases_memory[];
extern const struct test_case transport_cases_life[];

#endif
