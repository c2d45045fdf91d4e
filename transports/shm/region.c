/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - memory that is lent: peers map it, and read there what a message would carry.
 *
 * A region has a slot and a generation, which the head of every ring shows whose consumer was sent
 * its descriptor. The consumer shows in the same way what it maps; only that is lent. What fails
 * before is no error: the message is copied. A region that is taken back vanishes from the heads,
 * and consumers unmap it when they look next; until then they keep its memory.
 *
 * A message that lends is in `lent` until its cell is free, or until it is recalled. Barriers, of
 * the owner: recalled, then its memory is the caller's, who may write; of the consumer: reads, then
 * recalled. So who has read something new sees that it was recalled.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define TRIES      16 /* to send a peer a descriptor; then all is copied */

/* ------------------------------------------------------------------ the memory */

/* All of it is allocated at once: not more than seems to be free, so that nobody is killed. */
static int is_modest(size_t bytes)
{
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes / (size_t)page <= (size_t)pages / 2;
}

/* At a multiple of a huge page where it has one; absent in forked children. */
static uint8_t *region_map(int fd, size_t bytes, const char **why)
{
    const size_t spare = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    *why = "mmap";
    uint8_t *all = mmap(NULL, bytes + spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    const size_t before = spare ? -(uintptr_t)all % HUGE_BYTES : 0;
    uint8_t *at = all + before;
    if (before)
        munmap(all, before);
    if (spare - before)
        munmap(at + bytes, spare - before);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        goto no;
    if (spare)
        madvise(at, bytes, MADV_HUGEPAGE); /* where such memory may have them: else no harm */
    *why = "madvise(MADV_DONTFORK)";
    if (madvise(at, bytes, MADV_DONTFORK) == 0)
        return at;
no:
    munmap(at, bytes);
    return NULL;
}

static int region_make(halay_mem_t *mem, size_t bytes, const char **why)
{
    *why = "so much is not free";
    if (!is_modest(bytes))
        return -ENOMEM;
    int rc = hly_shm_memory_create("halay-region", bytes, &mem->fd, why);
    if (rc)
        return rc;
    mem->bytes = bytes;
    mem->address = region_map(mem->fd, bytes, why);
    if (mem->address)
        return 0;
    rc = -errno;
    close(mem->fd);
    return rc;
}

int hly_shm_alloc(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **out)
{
    const char *why = "all slots are taken";
    uint32_t slot = 0;
    int rc = -ENOSPC;
    halay_mem_t *mem = calloc(1, sizeof(*mem));
    if (!mem)
        return HALAY_ENOMEM;
    while (slot < HLY_SHM_REGIONS && t->regions[slot])
        slot++;
    if (slot < HLY_SHM_REGIONS)
        rc = region_make(mem, bytes, &why);
    if (rc) {
        hly_shm_log(t, 2, "shm: peers cannot map %zu bytes, they will be copied: %s: %s", bytes,
                    why, strerror(-rc));
        free(mem);
        return HALAY_ENOMEM;
    }
    mem->slot = slot;
    mem->generation = ++t->generation ? t->generation : ++t->generation;
    t->regions[slot] = mem;
    t->nregions++;
    *address = mem->address;
    *out = mem;
    return HALAY_OK;
}

static void region_free(halay_transport_t *t, halay_mem_t *mem)
{
    t->regions[mem->slot] = NULL;
    t->nregions--;
    close(mem->fd);
    free(mem);
}

void hly_shm_regions_free(halay_transport_t *t)
{
    for (int i = 0; i < (int)HLY_SHM_REGIONS; i++) {
        if (t->regions[i])
            region_free(t, t->regions[i]);
    }
    free(t->ended);
}

void hly_shm_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    if (!mem)
        return;
    for (halay_ep_t *ep = t->ways; ep; ep = ep->next) {
        hly_shm_lending_t *l = ep->lending;
        int lent = 0;
        for (uint32_t i = 0; l && i < l->n; i++)
            lent |= l->lent[(l->first + i) % HLY_SHM_CELLS].mem == mem;
        if (lent)
            hly_shm_recall(t, ep, HALAY_ETRANSPORT);
        if (l && l->told[mem->slot] == mem->generation) {
            atomic_store(&ep->ring.shared->offered[mem->slot], 0);
            atomic_fetch_add(&ep->ring.shared->changes, 1);
            l->told[mem->slot] = 0;
        }
    }
    region_free(t, mem);
}

/* ------------------------------------------------------------------ the owner */

/* 1: the descriptor is on its way. */
static int region_send(const halay_transport_t *t, const halay_ep_t *ep, const halay_mem_t *mem)
{
    struct sockaddr_un address;
    hly_shm_hello_t hello;
    int fds[HLY_SHM_FDS] = {t->process_fd, t->wake_fd, mem->fd}, sent = 0;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    socklen_t length = hly_shm_name(t, ep->peer->id, &address);
    pid_t pid;
    uid_t uid;
    hly_shm_hello_fill(t, HLY_SHM_REGION, ep->peer->id, &hello);
    hello.ring_bytes = mem->bytes;
    hello.slot = mem->slot;
    hello.generation = mem->generation;
    if (connect(fd, (struct sockaddr *)&address, length) == 0 && hly_shm_same_user(fd, &pid, &uid))
        sent = hly_shm_hello_send(fd, &hello, fds, HLY_SHM_FDS) == 0;
    close(fd);
    return sent;
}

static void region_offer(halay_transport_t *t, halay_ep_t *ep, const halay_mem_t *mem)
{
    hly_shm_lending_t *l = ep->lending;
    if (l->told[mem->slot] == mem->generation || l->failures == TRIES)
        return;
    atomic_store(&ep->ring.shared->offered[mem->slot], mem->generation);
    l->told[mem->slot] = mem->generation;
    if (region_send(t, ep, mem))
        return;
    l->told[mem->slot] = 0;
    if (++l->failures == TRIES)
        hly_shm_log(t, 2, "shm: process %d cannot be sent memory to map, what goes there is copied",
                    (int)ep->peer->pid);
}

static const halay_mem_t *region_of(const halay_transport_t *t, const void *payload, size_t bytes)
{
    for (uint32_t i = 0, left = t->nregions; left; i++) {
        const halay_mem_t *mem = t->regions[i];
        left -= mem != NULL;
        const size_t offset = mem ? (uintptr_t)payload - (uintptr_t)mem->address : 0;
        if (mem && offset < mem->bytes && bytes <= mem->bytes - offset)
            return mem;
    }
    return NULL;
}

/* Room to tell of the end of one more loan: whatever happens later needs no memory. */
static int ended_reserve(halay_transport_t *t)
{
    if (t->loans < t->ended_room)
        return 1;
    const int room = t->ended_room ? 2 * t->ended_room : 64;
    hly_shm_ended_t *ended = realloc(t->ended, (size_t)room * sizeof(*ended));
    if (!ended)
        return 0;
    t->ended = ended;
    t->ended_room = room;
    return 1;
}

int hly_shm_can_lend(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                     hly_shm_loan_t *loan)
{
    const halay_mem_t *mem = region_of(t, payload, bytes);
    if (!mem || ep->state != WAY_OPEN)
        return 0;
    if (!ep->lending)
        ep->lending = calloc(1, sizeof(*ep->lending));
    if (!ep->lending || ep->lending->n == HLY_SHM_CELLS || !ended_reserve(t))
        return 0;
    if (atomic_load_explicit(&ep->ring.shared->mapped[mem->slot], memory_order_relaxed) !=
        mem->generation) {
        region_offer(t, ep, mem);
        return 0;
    }
    loan->slot = mem->slot;
    loan->generation = mem->generation;
    loan->offset = (uint64_t)((const uint8_t *)payload - mem->address);
    loan->bytes = bytes;
    return 1;
}

void hly_shm_lent(halay_transport_t *t, halay_ep_t *ep, uint32_t slot, uint64_t cookie)
{
    hly_shm_lending_t *l = ep->lending;
    l->lent[(l->first + l->n++) % HLY_SHM_CELLS] =
        (hly_shm_lent_t){ep->ring.number, cookie, t->regions[slot]};
    t->loans++;
}

static hly_shm_lent_t lent_pop(hly_shm_lending_t *l)
{
    const hly_shm_lent_t lent = l->lent[l->first];
    l->first = (l->first + 1) % HLY_SHM_CELLS;
    l->n--;
    return lent;
}

int hly_shm_came_back(const halay_ep_t *ep)
{
    const hly_shm_lending_t *l = ep->lending;
    return l && l->n && atomic_load(&ep->ring.shared->taken) >= l->lent[l->first].number;
}

static halay_event_t sent_event(int status, halay_peer_id_t peer, uint64_t cookie)
{
    return (halay_event_t){
        .kind = HALAY_EVENT_SENT, .status = status, .peer = peer, .cookie = cookie};
}

int hly_shm_lent_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    int n = 0;
    for (; t->nended && n < max; n++) {
        const hly_shm_ended_t *ended = &t->ended[--t->nended];
        events[n] = sent_event(ended->status, ended->peer, ended->cookie);
    }
    for (halay_ep_t *ep = t->ways; ep && n < max; ep = ep->next) {
        hly_shm_lending_t *l = ep->lending;
        if (!l || !l->n)
            continue;
        int failed = ep->peer->state != PEER_WELL;
        uint64_t taken = atomic_load_explicit(&ep->ring.shared->taken, memory_order_acquire);
        for (; l->n && n < max && (failed || taken >= l->lent[l->first].number); n++) {
            const hly_shm_lent_t lent = lent_pop(l);
            int status = taken >= lent.number ? HALAY_OK : HALAY_EPEER;
            events[n] = sent_event(status, ep->peer->id, lent.cookie);
        }
    }
    t->loans -= n;
    return n;
}

static void ended_add(halay_transport_t *t, halay_peer_id_t peer, uint64_t cookie, int status)
{
    assert(t->nended < t->ended_room); /* ended_reserve(), for each of t->loans */
    t->ended[t->nended++] = (hly_shm_ended_t){peer, cookie, status};
}

void hly_shm_recall(halay_transport_t *t, halay_ep_t *ep, int status)
{
    hly_shm_lending_t *l = ep->lending;
    if (!l || !l->n)
        return;
    atomic_store(&ep->ring.shared->recalled, ep->ring.number);
    atomic_thread_fence(memory_order_seq_cst);
    while (l->n)
        ended_add(t, ep->peer->id, lent_pop(l).cookie, status);
}

/* ------------------------------------------------------------------ the reader */

static void map_drop(hly_shm_in_t *in, uint32_t slot)
{
    hly_shm_map_t *map = &in->maps[slot];
    if (!map->base)
        return;
    atomic_store(&in->ring.shared->mapped[slot], 0);
    munmap(map->base, map->bytes);
    *map = (hly_shm_map_t){0};
}

/* The peer's ring that was made last. */
static hly_shm_in_t *ring_from(const halay_transport_t *t, halay_peer_id_t from)
{
    for (int i = t->nins - 1; i >= 0; i--) {
        hly_shm_in_t *in = t->ins[i];
        if (hly_meet_same_id(in->peer->id, from) && in->peer->state == PEER_WELL && !in->broken)
            return in;
    }
    return NULL;
}

void hly_shm_region_take(halay_transport_t *t, const hly_shm_hello_t *hello, int fd)
{
    hly_shm_in_t *in = ring_from(t, hello->from);
    const size_t bytes = (size_t)hello->ring_bytes;
    if (!in || hello->slot >= HLY_SHM_REGIONS || !hello->generation || !bytes ||
        bytes > PTRDIFF_MAX || !hly_shm_memory_check(fd, bytes))
        goto out;
    hly_shm_shared_t *shared = in->ring.shared;
    if (!in->maps)
        in->maps = calloc(HLY_SHM_REGIONS, sizeof(*in->maps));
    if (!in->maps || atomic_load(&shared->offered[hello->slot]) != hello->generation)
        goto out; /* the latter: it was taken back */
    map_drop(in, hello->slot);
    void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto out;
    if (madvise(base, bytes, MADV_DONTFORK)) {
        munmap(base, bytes);
        goto out;
    }
    if (bytes >= HUGE_BYTES)
        madvise(base, bytes, MADV_HUGEPAGE);
    in->maps[hello->slot] = (hly_shm_map_t){base, bytes, hello->generation};
    atomic_store(&shared->mapped[hello->slot], hello->generation);
out:
    close(fd);
}

void hly_shm_maps_look(hly_shm_in_t *in)
{
    if (!in->maps)
        return;
    uint32_t changes = atomic_load(&in->ring.shared->changes);
    if (changes == in->changes)
        return;
    in->changes = changes;
    for (uint32_t i = 0; i < HLY_SHM_REGIONS; i++) {
        if (atomic_load(&in->ring.shared->offered[i]) != in->maps[i].generation)
            map_drop(in, i);
    }
}

/* In a forked child nothing is mapped, the ring neither. */
void hly_shm_maps_free(hly_shm_in_t *in)
{
    for (uint32_t i = 0; in->maps && in->ring.shared && i < HLY_SHM_REGIONS; i++)
        map_drop(in, i);
    free(in->maps);
    in->maps = NULL;
}

int hly_shm_borrow(halay_transport_t *t, hly_shm_in_t *in, halay_event_t *event)
{
    hly_shm_loan_t loan;
    if (event->bytes < sizeof(loan))
        return HLY_SHM_BROKEN;
    const size_t header = event->bytes - sizeof(loan);
    memcpy(&loan, (const uint8_t *)event->data + header, sizeof(loan));
    if (in->ring.number <= atomic_load(&in->ring.shared->recalled))
        return 0;
    if (!in->maps || loan.slot >= HLY_SHM_REGIONS)
        return HLY_SHM_BROKEN;
    const hly_shm_map_t *map = &in->maps[loan.slot];
    if (!map->base || map->generation != loan.generation || loan.offset > map->bytes ||
        loan.bytes > map->bytes - loan.offset)
        return HLY_SHM_BROKEN;
    event->kind = HALAY_EVENT_LENT;
    event->status = HALAY_OK;
    event->peer = in->peer->id;
    event->cookie = 0;
    event->immediate = 0;
    event->bytes = header + (size_t)loan.bytes;
    event->payload = map->base + loan.offset;
    t->lender = in;
    t->loans++;
    return 1;
}

int hly_shm_give_back(halay_transport_t *t)
{
    hly_shm_in_t *in = t->lender;
    if (!in)
        return HALAY_OK;
    t->lender = NULL;
    t->loans--;
    atomic_thread_fence(memory_order_acquire);
    int recalled = in->ring.number <= atomic_load(&in->ring.shared->recalled);
    if (hly_shm_ring_release(&in->ring))
        hly_shm_peer_wake(in->peer);
    return recalled ? HALAY_EPEER : HALAY_OK;
}
