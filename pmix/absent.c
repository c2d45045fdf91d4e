/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c - reads /proc/PID/environ of this user's processes, and what halayrun has written into
 * the flight records that it keeps. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halay/record.h>

#include "../proc/proc.h"
#include "absent.h"

enum { ENVIRON_BYTES = 256 << 10, NAMED_MOST = 5 };
#define LOOK_NS 100000000ull
#define FIND_NS 1000000000ull

static int index_of(const struct hly_node *node, unsigned long rank)
{
    for (int i = 0; i < node->nlocal; i++)
        if (node->local[i] == rank)
            return i;
    return -1;
}

/* ---------------------------------------------------------------- processes */

/* Which of the node's ranks a process belongs to, by its environment; -1: none. */
static int rank_of(const struct hly_node *node, const char *pid, char *text)
{
    char path[64];
    const char *rank = NULL;
    bool same = false;
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    for (ssize_t got = 1; fd >= 0 && got > 0 && n<ENVIRON_BYTES; n += got> 0 ? (size_t)got : 0)
        got = read(fd, text + n, ENVIRON_BYTES - n);
    if (fd >= 0)
        close(fd);
    text[n] = '\0';
    for (const char *at = text; at < text + n; at += strlen(at) + 1) {
        if (!strncmp(at, "PMIX_RANK=", 10) && isdigit((unsigned char)at[10]))
            rank = at + 10;
        same |= !strncmp(at, "PMIX_NAMESPACE=", 15) && !strcmp(at + 15, node->nspace);
    }
    return same && rank ? index_of(node, strtoul(rank, NULL, 10)) : -1;
}

static bool same_network(const char *pid)
{
    char path[64];
    struct stat own, its;
    snprintf(path, sizeof path, "/proc/%.20s/ns/net", pid);
    return !stat("/proc/self/ns/net", &own) && !stat(path, &its) && own.st_ino == its.st_ino;
}

static void see(struct hly_absent *a, const char *pid)
{
    struct hly_proc_stat seen;
    const int64_t number = strtoll(pid, NULL, 10);
    if (!hly_proc_stat(number, &seen))
        return;
    const bool here = same_network(pid);
    a->here = a->pid ? a->here && here : here;
    if (a->pid && (seen.born > a->born || (seen.born == a->born && number > a->pid)))
        return;
    a->pid = number;
    a->born = seen.born;
    a->state = seen.state;
}

static bool is_missing(const struct hly_node *node, int i, bool entered)
{
    if (node->local[i] == node->rank)
        return false;
    if (node->role == HLY_ROLE_FIRST)
        return node->seats[i].state == HLY_SEAT_EMPTY;
    return i == 0 || !(entered || (node->came && node->came[i]));
}

static bool has_entered(const struct hly_node *node, int i)
{
    char rank[16];
    const char *names[3] = {node->nspace, rank, node->server};
    snprintf(rank, sizeof rank, "%u", node->local[i]);
    return node->server && hly_boot_claimed(names, 3);
}

void hly_absent_note(struct hly_node *node)
{
    if (!node->came)
        node->came = calloc((size_t)node->nlocal, sizeof node->came[0]);
    for (int i = 0; node->came && i < node->nlocal; i++)
        node->came[i] = node->came[i] || has_entered(node, i);
}

struct hly_absent *hly_absent_look(const struct hly_node *node)
{
    struct hly_absent *all = calloc((size_t)node->nlocal, sizeof *all);
    char *text = malloc(ENVIRON_BYTES + 1);
    DIR *dir = all && text ? opendir("/proc") : NULL;
    for (int i = 0; all && i < node->nlocal; i++) {
        all[i].entered = has_entered(node, i);
        all[i].missing = is_missing(node, i, all[i].entered);
    }
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const int i =
            isdigit((unsigned char)entry->d_name[0]) ? rank_of(node, entry->d_name, text) : -1;
        if (i >= 0 && all[i].missing)
            see(&all[i], entry->d_name);
    }
    if (dir)
        closedir(dir);
    free(text);
    return all;
}

bool hly_absent_may_come(const struct hly_node *node, const struct hly_absent *all)
{
    const int n = node->role == HLY_ROLE_FIRST ? node->nlocal : 1; /* others wait for the first */
    for (int i = 0; i < n; i++)
        if (all[i].missing && all[i].here)
            return true;
    return false;
}

bool hly_absent_speaks(const struct hly_node *node)
{
    for (int i = 0; i < node->nlocal && node->local[i] < node->rank; i++)
        if (has_entered(node, i))
            return false;
    return true;
}

/* ---------------------------------------------------------------- text */

__attribute__((format(printf, 4, 5))) static size_t add(char *text, size_t bytes, size_t at,
                                                        const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = at < bytes ? vsnprintf(text + at, bytes - at, format, ap) : 0;
    va_end(ap);
    return at + (n > 0 ? (size_t)n : 0);
}

static const char *doing(char state)
{
    switch (state) {
    case 'T':
    case 't':
        return "stopped";
    case 'D':
        return "waits for a disk or device";
    case 'R':
        return "computes";
    case 'Z':
    case 'X':
        return "ended";
    default:
        return "sleeps";
    }
}

void hly_absent_text(const struct hly_node *node, const struct hly_absent *all, char *text,
                     size_t bytes)
{
    int n = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < node->nlocal; i++) {
        const struct hly_absent *a = &all[i];
        const char *where = a->entered ? "in halay_init" : "not in halay_init";
        if (!a->missing || ++n > NAMED_MOST)
            continue;
        at = add(text, bytes, at, "%srank %u ", n > 1 ? ", " : "", node->local[i]);
        if (a->pid)
            at = add(text, bytes, at, "(pid %lld: %s; %s)", (long long)a->pid, doing(a->state),
                     where);
        else
            at = add(text, bytes, at, "(no process of it is seen; %s)", where);
    }
    if (n > NAMED_MOST)
        add(text, bytes, at, ", and %d more", n - NAMED_MOST);
}

/* ---------------------------------------------------------------- what halayrun knows */

/* The record at this place, if it is of another rank of this node; -1: it is not. */
static int open_record(const struct hly_node *node, const char *path, halay_record_head_t *head,
                       int *i)
{
    char to[64];
    const ssize_t n = readlink(path, to, sizeof to - 1);
    to[n > 0 ? n : 0] = '\0';
    if (!strstr(to, "memfd:" HALAY_RECORD_NAME))
        return -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool whole = fd >= 0 && pread(fd, head, sizeof *head, 0) == (ssize_t)sizeof *head;
    *i = whole && head->magic == HALAY_RECORD_MAGIC && head->version == HALAY_RECORD_VERSION &&
                 !strncmp(head->job, node->nspace, sizeof head->job - 1)
             ? index_of(node, (unsigned long)head->rank)
             : -1;
    if (*i >= 0 && node->local[*i] != node->rank)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

typedef void (*take_fn)(struct hly_node *node, int i, int fd, const halay_record_head_t *head,
                        void *arg);

/* All that halayrun keeps of this node's ranks: `take` gets the descriptor. */
static void each_record(struct hly_node *node, take_fn take, void *arg)
{
    char path[512];
    char *end = NULL;
    halay_record_head_t head;
    int i;
    const char *own = getenv("HALAY_RECORD_AT"); /* /proc/PID/fd/N */
    const long pid = own && !strncmp(own, "/proc/", 6) ? strtol(own + 6, &end, 10) : 0;
    if (pid <= 0 || strncmp(end, "/fd/", 4) != 0)
        return;
    snprintf(path, sizeof path, "/proc/%ld/fd", pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/%ld/fd/%s", pid, entry->d_name);
        const int fd = open_record(node, path, &head, &i);
        if (fd >= 0)
            take(node, i, fd, &head, arg);
    }
    if (dir)
        closedir(dir);
}

/* Of those that are waited for: all missing ones, or the first rank. */
static void keep(struct hly_node *node, int i, int fd, const halay_record_head_t *head, void *arg)
{
    (void)head;
    (void)arg;
    if (node->records[i] < 0 &&
        (node->role == HLY_ROLE_FIRST ? is_missing(node, i, false) : i == 0))
        node->records[i] = fd;
    else
        close(fd);
}

static void find_records(struct hly_node *node)
{
    if (!node->records) {
        node->records = malloc((size_t)node->nlocal * sizeof node->records[0]);
        for (int i = 0; node->records && i < node->nlocal; i++)
            node->records[i] = -1;
    }
    if (node->records)
        each_record(node, keep, NULL);
}

struct failure { /* of the rank that has failed before the others */
    int i;       /* -1: none is found */
    bool said;   /* a rank before this one has given up, and has said why or knows who has */
    int32_t pid;
    uint32_t ended;
    uint64_t told_ns; /* 0: halay_init has not failed there */
    char why[320];
};

/* Who has ended and was told of nothing has failed before those that were told; of these, who was
 * told first. */
static void note_failure(struct hly_node *node, int i, int fd, const halay_record_head_t *head,
                         void *arg)
{
    struct failure *first = arg;
    halay_record_verdict_t said[HALAY_RECORD_VERDICTS];
    struct failure f = {.i = i,
                        .said = first->said,
                        .pid = head->pid ? head->pid : head->started,
                        .ended = head->ended};
    if (head->state == HALAY_RECORD_NO_INIT &&
        pread(fd, said, sizeof said, offsetof(halay_record_t, verdicts)) == (ssize_t)sizeof said)
        for (int k = 0; k < HALAY_RECORD_VERDICTS; k++)
            if (said[k].stamp) {
                f.told_ns = said[k].told_ns;
                snprintf(f.why, sizeof f.why, "%.310s", said[k].text);
            }
    close(fd);
    first->said = f.said = f.said || (f.told_ns && node->local[i] < node->rank);
    if (!f.ended && !f.told_ns)
        return;
    if (first->i < 0 || f.told_ns < first->told_ns || (f.told_ns == first->told_ns && i < first->i))
        *first = f;
}

static void ended_text(const struct hly_node *node, const struct failure *f, char *text,
                       size_t bytes)
{
    const int status = (int)f->ended - 1;
    char how[64], pid[24] = "";
    if (!f->ended)
        snprintf(how, sizeof how, "it still runs");
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "it was killed by signal %d", WTERMSIG(status));
    else
        snprintf(how, sizeof how, "it exited with status %d", WEXITSTATUS(status));
    if (f->pid)
        snprintf(pid, sizeof pid, "pid %d ", (int)f->pid);
    if (f->told_ns)
        snprintf(text, bytes, "halay_init has failed on rank %u (%son %s; %s): %s",
                 node->local[f->i], pid, node->host, how, f->why);
    else
        snprintf(text, bytes,
                 "rank %u (%son %s) has ended before all ranks had joined the job: %s. See what it "
                 "has printed; start the job again",
                 node->local[f->i], pid, node->host, how);
}

int hly_absent_ended(struct hly_node *node, int *level, char *text, size_t bytes)
{
    const uint64_t now = hly_node_now_ns();
    halay_record_head_t head;
    if (!node->look_ns)
        node->look_ns = node->find_ns = node->begin_ns + 2 * LOOK_NS;
    if (now < node->look_ns)
        return -1;
    if (now >= node->find_ns)
        find_records(node);
    node->look_ns = now + LOOK_NS;
    node->find_ns = now >= node->find_ns ? now + FIND_NS : node->find_ns;
    for (int i = 0; node->records && i < node->nlocal; i++) {
        const int fd = node->records[i];
        struct failure first = {.i = -1};
        if (fd < 0 || !is_missing(node, i, false) ||
            pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || !head.ended)
            continue;
        const bool speaks = hly_absent_speaks(node); /* before: who leaves has written its record */
        each_record(node, note_failure, &first);
        if (first.i < 0)
            continue;
        *level = speaks && !first.said ? 0 : HALAY_LOG_TOLD;
        ended_text(node, &first, text, bytes);
        return i;
    }
    return -1;
}

void hly_absent_finish(struct hly_node *node)
{
    for (int i = 0; node->records && i < node->nlocal; i++)
        if (node->records[i] >= 0)
            close(node->records[i]);
    free(node->records);
    free(node->came);
    node->records = NULL;
    node->came = NULL;
}
