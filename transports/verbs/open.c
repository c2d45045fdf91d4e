/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - an endpoint comes and goes. A forked child may close the copy that it inherited: it lets
 * its descriptors and memory go, and does not touch the device, whose queues are its parent's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "verbs.h"

/* What the program says in options counts more than the variable. */
static int settings_read(halay_transport_t *t, const char *options)
{
    char why[HLY_VERBS_TEXT];
    t->settings =
        (hly_verbs_settings_t){.port = -1, .gid = -1, .mtu = -1, .class = -1, .rails = -1};
    if (hly_verbs_settings_read(getenv("HALAY_VERBS"), &t->settings, why))
        return hly_meet_error(&t->meet, HALAY_EINVAL, "HALAY_VERBS: %s", why);
    if (hly_verbs_settings_read(options, &t->settings, why))
        return hly_meet_error(&t->meet, HALAY_EINVAL, "the transport's options: %s", why);
    return HALAY_OK;
}

/* Where the kernel gives a child copies of registered pages nothing is to be done. */
static void fork_prepare(const halay_transport_t *t)
{
    if (ibv_is_fork_initialized() == IBV_FORK_DISABLED && ibv_fork_init())
        hly_meet_log(&t->meet, 1,
                     "a program that forks may see wrong data: ibv_fork_init: %s (memory was "
                     "registered before; RDMAV_FORK_SAFE=1 says it in time)",
                     strerror(errno));
}

/* Where nobody listens for it: at the address of the first GID, or for this host alone. */
static void where_set(halay_transport_t *t)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *raw = t->rails[0].port.gids[0].raw;
    if (!t->meet.listen_shared && memcmp(raw, mapped, sizeof(mapped)) == 0)
        memcpy(t->meet.where.ip, raw + 12, 4);
}

static void counters_say(const halay_transport_t *t)
{
    const hly_verbs_counters_t *n = &t->n;
    hly_meet_log(&t->meet, 2,
                 "counters: connections %llu, messages %llu, puts %llu, put_bytes %llu, requests "
                 "%llu, doorbells %llu, signalled %llu, inlined %llu, sent %llu, received %llu, "
                 "credits %llu, refilled %llu, registered %llu, shared %llu, kept %llu, "
                 "bounced_bytes %llu, lanes %llu, cut %llu",
                 (unsigned long long)n->connections, (unsigned long long)n->messages,
                 (unsigned long long)n->puts, (unsigned long long)n->put_bytes,
                 (unsigned long long)n->requests, (unsigned long long)n->doorbells,
                 (unsigned long long)n->signalled, (unsigned long long)n->inlined,
                 (unsigned long long)n->sent, (unsigned long long)n->received,
                 (unsigned long long)n->credits, (unsigned long long)n->refilled,
                 (unsigned long long)n->registered, (unsigned long long)n->shared,
                 (unsigned long long)n->kept, (unsigned long long)n->bounced_bytes,
                 (unsigned long long)n->lanes, (unsigned long long)n->cut);
    for (int i = 0; t->nrails > 1 && i < t->nrails; i++)
        hly_meet_log(&t->meet, 2, "rail %s: put_bytes %llu", t->rails[i].name,
                     (unsigned long long)t->rails[i].put_bytes);
}

/* ------------------------------------------------------------------ close */

/* Everybody's requests are done, or nobody waits for them any more. */
static int all_done(halay_transport_t *t)
{
    int done = 1;
    for (halay_ep_t *peer = hly_verbs_first(t); peer; peer = hly_verbs_next(peer)) {
        if (peer->base.state != PEER_WELL || peer->tried != TRIED)
            continue;
        for (int k = 0; k < peer->nlanes; k++)
            hly_verbs_fence(t, peer->lane[k]);
        done &= hly_verbs_peer_quiet(peer) && peer->put_first == peer->put_end;
    }
    return done;
}

/* What was sent has reached the peers' machines before they hear that this end is gone. */
static void farewell(halay_transport_t *t)
{
    const uint64_t until = hly_meet_now_ns() + HLY_MEET_CLOSE_NS;
    halay_event_t events[HLY_VERBS_BATCH];
    struct pollfd naps[HLY_VERBS_RAILS];
    for (int i = 0; i < t->ndevices; i++)
        naps[i] = (struct pollfd){.fd = t->devices[i].channel->fd, .events = POLLIN};
    hly_meet_leave(&t->meet);
    while (!all_done(t) && hly_meet_now_ns() < until) {
        if (hly_verbs_poll(t, events, HLY_VERBS_BATCH) == 0)
            poll(naps, (nfds_t)t->ndevices, 1);
    }
}

static void queues_close(const hly_verbs_device_t *device)
{
    if (device->srq)
        ibv_destroy_srq(device->srq);
    if (device->armed) {
        struct ibv_cq *cq;
        void *arg;
        while (ibv_get_cq_event(device->channel, &cq, &arg) == 0)
            ibv_ack_cq_events(cq, 1);
    }
    if (device->cq)
        ibv_destroy_cq(device->cq);
    if (device->channel)
        ibv_destroy_comp_channel(device->channel);
}

void hly_verbs_devices_close(halay_transport_t *t)
{
    for (int i = 0; i < t->ndevices; i++)
        queues_close(&t->devices[i]);
    hly_verbs_targets_drop(t);
    hly_verbs_pools_close(t);
    for (int i = 0; i < t->ndevices; i++) {
        if (t->devices[i].pd)
            ibv_dealloc_pd(t->devices[i].pd);
        ibv_close_device(t->devices[i].context);
    }
    hly_verbs_ends_free(&t->ends);
    free(t);
}

void hly_verbs_close(halay_transport_t *t)
{
    if (!t)
        return;
    if (getpid() == t->meet.pid) {
        farewell(t);
        counters_say(t);
        hly_meet_close(&t->meet);
        /* Queue pairs first: nothing is sent or written any more when the memory goes. */
        while (t->meet.peers)
            hly_verbs_peer_free(t, hly_verbs_first(t));
        if (hly_verbs_pairs_ended(t, hly_meet_now_ns() + HLY_VERBS_END_NS))
            hly_verbs_devices_close(t);
    } else {
        hly_meet_close(&t->meet);
        hly_verbs_pools_close(t);
        for (halay_ep_t *peer; (peer = hly_verbs_first(t)) != NULL; free(peer))
            hly_meet_peer_forget(&t->meet, &peer->base);
        free(t);
    }
}

/* ------------------------------------------------------------------ open */

/* The first device's queue is watched already. */
static int device_watch(const halay_transport_t *t, int i)
{
    const hly_verbs_device_t *device = &t->devices[i];
    int rc = hly_meet_watch(t->meet.epoll_fd, device->context->async_fd, EPOLLIN, NULL);
    if (rc == 0 && i > 0)
        rc = hly_meet_watch(t->meet.epoll_fd, device->channel->fd, EPOLLIN, NULL);
    return rc == 0 ? HALAY_OK
                   : hly_meet_error(&t->meet, HALAY_ETRANSPORT, "cannot watch %s: %s",
                                    ibv_get_device_name(device->context->device), strerror(-rc));
}

int hly_verbs_open(const halay_transport_params_t *params, halay_transport_t **out)
{
    static const hly_meet_ops_t ops = {.name = "verbs",
                                       .magic = HLY_VERBS_MAGIC,
                                       .both = 1,
                                       .make = hly_verbs_peer_make,
                                       .tell = hly_verbs_peer_tell,
                                       .meet = hly_verbs_peer_meet,
                                       .mark = hly_verbs_peer_mark,
                                       .agree = hly_verbs_peer_agree};
    const halay_address_t where = {.family = AF_INET, .ip = {127, 0, 0, 1}};
    if (!hly_meet_params_well(params) || !out)
        return HALAY_EINVAL;
    halay_transport_t *t = calloc(1, sizeof(*t));
    if (!t)
        return HALAY_ENOMEM;
    hly_meet_init(&t->meet, &ops, t, params, &where);
    if (t->meet.timeout_ns > HLY_VERBS_LINK_NS)
        t->meet.timeout_ns = HLY_VERBS_LINK_NS; /* the other side's queue pairs have none left */
    LIST_INIT(&t->sources);
    LIST_INIT(&t->targets);
    int rc = settings_read(t, params->options);
    if (rc)
        goto free_all;
    hly_verbs_ends_init(&t->ends);
    fork_prepare(t);
    t->local_rank = params->local_rank;
    rc = hly_verbs_ports_open(t);
    if (rc == HALAY_OK)
        rc = hly_verbs_devices_open(t);
    if (rc == HALAY_OK)
        rc = hly_verbs_pools_open(t);
    if (rc)
        goto close_devices;
    hly_verbs_gpu_look(t);
    where_set(t);
    rc = hly_meet_open(&t->meet, t->devices[0].channel->fd);
    for (int i = 0; i < t->ndevices && rc == HALAY_OK; i++)
        rc = device_watch(t, i);
    if (rc)
        goto close_meet;
    *out = t;
    return HALAY_OK;
close_meet:
    hly_meet_close(&t->meet);
close_devices:
    hly_verbs_devices_close(t);
    return rc;
free_all:
    free(t);
    return rc;
}
