/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_met - what ranks say that have not met, or have not made what others use. "contact S": the
 * last rank sleeps S seconds before its first call; the others give it up, shrink and go on.
 * "unmade 0": ranks 0 to 2 call on a copy of the world that rank 3 has not made yet, and rank 3
 * waits for rank 2 in a communicator of the two. "group 0": all make a group of calls, and rank 1
 * is stopped for good.
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/halay.h>

#include "../check.h"

static int rank, nranks;

static int add(halay_comm_t *comm, int64_t *sum)
{
    int64_t one = 1;
    return halay_allreduce(&one, sum, 1, HALAY_INT64, HALAY_SUM, comm);
}

static void tell(const char *what, halay_comm_t *comm, int rc)
{
    halay_verdict_t v = {.size = sizeof(v)};
    if (rc && !halay_comm_verdict(comm, &v))
        fprintf(stderr, "rank %d, %s: %s\n", rank, what, v.text);
    else
        fprintf(stderr, "rank %d, %s: ended well\n", rank, what);
}

static void contact(halay_comm_t *world, int seconds)
{
    halay_comm_t *survivors;
    int64_t sum = 0;
    if (rank == nranks - 1)
        sleep((unsigned)seconds);
    tell("call", world, add(world, &sum));
    const int rc = halay_comm_shrink(world, &survivors);
    if (rc) {
        tell("shrink", world, rc);
        return;
    }
    for (int i = 0; i < seconds * 10; i++) {
        MUST(!add(survivors, &sum));
        usleep(100000);
    }
    fprintf(stderr, "rank %d goes on with %d\n", rank, (int)sum);
}

static void unmade(halay_comm_t *world)
{
    halay_comm_t *pair, *copy;
    int64_t sum = 0;
    MUST(!halay_comm_split(world, rank / 2, rank, &pair));
    MUST(!add(world, &sum) && !add(pair, &sum));
    if (rank == 3) {
        tell("pair", pair, halay_barrier(pair));
        return;
    }
    MUST(!halay_comm_dup(world, &copy));
    tell("copy", copy, add(copy, &sum));
}

static void group(halay_comm_t *world)
{
    int64_t in[4][500] = {{0}}, out[4][500];
    int64_t sum;
    MUST(!add(world, &sum));
    if (rank == 1)
        raise(SIGSTOP);
    MUST(!halay_group_begin(world));
    for (int i = 0; i < 4; i++)
        MUST(!halay_allreduce(in[i], out[i], 500, HALAY_INT64, HALAY_SUM, world));
    halay_request_t *request;
    MUST(!halay_group_end(world, &request));
    tell("group", world, halay_request_wait(request));
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *world;
    MUST(argc == 3 && !halay_init(NULL, &context) && !halay_comm_world(context, &world));
    MUST(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks));
    signal(SIGTERM, SIG_IGN); /* a second more to say it */
    if (!strcmp(argv[1], "contact"))
        contact(world, (int)strtol(argv[2], NULL, 10));
    else if (!strcmp(argv[1], "unmade"))
        unmade(world);
    else
        group(world);
    halay_finalize(context);
    return 0;
}
