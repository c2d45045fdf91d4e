/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c - kinds of shapes: even and not, consecutive and not, down to one rank a node. */
#include "shapes.h"

#include <stdlib.h>
#include <string.h>

#include "oracle.h"

static const char *const names[] = {"one node",           "a node each",    "nodes of 2",
                                    "nodes of 3",         "nodes of 8",     "round robin over 2",
                                    "round robin over 3", "1 and the rest", "a third and the rest",
                                    "anyhow on 3",        "anyhow on many"};

uint32_t hly_shape_kinds(void)
{
    return sizeof names / sizeof names[0];
}

const char *hly_shape_kind_name(uint32_t kind)
{
    return names[kind];
}

static int make(uint32_t kind, uint32_t nranks, halay_shape_t **shape)
{
    uint64_t chance = nranks;
    uint32_t *node = calloc(nranks, sizeof *node);
    if (node == NULL)
        return HALAY_ENOMEM;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        const uint32_t by_kind[] = {0,
                                    rank,
                                    rank / 2,
                                    rank / 3,
                                    rank / 8,
                                    rank % 2,
                                    rank % 3,
                                    rank > 0,
                                    rank >= nranks / 3,
                                    hly_random_below(&chance, 3),
                                    hly_random_below(&chance, 1 + nranks / 2)};
        node[rank] = by_kind[kind];
    }
    int rc = halay_shape_make(node, nranks, shape);
    free(node);
    return rc;
}

int hly_shape_of_kind(uint32_t kind, uint32_t nranks, halay_shape_t **shape)
{
    halay_shape_t *made = NULL;
    int rc = make(kind, nranks, &made);
    for (uint32_t before = 0; rc == 0 && before < kind; before++) {
        halay_shape_t *other = NULL;
        rc = make(before, nranks, &other);
        if (rc == 0 && memcmp(other->node, made->node, nranks * sizeof *made->node) == 0)
            rc = HALAY_EAGAIN;
        halay_shape_free(other);
    }
    if (rc != 0) {
        halay_shape_free(made);
        return rc;
    }
    *shape = made;
    return 0;
}

/* ------------------------------------------------------------------ one's own */

static int read_number(const char **text, uint32_t most, uint32_t *number)
{
    char *end = NULL;
    if (**text < '1' || **text > '9')
        return -1;
    unsigned long value = strtoul(*text, &end, 10);
    *text = end;
    *number = (uint32_t)value;
    return value <= most ? 0 : -1;
}

/* Ranks of each node, to sizes[]; returns how many nodes, or 0 if the text is wrong. */
static uint32_t read_sizes(const char *text, uint32_t ranks_max, uint32_t sizes[])
{
    uint32_t nnodes = 0;
    uint32_t room = ranks_max;
    for (;;) {
        uint32_t nodes = 1;
        uint32_t size = 0;
        if (read_number(&text, ranks_max, &size) != 0)
            return 0;
        if (*text == 'x') {
            text++;
            nodes = size;
            if (read_number(&text, ranks_max, &size) != 0)
                return 0;
        }
        if ((uint64_t)nodes * size > room)
            return 0;
        room -= nodes * size;
        while (nodes-- > 0)
            sizes[nnodes++] = size;
        if (*text != '+')
            return *text == '\0' ? nnodes : 0;
        text++;
    }
}

static uint32_t deal(uint32_t cyclic, uint32_t sizes[], uint32_t nnodes, uint32_t node[])
{
    uint32_t rank = 0;
    for (uint32_t dealt = 1; dealt;) {
        dealt = 0;
        for (uint32_t i = 0; i < nnodes; i++) {
            uint32_t take = cyclic ? sizes[i] > 0 : sizes[i];
            sizes[i] -= take;
            dealt |= take;
            while (take-- > 0)
                node[rank++] = i;
        }
    }
    return rank;
}

int hly_shape_parse(const char *text, uint32_t ranks_max, halay_shape_t **shape)
{
    uint32_t cyclic = strncmp(text, "cyclic:", 7) == 0;
    uint32_t *sizes = calloc(2 * (size_t)ranks_max, sizeof *sizes);
    if (sizes == NULL)
        return HALAY_ENOMEM;
    uint32_t *node = sizes + ranks_max;
    uint32_t nnodes = read_sizes(cyclic ? text + 7 : text, ranks_max, sizes);
    int rc = HALAY_EINVAL;
    if (nnodes > 0) {
        uint32_t nranks = deal(cyclic, sizes, nnodes, node);
        rc = halay_shape_make(node, nranks, shape);
    }
    free(sizes);
    return rc;
}
