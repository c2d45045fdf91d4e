/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - groups. A group is the list of its members' ranks in MPI_COMM_WORLD, so all that
 * compares two of them makes a table by that rank first.
 */
#include <stdlib.h>
#include <string.h>

#include "comm.h"

static struct hly_mpi_group *empty; /* MPI_GROUP_EMPTY: predefined, so never freed */

static struct hly_mpi_group *group_new(int size)
{
    struct hly_mpi_group *group = hly_mpi_object_new(
        HLY_MPI_GROUP, sizeof(*group) + (size_t)(size ? size : 1) * sizeof(group->world[0]));
    if (group) {
        group->size = size;
        group->rank = MPI_UNDEFINED;
    }
    return group;
}

void hly_mpi_groups_open(void)
{
    empty = group_new(0);
    hly_mpi_predefine(HLY_MPI_GROUP, 0x109, empty);
}

struct hly_mpi_group *hly_mpi_group_of(const int world[], int size)
{
    if (!size) {
        hly_mpi_object_hold(empty);
        return empty;
    }
    struct hly_mpi_group *group = group_new(size);
    if (!group)
        return NULL;
    memcpy(group->world, world, (size_t)size * sizeof(world[0]));
    for (int i = 0; i < size; i++)
        if (world[i] == hly_mpi_job.rank)
            group->rank = i;
    return group;
}

int hly_mpi_check_group(const char *function, const struct hly_mpi_group *group)
{
    if (group)
        return MPI_SUCCESS;
    const int rc = hly_mpi_check_job(function);
    return rc ? rc
              : hly_mpi_fail(MPI_ERR_GROUP, "%s: the group is MPI_GROUP_NULL, or was freed",
                             function);
}

/* Two groups, and a table from a rank in MPI_COMM_WORLD to the rank in one of them, or -1. */
static int check_two(const char *function, const struct hly_mpi_group *one,
                     const struct hly_mpi_group *two)
{
    const int rc = hly_mpi_check_group(function, one);
    return rc ? rc : hly_mpi_check_group(function, two);
}

static int *table_of(const char *function, const struct hly_mpi_group *group)
{
    int *table = malloc((size_t)hly_mpi_job.size * sizeof(*table));
    if (!table) {
        hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a table of %d ranks", function,
                     hly_mpi_job.size);
        return NULL;
    }
    for (int i = 0; i < hly_mpi_job.size; i++)
        table[i] = -1;
    for (int i = 0; i < group->size; i++)
        table[group->world[i]] = i;
    return table;
}

/* Gives the group of a list, which it frees. from: the group that the list is made of. */
static int give(const char *function, int *world, int size, const struct hly_mpi_group *from,
                struct hly_mpi_group **made)
{
    struct hly_mpi_group *group = hly_mpi_group_of(world, size);
    free(world);
    if (!group)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a group of %d", function, size);
    if (size) /* else it is MPI_GROUP_EMPTY */
        group->session = from->session;
    *made = group;
    return MPI_SUCCESS;
}

static int *list_new(const char *function, int size)
{
    int *list = calloc((size_t)(size > 0 ? size : 1), sizeof(*list));
    if (!list)
        hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a list of %d ranks", function, size);
    return list;
}

int hly_mpi_group_ranks(const char *function, const struct hly_mpi_group *from,
                        const struct hly_mpi_group *to, int **ranks)
{
    int *table = table_of(function, to);
    int *list = table ? list_new(function, from->size) : NULL;
    for (int i = 0; list && i < from->size; i++)
        list[i] = table[from->world[i]] < 0 ? MPI_UNDEFINED : table[from->world[i]];
    free(table);
    if (!list)
        return MPI_ERR_NO_MEM;
    *ranks = list;
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- questions */

int hly_mpi_group_size(struct hly_mpi_group *group, int *size)
{
    const int rc = hly_mpi_check_group("MPI_Group_size", group);
    if (!rc)
        *size = group->size;
    return rc;
}

int hly_mpi_group_rank(struct hly_mpi_group *group, int *rank)
{
    const int rc = hly_mpi_check_group("MPI_Group_rank", group);
    if (!rc)
        *rank = group->rank;
    return rc;
}

int hly_mpi_group_translate_ranks(struct hly_mpi_group *group1, int n, const int ranks1[],
                                  struct hly_mpi_group *group2, int ranks2[])
{
    const char *function = "MPI_Group_translate_ranks";
    int rc = check_two(function, group1, group2);
    if (rc)
        return rc;
    if (n < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: n is %d: it has to be 0 or more", function, n);
    int *table = table_of(function, group2);
    if (!table)
        return MPI_ERR_NO_MEM;
    for (int i = 0; i < n && !rc; i++) {
        const int rank = ranks1[i];
        if (rank == MPI_PROC_NULL)
            ranks2[i] = MPI_PROC_NULL;
        else if (rank < 0 || rank >= group1->size)
            rc = hly_mpi_fail(MPI_ERR_RANK, "%s: rank %d is not in a group of %d", function, rank,
                              group1->size);
        else
            ranks2[i] = table[group1->world[rank]] < 0 ? MPI_UNDEFINED : table[group1->world[rank]];
    }
    free(table);
    return rc;
}

int hly_mpi_group_compare(struct hly_mpi_group *group1, struct hly_mpi_group *group2, int *result)
{
    int rc = check_two("MPI_Group_compare", group1, group2);
    if (rc)
        return rc;
    *result = MPI_UNEQUAL;
    if (group1->size != group2->size)
        return MPI_SUCCESS;
    if (!memcmp(group1->world, group2->world, (size_t)group1->size * sizeof(group1->world[0]))) {
        *result = MPI_IDENT;
        return MPI_SUCCESS;
    }
    int *ranks;
    rc = hly_mpi_group_ranks("MPI_Group_compare", group1, group2, &ranks);
    if (rc)
        return rc;
    *result = MPI_SIMILAR;
    for (int i = 0; i < group1->size; i++)
        if (ranks[i] == MPI_UNDEFINED)
            *result = MPI_UNEQUAL;
    free(ranks);
    return MPI_SUCCESS;
}

/* ---------------------------------------------------------------- new groups */

/* Members of group1 that are in group2 (wanted), or are not; then, with all, those of group2 that
 * group1 lacks. */
static int combine(const char *function, struct hly_mpi_group *group1, struct hly_mpi_group *group2,
                   bool first, bool wanted, bool all, struct hly_mpi_group **made)
{
    const int rc = check_two(function, group1, group2);
    if (rc)
        return rc;
    int size = 0, *one = table_of(function, group1), *two = table_of(function, group2);
    int *list = one && two ? list_new(function, group1->size + group2->size) : NULL;
    for (int i = 0; list && i < group1->size; i++)
        if (first || (two[group1->world[i]] >= 0) == wanted)
            list[size++] = group1->world[i];
    for (int i = 0; list && all && i < group2->size; i++)
        if (one[group2->world[i]] < 0)
            list[size++] = group2->world[i];
    free(one);
    free(two);
    return list ? give(function, list, size, group1, made) : MPI_ERR_NO_MEM;
}

int hly_mpi_group_union(struct hly_mpi_group *group1, struct hly_mpi_group *group2,
                        struct hly_mpi_group **newgroup)
{
    return combine("MPI_Group_union", group1, group2, true, true, true, newgroup);
}

int hly_mpi_group_intersection(struct hly_mpi_group *group1, struct hly_mpi_group *group2,
                               struct hly_mpi_group **newgroup)
{
    return combine("MPI_Group_intersection", group1, group2, false, true, false, newgroup);
}

int hly_mpi_group_difference(struct hly_mpi_group *group1, struct hly_mpi_group *group2,
                             struct hly_mpi_group **newgroup)
{
    return combine("MPI_Group_difference", group1, group2, false, false, false, newgroup);
}

/* Marks the ranks of a list in `chosen`: each once, in the group's range. */
static int choose(const char *function, const struct hly_mpi_group *group, int n, const int ranks[],
                  bool *chosen)
{
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size)
            return hly_mpi_fail(MPI_ERR_RANK, "%s: rank %d is not in a group of %d", function,
                                ranks[i], group->size);
        if (chosen[ranks[i]])
            return hly_mpi_fail(MPI_ERR_RANK, "%s: rank %d is in the list twice", function,
                                ranks[i]);
        chosen[ranks[i]] = true;
    }
    return MPI_SUCCESS;
}

static int select_ranks(const char *function, struct hly_mpi_group *group, int n, const int ranks[],
                        bool include, struct hly_mpi_group **made)
{
    int rc = hly_mpi_check_group(function, group), size = 0;
    if (rc)
        return rc;
    if (n < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: n is %d: it has to be 0 or more", function, n);
    bool *chosen = calloc((size_t)group->size + 1, sizeof(*chosen));
    int *list = chosen ? list_new(function, group->size) : NULL;
    if (!list) {
        free(chosen);
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for %d ranks", function, group->size);
    }
    rc = choose(function, group, n, ranks, chosen);
    for (int i = 0; !rc && include && i < n; i++)
        list[size++] = group->world[ranks[i]];
    for (int i = 0; !rc && !include && i < group->size; i++)
        if (!chosen[i])
            list[size++] = group->world[i];
    free(chosen);
    if (!rc)
        return give(function, list, size, group, made);
    free(list);
    return rc;
}

int hly_mpi_group_incl(struct hly_mpi_group *group, int n, const int ranks[],
                       struct hly_mpi_group **newgroup)
{
    return select_ranks("MPI_Group_incl", group, n, ranks, true, newgroup);
}

int hly_mpi_group_excl(struct hly_mpi_group *group, int n, const int ranks[],
                       struct hly_mpi_group **newgroup)
{
    return select_ranks("MPI_Group_excl", group, n, ranks, false, newgroup);
}

/* Writes out the ranks of (first, last, stride) triplets, at most `room`: what is more cannot be
 * ranks of the group, each once. */
static int expand(const char *function, int n, int ranges[][3], int room, int *list, int *size)
{
    *size = 0;
    for (int i = 0; i < n; i++) {
        const int64_t first = ranges[i][0], last = ranges[i][1], stride = ranges[i][2];
        if (!stride)
            return hly_mpi_fail(MPI_ERR_ARG, "%s: the stride of range %d is 0", function, i);
        if ((first < last && stride < 0) || (first > last && stride > 0))
            return hly_mpi_fail(MPI_ERR_ARG,
                                "%s: range %d goes from %d to %d with stride %d, so it is empty",
                                function, i, ranges[i][0], ranges[i][1], ranges[i][2]);
        for (int64_t r = first; stride > 0 ? r <= last : r >= last; r += stride) {
            if (*size == room)
                return hly_mpi_fail(MPI_ERR_RANK,
                                    "%s: the ranges have a rank twice, or one that is not in the "
                                    "group of %d",
                                    function, room);
            list[(*size)++] = (int)r;
        }
    }
    return MPI_SUCCESS;
}

static int select_ranges(const char *function, struct hly_mpi_group *group, int n, int ranges[][3],
                         bool include, struct hly_mpi_group **made)
{
    int rc = hly_mpi_check_group(function, group), size = 0;
    if (rc)
        return rc;
    if (n < 0)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: n is %d: it has to be 0 or more", function, n);
    int *list = list_new(function, group->size);
    if (!list)
        return MPI_ERR_NO_MEM;
    rc = expand(function, n, ranges, group->size, list, &size);
    if (!rc)
        rc = select_ranks(function, group, size, list, include, made);
    free(list);
    return rc;
}

int hly_mpi_group_range_incl(struct hly_mpi_group *group, int n, int ranges[][3],
                             struct hly_mpi_group **newgroup)
{
    return select_ranges("MPI_Group_range_incl", group, n, ranges, true, newgroup);
}

int hly_mpi_group_range_excl(struct hly_mpi_group *group, int n, int ranges[][3],
                             struct hly_mpi_group **newgroup)
{
    return select_ranges("MPI_Group_range_excl", group, n, ranges, false, newgroup);
}

int hly_mpi_group_free(struct hly_mpi_group **group)
{
    const int rc = hly_mpi_check_group("MPI_Group_free", *group);
    if (rc)
        return rc;
    hly_mpi_object_release(*group);
    *group = NULL;
    return MPI_SUCCESS;
}
