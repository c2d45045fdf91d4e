/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - the memory of a flight record: a memfd, sealed so that whoever maps it need not fear
 * that it shrinks. halayrun makes it before the rank and says where (HALAY_JOB), so that it
 * outlives the rank; else the rank makes it.
 */
#include "base/record.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../common/file_limit.h"
#include "../../common/job.h"
#include "base/context.h"

static_assert(sizeof(halay_record_t) == HALAY_RECORD_BYTES, "the tables fill it");
static_assert(sizeof(halay_record_head_t) == 4096 && sizeof(halay_record_comm_t) == 64 &&
                  sizeof(halay_record_verdict_t) == 512 && sizeof(halay_record_wait_t) == 1024 &&
                  sizeof(halay_record_call_t) == 64 && sizeof(halay_record_stack_t) == 1024 &&
                  sizeof(halay_record_agreement_t) == 80 && sizeof(halay_record_place_t) == 88,
              "as version 2 says");

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static halay_record_t *map(int fd)
{
    const int flags = MAP_POPULATE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    void *at = mmap(NULL, HALAY_RECORD_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* It is one of a launcher of ours, which no rank that is alive has taken: it is this one's now. */
static bool claim(halay_record_t *record)
{
    halay_record_head_t *h = &record->head;
    int32_t other = __atomic_load_n(&h->pid, __ATOMIC_RELAXED);
    return h->magic == HALAY_RECORD_MAGIC && h->version == HALAY_RECORD_VERSION &&
           (!other || h->state >= HALAY_RECORD_FINALIZED || kill(other, 0)) &&
           __atomic_compare_exchange_n(&h->pid, &other, (int32_t)getpid(), false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* What the launcher has made for this rank. */
static bool take(struct hly_record *record)
{
    char path[64];
    struct stat is;
    const int fd = hly_job_has("record", path, sizeof(path))
                       ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK)
                       : -1;
    if (fd < 0)
        return false;
    if (!fstat(fd, &is) && is.st_size == HALAY_RECORD_BYTES && is.st_uid == geteuid() &&
        (fcntl(fd, F_GET_SEALS) & SEALS) == SEALS && (record->map = map(fd))) {
        if (claim(record->map)) {
            record->fd = fd;
            record->given = true;
            return true;
        }
        munmap(record->map, HALAY_RECORD_BYTES);
        record->map = NULL;
    }
    close(fd);
    return false;
}

/* Without a descriptor it is memory that nobody else sees. */
static bool make(struct hly_record *record)
{
    record->fd = memfd_create(HALAY_RECORD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (record->fd >= 0 &&
        (!hly_file_fits(HALAY_RECORD_BYTES) || ftruncate(record->fd, HALAY_RECORD_BYTES) ||
         fcntl(record->fd, F_ADD_SEALS, SEALS) || !(record->map = map(record->fd)))) {
        close(record->fd);
        record->fd = -1;
    }
    if (!record->map)
        record->map = map(-1);
    if (record->map)
        halay_record_format(&record->map->head);
    return record->map;
}

int hly_record_open(halay_context_t *context)
{
    struct hly_record *record = &context->record;
    struct timespec wall;
    record->fd = -1;
    if (!take(record) && !make(record))
        return HALAY_ENOMEM;
    halay_record_head_t *h = &record->map->head;
    memset(record->map->comms, 0, HALAY_RECORD_BYTES - sizeof(*h)); /* of a program before */
    memset(h->stacks, 0, sizeof(h->stacks));
    memset(h->agreements, 0, sizeof(h->agreements));
    memset(h->places, 0, sizeof(h->places));
    clock_gettime(CLOCK_REALTIME, &wall);
    h->began_ns = hly_now_ns();
    h->epoch_ns = (uint64_t)wall.tv_sec * 1000000000ull + (uint64_t)wall.tv_nsec - h->began_ns;
    h->sleeping = 0;
    gethostname(h->host, sizeof(h->host) - 1);
    h->pid = (int32_t)getpid();
    __atomic_store_n(&h->state, HALAY_RECORD_INIT, __ATOMIC_RELEASE);
    return HALAY_OK;
}

/* Said at the start, by one rank of the node: later it would be too late. */
static void check_folder(halay_context_t *context)
{
    const char *folder = context->settings.record;
    struct stat is;
    int why = 0;
    if (!folder[0] || context->info.local_rank || context->record.given)
        return;
    if (stat(folder, &is) || access(folder, W_OK | X_OK))
        why = errno;
    else if (!S_ISDIR(is.st_mode))
        why = ENOTDIR;
    if (why)
        hly_log(context, HLY_WARN,
                "HALAY_RECORD: no flight record can be written to '%s': %s. Make that folder on "
                "each node, or name one where this user may write",
                folder, strerror(why));
}

void hly_record_found(halay_context_t *context)
{
    halay_record_head_t *h = &context->record.map->head;
    const halay_boot_info_t *info = &context->info;
    h->rank = info->rank;
    h->nranks = info->nranks;
    h->node = info->node;
    if (!h->job[0])
        snprintf(h->job, sizeof(h->job), "%016llx",
                 (unsigned long long)hly_hash(info->epoch, info->job, sizeof(info->job)));
    snprintf(h->host, sizeof(h->host), "%.63s", info->host);
    __atomic_store_n(&h->state, HALAY_RECORD_RUNS, __ATOMIC_RELEASE);
    check_folder(context);
}

void hly_record_failed(halay_context_t *context, int code, const char *text)
{
    halay_record_verdict_t said = {.code = code, .rank = -1, .other = -1};
    struct hly_record *record = &context->record;
    if (!record->map)
        return;
    snprintf(said.text, sizeof(said.text), "%s", text);
    hly_record_verdict(context, &said);
    __atomic_store_n(&record->map->head.state, HALAY_RECORD_NO_INIT, __ATOMIC_RELEASE);
}

void hly_record_close(halay_context_t *context)
{
    struct hly_record *record = &context->record;
    if (!record->map)
        return;
    if (record->map->head.state != HALAY_RECORD_NO_INIT)
        __atomic_store_n(&record->map->head.state, HALAY_RECORD_FINALIZED, __ATOMIC_RELEASE);
    munmap(record->map, HALAY_RECORD_BYTES);
    record->map = NULL;
    if (record->fd >= 0)
        close(record->fd);
}

void hly_record_comm(halay_context_t *context, const halay_record_comm_t *comm)
{
    struct hly_record *record = &context->record;
    const uint64_t n = ++record->ncomms;
    halay_record_write(&record->map->comms[n % HALAY_RECORD_COMMS], comm, sizeof(*comm), n);
}

void hly_record_consensus(halay_context_t *context, const halay_record_agreement_t *consensus,
                          uint64_t number)
{
    halay_record_write(&context->record.map->head.agreements[number % HALAY_RECORD_AGREEMENTS],
                       consensus, sizeof(*consensus), number);
}

void hly_record_place(halay_context_t *context, const halay_record_place_t *place, uint64_t number)
{
    halay_record_place_t *slot = &context->record.map->head.places[number % HALAY_RECORD_PLACES];
    if (!place->ended_ns || slot->stamp == 2 * number) /* else a later wait has it now */
        halay_record_write(slot, place, sizeof(*place), number);
}

/* halay-record.JOB.RANK: whatever a job is called, it is a name. */
static void path_of(const halay_context_t *context, char *path, size_t bytes)
{
    const halay_record_head_t *h = &context->record.map->head;
    int n = snprintf(path, bytes, "%s/", context->settings.record);
    snprintf(path + n, bytes - (size_t)n, HALAY_RECORD_NAME ".%.63s.%d", h->job, h->rank);
    for (char *c = path + n; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
            *c = '_';
}

static bool write_all(int fd, const halay_record_t *record)
{
    ssize_t n = 0;
    if (!hly_file_fits(HALAY_RECORD_BYTES))
        return false;
    for (size_t at = 0; at < HALAY_RECORD_BYTES; at += (size_t)n) {
        errno = ENOSPC; /* where nothing is written, without a reason */
        n = write(fd, (const char *)record + at, HALAY_RECORD_BYTES - at);
        if (n <= 0)
            return false;
    }
    return true;
}

static void dump(halay_context_t *context)
{
    char path[512];
    path_of(context, path, sizeof(path));
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool whole = fd >= 0 && write_all(fd, context->record.map);
    const int why = errno;
    if (fd >= 0)
        close(fd);
    if (whole) {
        hly_log(context, HLY_INFO, "flight record: %s", path);
        return;
    }
    if (fd >= 0)
        unlink(path); /* no part of it is left */
    /* A launcher of ours still has the memory: it tries again, and says once for all ranks. */
    hly_log(context, context->record.given ? HLY_INFO : HLY_WARN,
            "the flight record could not be written to %s: %s. Make room there, or have "
            "HALAY_RECORD name another folder",
            path, strerror(why));
}

void hly_record_verdict(halay_context_t *context, halay_record_verdict_t *verdict)
{
    struct hly_record *record = &context->record;
    const uint64_t n = ++record->nverdicts;
    verdict->told_ns = hly_now_ns();
    halay_record_write(&record->map->verdicts[n % HALAY_RECORD_VERDICTS], verdict, sizeof(*verdict),
                       n);
    if (verdict->broken)
        hly_record_stack(record);
    if (!verdict->broken || record->dumped || !context->settings.record[0])
        return;
    record->dumped = true;
    dump(context);
}
