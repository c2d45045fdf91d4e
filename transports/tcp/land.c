/* SPDX-License-Identifier: Apache-2.0 */
/* land.c - landing buffers, by their tags. */
#include "tcp.h"

static hly_tcp_landing_t **bucket_of(halay_transport_t *t, uint64_t tag)
{
    return &t->buckets[(tag * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}
_Static_assert(HLY_TCP_BUCKETS == 1 << 10, "the upper 10 bits of 64 choose");

int hly_tcp_landing_post(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes,
                         uint64_t cookie)
{
    hly_tcp_landing_t **bucket = bucket_of(t, tag), *landing = t->free_landing;
    if (landing)
        t->free_landing = landing->next;
    else if (t->nlandings < HLY_TCP_LANDINGS)
        landing = &t->landings[t->nlandings++];
    else
        return HALAY_EAGAIN;
    *landing = (hly_tcp_landing_t){.state = LANDING_POSTED,
                                   .tag = tag,
                                   .cookie = cookie,
                                   .buffer = buffer,
                                   .room = bytes,
                                   .next = *bucket};
    *bucket = landing;
    t->posted++;
    return HALAY_OK;
}

hly_tcp_landing_t *hly_tcp_landing_take(halay_transport_t *t, uint64_t tag)
{
    for (hly_tcp_landing_t **at = bucket_of(t, tag); *at; at = &(*at)->next) {
        hly_tcp_landing_t *landing = *at;
        if (landing->tag != tag)
            continue;
        *at = landing->next;
        t->posted--;
        landing->state = LANDING_LANDING;
        return landing;
    }
    return NULL;
}

void hly_tcp_landing_free(halay_transport_t *t, hly_tcp_landing_t *landing)
{
    landing->state = LANDING_FREE;
    landing->next = t->free_landing;
    t->free_landing = landing;
}

void hly_tcp_landing_done(halay_transport_t *t, hly_tcp_landing_t *landing, int status)
{
    assert(landing->state == LANDING_LANDING);
    landing->state = LANDING_DONE;
    landing->status = status;
    landing->next = NULL;
    *t->landed_end = landing;
    t->landed_end = &landing->next;
}

/* One that lands, or has landed and is not told, is no longer in its bucket. */
int hly_tcp_landing_withdraw(halay_transport_t *t, uint64_t tag)
{
    hly_tcp_landing_t *landing = hly_tcp_landing_take(t, tag);
    if (landing) {
        hly_tcp_landing_free(t, landing);
        return HALAY_OK;
    }
    for (int i = 0; i < t->nlandings; i++) {
        if (t->landings[i].state != LANDING_FREE && t->landings[i].tag == tag)
            return HALAY_INPROGRESS;
    }
    return HALAY_EINVAL;
}
