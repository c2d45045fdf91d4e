/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - what goes into the calls, and what has to come out. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define PERIOD    4093 /* elements; a prime, so that shifted or swapped blocks do not fit */
#define ALIGNMENT 4096
#define VALUE_MAX 3 /* of one rank's elements */

static unsigned value_of(int rank, size_t i)
{
    uint64_t x = ((uint64_t)rank << 32 | i) + 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)(x >> 62);
}

static unsigned result_of(halay_op_t op, int nranks, size_t i)
{
    unsigned result = value_of(0, i);
    for (int r = 1; r < nranks; r++) {
        unsigned v = value_of(r, i);
        if (op == HALAY_SUM)
            result += v;
        else if (op == HALAY_MIN ? v < result : v > result)
            result = v;
    }
    return result;
}

static uint16_t float16_of(unsigned v)
{
    unsigned exponent = 0;
    if (v == 0)
        return 0;
    while (v >> (exponent + 1))
        exponent++;
    assert(exponent <= 10);
    return (uint16_t)((exponent + 15) << 10 | (v - (1u << exponent)) << (10 - exponent));
}

static void put(unsigned char *to, halay_type_t type, unsigned v)
{
    const float f = (float)v;
    const double d = v;
    const int32_t i32 = (int32_t)v;
    const int64_t i64 = v;
    uint32_t bits;
    uint16_t half = float16_of(v);
    memcpy(&bits, &f, sizeof bits);
    if (type == HALAY_BFLOAT16)
        half = (uint16_t)(bits >> 16);
    switch (type) {
    case HALAY_FLOAT32:
        memcpy(to, &f, sizeof f);
        break;
    case HALAY_FLOAT64:
        memcpy(to, &d, sizeof d);
        break;
    case HALAY_INT32:
        memcpy(to, &i32, sizeof i32);
        break;
    case HALAY_INT64:
        memcpy(to, &i64, sizeof i64);
        break;
    default:
        assert(type == HALAY_FLOAT16 || type == HALAY_BFLOAT16);
        memcpy(to, &half, sizeof half);
    }
}

static void make_input(const struct hly_data *data, int rank, unsigned char *period)
{
    for (size_t i = 0; i < PERIOD; i++)
        put(period + i * data->element, data->bench->type, value_of(rank, i));
}

/* Elements [first, first + count) of the endless repetition of a period. */
static void fill(char *to, const unsigned char *period, size_t element, size_t first, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t at = (first + done) % PERIOD, n = PERIOD - at;
        if (n > count - done)
            n = count - done;
        memcpy(to + done * element, period + at * element, n * element);
        done += n;
    }
}

static bool same(const char *data, const unsigned char *period, size_t element, size_t first,
                 size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t at = (first + done) % PERIOD, n = PERIOD - at;
        if (n > count - done)
            n = count - done;
        if (memcmp(data + done * element, period + at * element, n * element))
            return false;
        done += n;
    }
    return true;
}

/* ---------------------------------------------------------------- buffers */

/* Input and output are one memory here; where there is a root, at the root alone. */
static bool in_place(const struct hly_data *data)
{
    return data->bench->in_place &&
           (!halay_collective_rooted(data->bench->collective) || data->rank == 0);
}

static size_t in_elements(const struct hly_data *data, size_t count)
{
    switch (data->bench->collective) {
    case HALAY_BARRIER:
    case HALAY_BROADCAST:
        return 0;
    case HALAY_REDUCE_SCATTER:
    case HALAY_ALLTOALL:
        count *= (size_t)data->nranks;
        break;
    case HALAY_SCATTER:
        count *= data->rank == 0 ? (size_t)data->nranks : 0;
        break;
    default:
        break;
    }
    return in_place(data) ? 0 : count;
}

static size_t out_elements(const struct hly_data *data, size_t count)
{
    const size_t all = count * (size_t)data->nranks;
    switch (data->bench->collective) {
    case HALAY_BARRIER:
        return 0;
    case HALAY_ALLGATHER:
    case HALAY_ALLTOALL:
        return all;
    case HALAY_REDUCE_SCATTER:
    case HALAY_SCATTER:
        return in_place(data) ? all : count;
    case HALAY_REDUCE:
        return data->rank == 0 ? count : 0;
    case HALAY_GATHER:
        return data->rank == 0 ? all : 0;
    default:
        return count;
    }
}

/* How many ranks, from rank 0 on, are in what this rank gets. */
static int reduced_ranks(const struct hly_data *data)
{
    switch (data->bench->collective) {
    case HALAY_SCAN:
        return data->rank + 1;
    case HALAY_EXSCAN:
        return data->rank;
    default:
        return data->nranks;
    }
}

static int allocate(const struct hly_bench *bench, char **buffer, size_t bytes)
{
    void *memory = NULL;
    *buffer = NULL;
    if (!bytes)
        return HALAY_OK;
    if (!bench->registered)
        memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    else if (halay_mem_alloc(bench->context, bytes, &memory))
        memory = NULL;
    *buffer = memory;
    if (!*buffer)
        return HALAY_ENOMEM;
    memset(*buffer, 0, bytes); /* so that no page is first touched while it is timed */
    return HALAY_OK;
}

int hly_data_create(struct hly_data *data, const struct hly_bench *bench, int rank, int nranks)
{
    *data = (struct hly_data){.bench = bench, .rank = rank, .nranks = nranks};
    data->element = bench->collective == HALAY_BARRIER ? 1 : halay_type_bytes(bench->type);
    const int exact = bench->type == HALAY_BFLOAT16  ? 256
                      : bench->type == HALAY_FLOAT16 ? 2047
                                                     : 1 << 24;
    if (bench->op == HALAY_SUM && nranks > exact / VALUE_MAX)
        return HALAY_EUNSUPPORTED;
    data->input = calloc(PERIOD, 8);
    data->expected = calloc(PERIOD, 8);
    data->other = calloc(PERIOD, 8);
    size_t count = hly_data_count(data, bench->max_bytes);
    if (!data->input || !data->expected || !data->other ||
        allocate(bench, &data->in, in_elements(data, count) * data->element) ||
        allocate(bench, &data->out, out_elements(data, count) * data->element)) {
        hly_data_destroy(data);
        return HALAY_ENOMEM;
    }
    if (bench->collective == HALAY_BARRIER)
        return HALAY_OK;
    make_input(data, bench->collective == HALAY_BROADCAST ? 0 : rank, data->input);
    for (size_t i = 0; i < PERIOD; i++)
        put(data->expected + i * data->element, bench->type,
            result_of(bench->op, reduced_ranks(data), i));
    return HALAY_OK;
}

void hly_data_destroy(struct hly_data *data)
{
    if (data->bench->registered) {
        halay_mem_free(data->bench->context, data->in);
        halay_mem_free(data->bench->context, data->out);
    } else {
        free(data->in);
        free(data->out);
    }
    free(data->input);
    free(data->expected);
    free(data->other);
}

size_t hly_data_count(const struct hly_data *data, size_t bytes)
{
    const halay_collective_t collective = data->bench->collective;
    size_t each = data->element;
    if (collective == HALAY_REDUCE_SCATTER || collective == HALAY_SCATTER ||
        collective == HALAY_ALLTOALL)
        each *= (size_t)data->nranks;
    return bytes / each;
}

void hly_data_rest(struct hly_data *data, size_t count)
{
    size_t bytes = out_elements(data, count) * data->element;
    if (in_place(data) && bytes)
        memset(data->out, 0, bytes);
}

void hly_data_prepare(struct hly_data *data, size_t count)
{
    const halay_collective_t collective = data->bench->collective;
    const size_t nout = out_elements(data, count), element = data->element;
    if (nout)
        memset(data->out, 0xa5, nout * element);
    if (data->in)
        fill(data->in, data->input, element, 0, in_elements(data, count));
    else if (!nout || (collective == HALAY_BROADCAST && data->rank > 0))
        return;
    else if (collective == HALAY_ALLGATHER || (collective == HALAY_GATHER && in_place(data)))
        fill(data->out + (size_t)data->rank * count * element, data->input, element, 0, count);
    else if (collective == HALAY_BROADCAST || in_place(data))
        fill(data->out, data->input, element, 0, nout);
}

/* Blocks of all ranks: of each, its elements from `first` on. */
static bool collected(struct hly_data *data, size_t first, size_t count)
{
    bool good = true;
    for (int r = 0; r < data->nranks; r++) {
        make_input(data, r, data->other);
        good = good && same(data->out + (size_t)r * count * data->element, data->other,
                            data->element, first, count);
    }
    return good;
}

bool hly_data_valid(struct hly_data *data, size_t count)
{
    const size_t element = data->element;
    const size_t before = (size_t)data->rank * count;
    const halay_collective_t collective = data->bench->collective;
    if (collective == HALAY_BARRIER || !out_elements(data, count) || !reduced_ranks(data))
        return true; /* nothing comes out here */
    switch (collective) {
    case HALAY_REDUCE_SCATTER:
        return same(data->out, data->expected, element, before, count);
    case HALAY_BROADCAST:
        return same(data->out, data->input, element, 0, count);
    case HALAY_ALLGATHER:
    case HALAY_GATHER:
        return collected(data, 0, count);
    case HALAY_ALLTOALL:
        return collected(data, before, count);
    case HALAY_SCATTER:
        make_input(data, 0, data->other);
        return same(data->out, data->other, element, before, count);
    default:
        return same(data->out, data->expected, element, 0, count);
    }
}
