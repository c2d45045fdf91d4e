/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lend.c - memory that peers read where it is. It is mapped twice: once for its owner, who unmaps
 * that; and once for all readers, for as long as one of them reads.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hub.h"

static uint8_t *map(int fd, size_t bytes, int protection)
{
    uint8_t *at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

bool hly_inproc_mem_make(halay_mem_t *mem, size_t bytes, uint64_t most)
{
    int fd = -1;

    if (bytes <= PTRDIFF_MAX && (!most || bytes <= most)) {
        fd = memfd_create("halay-inproc", MFD_CLOEXEC);
    }
    if (fd < 0) {
        return false;
    }
    if (ftruncate(fd, (off_t)bytes) == 0) {
        mem->address = map(fd, bytes, PROT_READ | PROT_WRITE);
        mem->shown = mem->address ? map(fd, bytes, PROT_READ) : NULL;
    }
    close(fd);
    if (mem->shown) {
        mem->bytes = bytes;
        madvise(mem->address, bytes, MADV_DONTFORK);
        return true;
    }
    if (mem->address) {
        munmap(mem->address, bytes);
    }
    return false;
}

void hly_inproc_mem_free(halay_mem_t *mem)
{
    if (mem->readers > 0) {
        mem->left = true;
        return;
    }
    if (mem->shown) {
        munmap(mem->shown, mem->bytes);
    }
    if (mem->inside) {
        munmap(mem->inside - (mem->mapped - mem->bytes), mem->mapped);
    }
    free(mem);
}

const uint8_t *hly_inproc_lendable(const halay_transport_t *transport, const void *payload,
                                   size_t bytes, halay_mem_t **found)
{
    halay_mem_t *mem;

    if (!transport->hub->faults.lend_bytes || !bytes) {
        return NULL;
    }
    for (mem = transport->mems; mem; mem = mem->next) {
        size_t offset = (uintptr_t)payload - (uintptr_t)mem->address;

        if (mem->shown && offset < mem->bytes && bytes <= mem->bytes - offset) {
            *found = mem;
            return mem->shown + offset;
        }
    }
    return NULL;
}

void hly_inproc_recall(halay_transport_t *transport, const halay_mem_t *mem, const halay_ep_t *ep,
                       int status)
{
    struct item *item, *next;

    for (item = TAILQ_FIRST(&transport->outbox); item; item = next) {
        next = TAILQ_NEXT(item, out_entry);
        if (!item->lent || item->done || (mem && item->mem_lent != mem) ||
            (ep && item->way != ep)) {
            continue;
        }
        item->recalled = true;
        hly_inproc_finish(item, status);
        if (item->in_inbox && item->target->borrowed != item) {
            hly_inproc_leave_inbox(item);
        }
    }
}

void hly_inproc_borrow(halay_transport_t *transport, struct item *item, halay_event_t *event)
{
    event->kind = HALAY_EVENT_LENT;
    event->payload = item->lent;
    item->mem_lent->readers++;
    transport->borrowed = item;
}

int hly_inproc_give_back(halay_transport_t *transport)
{
    struct item *item = transport->borrowed;
    halay_mem_t *mem = item->mem_lent;
    int result = item->recalled ? HALAY_EPEER : HALAY_OK;

    transport->borrowed = NULL;
    mem->readers--;
    if (mem->left) {
        hly_inproc_mem_free(mem);
    }
    if (!item->done) {
        hly_inproc_finish(item, HALAY_OK);
    }
    hly_inproc_leave_inbox(item);
    return result;
}
