/* SPDX-License-Identifier: Apache-2.0 */
/* left.c - what a program has left at MPI_Finalize. MPI forbids it, and nothing is lost by it but
 * what the program itself has not asked for: so each rank says it, and goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

#define WHO "MPI_Finalize: rank %d: "

/* So that its communicator can be freed. */
static void end_request(struct hly_mpi_request *r)
{
    if (r->is == HLY_MPI_IS_RECV && r->halay && !r->done)
        halay_message_cancel(r->halay);
    hly_mpi_request_is_done(r);
}

static void tell_requests(void)
{
    char text[160], first[160] = "";
    struct hly_mpi_request *r;
    uint32_t at = 0;
    int n = 0, freed = 0;
    while ((r = hly_mpi_object_next(HLY_MPI_REQUEST, &at))) {
        if (!r->active || r->freed)
            continue;
        if (!n++)
            hly_mpi_request_text(r, first, sizeof(first));
        end_request(r);
    }
    if (n)
        fprintf(stderr,
                WHO "%d request%s not completed: %s%s: call MPI_Wait for each request before "
                    "MPI_Finalize\n",
                hly_mpi_job.rank, n, n == 1 ? " was" : "s were", first,
                n == 1 ? "" : " is the first one");
    while ((r = hly_mpi_requests_freed(&freed))) {
        if (r->is != HLY_MPI_IS_RECV)
            continue;
        hly_mpi_request_text(r, text, sizeof(text));
        fprintf(stderr,
                WHO "%s got no message, and its request was freed: was the message sent, and does "
                    "its tag fit?\n",
                hly_mpi_job.rank, text);
        end_request(r);
    }
    hly_mpi_requests_reap();
}

/* Those that have come, and that no receive has taken. */
static void tell_messages(const struct hly_mpi_comm *comm)
{
    halay_envelope_t e = {.size = sizeof(e)};
    int found = 0;
    if (!comm->halay ||
        halay_message_probe(HALAY_ANY_SOURCE, HALAY_ANY_TAG, comm->halay, &found, &e) || !found)
        return;
    fprintf(stderr, WHO "a message of %lld bytes from rank %d with tag %d on %s was not received\n",
            hly_mpi_job.rank, (long long)e.bytes,
            comm->remote ? e.source - comm->remote_first : e.source, e.tag,
            comm->name[0] ? comm->name : "a communicator");
}

static bool wants_all(void)
{
    const char *level = getenv("HALAY_DEBUG");
    return level && (!strcmp(level, "info") || !strcmp(level, "trace"));
}

void hly_mpi_left_tell(void)
{
    const struct hly_mpi_comm *comm;
    uint32_t at = 0;
    int n = 0;
    tell_requests();
    tell_messages(hly_mpi_job.world);
    tell_messages(hly_mpi_job.self);
    while ((comm = hly_mpi_object_next(HLY_MPI_COMM, &at))) {
        n += !comm->freed;
        tell_messages(comm);
    }
    hly_mpi_taken_tell();
    if (n && wants_all())
        fprintf(stderr, WHO "%d communicator%s not freed\n", hly_mpi_job.rank, n,
                n == 1 ? " was" : "s were");
}
