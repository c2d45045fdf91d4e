/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_contents.c - MPI_Type_get_envelope and MPI_Type_get_contents: how a datatype was made.
 *
 * A type that a large-count constructor has made, or whose numbers do not fit an int, is only
 * described by the large forms: in those its sizes and addresses are MPI_Count. Types in the
 * contents are the same objects; a derived one is one more handle, which the program frees.
 */
#include "type.h"

struct totals {
    int64_t ints, addresses, counts;
};

static struct totals totals_of(const struct hly_mpi_made *made)
{
    struct totals totals = {0, 0, 0};
    for (int r = 0; r < made->nruns; r++) {
        if (made->runs[r].sort == HLY_MPI_INTS ||
            (made->runs[r].sort == HLY_MPI_SIZES && !made->large))
            totals.ints += made->runs[r].n;
        else if (made->large)
            totals.counts += made->runs[r].n;
        else
            totals.addresses += made->runs[r].n;
    }
    return totals;
}

static int check(const char *function, const struct hly_mpi_type *type, const void *result)
{
    if (!type)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype is MPI_DATATYPE_NULL", function);
    if (!result)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the address for a result is null", function);
    return MPI_SUCCESS;
}

static int refuse_large(const char *function, const struct hly_mpi_type *type)
{
    if (!type->made->large)
        return MPI_SUCCESS;
    return hly_mpi_fail(MPI_ERR_TYPE, "%s: a large-count call has made the type: use %s_c",
                        function, function);
}

int hly_mpi_type_get_envelope(struct hly_mpi_type *datatype, int *num_integers, int *num_addresses,
                              int *num_datatypes, int *combiner)
{
    static const char function[] = "MPI_Type_get_envelope";
    struct totals totals;
    int rc =
        check(function, datatype, num_integers && num_addresses && num_datatypes ? combiner : NULL);
    if (!rc)
        rc = refuse_large(function, datatype);
    if (rc)
        return rc;
    totals = totals_of(datatype->made);
    if (totals.ints != (int)totals.ints || datatype->made->ntypes != (int)datatype->made->ntypes)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: a number does not fit an int: use %s_c", function,
                            function);
    *num_integers = (int)totals.ints;
    *num_addresses = (int)totals.addresses;
    *num_datatypes = (int)datatype->made->ntypes;
    *combiner = datatype->made->combiner;
    return MPI_SUCCESS;
}

int hly_mpi_type_get_envelope_c(struct hly_mpi_type *datatype, int64_t *num_integers,
                                int64_t *num_addresses, int64_t *num_large_counts,
                                int64_t *num_datatypes, int *combiner)
{
    struct totals totals;
    bool all = num_integers && num_addresses && num_large_counts && num_datatypes;
    int rc = check("MPI_Type_get_envelope_c", datatype, all ? combiner : NULL);
    if (rc)
        return rc;
    totals = totals_of(datatype->made);
    *num_integers = totals.ints;
    *num_addresses = totals.addresses;
    *num_large_counts = totals.counts;
    *num_datatypes = datatype->made->ntypes;
    *combiner = datatype->made->combiner;
    return MPI_SUCCESS;
}

static int contents(const char *function, const struct hly_mpi_type *type, struct totals room,
                    int64_t max_types, int ints[], int64_t addresses[], int64_t counts[],
                    struct hly_mpi_type *types[])
{
    struct hly_mpi_made *made = type->made;
    struct totals need = totals_of(made), at = {0, 0, 0};
    int64_t i = 0;
    if (made->combiner == MPI_COMBINER_NAMED)
        return hly_mpi_fail(MPI_ERR_TYPE, "%s: %s is a named type, and has no contents", function,
                            type->name);
    if (room.ints < need.ints || room.addresses < need.addresses || room.counts < need.counts ||
        max_types < made->ntypes)
        return hly_mpi_fail(MPI_ERR_ARG,
                            "%s: an array is too short: ask MPI_Type_get_envelope for the lengths",
                            function);
    for (int r = 0; r < made->nruns; r++) {
        bool plain = made->runs[r].sort == HLY_MPI_INTS ||
                     (made->runs[r].sort == HLY_MPI_SIZES && !made->large);
        for (int64_t j = 0; j < made->runs[r].n; j++, i++) {
            if (plain)
                ints[at.ints++] = (int)made->numbers[i];
            else if (made->large)
                counts[at.counts++] = made->numbers[i];
            else
                addresses[at.addresses++] = made->numbers[i];
        }
    }
    for (i = 0; i < made->ntypes; i++) {
        types[i] = made->types[i];
        if (!types[i]->predefined) {
            hly_mpi_object_hold(types[i]);
            __atomic_add_fetch(&types[i]->made->handles, 1, __ATOMIC_RELAXED);
        }
    }
    return MPI_SUCCESS;
}

int hly_mpi_type_get_contents(struct hly_mpi_type *datatype, int max_integers, int max_addresses,
                              int max_datatypes, int array_of_integers[],
                              int64_t array_of_addresses[],
                              struct hly_mpi_type *array_of_datatypes[])
{
    static const char function[] = "MPI_Type_get_contents";
    struct totals room = {max_integers, max_addresses, 0};
    int rc = check(function, datatype, datatype);
    if (!rc)
        rc = refuse_large(function, datatype);
    if (rc)
        return rc;
    return contents(function, datatype, room, max_datatypes, array_of_integers, array_of_addresses,
                    NULL, array_of_datatypes);
}

int hly_mpi_type_get_contents_c(struct hly_mpi_type *datatype, int64_t max_integers,
                                int64_t max_addresses, int64_t max_large_counts,
                                int64_t max_datatypes, int array_of_integers[],
                                int64_t array_of_addresses[], int64_t array_of_large_counts[],
                                struct hly_mpi_type *array_of_datatypes[])
{
    static const char function[] = "MPI_Type_get_contents_c";
    struct totals room = {max_integers, max_addresses, max_large_counts};
    int rc = check(function, datatype, datatype);
    if (rc)
        return rc;
    return contents(function, datatype, room, max_datatypes, array_of_integers, array_of_addresses,
                    array_of_large_counts, array_of_datatypes);
}
