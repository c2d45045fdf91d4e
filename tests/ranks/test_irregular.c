/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a hidden communicator or keeps a call, on communicators whose ranks are no simple run
 * of the world's: groups of calls, persistent requests, and messages between two ranks. The ranks
 * leave one out, stand in reverse, with a stride, in disorder (a packed table), or are what a split
 * by colour or a list gave; and each of these once more of the one before.
 */
#include <string.h>

#include "ranks.h"

#define COUNT  50
#define ROUNDS 3
#define MOST   9 /* ranks */

enum shape { LEAVES_OUT, REVERSED, STRIDED, SHUFFLED, COLOURED, LISTED, SHAPES };

static void good(int rc, enum shape s, const char *what)
{
    CHECK(rc == 0, "%s, shape %d: %s", what, (int)s, halay_strerror(rc));
}

/* NULL: this rank is not in it. */
static halay_comm_t *make(halay_comm_t *parent, int me, int n, enum shape s)
{
    halay_comm_t *comm = NULL;
    int colour = 0, key = me, nlist = 0, list[RANKS_MAX];
    if (s == LEAVES_OUT)
        colour = me == n - 2 ? -1 : 0; /* of four: 0, 1, 3 */
    else if (s == REVERSED)
        key = -me;
    else if (s == STRIDED)
        colour = me % 2;
    else if (s == SHUFFLED)
        key = me * 7 % 11;
    else if (s == COLOURED)
        colour = me * me % 3 == 1 ? 4 : 5;
    for (int k = n - 1; k >= 0; k -= 1 + k % 3 / 2)
        list[nlist++] = (k + 1) % n;
    if (s == LISTED)
        good(halay_comm_from_ranks(parent, list, nlist, &comm), s, "from_ranks");
    else
        good(halay_comm_split(parent, colour, key, &comm), s, "split");
    return comm;
}

struct data {
    int64_t in[COUNT], out[COUNT], cast[COUNT], all[COUNT * MOST];
};

static void prepare(struct data *d, int me, int root, int round)
{
    memset(d, 0x5a, sizeof(*d));
    for (int i = 0; i < COUNT; i++) {
        d->in[i] = ranks_value(me, round, i);
        d->cast[i] = me == root ? ranks_value(99, round, i) : -1;
    }
}

static void compare(const struct data *d, int n, int round, enum shape s, const char *what)
{
    for (int i = 0; i < COUNT; i++) {
        CHECK(d->out[i] == ranks_sum(n, round, i), "%s, shape %d: allreduce", what, (int)s);
        CHECK(d->cast[i] == ranks_value(99, round, i), "%s, shape %d: broadcast", what, (int)s);
        for (int k = 0; k < n; k++)
            CHECK(d->all[k * COUNT + i] == ranks_value(k, round, i), "%s, shape %d: allgather",
                  what, (int)s);
    }
}

static void groups(halay_comm_t *comm, int me, int n, enum shape s)
{
    struct data d;
    halay_request_t *group;
    for (int round = 0; round < ROUNDS; round++) {
        int root = round % n;
        prepare(&d, me, root, round);
        good(halay_group_begin(comm), s, "begin");
        good(halay_allreduce(d.in, d.out, COUNT, HALAY_INT64, HALAY_SUM, comm), s, "allreduce");
        good(halay_broadcast(d.cast, COUNT, HALAY_INT64, root, comm), s, "broadcast");
        good(halay_allgather(d.in, d.all, COUNT, HALAY_INT64, comm), s, "allgather");
        good(halay_group_end(comm, &group), s, "end");
        good(halay_request_wait(group), s, "the group");
        compare(&d, n, round, s, "group");
    }
}

static void persistent(halay_comm_t *comm, int me, int n, enum shape s)
{
    struct data d;
    halay_request_t *q[3];
    const int root = n - 1;
    prepare(&d, me, root, 0);
    good(halay_allreduce_init(d.in, d.out, COUNT, HALAY_INT64, HALAY_SUM, comm, &q[0]), s, "init");
    good(halay_broadcast_init(d.cast, COUNT, HALAY_INT64, root, comm, &q[1]), s, "init");
    good(halay_allgather_init(d.in, d.all, COUNT, HALAY_INT64, comm, &q[2]), s, "init");
    for (int round = 0; round < ROUNDS; round++) {
        prepare(&d, me, root, round);
        for (int i = 0; i < 3; i++)
            good(halay_request_start(q[i]), s, "start");
        for (int i = 0; i < 3; i++)
            good(halay_request_wait(q[i]), s, "wait");
        compare(&d, n, round, s, "persistent");
    }
    for (int i = 0; i < 3; i++)
        good(halay_request_free(q[i]), s, "free");
}

/* From each to each other one. */
static void pairs(halay_comm_t *comm, int me, int n, enum shape s)
{
    halay_request_t *sent[RANKS_MAX], *received[RANKS_MAX];
    int64_t out[RANKS_MAX], in[RANKS_MAX];
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < n; k++) {
            out[k] = ranks_value(me, round, k);
            if (k == me)
                continue;
            good(halay_irecv(&in[k], 1, HALAY_INT64, k, comm, &received[k]), s, "irecv");
            good(halay_isend(&out[k], 1, HALAY_INT64, k, comm, &sent[k]), s, "isend");
        }
        for (int k = 0; k < n; k++) {
            if (k == me)
                continue;
            good(halay_request_wait(sent[k]), s, "send");
            good(halay_request_wait(received[k]), s, "receive");
            CHECK(in[k] == ranks_value(k, round, me), "shape %d: from %d to %d", (int)s, k, me);
        }
    }
}

static void use(halay_comm_t *comm, enum shape s)
{
    int me, n;
    good(halay_comm_rank(comm, &me), s, "rank");
    good(halay_comm_size(comm, &n), s, "size");
    groups(comm, me, n, s);
    persistent(comm, me, n, s);
    pairs(comm, me, n, s);
    groups(comm, me, n, s);
}

static void all(struct rank *r)
{
    for (int s = 0; s < SHAPES; s++) {
        halay_comm_t *comm = make(r->world, r->rank, r->nranks, (enum shape)s), *copy, *of;
        if (!comm)
            continue;
        int me, n;
        use(comm, (enum shape)s);
        good(halay_comm_dup(comm, &copy), (enum shape)s, "dup");
        use(copy, (enum shape)s);
        good(halay_comm_free(comm), (enum shape)s, "free");
        good(halay_comm_rank(copy, &me), (enum shape)s, "rank");
        good(halay_comm_size(copy, &n), (enum shape)s, "size");
        for (int t = 0; t < SHAPES && n > 2; t++)
            if ((of = make(copy, me, n, (enum shape)t))) {
                use(of, (enum shape)t);
                good(halay_comm_free(of), (enum shape)t, "free");
            }
        good(halay_comm_free(copy), (enum shape)s, "free");
    }
}

/* An argument: this number of ranks alone. */
int main(int argc, char **argv)
{
    static const int nodes[9] = {0, 1, 0, 2, 1, 0, 0, 1, 3};
    static const int sizes[] = {3, 4, 5, 9};
    halay_inproc_faults_t faults = {
        .seed = 5, .delay_polls_max = 3, .reorder = 1, .late_put_polls = 3, .eager_bytes = 64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int shm = 0; shm < 2; shm++) {
            struct ranks_options o = {.nranks = sizes[i], .shm = shm};
            if (argc > 1 && atoi(argv[1]) != sizes[i])
                continue;
            if (!shm) {
                o.faults = &faults;
                o.node_of_rank = nodes;
            }
            ranks_run(&o, all, NULL);
        }
    return 0;
}
