/* SPDX-License-Identifier: Apache-2.0 */
/* drops.c - a host keeps its number and its failures for as long as the job goes on, whatever the
 * discovery script says of it. */
#define _GNU_SOURCE
#include "drops.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "hosts.h"
#include "note.h"

struct hly_drops {
    int64_t first_ms, most_ms;
    int n, full;
    struct host {
        char name[HLY_HOST_BYTES];
        int64_t ms, until_ms; /* until_ms: 0: it is not dropped */
    } all[HLY_DROPS_HOSTS];
};

struct hly_drops *hly_drops_create(int64_t first_ms, int64_t most_ms)
{
    struct hly_drops *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->first_ms = first_ms;
    d->most_ms = most_ms;
    return d;
}

void hly_drops_destroy(struct hly_drops *d)
{
    free(d);
}

/* Names of this machine are what tells places on it apart. */
static int same(const char *a, const char *b)
{
    return !strcasecmp(a, b) || (!hly_host_here(a) && !hly_host_here(b) && hly_host_same(a, b));
}

int hly_drops_number(struct hly_drops *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (same(d->all[i].name, name))
            return i + 1;
    if (d->n < HLY_DROPS_HOSTS) {
        snprintf(d->all[d->n].name, HLY_HOST_BYTES, "%s", name);
        return ++d->n;
    }
    if (!d->full)
        hly_note("--blacklist hosts: there have been more than %d hosts: %s and others get no "
                 "places",
                 HLY_DROPS_HOSTS, name);
    d->full = 1;
    return 0;
}

int hly_drops_count(const struct hly_drops *d)
{
    return d->n;
}

const char *hly_drops_name(const struct hly_drops *d, int number)
{
    return number ? d->all[number - 1].name : "?";
}

void hly_drops_add(struct hly_drops *d, int number, int64_t now_ms)
{
    struct host *it = number ? &d->all[number - 1] : NULL;
    if (!it || it->until_ms)
        return;
    it->ms = it->ms ? 2 * it->ms : d->first_ms;
    if (it->ms > d->most_ms)
        it->ms = d->most_ms;
    it->until_ms = d->first_ms ? now_ms + it->ms : INT64_MAX;
}

int hly_drops_has(const struct hly_drops *d, int number)
{
    return !number || d->all[number - 1].until_ms;
}

int64_t hly_drops_ms(const struct hly_drops *d, int number)
{
    return number ? d->all[number - 1].ms : 0;
}

int hly_drops_over(struct hly_drops *d, int64_t now_ms)
{
    int over = 0;
    for (int i = 0; i < d->n; i++) {
        if (!d->all[i].until_ms || now_ms < d->all[i].until_ms)
            continue;
        d->all[i].until_ms = 0;
        over = 1;
    }
    return over;
}

int64_t hly_drops_next_ms(const struct hly_drops *d)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < d->n; i++)
        if (d->all[i].until_ms && d->all[i].until_ms < next)
            next = d->all[i].until_ms;
    return next == INT64_MAX ? 0 : next;
}
