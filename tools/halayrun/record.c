/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.c - one memfd a rank, made before it starts and found by it under halayrun's descriptor.
 * So it outlives the rank, and nothing is left behind when halayrun ends.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../common/job.h"
#include "../common/flight.h"
#include "note.h"
#include "spawn.h"

enum { SHOWN = 16 };

struct given {
    int fd; /* -1: there is none */
    halay_record_head_t *head;
    pid_t pid;
};

struct hly_records {
    int nranks, first;
    const char *job, *host, *folder;
    struct given ranks[];
};

struct hly_records *hly_records_create(int nranks, int first, const char *job, const char *host,
                                       const char *folder)
{
    struct hly_records *r = calloc(1, sizeof *r + (size_t)nranks * sizeof r->ranks[0]);
    if (!r)
        return NULL;
    r->nranks = nranks;
    r->first = first;
    r->job = job;
    r->host = host;
    r->folder = folder;
    for (int i = 0; i < nranks; i++)
        r->ranks[i].fd = -1;
    return r;
}

static void drop(struct given *g)
{
    if (g->fd < 0)
        return;
    munmap(g->head, sizeof *g->head);
    close(g->fd);
    *g = (struct given){.fd = -1};
}

/* The head alone is mapped: nothing else is needed until the end. */
static int make(struct hly_records *records, int rank)
{
    struct given *g = &records->ranks[rank];
    drop(g); /* an earlier process's */
    const int fd = memfd_create(HALAY_RECORD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    void *at = MAP_FAILED;
    if (!ftruncate(fd, HALAY_RECORD_BYTES) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        at = mmap(NULL, sizeof *g->head, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return -1;
    }
    g->fd = fd;
    g->head = at;
    halay_record_format(g->head);
    g->head->rank = records->first + rank;
    g->head->nranks = records->nranks;
    snprintf(g->head->job, sizeof g->head->job, "%s", records->job);
    snprintf(g->head->host, sizeof g->head->host, "%s", records->host);
    return 0;
}

int hly_records_give(struct hly_records *records, int rank, char ***env)
{
    char path[64];
    if (!records || make(records, rank))
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), records->ranks[rank].fd);
    return hly_job_put(env, "record", path) ? 0 : -1;
}

void hly_records_started(struct hly_records *records, int rank, pid_t pid)
{
    if (!records)
        return;
    records->ranks[rank].pid = pid;
    if (records->ranks[rank].head)
        records->ranks[rank].head->started = (int32_t)pid;
}

void hly_records_ended(struct hly_records *records, int rank, int status)
{
    if (records && records->ranks[rank].head)
        records->ranks[rank].head->ended = 1 + (uint32_t)status;
}

int hly_records_state(const struct hly_records *records, int rank)
{
    const halay_record_head_t *head = records ? records->ranks[rank].head : NULL;
    return head ? (int)head->state : -1;
}

int hly_state_left_early(int state)
{
    return state == HALAY_RECORD_INIT || state == HALAY_RECORD_RUNS;
}

int hly_state_is_over(int state)
{
    return state < 0 || state == HALAY_RECORD_GIVEN || state == HALAY_RECORD_FINALIZED;
}

int hly_state_met(int state)
{
    return state < 0 || state == HALAY_RECORD_RUNS || state == HALAY_RECORD_FINALIZED;
}

void hly_records_trouble(struct hly_records *records)
{
    for (int i = 0; records && i < records->nranks; i++)
        if (records->ranks[i].head && records->ranks[i].pid > 0)
            records->ranks[i].head->stopped = hly_flight_process(records->ranks[i].pid) == 'T';
}

/* ------------------------------------------------------------------ the end */

static hly_flight_t *read_one(const struct given *g)
{
    const char *why;
    hly_flight_t *flight = g->fd >= 0 ? malloc(sizeof *flight) : NULL;
    void *at =
        flight ? mmap(NULL, HALAY_RECORD_BYTES, PROT_READ, MAP_SHARED, g->fd, 0) : MAP_FAILED;
    const int bad = at == MAP_FAILED || hly_flight_read(at, HALAY_RECORD_BYTES, flight, &why);
    if (at != MAP_FAILED)
        munmap(at, HALAY_RECORD_BYTES);
    if (!bad)
        return flight;
    free(flight);
    return NULL;
}

static void say(void *arg, const char *text)
{
    (void)arg;
    hly_note("%s", text);
}

int hly_records_why(const struct hly_records *records, int rank, char *text, size_t bytes)
{
    const halay_record_head_t *head = records ? records->ranks[rank].head : NULL;
    hly_flight_t *flight =
        head && head->state == HALAY_RECORD_NO_INIT ? read_one(&records->ranks[rank]) : NULL;
    const int known = flight && flight->nverdicts > 0;
    if (known)
        snprintf(text, bytes, "%s", flight->verdicts[0].text);
    free(flight);
    return known;
}

void hly_records_tell(const struct hly_records *records)
{
    hly_flights_t all = {0};
    int used = 0;
    for (int i = 0; records && i < records->nranks; i++) {
        hly_flight_t *flight = read_one(&records->ranks[i]);
        if (!flight)
            continue;
        used |= flight->head.state != HALAY_RECORD_GIVEN;
        hly_flights_add(&all, flight);
    }
    if (used) { /* else it is no program of ours */
        hly_note("where the ranks were:");
        hly_flights_tell(&all, SHOWN, say, NULL);
    }
    hly_flights_free(&all);
}

/* 0, or why not. What the rank has written itself stays. */
static int save_one(const struct given *g, const char *path)
{
    char buffer[4096];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int why = fd < 0 && errno != EEXIST ? errno : 0;
    for (off_t at = 0; fd >= 0 && !why && at < HALAY_RECORD_BYTES; at += sizeof buffer) {
        errno = ENOSPC; /* where less is written than asked for, without a reason */
        if (pread(g->fd, buffer, sizeof buffer, at) != (ssize_t)sizeof buffer ||
            write(fd, buffer, sizeof buffer) != (ssize_t)sizeof buffer)
            why = errno;
    }
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && why)
        unlink(path); /* no part of it is left */
    return why;
}

void hly_records_save(const struct hly_records *records)
{
    char path[4096 + 128];
    int lost = 0, why = 0;
    for (int i = 0; records && records->folder && i < records->nranks; i++) {
        const struct given *g = &records->ranks[i];
        if (g->fd < 0 || g->head->state == HALAY_RECORD_GIVEN)
            continue;
        snprintf(path, sizeof path, "%.4000s/" HALAY_RECORD_NAME ".%.63s.%d", records->folder,
                 records->job, records->first + i);
        const int failed = save_one(g, path);
        lost += failed != 0;
        why = failed ? failed : why;
    }
    if (lost)
        hly_note("the flight records of %d rank%s could not be written to %s: %s. Make room there, "
                 "or name another folder",
                 lost, lost == 1 ? "" : "s", records->folder, strerror(why));
}

void hly_records_destroy(struct hly_records *records)
{
    for (int i = 0; records && i < records->nranks; i++)
        drop(&records->ranks[i]);
    free(records);
}
