/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c - reads /proc/PID/environ of this user's processes. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/proc.h"
#include "absent.h"

enum { ENVIRON_BYTES = 256 << 10 };

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
        return node->worlds->place[i].state == HLY_PLACE_STARTED;
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

struct hly_absent *hly_absent_look(const struct hly_node *node, bool met, int *n)
{
    struct hly_absent *all = calloc((size_t)node->nlocal, sizeof *all);
    char *text = malloc(ENVIRON_BYTES + 1);
    DIR *dir = all && text ? opendir("/proc") : NULL;
    for (int i = 0; all && i < node->nlocal; i++) {
        all[i].entered = has_entered(node, i);
        all[i].missing = met ? node->local[i] != node->rank : is_missing(node, i, all[i].entered);
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
    *n = 0;
    for (int i = 0; all && i < node->nlocal; i++) {
        if (met)
            all[i].missing = all[i].state == 'T' || all[i].state == 't';
        *n += all[i].missing;
    }
    return all;
}

bool hly_absent_speaks(const struct hly_node *node)
{
    for (int i = 1; i < node->nlocal && node->local[i] < node->rank; i++)
        if (has_entered(node, i))
            return false;
    if (node->local[0] == node->rank || !has_entered(node, 0))
        return true;
    int n;
    struct hly_absent *all = hly_absent_look(node, true, &n);
    const bool stopped = all && all[0].missing;
    free(all);
    return stopped;
}

/* ---------------------------------------------------------------- text */

void hly_absent_text(const struct hly_node *node, const struct hly_absent *all,
                     struct hly_line *line)
{
    for (int i = 0; i < node->nlocal; i++)
        if (all[i].missing && hly_line_next(line, ", "))
            hly_line_process(line, "rank", (int)node->local[i], all[i].pid,
                             hly_proc_doing(all[i].state), all[i].entered);
    hly_line_more(line, ", ");
}
