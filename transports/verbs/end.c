/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end.c - queue pairs are destroyed in a thread. The kernel may wait in that until the card has let
 * go of what they have sent: for 50 s with Soft-RoCE, where the packets are held because the link
 * is down. The rank has to tell others of that failure meanwhile.
 *
 * A queue pair is reset before, here: it reads and writes nothing any more, and holds no memory.
 * They are chained by qp_context, so that a failure needs no memory. The thread ends with the last
 * one, or closes the devices then, if the transport is closed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>

#include "../../common/thread.h"
#include "verbs.h"

void hly_verbs_ends_init(hly_verbs_ends_t *ends)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&ends->lock, NULL);
    pthread_cond_init(&ends->over, &attr);
    pthread_condattr_destroy(&attr);
}

void hly_verbs_ends_free(hly_verbs_ends_t *ends)
{
    pthread_cond_destroy(&ends->over);
    pthread_mutex_destroy(&ends->lock);
}

static void *destroy_all(void *arg)
{
    halay_transport_t *t = arg;
    hly_verbs_ends_t *ends = &t->ends;
    struct ibv_qp *qp;
    pthread_mutex_lock(&ends->lock);
    while ((qp = ends->first) != NULL) {
        ends->first = qp->qp_context;
        pthread_mutex_unlock(&ends->lock);
        ibv_destroy_qp(qp);
        pthread_mutex_lock(&ends->lock);
    }
    const int left = ends->left;
    ends->runs = 0;
    pthread_cond_signal(&ends->over);
    pthread_mutex_unlock(&ends->lock);
    if (left)
        hly_verbs_devices_close(t);
    return NULL;
}

void hly_verbs_pair_end(halay_transport_t *t, struct ibv_qp *qp)
{
    hly_verbs_ends_t *ends = &t->ends;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    pthread_mutex_lock(&ends->lock);
    const int runs = ends->runs;
    qp->qp_context = ends->first;
    ends->first = qp;
    ends->runs = 1;
    pthread_mutex_unlock(&ends->lock);
    if (!runs && hly_thread_detached(destroy_all, t))
        destroy_all(t); /* no thread, so it waits */
}

int hly_verbs_pairs_ended(halay_transport_t *t, uint64_t until_ns)
{
    hly_verbs_ends_t *ends = &t->ends;
    const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    int error = 0;
    pthread_mutex_lock(&ends->lock);
    while (ends->runs && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&ends->over, &ends->lock, &until);
    const int runs = ends->left = ends->runs;
    if (runs) {
        hly_meet_log(&t->meet, 1,
                     "the driver does not let go of queue pairs: a thread waits for it, and so may "
                     "the end of the process; is the link up (ip link, rdma link)?");
        t->meet.log = NULL; /* its argument goes */
    }
    pthread_mutex_unlock(&ends->lock);
    return !runs;
}
