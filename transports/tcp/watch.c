/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - the slow path: where two meet (transports/common), links that are silent or have ended,
 * failures. It runs in poll before anything is handed out; so what earlier polls gave away may go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>

#include "tcp.h"

/*
 * Something was written that the other host has not acknowledged. A host that is there acknowledges
 * what it gets, and answers when it is asked whether there is room again, also while its process
 * stands still. So looks in a row with a repetition or a question under way, and no sign of life in
 * between, mean that the link is cut, or the host gone; after the timeout with links it counts as
 * gone.
 */
static void silence_look(halay_transport_t *t, hly_tcp_link_t *link, uint64_t passed_ms)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    if (!link->spoke || link->ended || getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes))
        return;
    link->spoke = link->first || info.tcpi_unacked || info.tcpi_probes || info.tcpi_backoff;
    if ((info.tcpi_retransmits || info.tcpi_probes) && info.tcpi_last_ack_recv >= passed_ms)
        link->silent++;
    else
        link->silent = 0;
    if (link->silent == HLY_TCP_SILENT && !t->said_silent) {
        t->said_silent = 1;
        hly_meet_log(&t->meet, t->local_rank ? 2 : 1,
                     "%s has acknowledged nothing for %d s: the link to it is cut, or its host is "
                     "down. Its process counts as lost after %.3g s (HALAY_LINK_TIMEOUT)",
                     link->peer->base.name, HLY_TCP_SILENT, (double)t->meet.timeout_ns * 1e-9);
    }
    if (link->silent * HLY_TCP_WATCH_NS < t->meet.timeout_ns)
        return;
    link->ended = 1;
    link->error = ETIMEDOUT;
    t->changed = 1;
}

static void silences_look(halay_transport_t *t, uint64_t now)
{
    if (now - t->watched_ns < HLY_TCP_WATCH_NS)
        return;
    uint64_t silent = 0;
    for (int i = 0; i < t->nopen; i++) {
        silence_look(t, t->open[i], HLY_TCP_WATCH_NS / 1000000);
        silent += t->open[i]->silent;
    }
    t->said_silent = t->said_silent && silent;
    t->watched_ns = now;
}

int hly_tcp_failures_give(halay_transport_t *t, halay_event_t events[], int max)
{
    const hly_meet_peer_t *peer;
    int n = 0;
    for (; n < max && (peer = hly_meet_peer_failed(&t->meet, &events[n])) != NULL; n++) {
        for (int i = t->nopen - 1; i >= 0; i--) {
            if (&t->open[i]->peer->base == peer)
                hly_tcp_link_free(t, t->open[i]);
        }
    }
    return n;
}

static void told_peers_free(halay_transport_t *t)
{
    hly_meet_peer_t *next;
    for (hly_meet_peer_t *peer = t->meet.over ? t->meet.peers : NULL; peer; peer = next) {
        next = peer->next;
        if (!hly_meet_peer_over(peer))
            continue;
        hly_meet_peer_forget(&t->meet, peer);
        free(peer);
    }
}

void hly_tcp_attend(halay_transport_t *t)
{
    uint64_t now = hly_meet_now_ns();
    t->meet.attention = 0;
    told_peers_free(t);
    hly_meet_attend(&t->meet, now);
    silences_look(t, now);
    if (t->changed)
        hly_tcp_links_look(t);
}

int hly_tcp_timer_set(halay_transport_t *t)
{
    uint64_t when = UINT64_MAX;
    for (int i = 0; i < t->nopen; i++) {
        if (t->open[i]->spoke)
            when = t->watched_ns + HLY_TCP_WATCH_NS;
    }
    return hly_meet_timer_set(&t->meet, when);
}
