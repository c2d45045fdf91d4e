/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_timeline.c - timelines: what stands in the file, that nobody waits for it, and that
 * it is whole however it ends. tests/python/test_timeline.py reads the files as JSON.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "training_ranks.h"

static char folder[64];

static void path_of(char *path, const char *name, int rank)
{
    sprintf(path, "%s/%s.%d", folder, name, rank);
}

static char *contents(const char *path)
{
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0, "%s is not there", path);
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)bytes + 1);
    CHECK(text && pread(fd, text, (size_t)bytes, 0) == bytes, "not read");
    close(fd);
    return text;
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (; (text = strstr(text, word)) != NULL; text++)
        found++;
    return found;
}

static void whole(const char *path, const char *text)
{
    size_t bytes = strlen(text);
    CHECK(bytes > 4 && text[0] == '[' && !strcmp(text + bytes - 3, "\n]\n"), "%s: %s", path, text);
    CHECK(count(text, "\n") == count(text, "\n{\"ph\":\"") + 2, "%s: an event a line", path);
    CHECK(count(text, "\"END\"") == 1, "%s: the last event", path);
}

static void sum(struct rank *rank, halay_trainer_t *trainer, const char *name)
{
    int64_t value = rank->rank + 1;
    halay_ticket_t ticket;
    halay_trainer_t *kept = rank->trainer;
    CHECK(!halay_trainer_allreduce(trainer, name, &value, &value, 1, HALAY_INT64, HALAY_SUM, 1, 1,
                                   &ticket),
          "submit");
    rank->trainer = trainer;
    finish(rank, ticket, 0);
    rank->trainer = kept;
    CHECK(value == rank->nranks * (rank->nranks + 1) / 2, "sum is %lld", (long long)value);
}

static void step(struct rank *rank)
{
    enum { TENSORS = 4 };
    char name[32];
    float values[TENSORS][8] = {{0}};
    halay_ticket_t tickets[TENSORS + 2];
    for (int t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof(name), "a \"quoted\" \\ name.%d", t);
        CHECK(!halay_trainer_allreduce(rank->trainer, name, values[t], values[t], 8, HALAY_FLOAT32,
                                       HALAY_SUM, 1, 1, &tickets[t]),
              "submit");
    }
    CHECK(!halay_trainer_broadcast(rank->trainer, "b", values[0], 0, HALAY_FLOAT32, 0,
                                   &tickets[TENSORS]),
          "submit");
    CHECK(!halay_trainer_allgather(rank->trainer, "g", values[1], 1, 1, HALAY_FLOAT32,
                                   &tickets[TENSORS + 1]),
          "submit");
    for (int t = 0; t < TENSORS + 2; t++)
        finish(rank, tickets[t], 0);
}

static void phases(struct rank *rank)
{
    enum { STEPS = 40 };
    static const char *const want[] = {"\"NEGOTIATE_ALLREDUCE\"",
                                       "\"ALLREDUCE\"",
                                       "\"QUEUE\"",
                                       "\"HALAY_ALLREDUCE\"",
                                       "\"BROADCAST\"",
                                       "\"NEGOTIATE_ALLGATHER\"",
                                       "\"HALAY_ALLGATHER\"",
                                       "\"ROUND\"",
                                       "\"VOTE\"",
                                       "\"a step\"",
                                       "\"thread_name\"",
                                       "\"process_name\"",
                                       "\"fusion buffer\":",
                                       "a \\u0022quoted\\u0022 \\u005c name.3",
                                       "\"CYCLE_START\"",
                                       "\"MEMCPY_IN_FUSION_BUFFER\"",
                                       "\"MEMCPY_OUT_FUSION_BUFFER\"",
                                       "\"lost\":0"};
    char path[128];
    halay_timeline_result_t result = {.size = sizeof(result)};
    path_of(path, "phases", rank->rank);
    CHECK(!halay_trainer_timeline_start(rank->trainer, path, 1), "start");
    for (int i = 0; i < STEPS; i++) {
        uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);
        step(rank);
        CHECK(!halay_trainer_timeline_span(rank->trainer, "a step", begin_ns,
                                           clock_ns(CLOCK_MONOTONIC)),
              "span");
    }
    CHECK(!halay_trainer_timeline_stop(rank->trainer, &result), "stop");
    step(rank);
    char *text = contents(path);
    whole(path, text);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        CHECK(strstr(text, want[i]), "no %s in: %s", want[i], text);
    CHECK(count(text, "\"ALLREDUCE\"") == 4 * STEPS && count(text, "\"a step\"") == STEPS,
          "%d allreduces", count(text, "\"ALLREDUCE\""));
    CHECK(count(text, "\"NEGOTIATE_ALLREDUCE\"") < 4 * STEPS, "a replay negotiates nothing");
    CHECK(count(text, "\"thread_name\"") == 7 + 6, "a row a name: %s", text);
    CHECK(result.recorded && !result.lost && !result.error, "%d", result.error);
    free(text);
}

static void quiet(struct rank *rank)
{
    char path[128];
    path_of(path, "quiet", rank->rank);
    CHECK(!halay_trainer_timeline_start(rank->trainer, path, 0), "start");
    step(rank);
    CHECK(!halay_trainer_timeline_stop(rank->trainer, NULL), "stop");
    char *text = contents(path);
    whole(path, text);
    CHECK(!strstr(text, "CYCLE_START") && strstr(text, "\"ROUND\""), "not asked for: %s", text);
    free(text);
}

static void misuse(struct rank *rank)
{
    char path[128], label[40];
    halay_trainer_t *trainer = rank->trainer, *other;
    halay_timeline_result_t result = {.size = sizeof(result) - 1};
    path_of(path, "misuse", rank->rank);
    memset(label, 'l', sizeof(label));
    label[sizeof(label) - 1] = 0;
    CHECK(!halay_trainer_create(rank->context, rank->world, &other), "trainer");
    CHECK(halay_trainer_timeline_start(NULL, path, 0) == HALAY_EINVAL, "no trainer");
    CHECK(halay_trainer_timeline_start(trainer, "", 0) == HALAY_EINVAL, "no path");
    errno = 0;
    CHECK(halay_trainer_timeline_start(trainer, "/nowhere/at/all", 0) == HALAY_EINVAL &&
              errno == ENOENT,
          "no folder: %d", errno);
    CHECK(halay_trainer_timeline_stop(trainer, NULL) == HALAY_ESTATE, "none is on");
    CHECK(halay_trainer_timeline_share(other, trainer, "") == HALAY_ESTATE, "none is on");
    CHECK(!halay_trainer_timeline_span(trainer, "nothing", 1, 2), "none is on");
    CHECK(!halay_trainer_timeline_start(trainer, path, 0), "start");
    CHECK(halay_trainer_timeline_start(trainer, path, 0) == HALAY_ESTATE, "twice");
    CHECK(halay_trainer_timeline_share(other, trainer, label) == HALAY_EINVAL, "a long label");
    CHECK(halay_trainer_timeline_share(trainer, trainer, "") == HALAY_EINVAL, "itself");
    CHECK(halay_trainer_timeline_span(trainer, "back", 2, 1) == HALAY_EINVAL, "backwards");
    CHECK(halay_trainer_timeline_stop(trainer, &result) == HALAY_EINVAL, "a small struct");
    CHECK(!halay_trainer_timeline_stop(trainer, NULL), "stop");
    meet(rank);
    halay_trainer_destroy(other);
}

/* Two trainers, one file; the one that has begun it stops first, the other by being destroyed. */
static void shared(struct rank *rank)
{
    char path[128];
    halay_trainer_t *other;
    path_of(path, "shared", rank->rank);
    CHECK(!halay_trainer_create(rank->context, rank->world, &other), "trainer");
    CHECK(!halay_trainer_timeline_start(rank->trainer, path, 0), "start");
    CHECK(!halay_trainer_timeline_share(other, rank->trainer, "set 1 "), "share");
    CHECK(halay_trainer_timeline_share(other, rank->trainer, "x") == HALAY_ESTATE, "twice");
    sum(rank, rank->trainer, "same");
    sum(rank, other, "same");
    CHECK(!halay_trainer_timeline_stop(rank->trainer, NULL), "stop");
    sum(rank, other, "late");
    sum(rank, rank->trainer, "after");
    meet(rank);
    halay_trainer_destroy(other);
    char *text = contents(path);
    whole(path, text);
    CHECK(strstr(text, "\"same\"") && strstr(text, "\"set 1 same\"") &&
              strstr(text, "\"set 1 late\"") && !strstr(text, "after"),
          "rows: %s", text);
    free(text);
}

/* ------------------------------------------------------------------ a file that takes nothing */

struct reader {
    int fd;
    char last[4096]; /* what was read in the end */
};

static void *read_all(void *arg)
{
    struct reader *reader = arg;
    char some[65536];
    ssize_t bytes;
    while ((bytes = read(reader->fd, some, sizeof(some))) > 0) {
        size_t used = strlen(reader->last), room = sizeof(reader->last) - 1;
        size_t more = (size_t)bytes < room ? (size_t)bytes : room;
        size_t kept = used + more > room ? room - more : used;
        memmove(reader->last, reader->last + used - kept, kept);
        memcpy(reader->last + kept, some + bytes - more, more);
        reader->last[kept + more] = 0;
    }
    return NULL;
}

/* A pipe that nobody reads: all goes on, what is too much is counted. */
static void full(struct rank *rank)
{
    enum { BARRIERS = 80000 };
    char path[128], name[32];
    pthread_t thread;
    struct reader reader = {.fd = -1};
    halay_timeline_result_t result = {.size = sizeof(result)};
    path_of(path, "pipe", rank->rank);
    CHECK(!mkfifo(path, 0600), "no pipe");
    reader.fd = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(reader.fd >= 0 && !halay_trainer_timeline_start(rank->trainer, path, 0), "start");
    fcntl(reader.fd, F_SETFL, 0);
    for (int i = 0; i < BARRIERS; i++) {
        halay_ticket_t ticket;
        snprintf(name, sizeof(name), "b.%d", i % 70000);
        CHECK(!halay_trainer_barrier(rank->trainer, name, &ticket), "submit");
        finish(rank, ticket, 0);
    }
    CHECK(!pthread_create(&thread, NULL, read_all, &reader), "no thread");
    CHECK(!halay_trainer_timeline_stop(rank->trainer, &result), "stop");
    pthread_join(thread, NULL);
    close(reader.fd);
    char want[64];
    snprintf(want, sizeof(want), "\"lost\":%llu}}\n]\n", (unsigned long long)result.lost);
    CHECK(result.lost > 1000 && result.recorded >= 65536 && !result.error, "%llu lost",
          (unsigned long long)result.lost);
    CHECK(strstr(reader.last, want), "no %s in %s", want, reader.last);
}

/* As full(), of groups: a group is lost as a whole, and counted with its tensors. */
static void full_groups(struct rank *rank)
{
    enum { TENSORS = 256, WARM = 3, STEPS = 1100 };
    static float values[TENSORS];
    static char names[TENSORS][8];
    char path[128], want[64];
    pthread_t thread;
    struct reader reader = {.fd = -1};
    halay_ticket_t tickets[TENSORS];
    halay_timeline_result_t result = {.size = sizeof(result)};
    path_of(path, "groups", rank->rank);
    CHECK(!mkfifo(path, 0600), "no pipe");
    reader.fd = open(path, O_RDONLY | O_NONBLOCK);
    fcntl(reader.fd, F_SETFL, 0);
    for (int i = 0; i < WARM + STEPS; i++) {
        if (i == WARM)
            CHECK(!halay_trainer_timeline_start(rank->trainer, path, 0), "start");
        for (int t = 0; t < TENSORS; t++) {
            snprintf(names[t], sizeof(names[t]), "g.%d", t);
            CHECK(!halay_trainer_allreduce(rank->trainer, names[t], &values[t], &values[t], 1,
                                           HALAY_FLOAT32, HALAY_SUM, 1, 1, &tickets[t]),
                  "submit");
        }
        for (int t = 0; t < TENSORS; t++)
            finish(rank, tickets[t], 0);
    }
    CHECK(!pthread_create(&thread, NULL, read_all, &reader), "no thread");
    CHECK(!halay_trainer_timeline_stop(rank->trainer, &result), "stop");
    pthread_join(thread, NULL);
    close(reader.fd);
    CHECK(result.recorded + result.lost == STEPS * (TENSORS + 1), "%llu and %llu records",
          (unsigned long long)result.recorded, (unsigned long long)result.lost);
    CHECK(result.lost && result.lost % (TENSORS + 1) == 0, "%llu lost",
          (unsigned long long)result.lost);
    CHECK(result.recorded > 4 * 60000, "an entry takes a quarter of a cell: %llu",
          (unsigned long long)result.recorded);
    snprintf(want, sizeof(want), "\"lost\":%llu}}\n]\n", (unsigned long long)result.lost);
    CHECK(strstr(reader.last, want), "no %s in %s", want, reader.last);
}

/* Names that take many cells, over the end of the ring too, and one for which there is no room. */
static void spans(struct rank *rank)
{
    enum { BYTES = 3000, SPANS = 1500, TOO_LONG = 5 << 20 };
    char path[128], name[BYTES + 1];
    halay_timeline_result_t result = {.size = sizeof(result)};
    char *huge = calloc(1, TOO_LONG + 1);
    CHECK(huge, "memory");
    memset(huge, 'h', TOO_LONG);
    path_of(path, "spans", rank->rank);
    CHECK(!halay_trainer_timeline_start(rank->trainer, path, 0), "start");
    for (int i = 0; i < SPANS; i++) {
        size_t bytes = (size_t)i * 7 % BYTES;
        memset(name, 'n', bytes);
        name[bytes] = 0;
        if (bytes)
            name[0] = name[bytes - 1] = '"';
        CHECK(!halay_trainer_timeline_span(rank->trainer, name, 1, 2), "span");
    }
    CHECK(!halay_trainer_timeline_span(rank->trainer, huge, 1, 2), "a name that is too long");
    CHECK(!halay_trainer_timeline_stop(rank->trainer, &result), "stop");
    CHECK(result.recorded + result.lost == SPANS + 1 && result.lost, "%llu and %llu records",
          (unsigned long long)result.recorded, (unsigned long long)result.lost);
    char *text = contents(path);
    whole(path, text);
    CHECK(count(text, "\"ts\":") == (int)result.recorded + 1, "%d spans", count(text, "\"ts\":"));
    CHECK(count(text, "nn\\u0022\"}") > 100 && !strstr(text, "hhh"), "names");
    free(text);
    free(huge);
}

/* A limit on the size of files is told, and is no signal. */
static void limited(struct rank *rank)
{
    struct rlimit was, least;
    char path[128];
    halay_timeline_result_t result = {.size = sizeof(result)};
    path_of(path, "limited", rank->rank);
    CHECK(!getrlimit(RLIMIT_FSIZE, &was), "limit");
    least = (struct rlimit){.rlim_cur = 16, .rlim_max = was.rlim_max};
    CHECK(!setrlimit(RLIMIT_FSIZE, &least), "limit");
    CHECK(!halay_trainer_timeline_start(rank->trainer, path, 0), "start");
    CHECK(!halay_trainer_timeline_stop(rank->trainer, &result), "stop");
    CHECK(!setrlimit(RLIMIT_FSIZE, &was), "limit");
    CHECK(result.error == EFBIG, "error %d", result.error);
}

static void broken(struct rank *rank)
{
    halay_timeline_result_t result = {.size = sizeof(result)};
    CHECK(!halay_trainer_timeline_start(rank->trainer, "/dev/full", 0), "start");
    step(rank);
    CHECK(!halay_trainer_timeline_stop(rank->trainer, &result), "stop");
    CHECK(result.error == ENOSPC, "error %d", result.error);
}

/* ------------------------------------------------------------------ clocks */

/* Here all nodes have one clock: what was measured as the difference is its error. */
static void clocks(struct rank *rank)
{
    char path[128];
    long long offset = 0, error = -1;
    path_of(path, "clocks", rank->rank);
    CHECK(!halay_trainer_timeline_start(rank->trainer, path, 0), "start");
    step(rank);
    CHECK(!halay_trainer_timeline_stop(rank->trainer, NULL), "stop");
    char *text = contents(path), *at = strstr(text, "\"offset_ns\"");
    CHECK(at && sscanf(at, "\"offset_ns\":%lld,\"error_ns\":%lld", &offset, &error) == 2, "%s",
          text);
    CHECK(llabs(offset) <= error, "offset %lld ns, error %lld ns", offset, error);
    CHECK((error > 0) == (hub_nodes && hub_nodes[rank->rank] != hub_nodes[0]), "rank %d: %lld ns",
          rank->rank, error);
    free(text);
}

int main(void)
{
    static const int nodes[] = {0, 1, 0, 2};
    char command[96];
    snprintf(folder, sizeof(folder), "/tmp/halay-timeline-%d", (int)getpid());
    CHECK(!mkdir(folder, 0700), "no folder");
    run_ranks(1, "30", phases);
    run_ranks(3, "30", phases);
    run_ranks(2, "30", quiet);
    run_ranks(2, "30", misuse);
    run_ranks(2, "30", shared);
    run_ranks(1, "30", full);
    run_ranks(1, "30", full_groups);
    run_ranks(1, "30", spans);
    run_ranks(1, "30", broken);
    run_ranks(1, "30", limited);
    run_ranks(2, "30", clocks);
    hub_nodes = nodes;
    run_ranks(4, "30", clocks);
    hub_nodes = NULL;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK(!system(command), "the folder stays");
    return 0;
}
