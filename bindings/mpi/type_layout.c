/* SPDX-License-Identifier: Apache-2.0 */
/*
 * type_layout.c - layouts: where the bytes of an element are, as a tree of loops and lists.
 *
 * They are made small where they are made: a loop of neighbours is a run of bytes, a loop of loops
 * that go on in step is one loop, and a list of equal items at equal distances is a loop. A layout
 * never changes once it is made, so types share them.
 */
#include <stdlib.h>
#include <string.h>

#include "type.h"

static struct hly_mpi_layout *layout_new(int kind, int basic, int64_t items)
{
    struct hly_mpi_layout *layout;
    if ((uint64_t)items > (SIZE_MAX - sizeof(*layout)) / sizeof(layout->items[0]) / 2)
        return NULL;
    layout = malloc(sizeof(*layout) + (size_t)items * sizeof(layout->items[0]));
    if (layout) {
        memset(layout, 0, sizeof(*layout));
        layout->refs = 1;
        layout->kind = (int16_t)kind;
        layout->basic = (int16_t)basic;
        layout->depth = 1;
    }
    return layout;
}

void hly_mpi_piece_hold(struct hly_mpi_piece piece)
{
    if (piece.layout)
        __atomic_add_fetch(&piece.layout->refs, 1, __ATOMIC_RELAXED);
}

static void layout_drop(struct hly_mpi_layout *layout)
{
    if (!layout || __atomic_sub_fetch(&layout->refs, 1, __ATOMIC_ACQ_REL))
        return;
    layout_drop(layout->child);
    for (int64_t i = 0; layout->kind == HLY_MPI_LIST && i < layout->count; i++)
        layout_drop(layout->items[i].child);
    free(layout);
}

void hly_mpi_piece_drop(struct hly_mpi_piece *piece)
{
    layout_drop(piece->layout);
    piece->layout = NULL;
}

int hly_mpi_piece_leaf(int basic, int64_t bytes, struct hly_mpi_piece *made)
{
    struct hly_mpi_layout *leaf = layout_new(HLY_MPI_LEAF, basic, 0);
    if (!leaf)
        return MPI_ERR_NO_MEM;
    leaf->size = bytes;
    *made = (struct hly_mpi_piece){0, leaf};
    return MPI_SUCCESS;
}

int hly_mpi_piece_repeat(struct hly_mpi_piece piece, int64_t n, int64_t stride,
                         struct hly_mpi_piece *made)
{
    struct hly_mpi_layout *child = piece.layout, *loop;
    int rc;
    if (!child || n == 0) {
        *made = (struct hly_mpi_piece){0, NULL};
        return MPI_SUCCESS;
    }
    if (n == 1) {
        hly_mpi_piece_hold(piece);
        *made = piece;
        return MPI_SUCCESS;
    }
    if (child->kind == HLY_MPI_LEAF && child->size == stride) {
        rc = hly_mpi_piece_leaf(child->basic, child->size * n, made);
        if (!rc)
            made->offset = piece.offset;
        return rc;
    }
    /* Its end is where the next one begins: one loop does both. */
    if (child->kind == HLY_MPI_LOOP && (__int128)child->count * child->stride == stride) {
        n *= child->count;
        stride = child->stride;
        child = child->child;
    }
    if (child->depth >= HLY_MPI_DEPTH_MAX)
        return MPI_ERR_TYPE;
    loop = layout_new(HLY_MPI_LOOP, child->basic, 0);
    if (!loop)
        return MPI_ERR_NO_MEM;
    hly_mpi_piece_hold((struct hly_mpi_piece){0, child});
    loop->child = child;
    loop->depth = child->depth + 1;
    loop->size = child->size * n;
    loop->count = n;
    loop->stride = stride;
    *made = (struct hly_mpi_piece){piece.offset, loop};
    return MPI_SUCCESS;
}

/* Makes room for one more item, and the end. */
static int listing_grow(struct hly_mpi_listing *listing)
{
    struct hly_mpi_layout *list = listing->list;
    int64_t room;
    if (!list) {
        listing->list = layout_new(HLY_MPI_LIST, HLY_MPI_NONE, 8);
        listing->room = 8;
        return listing->list ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    }
    if (list->count + 2 <= listing->room)
        return MPI_SUCCESS;
    room = listing->room * 2;
    if ((uint64_t)room > SIZE_MAX / sizeof(list->items[0]) / 4)
        return MPI_ERR_NO_MEM;
    list = realloc(list, sizeof(*list) + (size_t)room * sizeof(list->items[0]));
    if (!list)
        return MPI_ERR_NO_MEM;
    listing->list = list;
    listing->room = room;
    return MPI_SUCCESS;
}

int hly_mpi_listing_add(struct hly_mpi_listing *listing, struct hly_mpi_piece piece)
{
    struct hly_mpi_layout *list, *added = piece.layout;
    struct hly_mpi_item *item;
    bool bytes;
    int rc;
    if (!added)
        return MPI_SUCCESS;
    if (added->depth >= HLY_MPI_DEPTH_MAX)
        return MPI_ERR_TYPE;
    rc = listing_grow(listing);
    if (rc)
        return rc;
    list = listing->list;
    bytes = listing->merge && added->kind == HLY_MPI_LEAF;
    if (list->basic == HLY_MPI_NONE)
        list->basic = added->basic;
    else if (list->basic != added->basic)
        list->basic = HLY_MPI_MIXED;
    list->size += added->size;
    item = &list->items[list->count];
    if (bytes && list->count && !item[-1].child &&
        item[-1].offset + (list->size - added->size - item[-1].start) == piece.offset) {
        item->start = list->size;
        return MPI_SUCCESS;
    }
    item[0] = (struct hly_mpi_item){piece.offset, list->size - added->size, bytes ? NULL : added};
    item[1] = (struct hly_mpi_item){0, list->size, NULL};
    if (!bytes)
        hly_mpi_piece_hold(piece);
    if (list->depth <= added->depth)
        list->depth = added->depth + 1;
    list->count++;
    return MPI_SUCCESS;
}

/* Are the items equal, at equal distances? */
static bool is_regular(const struct hly_mpi_layout *list)
{
    const struct hly_mpi_item *item = list->items;
    int64_t stride = item[1].offset - item[0].offset, bytes = item[1].start;
    for (int64_t i = 1; i < list->count; i++) {
        if (item[i].offset - item[i - 1].offset != stride || item[i].child != item[0].child ||
            item[i + 1].start - item[i].start != bytes)
            return false;
    }
    return true;
}

int hly_mpi_listing_end(struct hly_mpi_listing *listing, struct hly_mpi_piece *made)
{
    struct hly_mpi_layout *list = listing->list, *less;
    struct hly_mpi_piece first;
    int rc = MPI_SUCCESS;
    *made = (struct hly_mpi_piece){0, NULL};
    if (!list)
        return MPI_SUCCESS;
    if (list->count > 1 && !is_regular(list)) {
        less = realloc(list, sizeof(*list) + (size_t)(list->count + 1) * sizeof(list->items[0]));
        made->layout = less ? less : list;
        listing->list = NULL;
        return MPI_SUCCESS;
    }
    first = (struct hly_mpi_piece){list->items[0].offset, list->items[0].child};
    if (first.layout) {
        hly_mpi_piece_hold(first);
    } else {
        rc = hly_mpi_piece_leaf(list->basic, list->items[1].start, &first);
        first.offset = list->items[0].offset;
    }
    if (!rc) {
        rc = hly_mpi_piece_repeat(first, list->count,
                                  list->count > 1 ? list->items[1].offset - first.offset : 0, made);
        hly_mpi_piece_drop(&first);
    }
    hly_mpi_listing_drop(listing);
    return rc;
}

void hly_mpi_listing_drop(struct hly_mpi_listing *listing)
{
    layout_drop(listing->list);
    listing->list = NULL;
}
