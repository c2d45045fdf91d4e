/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_random.c - random datatypes, against a list of all their basic types: sizes, bounds,
 * signatures, contents, and copies of random ranges. Usage: type_random [ROUNDS [SEED]].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bindings/mpi/type.h"

#define ENTRIES 3000
#define MEMORY  (1 << 20)

/* The reference: a type map, with the bounds by the words of the standard. */
struct map {
    int n, align;
    bool bounded, marked;
    int64_t lb, ub;
    struct {
        int basic;
        int64_t at;
    } entry[ENTRIES];
};
struct pair {
    struct map *map;
    struct hly_mpi_type *type;
};

static uint64_t state;
static int failures;

static int64_t pick(int64_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)((state >> 33) % (uint64_t)below);
}

static void wrong(const char *what, int round)
{
    printf("round %d: %s\n", round, what);
    failures++;
}

static void map_clear(struct map *map)
{
    map->n = 0;
    map->align = 1;
    map->bounded = map->marked = false;
    map->lb = map->ub = 0;
}

/* Adds one element of `of` at a displacement. */
static bool map_add(struct map *map, const struct map *of, int64_t at)
{
    if (map->n + of->n > ENTRIES)
        return false;
    for (int i = 0; i < of->n; i++) {
        map->entry[map->n].basic = of->entry[i].basic;
        map->entry[map->n++].at = of->entry[i].at + at;
    }
    if (of->align > map->align)
        map->align = of->align;
    if (!of->bounded)
        return true;
    if (!map->bounded || (of->marked && !map->marked)) {
        map->lb = of->lb + at;
        map->ub = of->ub + at;
        map->marked = of->marked;
    } else if (of->marked == map->marked) {
        map->lb = of->lb + at < map->lb ? of->lb + at : map->lb;
        map->ub = of->ub + at > map->ub ? of->ub + at : map->ub;
    }
    map->bounded = true;
    return true;
}

static bool map_block(struct map *map, const struct map *of, int64_t n, int64_t at)
{
    for (int64_t i = 0; i < n; i++) {
        if (!map_add(map, of, at + i * (of->ub - of->lb)))
            return false;
    }
    return true;
}

static struct hly_mpi_type *named(int place)
{
    return hly_mpi_predefined(HLY_MPI_TYPE, hly_mpi_named[place].number);
}

static void map_named(struct map *map, int place)
{
    const struct hly_mpi_named *is = &hly_mpi_named[place];
    map_clear(map);
    map->bounded = true;
    map->n = 1;
    map->entry[0].basic = place;
    map->entry[0].at = 0;
    map->align = is->align;
    map->ub = is->size;
    if (is->of_class == HLY_MPI_PAIR) {
        int v = 0, x = 0;
        for (int i = 0; i < hly_mpi_named_count; i++) {
            v = hly_mpi_named[i].number == is->value ? i : v;
            x = hly_mpi_named[i].number == is->index ? i : x;
        }
        const struct hly_mpi_named *value = &hly_mpi_named[v], *index = &hly_mpi_named[x];
        int64_t at = value->size > index->align ? value->size : index->align;
        map->n = 2;
        map->entry[0].basic = v;
        map->entry[1].basic = x;
        map->entry[1].at = at;
        map->align = value->align > index->align ? value->align : index->align;
        map->ub = (at + index->size + map->align - 1) / map->align * map->align;
    }
}

static bool make_vector(struct pair *made, const struct pair *old, struct map *map)
{
    int64_t n = pick(5), length = pick(4), stride = pick(13) - 4,
            extent = old->map->ub - old->map->lb;
    bool bytes = pick(2);
    for (int64_t i = 0; i < n; i++) {
        if (!map_block(map, old->map, length, bytes ? i * stride * 3 : i * stride * extent))
            return false;
    }
    return !(bytes ? hly_mpi_type_create_hvector(n, length, stride * 3, old->type, &made->type)
                   : hly_mpi_type_vector(n, length, stride, old->type, &made->type));
}

static bool make_indexed(struct pair *made, const struct pair *old, struct map *map)
{
    int64_t n = pick(6), at[8], extent = old->map->ub - old->map->lb, step = pick(6);
    int lengths[8], small[8], one = (int)pick(3), how = (int)pick(4);
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = (int)(how >= 2 ? one : pick(4));
        at[i] = step ? step * i : pick(30) - 10;
        small[i] = (int)at[i];
        if (!map_block(map, old->map, lengths[i], how % 2 ? at[i] : at[i] * extent))
            return false;
    }
    struct hly_mpi_ints l = {lengths, false}, s = {small, false}, w = {at, true};
    switch (how) {
    case 0:
        return !hly_mpi_type_indexed(n, l, s, old->type, &made->type);
    case 1:
        return !hly_mpi_type_create_hindexed(n, l, w, old->type, &made->type);
    case 2:
        return !hly_mpi_type_create_indexed_block(n, one, s, old->type, &made->type);
    default:
        return !hly_mpi_type_create_hindexed_block(n, one, w, old->type, &made->type);
    }
}

static bool make_struct(struct pair *made, const struct pair old[3], struct map *map)
{
    int64_t n = pick(5), at[8];
    int lengths[8];
    struct hly_mpi_type *types[8];
    for (int64_t i = 0; i < n; i++) {
        const struct pair *of = &old[pick(3)];
        types[i] = of->type;
        lengths[i] = (int)pick(4);
        at[i] = pick(2) ? pick(200) - 50 : (i ? at[i - 1] + lengths[i - 1] * 4 : 0);
        if (!map_block(map, of->map, lengths[i], at[i]))
            return false;
    }
    if (map->bounded && !map->marked)
        map->ub += (map->align - (map->ub - map->lb) % map->align) % map->align;
    return !hly_mpi_type_create_struct(n, (struct hly_mpi_ints){lengths, false},
                                       (struct hly_mpi_ints){at, true}, types, &made->type);
}

static bool make_subarray(struct pair *made, const struct pair *old, struct map *map)
{
    int n = 1 + (int)pick(3), order = pick(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    int64_t extent = old->map->ub - old->map->lb, all = 1, index[3];
    int size[3], sub[3], start[3];
    for (int d = 0; d < n; d++) {
        size[d] = 1 + (int)pick(5);
        sub[d] = 1 + (int)pick(size[d]);
        start[d] = (int)pick(size[d] - sub[d] + 1);
        all *= size[d];
    }
    for (int64_t e = 0; e < all; e++) { /* all elements of the array, as they lie in memory */
        int64_t rest = e;
        bool in = true;
        for (int i = 0; i < n; i++) {
            int d = order == MPI_ORDER_C ? n - 1 - i : i;
            index[d] = rest % size[d];
            rest /= size[d];
            in = in && index[d] >= start[d] && index[d] < start[d] + sub[d];
        }
        if (in && !map_add(map, old->map, e * extent))
            return false;
    }
    map->bounded = map->marked = true;
    map->lb = 0;
    map->ub = all * extent;
    return !hly_mpi_type_create_subarray(
        n, (struct hly_mpi_ints){size, false}, (struct hly_mpi_ints){sub, false},
        (struct hly_mpi_ints){start, false}, order, old->type, &made->type);
}

static bool make_darray(struct pair *made, const struct pair *old, struct map *map)
{
    int n = 1 + (int)pick(3), order = pick(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, size = 1;
    int64_t extent = old->map->ub - old->map->lb, all = 1, block[3];
    int g[3], dist[3], arg[3], p[3], at[3], rank, rest;
    for (int d = 0; d < n; d++) {
        g[d] = 1 + (int)pick(7);
        dist[d] = MPI_DISTRIBUTE_NONE + (int)pick(3);
        p[d] = dist[d] == MPI_DISTRIBUTE_NONE ? 1 : 1 + (int)pick(3);
        arg[d] = dist[d] == MPI_DISTRIBUTE_BLOCK ? (g[d] + p[d] - 1) / p[d] + (int)pick(2)
                                                 : 1 + (int)pick(3);
        block[d] = dist[d] == MPI_DISTRIBUTE_NONE ? g[d] : arg[d];
        if (pick(3) == 0) {
            arg[d] = MPI_DISTRIBUTE_DFLT_DARG;
            block[d] = dist[d] == MPI_DISTRIBUTE_NONE    ? g[d]
                       : dist[d] == MPI_DISTRIBUTE_BLOCK ? (g[d] + p[d] - 1) / p[d]
                                                         : 1;
        }
        size *= p[d];
        all *= g[d];
    }
    rank = rest = (int)pick(size);
    for (int d = n - 1; d >= 0; d--) {
        at[d] = rest % p[d];
        rest /= p[d];
    }
    for (int64_t e = 0; e < all; e++) {
        int64_t left = e;
        bool in = true;
        for (int i = 0; i < n; i++) {
            int d = order == MPI_ORDER_C ? n - 1 - i : i;
            in = in && left % g[d] / block[d] % p[d] == at[d];
            left /= g[d];
        }
        if (in && !map_add(map, old->map, e * extent))
            return false;
    }
    map->bounded = map->marked = true;
    map->lb = 0;
    map->ub = all * extent;
    return !hly_mpi_type_create_darray(size, rank, n, (struct hly_mpi_ints){g, false}, dist, arg, p,
                                       order, old->type, &made->type);
}

static bool make_other(struct pair *made, const struct pair *old, struct map *map)
{
    int64_t n = pick(6), lb = pick(20) - 10, extent = pick(80) - 10;
    if (pick(2)) {
        if (!map_block(map, old->map, n, 0))
            return false;
        return !hly_mpi_type_contiguous(n, old->type, &made->type);
    }
    map_add(map, old->map, 0);
    if (pick(4) == 0)
        return !hly_mpi_type_dup(old->type, &made->type);
    map->bounded = map->marked = true;
    map->lb = lb;
    map->ub = lb + extent;
    return !hly_mpi_type_create_resized(old->type, lb, extent, &made->type);
}

static bool make(struct pair *made, int depth)
{
    struct pair old[3];
    bool done = true;
    made->map = malloc(sizeof(*made->map));
    if (depth == 0) {
        int place = pick(2) ? 5 : (int)pick(hly_mpi_named_count);
        map_named(made->map, place);
        made->type = named(place);
        return true;
    }
    map_clear(made->map);
    made->type = NULL;
    for (int i = 0; i < 3; i++)
        done = make(&old[i], i ? (int)pick(depth) : depth - 1) && done;
    switch (done ? pick(6) : 99) {
    case 0:
        done = make_vector(made, &old[0], made->map);
        break;
    case 1:
        done = make_indexed(made, &old[0], made->map);
        break;
    case 2:
        done = make_struct(made, old, made->map);
        break;
    case 3:
        done = make_subarray(made, &old[0], made->map);
        break;
    case 4:
        done = make_darray(made, &old[0], made->map);
        break;
    case 5:
        done = make_other(made, &old[0], made->map);
        break;
    }
    for (int i = 0; i < 3; i++) {
        free(old[i].map);
        if (old[i].type && !old[i].type->predefined)
            hly_mpi_type_free(&old[i].type);
    }
    return done;
}

struct seen {
    const struct map *map;
    int64_t at, offset;
    int entry;
    bool equal;
};

static bool see(void *arg, int basic, char *at, int64_t bytes)
{
    struct seen *seen = arg;
    for (int64_t i = 0; i < bytes; i += hly_mpi_named[basic].size, seen->entry++) {
        int e = seen->entry % seen->map->n, element = seen->entry / seen->map->n;
        seen->equal =
            seen->equal && seen->map->entry[e].basic == basic &&
            seen->at + seen->map->entry[e].at + element * (seen->map->ub - seen->map->lb) ==
                (int64_t)(intptr_t)at + i;
    }
    return true;
}

static void check_shape(const struct pair *pair, int round)
{
    const struct map *map = pair->map;
    const struct hly_mpi_type *type = pair->type;
    int64_t size = 0, lb = 0, ub = 0;
    struct hly_mpi_hash hash = {0, 1};
    for (int i = 0; i < map->n; i++) {
        int64_t bytes = hly_mpi_named[map->entry[i].basic].size, at = map->entry[i].at;
        lb = !size || at < lb ? at : lb;
        ub = !size || at + bytes > ub ? at + bytes : ub;
        size += bytes;
        hash = hly_mpi_hash_join(hash, named(map->entry[i].basic)->made->shape.hash);
    }
    if (type->size != size)
        wrong("size", round);
    if (type->lb != map->lb || type->extent != map->ub - map->lb)
        wrong("lb or extent", round);
    if (type->true_lb != lb || type->true_extent != ub - lb)
        wrong("true lb or extent", round);
    if (type->made->shape.basics != map->n)
        wrong("number of basic types", round);
    if (hash.value != type->made->shape.hash.value || hash.power != type->made->shape.hash.power)
        wrong("signature", round);
    int64_t count = map->n ? 1 + pick(3) : 0;
    struct seen seen = {map, 1 << 20, 0, 0, true};
    hly_mpi_type_walk(type, 1 << 20, count, see, &seen);
    if (!seen.equal || seen.entry != count * map->n)
        wrong("walk", round);
}

static void check_copies(const struct pair *pair, int round)
{
    static char memory[MEMORY], packed[4 * ENTRIES * 32], expected[MEMORY], got[sizeof(packed)];
    const struct map *map = pair->map;
    int64_t count = 1 + pick(4), total = count * pair->type->size, n = 0,
            extent = map->ub - map->lb;
    char *base = memory + MEMORY / 2;
    for (int64_t c = 0; c < count; c++) {
        for (int i = 0; i < map->n; i++) {
            int64_t at = map->entry[i].at + c * extent;
            if (at < -MEMORY / 2 || at > MEMORY / 2 - 64)
                return;
        }
    }
    for (int i = 0; i < MEMORY; i++)
        memory[i] = (char)(i * 131 + (i >> 8) * 7 + round);
    for (int64_t c = 0; c < count; c++) {
        for (int i = 0; i < map->n; i++) {
            int64_t bytes = hly_mpi_named[map->entry[i].basic].size;
            memcpy(packed + n, base + map->entry[i].at + c * extent, (size_t)bytes);
            n += bytes;
        }
    }
    for (int t = 0; t < 6 && total; t++) {
        int64_t from = t ? pick(total) : 0, bytes = t ? 1 + pick(total - from) : total;
        memset(got, 0x55, (size_t)bytes + 16);
        hly_mpi_pack_range(base, count, pair->type, from, bytes, got);
        if (memcmp(got, packed + from, (size_t)bytes) || got[bytes] != 0x55)
            wrong("pack_range", round);
        /* The reverse, into memory that is all else: only those bytes may change. */
        for (int64_t i = 0; i < bytes; i++)
            got[i] = (char)pick(256);
        memcpy(expected, memory, MEMORY);
        n = 0;
        for (int64_t c = 0; c < count; c++) {
            for (int i = 0; i < map->n; i++) {
                int64_t size = hly_mpi_named[map->entry[i].basic].size;
                for (int64_t b = 0; b < size; b++, n++) {
                    if (n >= from && n < from + bytes)
                        expected[MEMORY / 2 + map->entry[i].at + c * extent + b] = got[n - from];
                }
            }
        }
        hly_mpi_unpack_range(base, count, pair->type, from, bytes, got);
        if (memcmp(memory, expected, MEMORY))
            wrong("unpack_range", round);
        n = 0; /* the memory has changed: pack it by hand again */
        for (int64_t c = 0; c < count; c++) {
            for (int i = 0; i < map->n; i++) {
                int64_t size = hly_mpi_named[map->entry[i].basic].size;
                memcpy(packed + n, base + map->entry[i].at + c * extent, (size_t)size);
                n += size;
            }
        }
    }
}

static void check_elements(const struct pair *pair, int round)
{
    struct hly_mpi_status status = {0, 0, 0, false, 0};
    const struct map *map = pair->map;
    int64_t bytes = 0, n = map->n ? pick(3 * map->n) : 0, count;
    for (int64_t i = 0; i < n; i++)
        bytes += hly_mpi_named[map->entry[i % map->n].basic].size;
    status.bytes = bytes;
    hly_mpi_get_elements_x(&status, pair->type, &count);
    if (count != n)
        wrong("get_elements", round);
    status.bytes = -1;
    hly_mpi_status_set_elements_x(&status, pair->type, n);
    if (status.bytes != bytes)
        wrong("status_set_elements", round);
    hly_mpi_get_count(&status, pair->type, &count);
    if (map->n && count != (n % map->n && bytes ? MPI_UNDEFINED : n / map->n))
        wrong("get_count", round);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3000, made = 0;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (hly_mpi_types_open())
        return 1;
    for (int round = 0; round < rounds && failures < 10; round++) {
        struct pair pair;
        if (make(&pair, 1 + (int)pick(4))) {
            made++;
            hly_mpi_type_commit(&pair.type);
            check_shape(&pair, round);
            check_elements(&pair, round);
            check_copies(&pair, round);
        }
        free(pair.map);
        if (pair.type && !pair.type->predefined)
            hly_mpi_type_free(&pair.type);
    }
    printf("%d types of %d, %d failures\n", made, rounds, failures);
    return failures || made < rounds / 3;
}
