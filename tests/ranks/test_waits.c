/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices of who is missing: which rank gives them, whom it names, and that who waits too is never
 * named. Ranks are threads of one process, so none is ever stopped: tests/job/waits.sh.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

#define MS 1000000ull

struct scene {
    const char *name;
    int nranks;
    unsigned late;      /* bit r: rank r makes the call late, */
    unsigned elsewhere; /* or waits in another communicator meanwhile */
    int speaks;         /* who gives the notices; -1: there are none */
    int late_ms;
    const int *node_of_rank;
};

static const int nodes[8] = {0, 0, 0, 0, 1, 1, 1, 1};

static void nap(int ms)
{
    struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&ts, NULL);
}

static void play(struct rank *r)
{
    const struct scene *s = r->arg;
    halay_comm_t *other;
    int64_t in = r->rank, out;
    CHECK(!halay_comm_dup(r->world, &other), "dup");
    for (int round = 0; round < 2; round++)
        CHECK(!halay_allreduce(&in, &out, 1, HALAY_INT64, HALAY_SUM, r->world), "too early");
    if (s->late >> r->rank & 1)
        nap(s->late_ms);
    if (s->elsewhere >> r->rank & 1) { /* rank 0 comes there after a while */
        CHECK(!halay_barrier(other), "elsewhere");
    } else if (s->elsewhere) {
        halay_request_t *request;
        CHECK(!halay_iallreduce(&in, &out, 1, HALAY_INT64, HALAY_SUM, r->world, &request), "post");
        for (uint64_t end = ranks_now_ns() + (uint64_t)s->late_ms * MS; ranks_now_ns() < end;)
            CHECK(!halay_context_progress(r->context, 10 * MS), "progress");
        CHECK(!halay_barrier(other) && !halay_request_wait(request), "late");
    }
    if (!s->elsewhere || s->elsewhere >> r->rank & 1)
        CHECK(!halay_allreduce(&in, &out, 1, HALAY_INT64, HALAY_SUM, r->world), "late");
    CHECK(out == (int64_t)r->nranks * (r->nranks - 1) / 2, "wrong");
}

/* What the scene printed, of which the caller frees nothing. */
static const char *watch(const struct scene *s, bool shm)
{
    static char text[1 << 16];
    struct ranks_options o = {.nranks = s->nranks, .shm = shm, .node_of_rank = s->node_of_rank};
    const int was = dup(STDERR_FILENO), to = memfd_create("stderr", 0);
    CHECK(was >= 0 && to >= 0 && dup2(to, STDERR_FILENO) >= 0, "stderr");
    ranks_run(&o, play, (void *)(uintptr_t)s);
    CHECK(dup2(was, STDERR_FILENO) >= 0, "stderr");
    const ssize_t n = pread(to, text, sizeof(text) - 1, 0);
    CHECK(n >= 0, "what it said");
    text[n] = 0;
    close(was);
    close(to);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void judge(const struct scene *s, const char *text)
{
    char who[64];
    const int notices = count(text, "has waited for");
    const unsigned missing = s->late;
    snprintf(who, sizeof(who), "[rank %d on ", s->speaks);
    if (s->speaks < 0) {
        CHECK(!notices, "%s: %s", s->name, text);
        return;
    }
    CHECK(notices, "%s: no notice: %s", s->name, text);
    if (s->elsewhere) { /* all wait, for one another */
        CHECK(strstr(text, "rank 2 of 4 on inproc-node0 has not made this call: it is in another"),
              "%s: %s", s->name, text);
        CHECK(!count(text, "it is not in Halay"), "%s: %s", s->name, text);
        return;
    }
    CHECK(count(text, who) == notices, "%s: not of rank %d alone: %s", s->name, s->speaks, text);
    CHECK(notices <= 2, "%s: %d notices: %s", s->name, notices, text);
    for (int r = 0; r < s->nranks; r++) {
        snprintf(who, sizeof(who), " rank %d of %d on ", r, s->nranks);
        CHECK(!count(text, who) == !(missing >> r & 1), "%s: rank %d: %s", s->name, r, text);
    }
    CHECK(!count(text, "it is in another one"), "%s: %s", s->name, text);
    CHECK(count(text, "it is not in Halay"), "%s: %s", s->name, text);
}

int main(void)
{
    static const struct scene scenes[] = {
        {.name = "in time", .nranks = 4, .late = 4, .speaks = -1, .late_ms = 300},
        {.name = "one", .nranks = 4, .late = 4, .speaks = 0, .late_ms = 2500},
        {.name = "the first", .nranks = 4, .late = 1, .speaks = 1, .late_ms = 2500},
        {.name = "two", .nranks = 4, .late = 10, .speaks = 0, .late_ms = 2500},
        {.name = "of two", .nranks = 2, .late = 1, .speaks = 1, .late_ms = 2500},
        {.name = "of another node",
         .nranks = 8,
         .late = 32,
         .speaks = 0,
         .late_ms = 2500,
         .node_of_rank = nodes},
        {.name = "elsewhere", .nranks = 4, .elsewhere = 4, .speaks = 0, .late_ms = 2500},
    };
    unsetenv("HALAY_DEBUG");
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        for (int shm = 0; shm < 2; shm++)
            if (!shm || !scenes[i].node_of_rank)
                judge(&scenes[i], watch(&scenes[i], shm));
    setenv("HALAY_STALL", "0", 1);
    const struct scene off = {.name = "off", .nranks = 2, .late = 1, .speaks = -1, .late_ms = 1500};
    judge(&off, watch(&off, false));
    return 0;
}
