/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crossed_play.h - one rank's part of a program (crossed.h), and what it was told. For threads and
 * for processes: who includes it has CHECK() of its own.
 */
#ifndef TESTS_CROSSED_PLAY_H
#define TESTS_CROSSED_PLAY_H

#include <string.h>

#include <halay/halay.h>

#include "crossed.h"

struct said {                /* by one rank of one failing call */
    int group, code, blamed; /* blamed: world rank, or -1 */
    uint32_t sequence;
    bool read;
    char text[512];
};

static void crossed_hear(const struct crossed *p, int me, int i, halay_comm_t *comm, int rc,
                         struct said *s)
{
    const struct crossed_call *c = &p->list[me][i];
    halay_verdict_t v = {.size = sizeof(v)};
    s->read = true;
    s->code = rc;
    if (!rc)
        return;
    CHECK(!halay_comm_verdict(comm, &v) && v.code == rc, "rank %d: code %d, verdict %d", me, rc,
          v.code);
    s->group = crossed_group(p, c->comm, me);
    s->sequence = v.sequence;
    s->blamed = v.rank < 0 ? -1 : crossed_member(p, c->comm, me, v.rank);
    snprintf(s->text, sizeof(s->text), "%s", v.text);
}

static int crossed_begin(const struct crossed_call *c, int root, halay_comm_t *comm, int32_t *in,
                         int32_t *out, halay_request_t **request)
{
    const halay_type_t type = c->other_type ? HALAY_UINT32 : HALAY_INT32;
    const halay_op_t op = c->other_op ? HALAY_MAX : HALAY_SUM;
    const size_t n = (size_t)c->count;
    switch (c->kind) {
    case CROSSED_ALLREDUCE:
        return halay_iallreduce(in, out, n, type, op, comm, request);
    case CROSSED_BROADCAST:
        return halay_ibroadcast(in, n, type, root, comm, request);
    case CROSSED_REDUCE:
        return halay_ireduce(in, out, n, type, op, root, comm, request);
    case CROSSED_ALLGATHER:
        return halay_iallgather(in, out, n, type, comm, request);
    default:
        return halay_ibarrier(comm, request);
    }
}

/* An allreduce that ended well has the right sum. */
static void crossed_check_sum(const struct crossed *p, int me, int i, const int32_t *out)
{
    const struct crossed_call *c = &p->list[me][i];
    int32_t sum = 0, most = 0;
    if (c->kind != CROSSED_ALLREDUCE)
        return;
    for (int r = 0; r < p->nranks; r++)
        if (crossed_has(p, c->comm, me, r)) {
            sum += r + 1;
            most = r + 1;
        }
    for (int k = 0; k < c->count; k++)
        CHECK(out[k] == (c->other_op ? most : sum), "rank %d, call %d: %d", me, i, out[k]);
}

/* A blocking program stops at its first error. The deadline is that of the calls. */
static void crossed_play(const struct crossed *p, int me, halay_comm_t *world, uint64_t deadline_ns,
                         struct said said[CROSSED_CALLS])
{
    static _Thread_local int32_t in[CROSSED_CALLS][CROSSED_COUNT],
        out[CROSSED_CALLS][CROSSED_COUNT * CROSSED_RANKS];
    halay_request_t *request[CROSSED_CALLS];
    const int n = p->n[me];
    int rc = 0, order[CROSSED_CALLS];
    halay_comm_t *comms[CROSSED_COMMS] = {world};
    halay_verdict_t why = {.size = sizeof(why)};
    CHECK(!halay_comm_dup(world, &comms[1]) && !halay_comm_split(world, me % 2, me, &comms[2]) &&
              !halay_comm_split(world, me < (p->nranks + 1) / 2, -me, &comms[3]) &&
              !halay_barrier(world),
          "no communicators: %s", halay_comm_verdict(world, &why) ? "" : why.text);
    for (int c = 0; c < CROSSED_COMMS; c++)
        CHECK(!halay_comm_set_deadline(comms[c], deadline_ns), "deadline");
    crossed_order(p, me, order);
    for (int i = 0; i < n && !rc; i++) {
        const struct crossed_call *c = &p->list[me][i];
        for (int k = 0; k < CROSSED_COUNT; k++)
            in[i][k] = me + 1;
        CHECK(!crossed_begin(c, crossed_root(p, me, c), comms[c->comm], in[i], out[i], &request[i]),
              "rank %d cannot post call %d", me, i);
        if (p->posted)
            continue;
        rc = halay_request_wait(request[i]);
        crossed_hear(p, me, i, comms[c->comm], rc, &said[i]);
        if (!rc)
            crossed_check_sum(p, me, i, out[i]);
    }
    for (int k = 0; p->posted && k < n; k++) {
        const int i = order[k];
        rc = halay_request_wait(request[i]);
        crossed_hear(p, me, i, comms[p->list[me][i].comm], rc, &said[i]);
        if (!rc)
            crossed_check_sum(p, me, i, out[i]);
    }
}

#endif
