/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - halay-replay: what the flight records of a job say. Where each rank stood, who waited
 * for whom, who kept the call from its end; and that it was so, by running the plans on.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <halay/halay.h>

#include "../common/printed.h"
#include "picture.h"
#include "run.h"

enum { HLY_EXIT_USAGE = 2, SHOWN = 64, DRAWN = 16, BLAMED = 16, QUESTIONS = 8 };

static const char help[] =
    "Usage: halay-replay [--draw PICTURE.svg] FILE...   flight records: halay-record.JOB.RANK\n"
    "       halay-replay [--draw PICTURE.svg] JOB       a job that runs on this machine: its\n"
    "                                                   name, or a process of it\n"
    "       halay-replay --help | --version\n"
    "Says where each rank stood, who waited for whom, names who kept the call from its end,\n"
    "and runs the call's plans on from the recorded steps: without that rank they stop where the\n"
    "records say, with it they end. --draw: the first such call as a picture.\n"
    "Exit status: 0; 1 a file is no flight record, or there is no such job; 2 wrong usage.\n";

static void print(void *arg, const char *text)
{
    (void)arg;
    puts(text);
}

/* ---------------------------------------------------------------- who waits for whom */

static int edge_of(const hly_flight_t *f, const hly_question_t *q, const halay_record_edge_t **edge)
{
    hly_standing_t s;
    hly_flight_stand(f, &s);
    *edge = NULL;
    if (!s.wait || s.wait->comm != q->comm || s.wait->sequence != q->sequence)
        return 0;
    for (uint32_t e = 0; e < s.wait->nedges && !*edge; e++)
        if (s.wait->edges[e].kind == HALAY_STEP_RECV)
            *edge = &s.wait->edges[e];
    for (uint32_t e = 0; e < s.wait->nedges && !*edge; e++)
        if (s.wait->edges[e].peer >= 0)
            *edge = &s.wait->edges[e];
    return *edge != NULL;
}

/* "rank 3 (step 1, edge 0) -> rank 1 (step 3, edge 1) -> rank 0". */
static void draw(const hly_flights_t *flights, const hly_question_t *q)
{
    const halay_record_edge_t *edge;
    for (uint32_t i = 0; i < flights->n && i < DRAWN; i++) {
        const hly_flight_t *f = flights->list[i];
        if (!edge_of(f, q, &edge))
            continue;
        printf("  rank %d", f->head.rank);
        for (uint32_t length = 0; f && length < flights->n && edge_of(f, q, &edge); length++) {
            printf(" (step %u, edge %u) -> rank %d", edge->step, edge->edge, edge->peer);
            f = NULL;
            for (uint32_t k = 0; k < flights->n; k++)
                if (flights->list[k]->head.rank == edge->peer)
                    f = flights->list[k];
        }
        putchar('\n');
    }
}

/* ---------------------------------------------------------------- forward */

static void list_ranks(const hly_replay_t *replay, const uint32_t *stuck, int through)
{
    uint32_t shown = 0;
    for (uint32_t r = 0; r < replay->nranks; r++)
        if ((stuck[r] == replay->plans[r]->nsteps) == through && shown++ < SHOWN)
            printf(" %d", replay->world[r]);
    puts(shown > SHOWN ? " ..." : shown ? "" : " none");
}

/* "rank 2"; "ranks 2 and 3", "those 5 ranks" */
static void name_blamed(const hly_blame_t *blames, uint32_t n, char *text, size_t bytes)
{
    if (n == 1)
        snprintf(text, bytes, "rank %d", blames[0].rank);
    else if (n == 2)
        snprintf(text, bytes, "ranks %d and %d", blames[0].rank, blames[1].rank);
    else
        snprintf(text, bytes, "those %u ranks", n);
}

static void judge(const hly_flights_t *flights, const hly_replay_t *replay,
                  const hly_blame_t *blames, uint32_t nblames, uint32_t without, uint32_t with)
{
    char who[64], lacking[64];
    name_blamed(blames, nblames, who, sizeof who);
    if (replay->machine.verdict != HLY_RIGHT)
        printf("  the simulator stops: %s. These plans are wrong, or the records are.\n",
               replay->machine.why);
    else if (with < replay->nranks)
        printf(
            "  even if all ranks go on, %u of %u do not end: the records do not tell the cause\n",
            replay->nranks - with, replay->nranks);
    else if (nblames && without < with)
        printf("  when %s goes on too, all %u ranks end with the right result: %s the cause\n",
               nblames == 1 ? who : "each of them", with, nblames == 1 ? "it was" : "they were");
    else if (hly_flights_lacking(flights, lacking, sizeof lacking))
        printf("  if all go on, all %u ranks end with the right result: what keeps them is a rank "
               "of which no record is here, or under way\n",
               with);
    else
        printf("  if all go on, all %u ranks end with the right result: no rank keeps the others, "
               "so what keeps them is under way: messages, or a device\n",
               with);
}

/* path: NULL, or where to draw it. 0, or -1: the picture could not be written. */
static int run_on(const hly_flights_t *flights, const hly_question_t *q, const hly_blame_t *blames,
                  uint32_t nblames, const char *path)
{
    hly_replay_t replay;
    uint32_t *stuck = NULL;
    char who[64];
    if (hly_replay_init(&replay, flights, q) || !(stuck = calloc(replay.nranks, sizeof *stuck))) {
        printf("not simulated: %s\n", replay.why);
        hly_replay_finish(&replay);
        return path ? hly_picture_draw(path, flights, q, NULL, blames, nblames) : 0;
    }
    const int rc = path ? hly_picture_draw(path, flights, q, &replay, blames, nblames) : 0;
    for (uint32_t r = 0; r < replay.nranks; r++)
        for (uint32_t b = 0; b < nblames; b++)
            replay.frozen[r] |= blames[b].rank >= 0 && replay.world[r] == blames[b].rank;
    puts("simulated, from the recorded steps on:");
    const uint32_t without = hly_replay_run(&replay, stuck);
    name_blamed(blames, nblames, who, sizeof who);
    if (nblames) {
        printf("  while %s %s nothing, these ranks do not end:", who, nblames == 1 ? "does" : "do");
        list_ranks(&replay, stuck, 0);
    }
    memset(replay.frozen, 0, replay.nranks);
    judge(flights, &replay, blames, nblames, without, hly_replay_run(&replay, stuck));
    free(stuck);
    hly_replay_finish(&replay);
    return rc;
}

/* *path: NULL, or where the first call is to be drawn; NULL then. */
static int tell(const hly_flights_t *job, const char **path)
{
    int rc = 0;
    hly_question_t questions[QUESTIONS];
    hly_blame_t blames[BLAMED];
    char text[256];
    const halay_record_head_t *h = &job->list[0]->head;
    printf("job %s: records of %u of %d ranks\n", h->job, job->n, h->nranks);
    hly_flights_tell(job, SHOWN, print, NULL);
    for (uint32_t i = 0; i < job->n && i < SHOWN; i++) {
        const hly_flight_t *f = job->list[i];
        if (f->nverdicts)
            printf("rank %d was told: %s\n", f->head.rank, f->verdicts[f->nverdicts - 1].text);
    }
    const uint32_t n = hly_flights_questions(job, questions, QUESTIONS);
    for (uint32_t q = 0; q < n; q++) {
        const uint32_t found = hly_flights_blame(job, &questions[q], blames, BLAMED);
        hly_flights_question_text(job, &questions[q], text, sizeof text);
        printf("\n%s: who waits for whom\n", text);
        draw(job, &questions[q]);
        rc |= run_on(job, &questions[q], blames, found, *path);
        *path = NULL;
    }
    if (!n)
        puts("no rank was in a call");
    return rc;
}

/* ---------------------------------------------------------------- what is given */

static int read_files(int argc, char **argv, hly_flights_t *flights)
{
    int status = 0;
    for (int i = 0; i < argc; i++) {
        hly_flight_t *flight = malloc(sizeof *flight);
        if (flight && hly_flight_read_file(argv[i], flight) == 0) {
            status |= hly_flights_add(flights, flight);
        } else {
            free(flight);
            status = 1;
        }
    }
    hly_flights_sort(flights);
    return status != 0;
}

static int work(int argc, char **argv)
{
    hly_flights_t all = {0};
    struct stat is;
    if (argc == 2 && !strcmp(argv[1], "--help"))
        return fputs(help, stdout) < 0;
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("halay-replay, Halay %s\n", halay_version()) < 0;
    const char *path = NULL;
    if (argc > 2 && !strcmp(argv[1], "--draw")) {
        path = argv[2];
        argv += 2;
        argc -= 2;
    }
    argc--;
    argv++;
    if (argc < 1 || argv[0][0] == '-') {
        fputs(help, stderr);
        return HLY_EXIT_USAGE;
    }
    int status = argc == 1 && stat(argv[0], &is) ? hly_flights_find(argv[0], &all)
                                                 : read_files(argc, argv, &all);
    if (!all.n) {
        fprintf(stderr,
                "halay-replay: '%s' is no flight record, and no job or process that has one\n",
                argv[0]);
        status = 1;
    }
    for (uint32_t i = 0, n; i < all.n; i += n) {
        for (n = 1; i + n < all.n && !strcmp(all.list[i]->head.job, all.list[i + n]->head.job);)
            n++;
        const hly_flights_t job = {all.list + i, n};
        status |= tell(&job, &path) != 0;
    }
    if (path && all.n) {
        fprintf(stderr, "halay-replay: no picture: no rank was in a call\n");
        status = 1;
    }
    hly_flights_free(&all);
    return status;
}

int main(int argc, char **argv)
{
    return hly_printed("halay-replay", work(argc, argv), EXIT_FAILURE);
}
