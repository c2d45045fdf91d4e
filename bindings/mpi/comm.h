/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - what the files of the job, of communicators, groups, attributes and topologies share. */
#ifndef HLY_MPI_COMM_H
#define HLY_MPI_COMM_H

#include "core.h"

/* Tags of halay_comm_create_group() on the job's base communicator: the highest byte says who. */
#define HLY_MPI_TAG_SELF  (1ull << 56)
#define HLY_MPI_TAG_GROUP (2ull << 56)
#define HLY_MPI_TAG_INTER (3ull << 56)

/* MPI_SUCCESS between MPI_Init and MPI_Finalize, or in a session; otherwise MPI_ERR_OTHER. */
int hly_mpi_check_job(const char *function);
int hly_mpi_check_session(const char *function, const struct hly_mpi_session *session);
/* buffer.c: waits for what is pending in it. buffer: or NULL. */
void hly_mpi_buffer_free(struct hly_mpi_buffer *buffer);

/* Ends one use; takes NULL. */
static inline void hly_mpi_drop(void *object)
{
    if (object)
        hly_mpi_object_release(object);
}

/* ---------------------------------------------------------------- group.c */

void hly_mpi_groups_open(void);
/* Makes a group of these ranks of MPI_COMM_WORLD; without any: MPI_GROUP_EMPTY. NULL: no memory. */
struct hly_mpi_group *hly_mpi_group_of(const int world[], int size);
int hly_mpi_check_group(const char *function, const struct hly_mpi_group *group);
/* The rank in `to` of each member of `from`, or MPI_UNDEFINED, in memory that the caller frees. */
int hly_mpi_group_ranks(const char *function, const struct hly_mpi_group *from,
                        const struct hly_mpi_group *to, int **ranks);

/* ---------------------------------------------------------------- comm.c, comm_make.c */

void hly_mpi_comms_open(void);
/* Ends MPI_COMM_WORLD or MPI_COMM_SELF, whose memory stays: predefined objects are never freed. */
void hly_mpi_comm_close(struct hly_mpi_comm *comm);
/*
 * Makes the object of a communicator. It takes over the group, and halay also if it fails. parent:
 * whose error handler it inherits, or NULL.
 */
int hly_mpi_comm_make(const char *function, halay_comm_t *halay, struct hly_mpi_group *group,
                      const struct hly_mpi_comm *parent, struct hly_mpi_comm **made);
/* As MPI_Comm_split, without checks; a colour of -1 gives NULL. */
int hly_mpi_comm_divide(const char *function, struct hly_mpi_comm *comm, int colour, int key,
                        struct hly_mpi_comm **made);
/* Without attributes, topology and info. */
int hly_mpi_comm_copy(const char *function, struct hly_mpi_comm *comm, struct hly_mpi_comm **made);
/* The next of the tags by which a list of ranks makes a communicator out of this one, again. */
int hly_mpi_comm_tag(const char *function, struct hly_mpi_tags **tags, const void *list,
                     size_t bytes, uint64_t tag, uint64_t *unique);
void hly_mpi_comm_tags_free(struct hly_mpi_tags *tags);

/* ---------------------------------------------------------------- comm_inter.c */

/* As hly_mpi_comm_make(), of both groups, of which the one with `local_first` comes first. */
int hly_mpi_inter_make(const char *function, halay_comm_t *halay, struct hly_mpi_group *local,
                       struct hly_mpi_group *remote, bool local_is_first,
                       const struct hly_mpi_comm *parent, struct hly_mpi_comm **made);
/* As hly_mpi_comm_divide(): a part of both groups for each colour. */
int hly_mpi_inter_divide(const char *function, struct hly_mpi_comm *comm, int colour, int key,
                         struct hly_mpi_comm **made);
/* How many ranks the communicator's `halay` has. */
static inline int hly_mpi_span(const struct hly_mpi_comm *comm)
{
    return comm->size + (comm->remote ? comm->remote->size : 0);
}

/* ---------------------------------------------------------------- topology.c */

/* A block of memory: what `at` holds depends on the kind. */
struct hly_mpi_topology {
    int kind; /* MPI_CART, MPI_GRAPH, MPI_DIST_GRAPH */
    size_t bytes;
    /* CART: the dimensions. GRAPH: nodes, edges. DIST_GRAPH: neighbours in, out. */
    int n, m;
    bool weighted;
    /* CART: dims, periods, coordinates. GRAPH: index, edges. DIST_GRAPH: sources, their weights,
     * destinations, their weights. */
    int at[];
};
struct hly_mpi_topology *hly_mpi_topology_new(int kind, int n, int m, size_t ints);
struct hly_mpi_topology *hly_mpi_topology_copy(const struct hly_mpi_topology *topology);
/* That of the communicator, if it is of this kind. */
int hly_mpi_topology_of(const char *function, const struct hly_mpi_comm *comm, int kind,
                        const struct hly_mpi_topology **topology);
/* Makes the call fail on all ranks with the text of this error, which it returns. */
int hly_mpi_topology_refuse(const char *function, struct hly_mpi_comm *comm, int rc);
/* Makes a communicator of the first nnodes ranks, with this topology, which it takes over. */
int hly_mpi_topology_attach(const char *function, struct hly_mpi_comm *comm, int nnodes,
                            struct hly_mpi_topology *topology, struct hly_mpi_comm **made);

#endif
