/* SPDX-License-Identifier: Apache-2.0 */
/* mistakes_arguments.c - arguments of one rank that no call takes. */
#include <stddef.h>
#include <stdint.h>

#include "mistakes.h"

static int in[64], out[64];

static int root_too_large(int rank)
{
    return MPI_Bcast(in, 1, MPI_INT, rank ? 0 : 2, MPI_COMM_WORLD);
}

static int root_negative(int rank)
{
    (void)rank;
    return MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, -7, MPI_COMM_WORLD);
}

static int count_negative(int rank)
{
    return MPI_Bcast(in, rank ? 1 : -1, MPI_INT, 0, MPI_COMM_WORLD);
}

static int counts_negative(int rank)
{
    const int counts[] = {-1, 1}, displs[] = {0, 1};
    return MPI_Gatherv(in, rank ? 1 : -1, MPI_INT, out, counts, displs, MPI_INT, 0, MPI_COMM_WORLD);
}

static int type_null(int rank)
{
    return MPI_Allreduce(in, out, 1, rank ? MPI_INT : MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD);
}

static int type_uncommitted(int rank)
{
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    (void)rank;
    return MPI_Bcast(in, 1, two, 0, MPI_COMM_WORLD);
}

static int op_null(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
}

static int op_wrong(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, out, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD);
}

static int op_on_own_type(int rank)
{
    MPI_Datatype two;
    (void)rank;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    return MPI_Allreduce(in, out, 1, two, MPI_SUM, MPI_COMM_WORLD);
}

static int op_of_pairs(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, out, 1, MPI_INT, MPI_MAXLOC, MPI_COMM_WORLD);
}

static int op_of_windows(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, out, 1, MPI_INT, MPI_REPLACE, MPI_COMM_WORLD);
}

static int in_place_in_bcast(int rank)
{
    return MPI_Bcast(rank ? in : MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static int in_place_without_root(int rank)
{
    return MPI_Reduce(rank ? MPI_IN_PLACE : in, out, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static int in_place_as_output(int rank)
{
    return MPI_Allreduce(in, rank ? out : MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* MPI wants it on all ranks. */
static int in_place_on_one_rank(int rank)
{
    return MPI_Allreduce(rank ? in : MPI_IN_PLACE, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int reduce_aliased(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, in, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int alltoall_aliased(int rank)
{
    (void)rank;
    return MPI_Alltoall(in, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
}

static int gather_aliased(int rank)
{
    return MPI_Gather(rank ? in : out, 1, MPI_INT, out, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static int allreduce_overlaps(int rank)
{
    (void)rank;
    return MPI_Allreduce(in, in + 2, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* MPI forbids it, and all its libraries take it: the later block stands above. */
static int gatherv_overlaps(int rank)
{
    const int counts[] = {2, 2}, displs[] = {0, 1}, mine[] = {10 * rank, 10 * rank + 1};
    MPI_Gatherv(mine, 2, MPI_INT, out, counts, displs, MPI_INT, 0, MPI_COMM_WORLD);
    return rank == 0 && (out[0] != 0 || out[1] != 10 || out[2] != 11);
}

static int buffer_null(int rank)
{
    return MPI_Bcast(rank ? in : NULL, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static int counts_null(int rank)
{
    return MPI_Gatherv(in, 1, MPI_INT, out, rank ? in : NULL, rank ? in : NULL, MPI_INT, 0,
                       MPI_COMM_WORLD);
}

static int comm_null(int rank)
{
    (void)rank;
    return MPI_Barrier(MPI_COMM_NULL);
}

static int color_negative(int rank)
{
    MPI_Comm part;
    return MPI_Comm_split(MPI_COMM_WORLD, rank ? 0 : -5, 0, &part);
}

static int neighbours_of_none(int rank)
{
    (void)rank;
    return MPI_Neighbor_allgather(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
}

static int grid_too_large(int rank)
{
    const int dims[] = {2, 2}, periods[] = {0, 0};
    MPI_Comm cart;
    (void)rank;
    return MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
}

static int grid_negative(int rank)
{
    const int dims[] = {-1, -2}, periods[] = {0, 0};
    MPI_Comm cart;
    (void)rank;
    return MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
}

static MPI_Comm line(void)
{
    const int dims[] = {2}, periods[] = {0};
    MPI_Comm cart;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &cart);
    return cart;
}

static int coordinates_of_none(int rank)
{
    return MPI_Cart_coords(MPI_COMM_WORLD, rank, 1, out);
}

static int coordinates_outside(int rank)
{
    const int coords[] = {5};
    MPI_Comm cart = line();
    return MPI_Cart_rank(cart, coords, &rank);
}

static int shift_outside(int rank)
{
    MPI_Comm cart = line();
    (void)rank;
    return MPI_Cart_shift(cart, 1, 1, &out[0], &out[1]);
}

static int dims_impossible(int rank)
{
    int dims[] = {3, 0};
    (void)rank;
    return MPI_Dims_create(4, 2, dims);
}

static int graph_index_falls(int rank)
{
    const int index[] = {2, 1}, edges[] = {1, 0};
    MPI_Comm graph;
    (void)rank;
    return MPI_Graph_create(MPI_COMM_WORLD, 2, index, edges, 0, &graph);
}

static int graph_edge_outside(int rank)
{
    const int sources[] = {9}, targets[] = {9};
    MPI_Comm graph;
    (void)rank;
    return MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources, MPI_UNWEIGHTED, 1, targets,
                                          MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
}

static int group_rank_outside(int rank)
{
    MPI_Group world, made;
    const int ranks[] = {0, 9};
    (void)rank;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    return MPI_Group_incl(world, 2, ranks, &made);
}

static int group_rank_twice(int rank)
{
    MPI_Group world, made;
    const int ranks[] = {1, 1};
    (void)rank;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    return MPI_Group_incl(world, 2, ranks, &made);
}

static int vector_negative(int rank)
{
    MPI_Datatype made;
    (void)rank;
    return MPI_Type_vector(-2, 1, 1, MPI_INT, &made);
}

static int struct_of_null(int rank)
{
    const int lengths[] = {1, 1};
    const MPI_Aint displs[] = {0, 8};
    const MPI_Datatype types[] = {MPI_INT, MPI_DATATYPE_NULL};
    MPI_Datatype made;
    (void)rank;
    return MPI_Type_create_struct(2, lengths, displs, types, &made);
}

static int subarray_outside(int rank)
{
    const int sizes[] = {4}, subsizes[] = {3}, starts[] = {2};
    MPI_Datatype made;
    (void)rank;
    return MPI_Type_create_subarray(1, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &made);
}

static int pack_too_small(int rank)
{
    int position = 0;
    (void)rank;
    return MPI_Pack(in, 4, MPI_INT, out, 8, &position, MPI_COMM_WORLD);
}

static int unpack_too_much(int rank)
{
    int position = 4;
    (void)rank;
    return MPI_Unpack(in, 8, &position, out, 2, MPI_INT, MPI_COMM_WORLD);
}

static int key_unknown(int rank)
{
    (void)rank;
    return MPI_Comm_set_attr(MPI_COMM_WORLD, 12345, in);
}

static int reserved_attribute(int rank)
{
    (void)rank;
    return MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, in);
}

static int result_null(int rank)
{
    (void)rank;
    return MPI_Comm_rank(MPI_COMM_WORLD, NULL);
}

#define BAD "invalid parameter"
const struct mistake mistakes_arguments[] = {
    {"root_too_large", 2, ALL, BAD, "MPI_Bcast: root is 2", root_too_large, 0},
    {"root_negative", 2, ONE, BAD, "MPI_Reduce: root is -7", root_negative, 0},
    {"count_negative", 2, ALL, BAD, "MPI_Bcast: count is -1", count_negative, 0},
    {"counts_negative", 2, ALL, BAD, "MPI_Gatherv", counts_negative, 0},
    {"type_null", 2, ALL, BAD, "MPI_DATATYPE_NULL", type_null, 0},
    {"type_uncommitted", 2, ONE, BAD, "MPI_Type_commit", type_uncommitted, 0},
    {"op_null", 2, ONE, BAD, "MPI_OP_NULL", op_null, 0},
    {"op_wrong", 2, ONE, BAD, "MPI_BAND", op_wrong, 0},
    {"op_on_own_type", 2, ONE, BAD, "MPI_Allreduce", op_on_own_type, 0},
    {"op_of_pairs", 2, ONE, BAD, "MPI_MAXLOC", op_of_pairs, 0},
    {"op_of_windows", 2, ONE, BAD, "MPI_REPLACE", op_of_windows, 0},
    {"in_place_in_bcast", 2, ALL, BAD, "MPI_IN_PLACE", in_place_in_bcast, 0},
    {"in_place_without_root", 2, ALL, BAD, "MPI_IN_PLACE", in_place_without_root, 0},
    {"in_place_as_output", 2, ALL, BAD, "MPI_IN_PLACE", in_place_as_output, 0},
    {"in_place_on_one_rank", 2, ALL, BAD, "in place", in_place_on_one_rank, 0},
    {"reduce_aliased", 2, ONE, BAD, "MPI_IN_PLACE", reduce_aliased, 0},
    {"alltoall_aliased", 2, ONE, BAD, "MPI_IN_PLACE", alltoall_aliased, 0},
    {"gather_aliased", 2, ALL, BAD, "MPI_IN_PLACE", gather_aliased, 0},
    {"allreduce_overlaps", 2, ONE, BAD, "overlap", allreduce_overlaps, 0},
    {"gatherv_overlaps", 2, FINE, BAD, "", gatherv_overlaps, 0},
    {"buffer_null", 2, ALL, BAD, "buffer is null", buffer_null, 0},
    {"counts_null", 2, ALL, BAD, "NULL", counts_null, 0},
    {"comm_null", 2, ONE, BAD, "MPI_COMM_NULL", comm_null, 0},
    {"color_negative", 2, ALL, BAD, "color is -5", color_negative, 0},
    {"neighbours_of_none", 2, ONE, BAD, "topology", neighbours_of_none, 0},
    {"grid_too_large", 2, ONE, BAD, "MPI_Cart_create", grid_too_large, 0},
    {"grid_negative", 2, ONE, BAD, "MPI_Cart_create", grid_negative, 0},
    {"coordinates_of_none", 2, ONE, BAD, "MPI_Cart_coords", coordinates_of_none, 0},
    {"coordinates_outside", 2, ONE, BAD, "MPI_Cart_rank", coordinates_outside, 0},
    {"shift_outside", 2, ONE, BAD, "MPI_Cart_shift", shift_outside, 0},
    {"dims_impossible", 1, ONE, BAD, "MPI_Dims_create", dims_impossible, 0},
    {"graph_index_falls", 2, ONE, BAD, "MPI_Graph_create", graph_index_falls, 0},
    {"graph_edge_outside", 2, ONE, BAD, "MPI_Dist_graph_create_adjacent", graph_edge_outside, 0},
    {"group_rank_outside", 1, ONE, BAD, "MPI_Group_incl", group_rank_outside, 0},
    {"group_rank_twice", 2, ONE, BAD, "MPI_Group_incl", group_rank_twice, 0},
    {"vector_negative", 1, ONE, BAD, "MPI_Type_vector", vector_negative, 0},
    {"struct_of_null", 1, ONE, BAD, "MPI_Type_create_struct", struct_of_null, 0},
    {"subarray_outside", 1, ONE, BAD, "MPI_Type_create_subarray", subarray_outside, 0},
    {"pack_too_small", 1, ONE, BAD, "MPI_Pack", pack_too_small, 0},
    {"unpack_too_much", 1, ONE, BAD, "MPI_Unpack", unpack_too_much, 0},
    {"key_unknown", 1, ONE, BAD, "MPI_Comm_set_attr", key_unknown, 0},
    {"reserved_attribute", 1, ONE, BAD, "MPI_Comm_set_attr", reserved_attribute, 0},
    {"result_null", 1, ONE, BAD, "MPI_Comm_rank", result_null, 0},
    {0},
};
