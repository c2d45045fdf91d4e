/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_shape.c - shapes: size, bounds, signature and layouts of a type, computed from those of
 * others.
 *
 * Bounds: MPI-5.0, 5.1.6 to 5.1.8. Bounds that MPI_Type_create_resized or an array has set are
 * markers: the bounds of what has a marked part are those of its marked parts alone.
 *
 * The signature of basic types c1 ... cn is c1 b^(n-1) + ... + cn, modulo 2^61 - 1; kept with b^n,
 * it can be joined and repeated. Types that hold the same numbers have one code: MPI_INT,
 * MPI_INT32_T and MPI_INTEGER; signed and unsigned; MPI_CHAR and MPI_BYTE.
 */
#include <stdlib.h>
#include <string.h>

#include "type.h"

#define MODULUS ((1ull << 61) - 1)
#define BASE    0x0123456789abcdefull

static uint64_t times(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t sum = ((uint64_t)product & MODULUS) + (uint64_t)(product >> 61);
    return sum >= MODULUS ? sum - MODULUS : sum;
}

struct hly_mpi_hash hly_mpi_hash_join(struct hly_mpi_hash a, struct hly_mpi_hash b)
{
    uint64_t sum = times(a.value, b.power) + b.value;
    return (struct hly_mpi_hash){sum >= MODULUS ? sum - MODULUS : sum, times(a.power, b.power)};
}

struct hly_mpi_hash hly_mpi_hash_repeat(struct hly_mpi_hash a, int64_t n)
{
    struct hly_mpi_hash result = {0, 1};
    for (; n > 0; n >>= 1) {
        if (n & 1)
            result = hly_mpi_hash_join(result, a);
        a = hly_mpi_hash_join(a, a);
    }
    return result;
}

static struct hly_mpi_hash hash_of(const struct hly_mpi_named *named)
{
    uint64_t code = named->size; /* integers, characters, bytes */
    if (named->of_class == HLY_MPI_LOGIC)
        code += 100;
    else if (named->of_class == HLY_MPI_FLOATING)
        code += 200 + 10 * (named->format == HLY_MPI_FLONG);
    else if (named->of_class == HLY_MPI_COMPLEX_NUMBER)
        code += 300 + 10 * (named->format == HLY_MPI_CLONG);
    return (struct hly_mpi_hash){times(code, 0x9e3779b97f4a7c15ull % MODULUS), BASE % MODULUS};
}

uint64_t hly_mpi_signature(int64_t count, const struct hly_mpi_type *type)
{
    struct hly_mpi_hash hash = hly_mpi_hash_repeat(type->made->shape.hash, count);
    return hash.value ^ (hash.power << 3);
}

static int shape_of_pair(const struct hly_mpi_named *pair, int place, struct hly_mpi_shape *made)
{
    struct hly_mpi_shape part[2] = {{0}, {0}};
    struct hly_mpi_sequence sequence;
    int rc = MPI_SUCCESS, places[2] = {0, 0};
    for (int i = 0; i < hly_mpi_named_count; i++) {
        if (hly_mpi_named[i].number == pair->value)
            places[0] = i;
        if (hly_mpi_named[i].number == pair->index)
            places[1] = i;
    }
    for (int i = 0; i < 2 && !rc; i++)
        rc = hly_mpi_shape_named(places[i], &part[i]);
    hly_mpi_sequence_open(&sequence, pair->value != pair->index);
    /* As in a C struct: the second one needs no more room than the first. */
    if (!rc)
        rc = hly_mpi_sequence_add(&sequence, 1, 0, &part[0]);
    if (!rc)
        rc = hly_mpi_sequence_add(
            &sequence, 1, part[1].align > part[0].size ? part[1].align : part[0].size, &part[1]);
    rc = hly_mpi_sequence_end(&sequence, rc, made);
    for (int i = 0; i < 2; i++)
        hly_mpi_shape_drop(&part[i]);
    if (rc)
        return rc;
    made->ub += (made->align - made->ub % made->align) % made->align;
    made->unit = place;
    return MPI_SUCCESS;
}

int hly_mpi_shape_named(int place, struct hly_mpi_shape *made)
{
    const struct hly_mpi_named *named = &hly_mpi_named[place];
    struct hly_mpi_piece leaf;
    int rc;
    if (named->of_class == HLY_MPI_PAIR)
        return shape_of_pair(named, place, made);
    rc = hly_mpi_piece_leaf(place, named->size, &leaf);
    if (rc)
        return rc;
    hly_mpi_piece_hold(leaf);
    *made = (struct hly_mpi_shape){.size = named->size,
                                   .ub = named->size,
                                   .true_ub = named->size,
                                   .basics = 1,
                                   .bounded = true,
                                   .align = named->align,
                                   .unit = place,
                                   .hash = hash_of(named),
                                   .data = leaf,
                                   .map = leaf};
    return MPI_SUCCESS;
}

static bool fits(__int128 number)
{
    return number == (int64_t)number;
}

static bool is_mixed(const struct hly_mpi_shape *shape)
{
    return shape->map.layout != shape->data.layout;
}

static void shape_clear(struct hly_mpi_shape *shape)
{
    *shape = (struct hly_mpi_shape){.align = 1, .unit = HLY_MPI_NONE, .hash = {0, 1}};
}

int hly_mpi_shape_repeat(const struct hly_mpi_shape *shape, int64_t n, int64_t stride,
                         struct hly_mpi_shape *made)
{
    __int128 far = (__int128)(n - 1) * stride, low = far < 0 ? far : 0, high = far > 0 ? far : 0;
    struct hly_mpi_shape result;
    int rc;
    if (n == 0) {
        shape_clear(made);
        return MPI_SUCCESS;
    }
    if (!fits((__int128)shape->size * n) || !fits(far) || !fits(shape->lb + low) ||
        !fits(shape->ub + high) || !fits(shape->true_lb + low) || !fits(shape->true_ub + high) ||
        !fits((shape->ub + high) - (shape->lb + low)))
        return MPI_ERR_ARG;
    result = *shape;
    result.size = shape->size * n;
    result.basics = shape->basics * n;
    result.lb += shape->bounded ? (int64_t)low : 0;
    result.ub += shape->bounded ? (int64_t)high : 0;
    result.true_lb += shape->size ? (int64_t)low : 0;
    result.true_ub += shape->size ? (int64_t)high : 0;
    result.hash = hly_mpi_hash_repeat(shape->hash, n);
    rc = hly_mpi_piece_repeat(shape->data, n, stride, &result.data);
    if (rc)
        return rc;
    result.map = result.data;
    if (!is_mixed(shape)) {
        hly_mpi_piece_hold(result.data);
    } else {
        rc = hly_mpi_piece_repeat(shape->map, n, stride, &result.map);
        if (rc) {
            hly_mpi_piece_drop(&result.data);
            return rc;
        }
    }
    *made = result;
    return MPI_SUCCESS;
}

void hly_mpi_shape_copy(const struct hly_mpi_shape *shape, struct hly_mpi_shape *copy)
{
    *copy = *shape;
    hly_mpi_piece_hold(copy->data);
    hly_mpi_piece_hold(copy->map);
}

void hly_mpi_shape_drop(struct hly_mpi_shape *shape)
{
    hly_mpi_piece_drop(&shape->data);
    hly_mpi_piece_drop(&shape->map);
}

int hly_mpi_shape_shift(struct hly_mpi_shape *shape, int64_t by)
{
    if (!fits((__int128)shape->lb + by) || !fits((__int128)shape->ub + by) ||
        !fits((__int128)shape->true_lb + by) || !fits((__int128)shape->true_ub + by))
        return MPI_ERR_ARG;
    if (shape->bounded) {
        shape->lb += by;
        shape->ub += by;
    }
    if (shape->size) {
        shape->true_lb += by;
        shape->true_ub += by;
        shape->data.offset += by;
        shape->map.offset += by;
    }
    return MPI_SUCCESS;
}

void hly_mpi_shape_bound(struct hly_mpi_shape *shape, int64_t lb, int64_t ub)
{
    shape->lb = lb;
    shape->ub = ub;
    shape->bounded = shape->marked = true;
}

void hly_mpi_sequence_open(struct hly_mpi_sequence *sequence, bool mixed)
{
    memset(sequence, 0, sizeof(*sequence));
    shape_clear(&sequence->sum);
    sequence->mixed = mixed;
    sequence->data.merge = true;
}

/* Adds the bounds of a block that has been shifted to its place. */
static void bounds_add(struct hly_mpi_shape *sum, const struct hly_mpi_shape *block)
{
    if (block->bounded && (!sum->bounded || (block->marked && !sum->marked))) {
        sum->lb = block->lb;
        sum->ub = block->ub;
        sum->marked = block->marked;
    } else if (block->bounded && block->marked == sum->marked) {
        sum->lb = block->lb < sum->lb ? block->lb : sum->lb;
        sum->ub = block->ub > sum->ub ? block->ub : sum->ub;
    }
    sum->bounded |= block->bounded;
    if (block->size && (!sum->size || block->true_lb < sum->true_lb))
        sum->true_lb = block->true_lb;
    if (block->size && (!sum->size || block->true_ub > sum->true_ub))
        sum->true_ub = block->true_ub;
}

int hly_mpi_sequence_add(struct hly_mpi_sequence *sequence, int64_t count, int64_t displacement,
                         const struct hly_mpi_shape *shape)
{
    struct hly_mpi_shape *sum = &sequence->sum, block;
    int rc = MPI_SUCCESS;
    if (sequence->of != shape || sequence->count != count) {
        hly_mpi_shape_drop(&sequence->block);
        sequence->of = NULL;
        rc = hly_mpi_shape_repeat(shape, count, shape->ub - shape->lb, &sequence->block);
        if (rc)
            return rc;
        sequence->of = shape;
        sequence->count = count;
    }
    block = sequence->block;
    rc = hly_mpi_shape_shift(&block, displacement);
    if (!rc && !fits((__int128)sum->size + block.size))
        rc = MPI_ERR_ARG;
    if (!rc)
        rc = hly_mpi_listing_add(&sequence->data, block.data);
    if (!rc && sequence->mixed)
        rc = hly_mpi_listing_add(&sequence->map, block.map);
    if (rc)
        return rc;
    bounds_add(sum, &block);
    sum->size += block.size;
    sum->basics += block.basics;
    sum->align = block.align > sum->align ? block.align : sum->align;
    sum->hash = hly_mpi_hash_join(sum->hash, block.hash);
    if (block.unit != HLY_MPI_NONE)
        sum->unit =
            sum->unit == HLY_MPI_NONE || sum->unit == block.unit ? block.unit : HLY_MPI_MIXED;
    return MPI_SUCCESS;
}

int hly_mpi_sequence_end(struct hly_mpi_sequence *sequence, int rc, struct hly_mpi_shape *made)
{
    struct hly_mpi_shape *sum = &sequence->sum;
    if (!rc && sum->bounded && !fits((__int128)sum->ub - sum->lb))
        rc = MPI_ERR_ARG;
    if (!rc)
        rc = hly_mpi_listing_end(&sequence->data, &sum->data);
    if (!rc && sequence->mixed)
        rc = hly_mpi_listing_end(&sequence->map, &sum->map);
    if (!rc && !sequence->mixed) {
        sum->map = sum->data;
        hly_mpi_piece_hold(sum->map);
    }
    if (rc)
        hly_mpi_shape_drop(sum);
    else
        *made = *sum;
    hly_mpi_listing_drop(&sequence->data);
    hly_mpi_listing_drop(&sequence->map);
    hly_mpi_shape_drop(&sequence->block);
    return rc;
}
