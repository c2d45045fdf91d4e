/* SPDX-License-Identifier: Apache-2.0 */
/* announce.c - packs announcements, compares them, and decides which tensors can share a call. */
#include "announce.h"

#include <string.h>

uint64_t hlt_tensor_what(int kind, halay_type_t type, halay_op_t op, int root)
{
    return (uint64_t)kind | (uint64_t)type << 8 | (uint64_t)op << 16 | (uint64_t)root << 32;
}

int hlt_announcement_kind(const struct hlt_announcement *says)
{
    return (int)(says->what & 0xff);
}

int hlt_announcement_alike(const struct hlt_announcement *a, const struct hlt_announcement *b)
{
    return hlt_memory_alike(a, b) && a->count == b->count && a->prescale == b->prescale &&
           a->postscale == b->postscale && a->group == b->group &&
           !memcmp(a->shape, b->shape, sizeof(a->shape));
}

halay_type_t hlt_announcement_type(const struct hlt_announcement *says)
{
    return (halay_type_t)(says->what >> 8 & 0xff);
}

halay_op_t hlt_announcement_op(const struct hlt_announcement *says)
{
    return (halay_op_t)(says->what >> 16 & 0xff);
}

uint32_t hlt_announcement_memory(const struct hlt_announcement *says)
{
    return (uint32_t)(says->what >> HLT_MEMORY_SHIFT & 0xff);
}

uint32_t hlt_agreed_memory(const struct hlt_announcement *says)
{
    uint32_t memory = hlt_announcement_memory(says);
    return memory == HLT_MEMORY_ANY ? HALAY_MEMORY_HOST : memory;
}

static uint64_t without_memory(uint64_t what)
{
    return what & ~(UINT64_C(0xff) << HLT_MEMORY_SHIFT);
}

void hlt_announcement_settle(struct hlt_announcement *says, const struct hlt_announcement *other)
{
    if (hlt_announcement_memory(says) == HLT_MEMORY_ANY)
        says->what = other->what;
}

int hlt_memory_alike(const struct hlt_announcement *a, const struct hlt_announcement *b)
{
    return a->what == b->what || (without_memory(a->what) == without_memory(b->what) &&
                                  (hlt_announcement_memory(a) == HLT_MEMORY_ANY ||
                                   hlt_announcement_memory(b) == HLT_MEMORY_ANY));
}

/* A sum of marks must not wrap, so a type of few bits has several marks, each for some of the
 * ranks. */
size_t hlt_fuse_marks(int nranks, halay_type_t type)
{
    size_t all = (size_t)nranks, bytes = halay_type_bytes(type);
    return bytes == 1 ? all / 128 + 1 : bytes == 2 ? all / 32768 + 1 : 1;
}

/*
 * 1 if the reduced mark shows a void rank. An exclusive or forgets an even number of them; an
 * integer average truncates one.
 */
static int shows_void(halay_op_t op, halay_type_t type)
{
    const uint32_t shown = 1u << HALAY_SUM | 1u << HALAY_PROD | 1u << HALAY_MIN | 1u << HALAY_MAX |
                           1u << HALAY_LAND | 1u << HALAY_LOR | 1u << HALAY_BAND | 1u << HALAY_BOR;
    return (op < 32 && shown >> op & 1) || (op == HALAY_AVERAGE && type > HALAY_UINT64);
}

int hlt_fuse_takes(int nranks, const struct hlt_announcement *says, size_t most)
{
    halay_type_t type = hlt_announcement_type(says);
    halay_op_t op = hlt_announcement_op(says);
    size_t bytes = halay_type_bytes(type), marks = hlt_fuse_marks(nranks, type) * bytes;
    if (hlt_announcement_kind(says) != HLT_KIND_ALLREDUCE || !shows_void(op, type))
        return 0;
    return marks <= most && says->count <= most / bytes;
}

int hlt_fuse_alike(const struct hlt_announcement *a, const struct hlt_announcement *b)
{
    return a->what == b->what;
}

size_t hlt_announcement_share(int nranks, const struct hlt_announcement *says, int rank)
{
    uint64_t all = (uint64_t)nranks;
    uint64_t rows = says->rows / all + ((uint64_t)rank < says->rows % all);
    return rows ? (size_t)(rows * (says->count / says->rows)) : 0;
}
