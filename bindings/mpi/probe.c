/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - probes, and messages that a matched probe has taken. */
#include <stdio.h>

#include "message.h"

struct hly_mpi_message {
    struct hly_mpi_head head;
    halay_message_t *halay; /* NULL: MPI_MESSAGE_NO_PROC */
    struct hly_mpi_comm *comm;
    int source, tag;
};

static struct hly_mpi_message no_proc; /* MPI_MESSAGE_NO_PROC */
#define NO_PROC_NUMBER 0x129

void hly_mpi_messages_open(void)
{
    hly_mpi_predefine(HLY_MPI_MESSAGE, NO_PROC_NUMBER, &no_proc);
}

void hly_mpi_taken_tell(void)
{
    uint32_t at = 0;
    const struct hly_mpi_message *m = hly_mpi_object_next(HLY_MPI_MESSAGE, &at);
    if (m)
        fprintf(
            stderr,
            "MPI_Finalize: rank %d: a message from rank %d with tag %d was not received, though "
            "MPI_Mprobe or MPI_Improbe has matched it: call MPI_Mrecv\n",
            hly_mpi_job.rank, m->source, m->tag);
}

/* Checks, and says whether there is no rank to look at. */
static int check(const char *function, int source, int tag, struct hly_mpi_comm *comm)
{
    struct hly_mpi_type *byte = hly_mpi_predefined(HLY_MPI_TYPE, HLY_MPI_BYTE_NUMBER);
    const struct hly_mpi_end e = {function, NULL, 0, byte, source, tag, comm, false, false};
    return hly_mpi_end_check(&e);
}

static int probe(const char *function, int source, int tag, struct hly_mpi_comm *comm, int *flag,
                 struct hly_mpi_status *status)
{
    halay_envelope_t e = {.size = sizeof(e)};
    int rc = check(function, source, tag, comm);
    if (rc)
        return rc;
    if (source == MPI_PROC_NULL) {
        if (flag)
            *flag = 1;
        hly_mpi_status_none(status, MPI_PROC_NULL);
        return MPI_SUCCESS;
    }
    rc = halay_message_probe(hly_mpi_rank_of(comm, source),
                             tag == MPI_ANY_TAG ? HALAY_ANY_TAG : tag, comm->halay, flag, &e);
    if (!rc && (!flag || *flag))
        hly_mpi_status_fill(status, comm, &e);
    return hly_mpi_result(rc, comm, function);
}

int hly_mpi_probe(int source, int tag, struct hly_mpi_comm *comm, struct hly_mpi_status *status)
{
    return probe("MPI_Probe", source, tag, comm, NULL, status);
}

int hly_mpi_iprobe(int source, int tag, struct hly_mpi_comm *comm, int *flag,
                   struct hly_mpi_status *status)
{
    return probe("MPI_Iprobe", source, tag, comm, flag, status);
}

static int take(const char *function, int source, int tag, struct hly_mpi_comm *comm, int *flag,
                struct hly_mpi_message **message, struct hly_mpi_status *status)
{
    halay_envelope_t e = {.size = sizeof(e)};
    halay_message_t *taken = NULL;
    int rc = check(function, source, tag, comm);
    *message = NULL;
    if (rc)
        return rc;
    if (source == MPI_PROC_NULL) {
        if (flag)
            *flag = 1;
        *message = &no_proc;
        hly_mpi_status_none(status, MPI_PROC_NULL);
        return MPI_SUCCESS;
    }
    struct hly_mpi_message *made = hly_mpi_object_new(HLY_MPI_MESSAGE, sizeof(*made));
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory", function);
    rc = halay_message_take(hly_mpi_rank_of(comm, source), tag == MPI_ANY_TAG ? HALAY_ANY_TAG : tag,
                            comm->halay, flag, &taken, &e);
    if (rc || !taken) {
        hly_mpi_object_release(made);
        return hly_mpi_result(rc, comm, function);
    }
    made->halay = taken;
    made->comm = comm;
    made->source = e.source;
    made->tag = e.tag;
    hly_mpi_object_hold(comm);
    hly_mpi_status_fill(status, comm, &e);
    *message = made;
    return MPI_SUCCESS;
}

int hly_mpi_mprobe(int source, int tag, struct hly_mpi_comm *comm, struct hly_mpi_message **message,
                   struct hly_mpi_status *status)
{
    return take("MPI_Mprobe", source, tag, comm, NULL, message, status);
}

int hly_mpi_improbe(int source, int tag, struct hly_mpi_comm *comm, int *flag,
                    struct hly_mpi_message **message, struct hly_mpi_status *status)
{
    return take("MPI_Improbe", source, tag, comm, flag, message, status);
}

static int receive(const char *function, void *buf, int64_t count, struct hly_mpi_type *datatype,
                   struct hly_mpi_message **message, struct hly_mpi_request **request)
{
    struct hly_mpi_message *m = *message;
    if (!m)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the message is MPI_MESSAGE_NULL", function);
    struct hly_mpi_end e = {function, buf,     count, datatype, m->source,
                            m->tag,   m->comm, false, false};
    if (!m->halay) {
        e.rank = MPI_PROC_NULL;
        e.comm = hly_mpi_job.world;
        *message = NULL;
        return hly_mpi_end_begin_taken(&e, NULL, request);
    }
    const int rc = hly_mpi_end_begin_taken(&e, m->halay, request);
    if (!rc) {
        hly_mpi_object_release(m->comm);
        hly_mpi_object_release(m);
        *message = NULL;
    }
    return rc;
}

int hly_mpi_imrecv(void *buf, int64_t count, struct hly_mpi_type *datatype,
                   struct hly_mpi_message **message, struct hly_mpi_request **request)
{
    return receive("MPI_Imrecv", buf, count, datatype, message, request);
}

int hly_mpi_mrecv(void *buf, int64_t count, struct hly_mpi_type *datatype,
                  struct hly_mpi_message **message, struct hly_mpi_status *status)
{
    struct hly_mpi_request *request;
    int rc = receive("MPI_Mrecv", buf, count, datatype, message, &request);
    return rc ? rc : hly_mpi_request_end(&request, status);
}
