/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks that reach each other's memory: each reduces a half of every tile, into both results.
 * These are right, whatever the operation, the length and who could be reached; and a rank that was
 * stopped in the middle changes nothing after the other one was told of an error.
 */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "ranks.h"

extern HALAY_API const halay_transport_ops_t halay_transport_v4_shm;

#define PAGE  4096
#define BYTES (40 * 32768) /* a buffer */
#define GUARD 512
#define TILE  8176 /* floats: the last message of some whole tiles goes ahead, too */

static _Thread_local unsigned reached;  /* tiles, and promises, of this rank */
static _Thread_local unsigned stops_at; /* of these; 0: never */
static _Thread_local int naps;          /* 1: the other one does; 2: before it writes, each time */
static pthread_barrier_t all;

static int counting_place(halay_transport_t *t, halay_ep_t *ep, size_t header, size_t bytes,
                          void **place)
{
    const bool reaches = *place != NULL;
    const int rc = halay_transport_v4_shm.place(t, ep, header, bytes, place);
    reached += reaches && !rc;
    if (reaches && naps > 1)
        usleep(2000);
    if (reaches && stops_at && reached >= stops_at) {
        stops_at = 0;
        pthread_barrier_wait(&all); /* the other one has given up, */
        pthread_barrier_wait(&all); /* and looked */
    }
    return rc;
}

/* As where a peer does not map what is sent: then nothing that comes back says that it is through.
 */
static int counting_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                         size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    static _Thread_local char copy[1 << 16];
    if (naps && bytes <= sizeof(copy) && bytes > PAGE)
        payload = memcpy(copy, payload, bytes);
    return halay_transport_v4_shm.send(t, ep, tag, header, header_bytes, payload, bytes, cookie);
}

static void run(void (*fn)(struct rank *), bool keep)
{
    halay_transport_ops_t counting = halay_transport_v4_shm;
    counting.place = counting_place;
    counting.send = counting_send;
    const char *algorithm = "allreduce=recursive_doubling"; /* as larger ones have it */
    struct ranks_options o = {
        .nranks = 2, .transport = &counting, .algorithm = algorithm, .keep = keep};
    ranks_run(&o, fn, NULL);
}

static char *room(struct rank *r, size_t bytes)
{
    void *memory = NULL;
    CHECK(!halay_mem_alloc(r->context, bytes, &memory), "alloc");
    return memory;
}

static int64_t value(int rank, int salt, size_t i)
{
    return (int64_t)((i * 7 + (size_t)salt) % 61) + rank;
}

static void put(char *to, halay_type_t type, size_t i, int64_t v)
{
    switch (type) {
    case HALAY_FLOAT32:
        ((float *)(void *)to)[i] = (float)v;
        break;
    case HALAY_FLOAT64:
        ((double *)(void *)to)[i] = (double)v;
        break;
    case HALAY_INT64:
        ((int64_t *)(void *)to)[i] = v;
        break;
    default:
        to[i] = (char)v; /* UINT8 */
    }
}

static int64_t expected(halay_op_t op, int salt, size_t i)
{
    const int64_t a = value(0, salt, i), b = value(1, salt, i);
    return op == HALAY_SUM ? a + b : op == HALAY_MAX ? (a > b ? a : b) : a * b;
}

/* One allreduce, looked at with what lies behind it. */
static void check(struct rank *r, char *in, char *out, size_t count, halay_type_t type,
                  halay_op_t op, int salt)
{
    const size_t bytes = count * halay_type_bytes(type);
    char *want = calloc(1, bytes + 8);
    CHECK(want, "no memory");
    for (size_t i = 0; i < count; i++) {
        put(in, type, i, value(r->rank, salt, i));
        put(want, type, i, expected(op, salt, i));
    }
    memset(out, 0xa5, bytes + GUARD);
    CHECK(!halay_allreduce(in, out, count, type, op, r->world), "allreduce");
    CHECK(!memcmp(out, want, bytes), "rank %d: %zu of type %d, operation %d", r->rank, count, type,
          op);
    for (size_t i = bytes; i < bytes + GUARD; i++)
        CHECK((unsigned char)out[i] == 0xa5, "byte %zu behind the result", i - bytes);
    free(want);
}

/* Until both ranks do so: memory is mapped when sockets are looked at, which is not at once. */
static void wait_until_reached(struct rank *r, char *in, char *out)
{
    for (int i = 0; i < 2000; i++) {
        const unsigned before = reached;
        check(r, in, out, BYTES / 4 - GUARD, HALAY_FLOAT32, HALAY_SUM, i);
        int32_t mine = reached > before + 20, least;
        CHECK(!halay_allreduce(&mine, &least, 1, HALAY_INT32, HALAY_MIN, r->world), "least");
        if (least)
            return;
    }
    CHECK(0, "rank %d: %u were reached", r->rank, reached);
}

static void results(struct rank *r)
{
    static const struct {
        halay_type_t type;
        halay_op_t op;
    } what[] = {{HALAY_FLOAT32, HALAY_SUM},
                {HALAY_FLOAT64, HALAY_SUM},
                {HALAY_INT64, HALAY_SUM},
                {HALAY_FLOAT32, HALAY_MAX},
                {HALAY_UINT8, HALAY_PROD}};
    char *in = room(r, BYTES + PAGE), *out = room(r, BYTES + PAGE), *plain = malloc(BYTES + PAGE);
    r->context->cache_bytes = 1 << 20; /* what is larger goes past it */
    wait_until_reached(r, in, out);
    for (size_t k = 0; k < 5; k++) {
        const size_t most = BYTES / halay_type_bytes(what[k].type) - GUARD;
        for (int i = 0; i < 6; i++) { /* the same again goes straight ahead */
            const unsigned before = reached;
            check(r, in, out, i < 3 ? most : most - 4099 - (size_t)i, what[k].type, what[k].op, i);
            CHECK(reached > before, "type %d: nothing was reached", what[k].type);
        }
    }
    for (int i = 0; i < 6; i++) { /* who is through waits for the other */
        naps = 1 + (i % 2 == r->rank);
        check(r, in, out, 10 * TILE, HALAY_FLOAT32, HALAY_SUM, i);
    }
    naps = 0;
    const unsigned before = reached; /* not of whole pages; not lent at all; in place */
    for (int i = 0; i < 4; i++) {
        check(r, in, out + 64, BYTES / 4 - GUARD, HALAY_FLOAT32, HALAY_SUM, i);
        check(r, in, i % 2 == r->rank ? out : plain, BYTES / 4 - GUARD, HALAY_FLOAT32, HALAY_SUM,
              i);
        check(r, i % 2 == r->rank ? in : plain, out, BYTES / 4 - GUARD, HALAY_FLOAT32, HALAY_SUM,
              i);
    }
    CHECK(reached == before, "%u were reached", reached - before);
    CHECK(!halay_mem_free(r->context, in) && !halay_mem_free(r->context, out), "free");
    in = room(r, 2 * BYTES); /* one region of both, in a slot that was another's */
    wait_until_reached(r, in, in + BYTES);
    free(plain);
}

/* Calls that are under way at once, each with memory of its own. */
static void at_once(struct rank *r)
{
    enum { N = 3 };
    const size_t count = BYTES / 4;
    float *in[N], *out[N];
    r->context->cache_bytes = 1 << 20;
    for (int k = 0; k < N; k++) {
        in[k] = (void *)room(r, BYTES);
        out[k] = (void *)room(r, BYTES);
        if (k == 0)
            wait_until_reached(r, (char *)in[0], (char *)out[0]);
    }
    for (int round = 0; round < 20; round++) {
        halay_request_t *request[N];
        for (int k = 0; k < N; k++) {
            for (size_t i = 0; i < count; i++)
                in[k][i] = (float)value(r->rank, round + k, i);
            CHECK(!halay_iallreduce(in[k], out[k], count, HALAY_FLOAT32, HALAY_SUM, r->world,
                                    &request[k]),
                  "post");
        }
        for (int k = 0; k < N; k++)
            CHECK(!halay_request_wait(request[(k + round) % N]), "wait");
        for (int k = 0; k < N; k++)
            for (size_t i = 0; i < count; i++)
                CHECK(out[k][i] == (float)expected(HALAY_SUM, round + k, i), "%d: %zu", k, i);
    }
}

/* Rank 1 hangs where it is about to write into the result of rank 0, until that one has given up
 * and uses the memory for something else. */
static void late(struct rank *r)
{
    const size_t count = BYTES / 4;
    char *in = room(r, BYTES), *out = room(r, BYTES), *copy = malloc(BYTES);
    halay_comm_t *other;
    r->context->cache_bytes = 1 << 20;
    CHECK(copy && !halay_comm_dup(r->world, &other), "dup");
    other->deadline_ns = 300000000; /* this one's alone: the machine may stand still for longer */
    wait_until_reached(r, in, out);
    stops_at = r->rank ? reached + 12 : 0;
    int rc = halay_allreduce(in, out, count, HALAY_FLOAT32, HALAY_SUM, other);
    CHECK(rc < 0, "rank %d: without rank 1: %d", r->rank, rc);
    if (r->rank == 0) {
        memset(out, 0x77, BYTES);
        memset(copy, 0x77, BYTES);
        pthread_barrier_wait(&all);
        pthread_barrier_wait(&all);
    }
    pthread_barrier_wait(&all); /* rank 1 has written, and was told */
    CHECK(r->rank || !memcmp(copy, out, BYTES), "changed after the error");
    char *in2 = room(r, BYTES), *out2 = room(r, BYTES);
    check(r, in, out, count - GUARD, HALAY_FLOAT32, HALAY_SUM, 5);
    wait_until_reached(r, in2, out2);
    pthread_barrier_wait(&all);
    halay_finalize(r->context);
    free(copy);
}

int main(void)
{
    setenv("HALAY_DEBUG", "error", 1); /* the failures here are wanted */
    pthread_barrier_init(&all, NULL, 2);
    run(results, false);
    run(at_once, false);
    run(late, true);
    pthread_barrier_destroy(&all);
    return 0;
}
