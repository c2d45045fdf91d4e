/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c - limits of the control groups that this process is in: its own and those above it, of
 * which the least counts. Both versions. In a container the path may be that of the host, which is
 * not seen: then the top folder has the container's own limits.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define NONE UINT64_MAX

struct place {
    char base[64], path[1024]; /* the folder is base and path */
};

/* A line "4:memory:/path", or "0::/path" of version 2. */
static bool find_place(const struct hly_probe *p, const char *controller, struct place *place)
{
    char text[8192], *rest = text;
    bool found = false;
    hly_read(p, text, sizeof text, "/proc/self/cgroup");
    for (char *line; (line = strsep(&rest, "\n"));) {
        strsep(&line, ":");
        char *controllers = line ? strsep(&line, ":") : NULL;
        if (!line)
            continue;
        for (char *one; (one = strsep(&controllers, ","));) {
            bool mine = !strcmp(one, controller);
            if (!mine && (*one || found))
                continue;
            snprintf(place->base, sizeof place->base, "/sys/fs/cgroup%s%.40s", mine ? "/" : "",
                     one);
            snprintf(place->path, sizeof place->path, "%s", line);
            found = true;
        }
    }
    return found;
}

/* The text of a file in the place or the nearest folder above that has it. */
static bool read_up(const struct hly_probe *p, struct place *place, const char *file, char *text,
                    size_t bytes)
{
    for (;;) {
        if (hly_read(p, text, bytes, "%s%s/%s", place->base, place->path, file) && *text)
            return true;
        char *slash = strrchr(place->path, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
}

static uint64_t number(const char *text)
{
    uint64_t n = *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : NONE;
    return n >= 1ull << 60 ? NONE : n; /* version 1 writes a huge number */
}

/* The least limit on the way up, and where that is. */
static uint64_t least(const struct hly_probe *p, const char *controller, const char *files[2],
                      struct place *where)
{
    struct place at;
    uint64_t limit = NONE;
    if (!find_place(p, controller, &at))
        return NONE;
    for (int version = 0; version < 2; version++) {
        struct place climbing = at;
        char text[64];
        while (read_up(p, &climbing, files[version], text, sizeof text)) {
            if (number(text) < limit) {
                limit = number(text);
                *where = climbing;
            }
            char *slash = strrchr(climbing.path, '/');
            if (!slash)
                break;
            *slash = '\0';
        }
    }
    return limit;
}

static void tell_memory(const struct hly_probe *p)
{
    static const char *files[2] = {"memory.max", "memory.limit_in_bytes"};
    char used[64] = "0", limit_text[32], left_text[32];
    struct place where = {"", ""};
    uint64_t limit = least(p, "memory", files, &where);
    if (limit >= hly_memory_bytes(p)) {
        hly_find(p->report, HLY_GOOD, "cgroup.memory", "", "no limit below the host's memory");
        return;
    }
    struct place same = where;
    if (!read_up(p, &same, "memory.current", used, sizeof used)) {
        same = where;
        read_up(p, &same, "memory.usage_in_bytes", used, sizeof used);
    }
    uint64_t use = strtoull(used, NULL, 10), left = use < limit ? limit - use : 0;
    struct hly_finding *f =
        hly_find(p->report, left < 1ull << 30 ? HLY_WARNING : HLY_NOTE, "cgroup.memory", where.path,
                 "%s, of which %s are left", hly_bytes_text(limit, limit_text),
                 hly_bytes_text(left, left_text));
    hly_advise(f,
               "Shared memory and locked memory count; who goes beyond it is killed (exit status "
               "137).",
               "ask for more: srun --mem=0 or --mem-per-cpu; containers: --memory");
}

static void tell_processors(const struct hly_probe *p)
{
    char text[64];
    struct place at;
    double quota = -1, period = 100000;
    if (!find_place(p, "cpu", &at))
        return;
    struct place again = at;
    if (read_up(p, &at, "cpu.max", text, sizeof text)) {
        char *end = text;
        quota = *text == 'm' ? -1 : strtod(text, &end);
        period = quota < 0 ? period : strtod(end, NULL);
    } else if (read_up(p, &again, "cpu.cfs_quota_us", text, sizeof text)) {
        quota = strtod(text, NULL);
        if (read_up(p, &again, "cpu.cfs_period_us", text, sizeof text))
            period = strtod(text, NULL);
    }
    if (quota <= 0 || period <= 0) {
        hly_find(p->report, HLY_GOOD, "cgroup.cpu", "", "no quota");
        return;
    }
    struct hly_finding *f =
        hly_find(p->report, HLY_NOTE, "cgroup.cpu", "", "%.3g processors' time", quota / period);
    hly_advise(f,
               "Ranks that use it up stand still until the next period (0.1 s as a rule), and all "
               "others wait for them.",
               "bind to whole processors instead (cpuset): srun --cpus-per-task; containers: "
               "--cpuset-cpus in place of --cpus");
}

static void tell_processes(const struct hly_probe *p)
{
    static const char *files[2] = {"pids.max", "pids.max"};
    struct place where = {"", ""};
    uint64_t limit = least(p, "pids", files, &where);
    if (limit >= 1024)
        return;
    struct hly_finding *f = hly_find(p->report, HLY_WARNING, "cgroup.pids", where.path,
                                     "%llu processes and threads", (unsigned long long)limit);
    hly_advise(f, "Ranks, data loaders and their threads all count.",
               "containers: --pids-limit=-1; systemd: TasksMax=infinity");
}

static void tell_rdma(const struct hly_probe *p)
{
    char text[1024];
    struct place at;
    if (!find_place(p, "rdma", &at) || !read_up(p, &at, "rdma.max", text, sizeof text) ||
        !strpbrk(text, "0123456789=") || !strstr(text, "hca_"))
        return;
    const char *limit = strstr(text, "hca_object=");
    if (!limit || limit[11] == 'm')
        return;
    struct hly_finding *f = hly_find(p->report, HLY_WARNING, "cgroup.rdma", at.path, "%s", text);
    hly_advise(f, "Each connection and each registered piece of memory is one object.",
               "raise it: echo \"DEVICE hca_object=max\" >.../rdma.max");
}

void hly_probe_cgroup(const struct hly_probe *p)
{
    tell_memory(p);
    tell_processors(p);
    tell_processes(p);
    tell_rdma(p);
}
