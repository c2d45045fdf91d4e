/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.c - the late test device. Invariant: flights[0 .. nflights) is the work that was launched
 * and whose cookie poll has not returned; no byte of its dst has been touched yet.
 */
#include <assert.h>
#include <stdlib.h>

#include "device/device_builtin.h"

#define SEED_DEFAULT        0x48616c6179u
#define DELAY_POLLS_DEFAULT 8u
#define CAPACITY_DEFAULT    64u

struct flight {
    halay_work_t work;
    uint32_t polls_left; /* 0: ready */
};

struct late {
    halay_device_t *host;
    uint64_t random;
    uint32_t delay_polls_max, capacity, nflights;
    struct flight flights[];
};

/* A number below `limit`. SplitMix64: Steele, Lea, Flood, OOPSLA 2014. */
static uint32_t random_below(struct late *late, uint32_t limit)
{
    uint64_t z = (late->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    assert(limit > 0);
    return (uint32_t)(((z >> 32) * limit) >> 32);
}

static int late_open(void *arg, const char *isa, halay_device_t **device)
{
    static const struct hly_device_late_arg none;
    const struct hly_device_late_arg *a = arg ? arg : &none;
    const uint32_t capacity = a->capacity ? a->capacity : CAPACITY_DEFAULT;
    struct late *late;
    int rc;

    if (!device || capacity > HLY_DEVICE_LATE_CAPACITY_MAX)
        return HALAY_EINVAL;
    late = malloc(sizeof *late + capacity * sizeof late->flights[0]);
    if (!late)
        return HALAY_ENOMEM;
    rc = hly_device_host.open(NULL, isa, &late->host);
    if (rc != HALAY_OK)
        goto free_late;
    late->random = a->seed ? a->seed : SEED_DEFAULT;
    late->delay_polls_max = a->delay_polls_max ? a->delay_polls_max : DELAY_POLLS_DEFAULT;
    late->capacity = capacity;
    late->nflights = 0;
    *device = (halay_device_t *)late;
    return HALAY_OK;

free_late:
    free(late);
    return rc;
}

static int late_launch(halay_device_t *device, const halay_work_t *work)
{
    struct late *late = (struct late *)device;
    struct flight *flight;
    int rc;

    assert(late && late->nflights <= late->capacity);
    rc = hly_device_work_check(work);
    if (rc != HALAY_OK)
        return rc;
    if (late->nflights == late->capacity)
        return HALAY_EAGAIN;
    flight = &late->flights[late->nflights++];
    flight->work = *work;
    flight->polls_left = 1 + random_below(late, late->delay_polls_max);
    return HALAY_INPROGRESS;
}

/* Nothing is at once here. */
static int late_bind(halay_device_t *device, halay_work_t *work)
{
    (void)device;
    (void)work;
    return HALAY_EUNSUPPORTED;
}

/* Does the work now, and puts the last one into its place. */
static uint64_t flight_finish(struct late *late, uint32_t which)
{
    const halay_work_t work = late->flights[which].work;
    int rc = hly_device_host.launch(late->host, &work);
    assert(rc == HALAY_OK); /* it was checked when it was launched */
    (void)rc;
    late->flights[which] = late->flights[--late->nflights];
    return work.cookie;
}

static int late_poll(halay_device_t *device, uint64_t cookies[], int max)
{
    struct late *late = (struct late *)device;
    uint32_t nready = 0;
    int n = 0;

    assert(late && late->nflights <= late->capacity);
    if (max < 0 || (max > 0 && !cookies))
        return HALAY_EINVAL;
    /* The ready ones to the front. */
    for (uint32_t f = 0; f < late->nflights; f++) {
        struct flight flight = late->flights[f];
        flight.polls_left -= flight.polls_left > 0;
        late->flights[f] = flight;
        if (flight.polls_left > 0)
            continue;
        late->flights[f] = late->flights[nready];
        late->flights[nready++] = flight;
    }
    while (n < max && nready > 0) {
        uint32_t which = random_below(late, nready--);
        struct flight flight = late->flights[which];
        late->flights[which] = late->flights[nready];
        late->flights[nready] = flight;
        cookies[n++] = flight_finish(late, nready);
    }
    return n;
}

static void late_close(halay_device_t *device)
{
    struct late *late = (struct late *)device;
    if (!late)
        return;
    assert(late->nflights == 0);
    hly_device_host.close(late->host);
    free(late);
}

const halay_device_ops_t hly_device_late = {
    .size = sizeof(halay_device_ops_t),
    .name = "late",
    .open = late_open,
    .launch = late_launch,
    .bind = late_bind,
    .poll = late_poll,
    .close = late_close,
};
