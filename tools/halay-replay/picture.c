/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c - SVG by hand: rectangles, arrows and words. Colours: green is done, orange waits, red
 * is to blame, grey has not begun or is the program's code. */
#define _GNU_SOURCE
#include "picture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 32, LEFT = 190, TIMES = 420, GAP = 30, LINE = 44, BAR = 18, TOP = 70, CELL = 26 };

struct picture {
    FILE *out;
    const hly_flights_t *flights;
    const hly_question_t *question;
    const hly_replay_t *replay; /* or NULL */
    const hly_blame_t *blames;
    uint32_t nblames, nlines;
    uint64_t from_ns, to_ns; /* since 1970 */
    uint32_t nsteps;         /* of the rank that has most */
    double cell;             /* how wide a step is */
};

static void escape(FILE *out, const char *text)
{
    for (; *text; text++)
        if (strchr("<>&\"", *text))
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
}

static void put_text(FILE *out, double x, double y, const char *style, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    escape(out, text);
    fputs("</text>\n", out);
}

static void put_box(FILE *out, double x, double y, double width, const char *colour,
                    const char *title)
{
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\" "
            "stroke=\"#fff\" stroke-width=\"0.5\"><title>",
            x, y, width > 0.8 ? width : 0.8, BAR, colour);
    escape(out, title);
    fputs("</title></rect>\n", out);
}

static int is_blamed(const struct picture *p, int rank)
{
    for (uint32_t i = 0; i < p->nblames; i++)
        if (p->blames[i].rank == rank)
            return 1;
    return 0;
}

/* ---------------------------------------------------------------- calls over time */

static double at_time(const struct picture *p, uint64_t ns)
{
    if (ns <= p->from_ns)
        return LEFT;
    const double share = (double)(ns - p->from_ns) / (double)(p->to_ns - p->from_ns);
    return LEFT + TIMES * (share < 1 ? share : 1);
}

/* From a little before the call that does not end was made. */
static void find_times(struct picture *p)
{
    p->to_ns = hly_flights_now(p->flights);
    p->from_ns = p->to_ns;
    for (uint32_t i = 0; i < p->flights->n; i++) {
        const hly_flight_t *f = p->flights->list[i];
        for (uint32_t c = 0; c < f->ncalls; c++) {
            const halay_record_call_t *call = &f->calls[c];
            const uint64_t began = call->started_ns + f->head.epoch_ns;
            if (call->comm == p->question->comm && call->sequence == p->question->sequence &&
                began < p->from_ns)
                p->from_ns = began;
        }
    }
    p->from_ns -= (p->to_ns - p->from_ns) / 4 + 1000000u;
    p->to_ns += 1;
}

static void draw_calls(const struct picture *p, const hly_flight_t *f, double y)
{
    for (uint32_t c = 0; c < f->ncalls; c++) {
        const halay_record_call_t *call = &f->calls[c];
        const int under_way = call->state == HALAY_RECORD_POSTED;
        const uint64_t end = under_way ? p->to_ns : call->ended_ns + f->head.epoch_ns;
        char text[128], title[160];
        if (end < p->from_ns)
            continue;
        hly_flight_call_text(f, call, text, sizeof text);
        snprintf(title, sizeof title, "call %u, %s", call->sequence, text);
        const double x = at_time(p, call->started_ns + f->head.epoch_ns);
        put_box(p->out, x, y, at_time(p, end) - x,
                under_way                            ? "#f0a030"
                : call->state == HALAY_RECORD_FAILED ? "#c0392b"
                                                     : "#5a9e6f",
                title);
    }
}

/* ---------------------------------------------------------------- steps */

static uint32_t rank_in_call(const struct picture *p, int world)
{
    for (uint32_t r = 0; p->replay && r < p->replay->nranks; r++)
        if (p->replay->world[r] == world)
            return r;
    return UINT32_MAX;
}

static double at_step(const struct picture *p, uint32_t step)
{
    return LEFT + TIMES + GAP + p->cell * step;
}

static const hly_flight_t *on_line(const struct picture *p, uint32_t line)
{
    return p->flights->list[line];
}

/* The wait of this rank in the call; NULL: none is recorded. */
static const halay_record_wait_t *wait_of(const struct picture *p, const hly_flight_t *f)
{
    hly_standing_t s;
    hly_flight_stand(f, &s);
    return s.wait && s.wait->comm == p->question->comm && s.wait->sequence == p->question->sequence
               ? s.wait
               : NULL;
}

static int is_waited_in(const halay_record_wait_t *w, uint32_t step)
{
    for (uint32_t e = 0; w && e < w->nedges; e++)
        if (w->edges[e].step == step)
            return 1;
    return 0;
}

static void draw_steps(const struct picture *p, const hly_flight_t *f, double y)
{
    static const char *const kinds[] = {"?",      "SEND to", "RECV from", "COPY",
                                        "REDUCE", "JOIN",    "GROUP"};
    static const char *const letters[] = {"?", "S", "R", "C", "+", "J", "G"};
    const uint32_t r = rank_in_call(p, f->head.rank);
    const halay_record_wait_t *w = wait_of(p, f);
    if (r == UINT32_MAX)
        return;
    const halay_plan_t *plan = p->replay->plans[r];
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        const halay_step_t *s = &plan->steps[i];
        const int message = s->kind == HALAY_STEP_SEND || s->kind == HALAY_STEP_RECV;
        const uint32_t at = s->kind <= HALAY_STEP_GROUP ? s->kind : 0;
        const char *kind = kinds[at];
        char title[96];
        if (message)
            snprintf(title, sizeof title, "step %u, %s rank %d, edge %u", i, kind,
                     p->replay->world[s->peer], s->edge);
        else
            snprintf(title, sizeof title, "step %u, %s", i, kind);
        put_box(p->out, at_step(p, i), y, p->cell,
                p->replay->done[r][i] ? "#5a9e6f"
                : is_waited_in(w, i)  ? "#f0a030"
                                      : "#d8d8d8",
                title);
        if (p->cell >= 10)
            put_text(p->out, at_step(p, i) + p->cell / 2, y + 13,
                     "text-anchor=\"middle\" font-size=\"10\"", letters[at]);
    }
}

/* The other end of the message that this edge waits for. */
static uint32_t other_end(const struct picture *p, const halay_record_edge_t *edge, uint32_t mine,
                          uint32_t theirs)
{
    const uint16_t kind = edge->kind == HALAY_STEP_RECV ? HALAY_STEP_SEND : HALAY_STEP_RECV;
    const halay_plan_t *plan = p->replay->plans[theirs];
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind && plan->steps[i].peer == mine &&
            plan->steps[i].edge == edge->edge)
            return i;
    return 0;
}

static void draw_edges(const struct picture *p, uint32_t line)
{
    const hly_flight_t *f = on_line(p, line);
    const halay_record_wait_t *w = wait_of(p, f);
    const uint32_t mine = rank_in_call(p, f->head.rank);
    for (uint32_t e = 0; w && mine != UINT32_MAX && e < w->nedges; e++) {
        uint32_t other = 0;
        const uint32_t theirs = rank_in_call(p, w->edges[e].peer);
        while (other < p->nlines && on_line(p, other)->head.rank != w->edges[e].peer)
            other++;
        if (w->edges[e].peer < 0 || theirs == UINT32_MAX || other == p->nlines || other == line)
            continue;
        const double y0 = TOP + LINE * line + (other > line ? BAR : 0);
        const double y1 = TOP + LINE * other + (other > line ? 0 : BAR);
        const double x0 = at_step(p, w->edges[e].step) + p->cell / 2;
        const double x1 = at_step(p, other_end(p, &w->edges[e], mine, theirs)) + p->cell / 2;
        const int bad = is_blamed(p, w->edges[e].peer);
        fprintf(p->out,
                "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" "
                "stroke=\"%s\" stroke-width=\"%s\" marker-end=\"url(#%s)\"><title>rank %d waits "
                "for rank %d, edge %u</title></path>\n",
                x0, y0, x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1, bad ? "#c0392b" : "#806020",
                bad ? "2.5" : "1.2", bad ? "red" : "brown", f->head.rank, w->edges[e].peer,
                w->edges[e].edge);
    }
}

/* ---------------------------------------------------------------- all of it */

static void draw_head(const struct picture *p, double width, double height)
{
    char text[256];
    fprintf(p->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<defs>",
            width, height, width, height);
    static const char *const arrows[][2] = {{"red", "#c0392b"}, {"brown", "#806020"}};
    for (int i = 0; i < 2; i++)
        fprintf(p->out,
                "<marker id=\"%s\" markerWidth=\"10\" markerHeight=\"10\" refX=\"8\" refY=\"4\" "
                "orient=\"auto\" markerUnits=\"userSpaceOnUse\"><path d=\"M0 0 L8 4 L0 8 z\" "
                "fill=\"%s\"/></marker>",
                arrows[i][0], arrows[i][1]);
    fputs("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", p->out);
    hly_flights_question_text(p->flights, p->question, text, sizeof text);
    put_text(p->out, 10, 22, "font-size=\"14\" font-weight=\"bold\"", text);
    snprintf(text, sizeof text, "calls of the last %.2f s", (double)(p->to_ns - p->from_ns) / 1e9);
    put_text(p->out, LEFT, TOP - 12, "fill=\"#555\"", text);
    if (p->nsteps)
        put_text(p->out, at_step(p, 0), TOP - 12, "fill=\"#555\"",
                 "steps of this call, and who waits for whom");
}

static void draw_legend(const struct picture *p, double y)
{
    static const char *const words[][2] = {{"#5a9e6f", "done"},
                                           {"#f0a030", "waits"},
                                           {"#c0392b", "failed, or to blame"},
                                           {"#d8d8d8", "not begun"}};
    double x = LEFT;
    for (int i = 0; i < 4; i++) {
        put_box(p->out, x, y, 18, words[i][0], words[i][1]);
        put_text(p->out, x + 23, y + 13, "fill=\"#555\"", words[i][1]);
        x += 50 + 7.0 * (double)strlen(words[i][1]);
    }
    if (p->nsteps)
        put_text(p->out, x, y + 13, "fill=\"#555\"",
                 "S send, R receive, + reduce, C copy, J join, G group");
}

static void draw_line(const struct picture *p, uint32_t line)
{
    const hly_flight_t *f = on_line(p, line);
    const int bad = is_blamed(p, f->head.rank);
    const double y = TOP + LINE * line;
    char text[512];
    snprintf(text, sizeof text, "rank %d on %.20s", f->head.rank, f->head.host);
    put_text(p->out, 10, y + 13, bad ? "fill=\"#c0392b\" font-weight=\"bold\"" : "", text);
    fprintf(p->out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"%s\" "
            "stroke-width=\"%d\"/>\n",
            LEFT, y + BAR / 2.0, LEFT + TIMES, y + BAR / 2.0, bad ? "#c0392b" : "#bbb",
            bad ? 3 : 1);
    draw_calls(p, f, y);
    draw_steps(p, f, y);
    hly_flight_text(f, p->to_ns, text, sizeof text);
    text[strcspn(text, ";")] = '\0'; /* the steps are seen */
    text[76] = '\0';
    put_text(p->out, LEFT, y + BAR + 12,
             bad ? "font-size=\"10\" fill=\"#c0392b\"" : "font-size=\"10\" fill=\"#777\"", text);
}

static void draw(struct picture *p)
{
    find_times(p);
    p->nlines = p->flights->n < LINES ? p->flights->n : LINES;
    for (uint32_t r = 0; p->replay && r < p->replay->nranks; r++)
        if (p->replay->plans[r]->nsteps > p->nsteps)
            p->nsteps = p->replay->plans[r]->nsteps;
    p->cell = p->nsteps > 20 ? 20.0 * CELL / p->nsteps : CELL;
    const double steps = GAP + p->cell * p->nsteps;
    const double height = TOP + LINE * p->nlines + 40;
    draw_head(p, LEFT + TIMES + (steps > 340 ? steps : 340) + 20, height);
    for (uint32_t i = 0; i < p->nlines; i++)
        draw_line(p, i);
    for (uint32_t i = 0; i < p->nlines; i++)
        draw_edges(p, i);
    draw_legend(p, height - 30);
    if (p->flights->n > p->nlines)
        put_text(p->out, 10, height - 16, "fill=\"#555\"", "more ranks are not shown");
    fputs("</svg>\n", p->out);
}

int hly_picture_draw(const char *path, const hly_flights_t *flights, const hly_question_t *question,
                     const hly_replay_t *replay, const hly_blame_t *blames, uint32_t nblames)
{
    struct picture p = {.flights = flights,
                        .question = question,
                        .replay = replay,
                        .blames = blames,
                        .nblames = nblames};
    p.out = fopen(path, "w");
    if (p.out)
        draw(&p);
    const int bad = !p.out || ferror(p.out);
    if ((p.out && fclose(p.out)) || bad) {
        fprintf(stderr, "halay-replay: the picture could not be written to %s: %s\n", path,
                strerror(errno));
        if (p.out)
            unlink(path); /* no part of it is left */
        return -1;
    }
    return 0;
}
