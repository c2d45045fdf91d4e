/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_record late|killed|stopped|init|receive|message - after 20 allreduces rank 2 does not come to
 * the next one, or kills or stops itself before it; or it never comes to halay_init(). The others'
 * 21st fails, or waits. receive: rank 3 receives from rank 2 then; message: a message with a tag.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/halay.h>

#include "../check.h"

enum { CULPRIT = 2, CALLS = 20 };

static void misbehave(const char *how)
{
    if (!strcmp(how, "killed"))
        raise(SIGKILL);
    else if (!strcmp(how, "stopped"))
        raise(SIGSTOP);
    sleep(600);
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *world;
    float in[64] = {1}, out[64];
    int rank;
    CHECK(argc == 2, "job_record late|killed|stopped|init|receive");
    const char *number = getenv("PMIX_RANK");
    if (!strcmp(argv[1], "init") && number && !strcmp(number, "2"))
        misbehave("late");
    CHECK(!halay_init(NULL, &context), "halay_init");
    MUST(!halay_comm_world(context, &world) && !halay_comm_rank(world, &rank));
    for (int i = 0; i < CALLS; i++)
        MUST(!halay_allreduce(in, out, 64, HALAY_FLOAT32, HALAY_SUM, world));
    if (rank == CULPRIT)
        misbehave(argv[1]);
    if (rank == CULPRIT + 1 && !strcmp(argv[1], "receive"))
        return halay_recv(out, 10, HALAY_FLOAT32, CULPRIT, world) ? 3 : 0;
    if (rank == CULPRIT + 1 && !strcmp(argv[1], "message"))
        return halay_message_recv(out, 10, HALAY_FLOAT32, CULPRIT, 99, world, NULL) ? 3 : 0;
    return halay_allreduce(in, out, 64, HALAY_FLOAT32, HALAY_SUM, world) ? 3 : 0;
}
