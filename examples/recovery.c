/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goes on after ranks have failed: sums up STEPS numbers over all ranks that are left. To show it,
 * the rank that is named kills itself in step 10, or stops:
 *
 *   halayrun --keep-going -np 4 ./recovery 2
 *   HALAY_DEADLINE=3 halayrun --keep-going -np 4 ./recovery 2 stop
 */
#include <halay/halay.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS 20

/* All that are left come here, at the same point of the program: 1 if the step was good for all. */
static int all_well(int rc, halay_comm_t *comm)
{
    int well = rc == HALAY_OK;
    if (rc)
        halay_comm_revoke(comm); /* so that all leave the step */
    rc = halay_comm_agree(comm, &well);
    if (rc == HALAY_OK)
        return well;
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    halay_comm_verdict(comm, &verdict);
    fprintf(stderr, "%s: %s\n", halay_strerror(rc), verdict.text);
    exit(1); /* it is this rank that the others have left behind */
}

int main(int argc, char **argv)
{
    halay_context_t *context;
    halay_comm_t *comm, *survivors;
    int me, rank, nranks, victim = argc > 1 ? atoi(argv[1]) : -1;
    double total = 0;
    if (halay_init(NULL, &context))
        return 1; /* it has said why */
    halay_comm_world(context, &comm);
    halay_comm_rank(comm, &me);

    for (int step = 0; step < STEPS;) {
        double sum = 1;
        if (step == 10 && me == victim)
            raise(argc > 2 ? SIGSTOP : SIGKILL);
        int rc = halay_allreduce(HALAY_IN_PLACE, &sum, 1, HALAY_FLOAT64, HALAY_SUM, comm);
        if (all_well(rc, comm)) {
            total += sum;
            step++;
        } else if (halay_comm_shrink(comm, &survivors)) {
            return 1;
        } else {
            comm = survivors; /* and the step is made again */
        }
    }
    halay_comm_rank(comm, &rank);
    halay_comm_size(comm, &nranks);
    printf("rank %d is now %d of %d: %g\n", me, rank, nranks, total);
    halay_finalize(context);
    return 0;
}
