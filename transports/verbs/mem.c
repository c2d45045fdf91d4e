/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c - registered memory: pools of buffers, sources of puts, targets.
 *
 * Nobody tells us when memory is unmapped, and a registration keeps the pages that it was made of:
 * an entry that outlived its operation would send what another mapping of the same address held
 * before. So a source is registered for a put, and shared only with puts that run at the same time:
 * their callers all promise that the memory stays. A target has a registration of its own, for its
 * key has to die with it. Its owner promises that the memory stays until then, and that no put is
 * under way from it when it goes: so a source that lies in a target needs nothing (0028).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"

/* ------------------------------------------------------------------ refusals */

/* Why memory could not be registered, and what to do. */
static void refused_say(halay_transport_t *t, unsigned once, const char *what, size_t bytes,
                        int error, const char *instead)
{
    const uint64_t limit = hly_locked_limit(),
                   need = t->locked_bytes + (uint64_t)t->ndevices * bytes + 1023;
    char text[192] = "There is no limit on locked memory here (ulimit -l), so look at the control "
                     "group's (rdma.max) and the device's (ibv_devinfo -v: max_mr)";
    if (t->warned & once)
        return;
    t->warned |= once;
    if (limit != UINT64_MAX)
        snprintf(text, sizeof(text),
                 "The limit on locked memory (ulimit -l) is %llu KiB, and %llu KiB are needed now: "
                 "raise it, also for the batch system's daemons",
                 (unsigned long long)limit >> 10, (unsigned long long)need >> 10);
    hly_meet_log(&t->meet, 1,
                 "%s of %zu KiB cannot be registered: %s; %s instead, which costs time. %s. This "
                 "is logged once",
                 what, (bytes + 1023) >> 10, strerror(error), instead, text);
}

/* ------------------------------------------------------------------ pools */

hly_verbs_buffer_t *hly_verbs_buffer_take(hly_verbs_buffer_t **pool)
{
    hly_verbs_buffer_t *buffer = *pool;
    if (buffer)
        *pool = buffer->next;
    return buffer;
}

void hly_verbs_buffer_give(hly_verbs_buffer_t **pool, hly_verbs_buffer_t *buffer)
{
    buffer->next = *pool;
    *pool = buffer;
}

static int mrs_free(struct ibv_mr *mr[HLY_VERBS_RAILS])
{
    int rc = 0;
    for (int i = 0; i < HLY_VERBS_RAILS; i++) {
        rc |= mr[i] ? ibv_dereg_mr(mr[i]) : 0;
        mr[i] = NULL;
    }
    return rc;
}

/* With one device, or with all (-1). 0, or -1 and errno; then with none. */
static int mrs_make(const halay_transport_t *t, int device, const void *address, size_t bytes,
                    int access, struct ibv_mr *mr[HLY_VERBS_RAILS])
{
    for (int i = 0; i < t->ndevices; i++) {
        if (device >= 0 && i != device)
            continue;
        mr[i] = ibv_reg_mr(t->devices[i].pd, (void *)(uintptr_t)address, bytes, access);
        if (mr[i])
            continue;
        const int error = errno;
        mrs_free(mr);
        errno = error;
        return -1;
    }
    return 0;
}

/* Pages of its own: a child does not get them, so none is copied when the parent writes. */
int hly_verbs_pool_add(halay_transport_t *t, int device, hly_verbs_buffer_t **pool, uint32_t many,
                       size_t bytes)
{
    hly_verbs_slab_t *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return -1;
    slab->bytes = many * bytes;
    slab->device = device;
    slab->buffers = calloc(many, sizeof(*slab->buffers));
    slab->room =
        mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!slab->buffers || slab->room == MAP_FAILED)
        goto free_slab;
    madvise(slab->room, slab->bytes, MADV_DONTFORK);
    if (mrs_make(t, device, slab->room, slab->bytes, IBV_ACCESS_LOCAL_WRITE, slab->mr))
        goto unmap;
    for (uint32_t i = many; i-- > 0;) {
        slab->buffers[i].at = (uint8_t *)slab->room + i * bytes;
        slab->buffers[i].slab = slab;
        hly_verbs_buffer_give(pool, &slab->buffers[i]);
    }
    slab->next = t->slabs;
    t->slabs = slab;
    t->locked_bytes += (device < 0 ? (uint64_t)t->ndevices : 1) * slab->bytes;
    return 0;
unmap:
    munmap(slab->room, slab->bytes);
free_slab:
    free(slab->buffers);
    free(slab);
    return -1;
}

/* What every end needs, and the first peer's receive requests. */
int hly_verbs_pools_open(halay_transport_t *t)
{
    const uint64_t limit = hly_locked_limit(),
                   peer = (uint64_t)t->nrails * (hly_verbs_grant(0) + HLY_VERBS_KEPT) *
                          HLY_VERBS_MESSAGE,
                   need = peer + (uint64_t)t->ndevices *
                                     (HLY_VERBS_SENDS * HLY_VERBS_MESSAGE +
                                      HLY_VERBS_BOUNCES * HLY_VERBS_BOUNCE + HLY_VERBS_PAGE);
    if (limit < need)
        return hly_meet_error(&t->meet, HALAY_ENOMEM,
                              "the limit on locked memory (ulimit -l) is %llu KiB, and %llu KiB "
                              "are needed, %llu KiB more for each further peer: raise it, also for "
                              "the batch system's daemons (LimitMEMLOCK=infinity)%s, or say "
                              "HALAY_TRANSPORT=shm+tcp",
                              (unsigned long long)limit >> 10, (unsigned long long)need >> 10,
                              (unsigned long long)peer >> 10,
                              t->nrails > 1 ? ", or HALAY_VERBS=rails=1" : "");
    t->page =
        mmap(NULL, HLY_VERBS_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->page == MAP_FAILED)
        t->page = NULL;
    else
        madvise(t->page, HLY_VERBS_PAGE, MADV_DONTFORK);
    if (!t->page ||
        mrs_make(t, -1, t->page, HLY_VERBS_PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                 t->page_mr) ||
        hly_verbs_pool_add(t, -1, &t->sends, HLY_VERBS_SENDS, HLY_VERBS_MESSAGE) ||
        hly_verbs_pool_add(t, -1, &t->bounces, HLY_VERBS_BOUNCES, HLY_VERBS_BOUNCE))
        return hly_meet_error(&t->meet, HALAY_ENOMEM,
                              "%llu KiB of buffers could not be registered: %s; check the limits "
                              "on locked memory (ulimit -l) and of the control group",
                              (unsigned long long)need >> 10, strerror(errno));
    return HALAY_OK;
}

/* The memory of a parent is not there in a child (MADV_DONTFORK). */
void hly_verbs_pools_close(halay_transport_t *t)
{
    hly_verbs_slab_t *next;
    int ours = getpid() == t->meet.pid;
    for (hly_verbs_slab_t *slab = t->slabs; slab; slab = next) {
        next = slab->next;
        if (ours) {
            mrs_free(slab->mr);
            munmap(slab->room, slab->bytes);
        }
        free(slab->buffers);
        free(slab);
    }
    if (ours)
        mrs_free(t->page_mr);
    if (ours && t->page)
        munmap(t->page, HLY_VERBS_PAGE);
    t->slabs = NULL;
}

/* ------------------------------------------------------------------ sources */

/* NULL: no memory for it, or the limit on locked memory; then it logs `instead`, once. */
static halay_mem_t *mem_make(halay_transport_t *t, const void *address, size_t bytes, int access,
                             unsigned once, const char *instead)
{
    halay_mem_t *mem = calloc(1, sizeof(*mem));
    if (!mem)
        return NULL;
    if (mrs_make(t, -1, address, bytes, access, mem->mr)) {
        refused_say(t, once, "a buffer", bytes, errno, instead);
        free(mem);
        return NULL;
    }
    t->n.registered++;
    t->locked_bytes += (uint64_t)t->ndevices * bytes;
    mem->address = address;
    mem->bytes = bytes;
    return mem;
}

/* Out of its list. The struct stays while a put names it. */
static void mem_end(halay_transport_t *t, halay_mem_t *mem)
{
    LIST_REMOVE(mem, entry);
    if (mrs_free(mem->mr))
        hly_meet_log(&t->meet, 0, "a buffer could not be deregistered: %s", strerror(errno));
    if (mem->device)
        t->ngpu--;
    else
        t->locked_bytes -= (uint64_t)t->ndevices * mem->bytes;
    if (mem->refs == 0)
        free(mem);
}

/* ------------------------------------------------------------------ memory of a GPU */

/* The kernel refuses a descriptor that is none, if it gets so far as to look at it. */
static int takes_dmabuf(struct ibv_pd *pd)
{
#ifdef HLY_VERBS_DMABUF
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 1, 0, -1, 0);
    if (!mr)
        return errno == EBADF;
    ibv_dereg_mr(mr);
#else
    (void)pd;
#endif
    return 0;
}

void hly_verbs_gpu_look(halay_transport_t *t)
{
    t->dmabuf = t->ndevices > 0;
    for (int i = 0; i < t->ndevices; i++)
        t->dmabuf = t->dmabuf && takes_dmabuf(t->devices[i].pd);
    t->peermem = access("/sys/module/nvidia_peermem/version", F_OK) == 0;
}

/* With all devices. 0, or -1 and errno; then with none. */
static int mrs_of_dmabuf(const halay_transport_t *t, const halay_mem_params_t *p,
                         struct ibv_mr *mr[HLY_VERBS_RAILS])
{
    int error = ENOTSUP;
#ifdef HLY_VERBS_DMABUF
    int i = 0;
    for (; t->dmabuf && i < t->ndevices; i++) {
        mr[i] = ibv_reg_dmabuf_mr(t->devices[i].pd, p->offset, p->bytes, (uintptr_t)p->address,
                                  p->dmabuf, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (!mr[i])
            break;
    }
    if (t->dmabuf && i == t->ndevices)
        return 0;
    error = t->dmabuf ? errno : error;
    mrs_free(mr);
#else
    (void)t, (void)p, (void)mr;
#endif
    errno = error;
    return -1;
}

/* By its dma-buf; else nvidia_peermem tells the device's driver where its pages are. */
static halay_mem_t *gpu_make(halay_transport_t *t, const halay_mem_params_t *p)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    halay_mem_t *mem = calloc(1, sizeof(*mem));
    int rc = -1;
    if (!mem)
        return NULL;
    errno = ENOTSUP;
    if (p->dmabuf >= 0)
        rc = mrs_of_dmabuf(t, p, mem->mr);
    if (rc && t->peermem)
        rc = mrs_make(t, -1, p->address, p->bytes, access, mem->mr);
    if (rc) {
        if (!(t->warned & WARNED_GPU))
            hly_meet_log(&t->meet, 1,
                         "%zu KiB of a GPU's memory cannot be registered: %s; dma-buf: %s, "
                         "nvidia_peermem: %s; load nvidia_peermem, or a driver of the adapter that "
                         "takes dma-bufs (a kernel of 5.12 or newer). This is logged once",
                         (p->bytes + 1023) >> 10, strerror(errno),
                         p->dmabuf < 0 ? "the GPU gives none"
                         : t->dmabuf   ? "refused"
                                       : "the adapter's driver takes none",
                         t->peermem ? "refused" : "not loaded");
        t->warned |= WARNED_GPU;
        free(mem);
        return NULL;
    }
    t->n.registered++;
    t->ngpu++;
    mem->address = p->address;
    mem->bytes = p->bytes;
    mem->device = 1;
    return mem;
}

static int holds(const halay_mem_t *mem, const uint8_t *from, size_t bytes)
{
    return from >= mem->address && bytes <= mem->bytes &&
           (size_t)(from - mem->address) <= mem->bytes - bytes;
}

/* In what somebody keeps registered; what is used stands in front. */
static halay_mem_t *target_hold(halay_transport_t *t, const uint8_t *from, size_t bytes)
{
    halay_mem_t *mem;
    LIST_FOREACH(mem, &t->targets, entry)
    {
        if (!holds(mem, from, bytes))
            continue;
        if (mem != LIST_FIRST(&t->targets)) {
            LIST_REMOVE(mem, entry);
            LIST_INSERT_HEAD(&t->targets, mem, entry);
        }
        mem->refs++;
        t->n.kept++;
        return mem;
    }
    return NULL;
}

halay_mem_t *hly_verbs_gpu_hold(halay_transport_t *t, const void *address, size_t bytes)
{
    halay_mem_t *mem = target_hold(t, address, bytes);
    if (mem && !mem->device) { /* short, and the processor's: it goes inline */
        mem->refs--;
        return NULL;
    }
    return mem;
}

halay_mem_t *hly_verbs_source_hold(halay_transport_t *t, const void *address, size_t bytes)
{
    halay_mem_t *mem = target_hold(t, address, bytes);
    if (mem || bytes <= HLY_VERBS_BOUNCE)
        return mem;
    LIST_FOREACH(mem, &t->sources, entry)
    {
        if (holds(mem, address, bytes)) {
            mem->refs++;
            t->n.shared++;
            return mem;
        }
    }
    mem = mem_make(t, address, bytes, 0, WARNED_SOURCE, "it is copied in pieces");
    if (!mem)
        return NULL;
    mem->refs = 1;
    LIST_INSERT_HEAD(&t->sources, mem, entry);
    return mem;
}

void hly_verbs_source_drop(halay_transport_t *t, halay_mem_t *mem)
{
    if (!mem || --mem->refs > 0)
        return;
    if (!mem->target)
        mem_end(t, mem);
    else if (!mem->mr[0])
        free(mem);
}

/* ------------------------------------------------------------------ targets */

int hly_verbs_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **out)
{
    const int gpu = params->kind != HALAY_MEMORY_HOST;
    halay_mem_t *mem = gpu ? gpu_make(t, params)
                           : mem_make(t, params->address, params->bytes,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                                      WARNED_TARGET, "peers send it as messages");
    if (!mem)
        return gpu ? HALAY_EUNSUPPORTED : HALAY_ENOMEM;
    mem->target = 1;
    LIST_INSERT_HEAD(&t->targets, mem, entry);
    *out = mem;
    return HALAY_OK;
}

void hly_verbs_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    if (!mem)
        return;
    if (mem->refs > 0)
        hly_verbs_puts_break(t, mem);
    mem_end(t, mem);
}

void hly_verbs_targets_drop(halay_transport_t *t)
{
    while (!LIST_EMPTY(&t->targets))
        mem_end(t, LIST_FIRST(&t->targets));
}

int hly_verbs_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    hly_verbs_key_t k = {.address = (uintptr_t)mem->address, .bytes = mem->bytes};
    for (int i = 0; i < t->ndevices; i++)
        k.rkey[i] = mem->mr[i]->rkey;
    if (*bytes < sizeof(k))
        return HALAY_EINVAL;
    memcpy(key, &k, *bytes = sizeof(k));
    return HALAY_OK;
}
