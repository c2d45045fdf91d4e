/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.c - places, cool-downs, and who has to leave. A job whose ranks are always the same is one
 * whose slots are never free again.
 */
#define _GNU_SOURCE
#include "slots.h"

#include <assert.h>
#include <stdlib.h>

enum state { FREE = 0, RUNS, LEAVES, COOLS };

struct hly_slots {
    int n;
    int64_t first_ms, most_ms;
    struct slot {
        enum state state;
        int place;        /* it has one */
        int host;         /* whose it is, or was (hly_slots_seat) */
        int failures;     /* one after the other */
        int64_t since_ms; /* it runs; COOLS: until when */
    } all[];
};

struct hly_slots *hly_slots_create(int n, int64_t first_ms, int64_t most_ms)
{
    struct hly_slots *s = calloc(1, sizeof *s + (size_t)n * sizeof s->all[0]);
    if (!s)
        return NULL;
    s->n = n;
    s->first_ms = first_ms;
    s->most_ms = most_ms;
    return s;
}

void hly_slots_destroy(struct hly_slots *s)
{
    free(s);
}

void hly_slots_place(struct hly_slots *s, int first, int count, int places)
{
    assert(first >= 0 && count >= 0 && first + count <= s->n);
    for (int i = 0; i < count; i++)
        s->all[first + i].place = i < places;
}

int hly_slots_seat(struct hly_slots *s, int first, int count, int host, int places)
{
    int n = 0;
    assert(first >= 0 && count >= 0 && first + count <= s->n);
    for (int i = first; i < first + count; i++)
        if (s->all[i].host == host)
            n += s->all[i].place = n < places;
    for (int i = first; i < first + count && n < places; i++) {
        if (s->all[i].place || s->all[i].state != FREE)
            continue;
        s->all[i].host = host;
        n += s->all[i].place = 1;
    }
    return n;
}

int hly_slots_host(const struct hly_slots *s, int slot)
{
    return s->all[slot].host;
}

int hly_slots_places(const struct hly_slots *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->all[i].place;
    return n;
}

void hly_slots_renew(struct hly_slots *s, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        assert(s->all[i].state == FREE || s->all[i].state == COOLS);
        s->all[i] = (struct slot){0};
    }
}

int hly_slots_vacant(const struct hly_slots *s, int64_t now_ms)
{
    for (int i = 0; i < s->n; i++) {
        const struct slot *it = &s->all[i];
        if (it->place && (it->state == FREE || (it->state == COOLS && now_ms >= it->since_ms)))
            return i;
    }
    return -1;
}

int64_t hly_slots_next_ms(const struct hly_slots *s)
{
    int64_t next = 0;
    for (int i = 0; i < s->n; i++)
        if (s->all[i].place && s->all[i].state == COOLS && (!next || s->all[i].since_ms < next))
            next = s->all[i].since_ms;
    return next;
}

int hly_slots_leaver(struct hly_slots *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        if (s->all[i].place || s->all[i].state != RUNS)
            continue;
        s->all[i].state = LEAVES;
        return i;
    }
    return -1;
}

int hly_slots_leaves(const struct hly_slots *s, int slot)
{
    return s->all[slot].state == LEAVES;
}

void hly_slots_started(struct hly_slots *s, int slot, int64_t now_ms)
{
    assert(s->all[slot].state == FREE || s->all[slot].state == COOLS);
    s->all[slot].state = RUNS;
    s->all[slot].since_ms = now_ms;
}

void hly_slots_left(struct hly_slots *s, int slot)
{
    s->all[slot].state = FREE;
    s->all[slot].failures = 0;
}

int64_t hly_slots_failed(struct hly_slots *s, int slot, int64_t now_ms)
{
    struct slot *it = &s->all[slot];
    int64_t ms = s->first_ms;
    if (now_ms - it->since_ms > s->most_ms)
        it->failures = 0; /* it has run for long: that was another trouble */
    for (int i = 0; i < it->failures && ms < s->most_ms; i++)
        ms *= 2;
    if (ms > s->most_ms)
        ms = s->most_ms;
    it->failures++;
    it->state = COOLS;
    /* Those that fail at once do not come again at once. */
    it->since_ms = now_ms + ms + (now_ms + 37 * (int64_t)slot) % (ms / 10 + 1);
    return it->place ? ms : 0;
}

int hly_slots_hopeful(const struct hly_slots *s, int failures)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->all[i].place && s->all[i].failures < failures;
    return n;
}
