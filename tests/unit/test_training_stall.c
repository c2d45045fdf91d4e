/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_training_stall.c - notices: on all ranks, of who has not submitted what and where the
 * program would; few lines, and no round while nothing is missing.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>

#include "training_ranks.h"

#define WAIT_S 60 /* the test's timeout */

/* ------------------------------------------------------------------ what is printed */

static int printed_fd, kept_fd;

static void print_begin(void)
{
    fflush(stderr);
    kept_fd = dup(2);
    printed_fd = memfd_create("printed", 0);
    CHECK(kept_fd >= 0 && printed_fd >= 0 && dup2(printed_fd, 2) == 2, "no memfd");
}

/* All of it so far, for the caller to free. */
static char *printed(void)
{
    off_t bytes = lseek(printed_fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)bytes + 1);
    CHECK(text && pread(printed_fd, text, (size_t)bytes, 0) == bytes, "not read");
    return text;
}

/* It becomes the test's own output, in which a failure is looked for. */
static void print_end(void)
{
    char *text = printed();
    dup2(kept_fd, 2);
    close(kept_fd);
    close(printed_fd);
    fputs(text, stderr);
    free(text);
}

static int lines_with(const char *text, int rank, const char *word)
{
    char head[64], line[2048];
    int count = 0;
    snprintf(head, sizeof(head), "halay: rank %d: ", rank);
    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, "\n");
        CHECK(bytes < sizeof(line), "a line of %zu bytes", bytes);
        memcpy(line, at, bytes);
        line[bytes] = 0;
        count += !strncmp(line, head, strlen(head)) && strstr(line, word);
        at += bytes + (at[bytes] == '\n');
    }
    return count;
}

/* Until this rank has said the word. */
static void await_word(int rank, const char *word)
{
    for (uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + WAIT_S * UINT64_C(1000000000);;) {
        char *text = printed();
        if (lines_with(text, rank, word) > 0) {
            free(text);
            return;
        }
        if (clock_ns(CLOCK_MONOTONIC) > end_ns) {
            dup2(kept_fd, 2);
            CHECK(0, "rank %d does not say '%s' in: %s", rank, word, text);
        }
        free(text);
        usleep(20000);
    }
}

static void want(const char *text, int rank, const char *word, int least, int most)
{
    int found = lines_with(text, rank, word);
    if (found < least || found > most)
        dup2(kept_fd, 2);
    CHECK(found >= least && found <= most, "rank %d says '%s' %d times in: %s", rank, word, found,
          text);
}

/* ------------------------------------------------------------------ bodies */

static halay_ticket_t submit(struct rank *rank, const char *name, int64_t *value)
{
    halay_ticket_t ticket;
    *value = rank->rank + 1;
    int rc = halay_trainer_allreduce(rank->trainer, name, value, value, 1, HALAY_INT64, HALAY_SUM,
                                     1, 1, &ticket);
    CHECK(!rc, "submit '%s': %d", name, rc);
    return ticket;
}

static void finish_sum(struct rank *rank, halay_ticket_t ticket, const int64_t *value)
{
    finish(rank, ticket, 0);
    CHECK(*value == rank->nranks * (rank->nranks + 1) / 2, "sum is %lld", (long long)*value);
}

static uint64_t rounds(struct rank *rank)
{
    halay_trainer_counters_t counters = {.size = sizeof(counters)};
    CHECK(!halay_trainer_counters(rank->trainer, &counters), "counters");
    return counters.control_rounds;
}

/* Rank 1 is late: it says so, nobody else does, and nothing is lost. */
static void late(struct rank *rank)
{
    int64_t value;
    char place[32];
    snprintf(place, sizeof(place), "train.py:%d", 40 + rank->rank);
    CHECK(!halay_trainer_place(rank->trainer, "late", place, 1), "place");
    CHECK(!halay_trainer_place(rank->trainer, "late", "never.py:1", 1), "the first counts");
    if (rank->rank == 1)
        await_word(1, "'late' not submitted by rank 1 (");
    halay_ticket_t ticket = submit(rank, "late", &value);
    finish_sum(rank, ticket, &value);
    meet(rank);
    char *text = printed();
    for (int r = 0; r < rank->nranks; r++) {
        want(text, r, "has waited for", r == 1, r == 1 ? 12 : 0);
        want(text, r, "(train.py:4", r == 1, r == 1 ? 12 : 0);
        want(text, r, "submitted it before, first at train.py:41", r == 1, r == 1 ? 12 : 0);
        want(text, r, "never.py", 0, 0);
    }
    free(text);
}

/* Ranks wait for each other: each is told what it waits for itself. */
static void crossed(struct rank *rank)
{
    int64_t values[2];
    const char *names[2] = {"even", "odd"};
    int mine = rank->rank % 2;
    halay_ticket_t first = submit(rank, names[mine], &values[0]);
    await_word(1, "'even' not submitted by rank 1 (");
    await_word(0, "'odd' not submitted by rank 0 (");
    meet(rank);
    halay_ticket_t second = submit(rank, names[!mine], &values[1]);
    finish_sum(rank, second, &values[1]);
    finish_sum(rank, first, &values[0]);
    meet(rank);
    char *text = printed();
    want(text, 0, ". This rank waits for 'even'", 1, 12);
    want(text, 0, "'even' not submitted", 0, 0);
    want(text, 1, ". This rank waits for 'odd'", 1, 12);
    free(text);
}

/* A rank that stands still costs a line, not one a tensor. */
static void many(struct rank *rank)
{
    enum { TENSORS = 200 };
    static __thread int64_t values[TENSORS];
    halay_ticket_t tickets[TENSORS];
    char name[32];
    if (rank->rank == 0)
        await_word(0, " more not submitted by rank 0 (");
    for (int t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof(name), "many.%d", t);
        tickets[t] = submit(rank, name, &values[t]);
    }
    for (int t = 0; t < TENSORS; t++)
        finish_sum(rank, tickets[t], &values[t]);
    meet(rank);
    char *text = printed();
    for (int r = 0; r < rank->nranks; r++)
        want(text, r, "not submitted by", r == 0, r == 0 ? 24 : 0);
    free(text);
}

/* Steps repeat without a round; one that is not repeated is noticed, and then they do again. */
static void replayed(struct rank *rank)
{
    enum { TENSORS = 6, STEPS = 60, ODD = 30 };
    static __thread int64_t values[TENSORS];
    halay_ticket_t tickets[TENSORS];
    uint64_t before = 0, after;
    char name[32];
    for (int step = 0; step < STEPS; step++) {
        if (step == ODD - 15 || step == STEPS - 15)
            before = rounds(rank);
        for (int t = 0; t < TENSORS; t++) {
            if (step == ODD && rank->rank == 1 && t == 3)
                await_word(1, "'step.3' and 2 more not submitted by rank 1 (");
            snprintf(name, sizeof(name), "step.%d", t);
            tickets[t] = submit(rank, name, &values[t]);
        }
        for (int t = 0; t < TENSORS; t++)
            finish_sum(rank, tickets[t], &values[t]);
        after = rounds(rank);
        if (step == ODD - 1 || step == STEPS - 1)
            CHECK(after == before, "%d rounds in 15 steps", (int)(after - before));
    }
}

static void off(struct rank *rank)
{
    int64_t value;
    if (rank->rank == 1)
        usleep(600000);
    halay_ticket_t ticket = submit(rank, "late", &value);
    finish_sum(rank, ticket, &value);
    meet(rank);
    char *text = printed();
    CHECK(!strstr(text, "halay: rank"), "it is off: %s", text);
    free(text);
}

static void places(struct rank *rank)
{
    char name[32], path[300];
    memset(path, 'x', sizeof(path));
    strcpy(path + sizeof(path) - 6, ".py:9");
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "once.%d", i % 700);
        CHECK(!halay_trainer_place(rank->trainer, name, path, 0), "place");
    }
    CHECK(!halay_trainer_place(rank->trainer, "late", path, 1), "place");
    CHECK(halay_trainer_place(rank->trainer, "", path, 1) == HALAY_EINVAL, "no name");
    CHECK(halay_trainer_place(rank->trainer, NULL, path, 1) == HALAY_EINVAL, "no name");
    CHECK(halay_trainer_place(rank->trainer, "a", NULL, 1) == HALAY_EINVAL, "no place");
    CHECK(halay_trainer_place(NULL, "a", path, 1) == HALAY_EINVAL, "no trainer");
    int64_t value;
    if (rank->rank == 0)
        await_word(0, "xxxxx.py:9)");
    halay_ticket_t ticket = submit(rank, "late", &value);
    finish_sum(rank, ticket, &value);
}

static void run(int nranks, const char *stall_s, void (*body)(struct rank *rank))
{
    setenv("HALAY_STALL", stall_s, 1);
    print_begin();
    run_ranks(nranks, "120", body);
    print_end();
}

int main(void)
{
    unsetenv("HALAY_DEBUG");
    run(3, "0.2", late);
    run(2, "0.2", crossed);
    run(2, "0.3", many);
    run(2, "2", replayed); /* no rank is off its processor for so long */
    run(2, "0", off);
    run(2, "0.2", places);
    setenv("HALAY_DEBUG", "error", 1);
    run(2, "0.1", off);
    unsetenv("HALAY_DEBUG");
    return 0;
}
