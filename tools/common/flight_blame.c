/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight_blame.c - who keeps a call from its end. A rank that has not made it; else one whose
 * process is gone or stopped; else one that others wait for while it waits for nobody.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <halay/plan.h>

#include "flight.h"

/* ---------------------------------------------------------------- which call */

static int is_in_call(const hly_standing_t *s)
{
    return s->call && (s->where == HLY_IN_CALL || s->where == HLY_IN_FAILED);
}

uint32_t hly_flights_questions(const hly_flights_t *flights, hly_question_t *questions,
                               uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < flights->n; i++) {
        hly_standing_t s;
        uint32_t q = 0;
        hly_flight_stand(flights->list[i], &s);
        if (!is_in_call(&s))
            continue;
        while (q < n && questions[q].comm != s.call->comm)
            q++;
        if (q == most)
            continue;
        if (q == n)
            questions[n++] = (hly_question_t){s.call->comm, s.call->sequence, NULL};
        if ((int32_t)(s.call->sequence - questions[q].sequence) < 0)
            questions[q].sequence = s.call->sequence;
        if (!questions[q].members)
            questions[q].members = hly_flight_comm(flights->list[i], s.call->comm);
    }
    return n;
}

/* ---------------------------------------------------------------- who */

struct search {
    const hly_flights_t *flights;
    const hly_question_t *question;
    uint64_t now_ns;
    hly_blame_t *blames;
    uint32_t n, most;
};

static const hly_flight_t *flight_of(const hly_flights_t *flights, int rank)
{
    for (uint32_t i = 0; i < flights->n; i++)
        if (flights->list[i]->head.rank == rank)
            return flights->list[i];
    return NULL;
}

static void blame(struct search *s, const hly_flight_t *flight, const char *what)
{
    const int rank = flight->head.rank;
    char story[512];
    for (uint32_t i = 0; i < s->n; i++)
        if (s->blames[i].rank == rank)
            return;
    if (s->n == s->most)
        return;
    hly_flight_text(flight, s->now_ns, story, sizeof story);
    hly_blame_t *b = &s->blames[s->n++];
    *b = (hly_blame_t){.rank = rank};
    snprintf(b->text, sizeof b->text, "rank %d %s: %.180s", rank, what, story);
}

/* Is it known to belong to the communicator of the question? One that has not made that yet, or has
 * not come to halay_init(), is known by the numbers of the others. */
static int is_member(const hly_question_t *q, const hly_flight_t *f)
{
    if (hly_flight_comm(f, q->comm))
        return 1;
    const halay_record_comm_t *m = q->members;
    if (!m || !m->stride)
        return 0;
    const int64_t at = (int64_t)f->head.rank - m->first;
    return at % m->stride == 0 && at / m->stride >= 0 && at / m->stride < m->nranks;
}

/* Blames those that have not made it. One that waits in a call of another communicator is not to
 * blame while others are: they keep that one. */
static void look_for_absent(struct search *s)
{
    for (int calls = 0; calls < 2 && !s->n; calls++) {
        for (uint32_t i = 0; i < s->flights->n; i++) {
            const hly_flight_t *f = s->flights->list[i];
            hly_standing_t stands;
            hly_flight_stand(f, &stands);
            if (is_member(s->question, f) &&
                !hly_flight_made(f, s->question->comm, s->question->sequence) &&
                (calls || !is_in_call(&stands)))
                blame(s, f, "has not made the call");
        }
    }
}

/* Where all have made it. */
static void look_for_still(struct search *s)
{
    for (int weak = 0; weak < 2 && !s->n; weak++) {
        for (uint32_t i = 0; i < s->flights->n; i++) {
            const hly_flight_t *f = s->flights->list[i];
            const int killed = f->head.ended && WIFSIGNALED((int)(f->head.ended - 1));
            const int still = killed || f->head.stopped ||
                              (f->process && strchr("TtZX", f->process) && !f->head.ended);
            if (is_member(s->question, f) && (weak ? f->head.ended != 0 : still))
                blame(s, f, weak ? "ended" : "does not go on");
        }
    }
}

static void look_at_edges(struct search *s)
{
    for (uint32_t i = 0; i < s->flights->n; i++) {
        hly_standing_t stands, peers;
        hly_flight_stand(s->flights->list[i], &stands);
        if (!is_in_call(&stands) || !stands.wait || stands.call->comm != s->question->comm ||
            stands.call->sequence != s->question->sequence)
            continue;
        for (uint32_t e = 0; e < stands.wait->nedges; e++) {
            const halay_record_edge_t *edge = &stands.wait->edges[e];
            const hly_flight_t *f = edge->peer >= 0 ? flight_of(s->flights, edge->peer) : NULL;
            if (f)
                hly_flight_stand(f, &peers);
            if (f && (!is_in_call(&peers) || !peers.wait))
                blame(s, f, "keeps the others waiting");
        }
    }
}

uint32_t hly_flights_blame(const hly_flights_t *flights, const hly_question_t *question,
                           hly_blame_t *blames, uint32_t most)
{
    struct search s = {flights, question, hly_flights_now(flights), blames, 0, most};
    look_for_absent(&s);
    if (!s.n)
        look_for_still(&s);
    if (!s.n)
        look_at_edges(&s);
    return s.n;
}

/* ---------------------------------------------------------------- agreements */

/* The agreements that do not end, as `question` names them; returns how many. */
static uint32_t survivors_of(const hly_flights_t *flights, hly_question_t *questions, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < flights->n; i++) {
        hly_standing_t s;
        uint32_t q = 0;
        hly_flight_stand(flights->list[i], &s);
        if (s.where != HLY_IN_AGREEMENT)
            continue;
        while (q < n && (questions[q].comm != s.agreement->comm ||
                         questions[q].sequence != s.agreement->number))
            q++;
        if (q == n && n < most)
            questions[n++] = (hly_question_t){s.agreement->comm, s.agreement->number,
                                              hly_flight_comm(flights->list[i], s.agreement->comm)};
    }
    return n;
}

/* Has it called this agreement? *ended: and is out of it. */
static int is_in_agreement(const hly_flight_t *f, const hly_question_t *q, int *ended)
{
    *ended = 0;
    for (uint32_t i = 0; i < HALAY_RECORD_AGREEMENTS; i++) {
        const halay_record_agreement_t *a = &f->head.agreements[i];
        if (!a->what || a->comm != q->comm || (int32_t)(a->number - q->sequence) < 0)
            continue;
        *ended = a->ended_ns || a->number != q->sequence;
        return 1;
    }
    return 0;
}

/* Whom those in it await, except for those who await others in it. */
static void look_at_agreement(struct search *s)
{
    for (uint32_t i = 0; i < s->flights->n; i++) {
        hly_standing_t stands;
        hly_flight_stand(s->flights->list[i], &stands);
        const halay_record_agreement_t *a = stands.agreement;
        if (stands.where != HLY_IN_AGREEMENT || a->comm != s->question->comm ||
            a->number != s->question->sequence)
            continue;
        for (uint32_t k = 0; k < a->nawaited && k < HALAY_RECORD_AWAITED; k++) {
            const hly_flight_t *f = flight_of(s->flights, a->awaited[k]);
            int ended = 0;
            if (!f)
                continue;
            const int made = is_in_agreement(f, s->question, &ended);
            const int still =
                f->head.stopped || f->head.ended || (f->process && strchr("TtZX", f->process));
            if (!made)
                blame(s, f, "has not called it");
            else if (ended || still)
                blame(s, f, still ? "does not go on" : "keeps the others waiting");
        }
    }
}

static void survivors_tell(const hly_flights_t *flights, uint64_t now_ns,
                           void (*line)(void *arg, const char *text), void *arg)
{
    char text[640];
    hly_question_t questions[8];
    const uint32_t n = survivors_of(flights, questions, 8);
    for (uint32_t q = 0; q < n; q++) {
        hly_blame_t blames[8];
        struct search s = {flights, &questions[q], now_ns, blames, 0, 8};
        const halay_record_comm_t *m = questions[q].members;
        look_at_agreement(&s);
        snprintf(text, sizeof text, "agreement %u of communicator %016llx (%d ranks)%s",
                 questions[q].sequence, (unsigned long long)questions[q].comm, m ? m->nranks : 0,
                 s.n ? ":" : ": no rank is seen that would keep it from its end");
        line(arg, text);
        for (uint32_t b = 0; b < s.n; b++) {
            snprintf(text, sizeof text, "  %s", blames[b].text);
            line(arg, text);
        }
    }
}

/* ---------------------------------------------------------------- messages */

enum { MESSAGES = 8 }; /* that get a line */

static void messages_tell(const hly_flights_t *flights, uint64_t now_ns,
                          void (*line)(void *arg, const char *text), void *arg)
{
    char text[640], story[512];
    uint32_t n = 0;
    for (uint32_t i = 0; i < flights->n; i++) {
        hly_standing_t s;
        hly_flight_stand(flights->list[i], &s);
        if (s.where != HLY_IN_MESSAGE || s.place->peer < 0)
            continue;
        const hly_flight_t *f = flight_of(flights, s.place->peer);
        if (!f || n++ >= MESSAGES)
            continue;
        hly_flight_text(f, now_ns, story, sizeof story);
        snprintf(text, sizeof text, "rank %d waits for rank %d to %s a message: that is %s",
                 flights->list[i]->head.rank, s.place->peer,
                 s.place->in == HALAY_RECORD_IN_SEND ? "receive" : "send", story);
        line(arg, text);
    }
    if (n > MESSAGES) {
        snprintf(text, sizeof text, "and %u ranks more wait for messages", n - MESSAGES);
        line(arg, text);
    }
}

/* ---------------------------------------------------------------- the story of a job */

uint32_t hly_flights_lacking(const hly_flights_t *flights, char *text, size_t bytes)
{
    const int nranks = flights->n ? flights->list[0]->head.nranks : 0;
    uint32_t lacking = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < nranks; rank++) {
        int last = rank;
        if (flight_of(flights, rank))
            continue;
        while (last + 1 < nranks && !flight_of(flights, last + 1))
            last++;
        lacking += (uint32_t)(last - rank) + 1;
        if (used + 40 < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, last > rank ? "%s%d-%d" : "%s%d",
                                     used ? ", " : "", rank, last);
        } else if (used < bytes) {
            snprintf(text + used, bytes - used, ", ...");
            used = bytes;
        }
        rank = last;
    }
    return lacking;
}

static void lacking_tell(const hly_flights_t *flights, void (*line)(void *arg, const char *text),
                         void *arg)
{
    char ranks[200], text[320];
    const uint32_t n = hly_flights_lacking(flights, ranks, sizeof ranks);
    if (!n)
        return;
    snprintf(text, sizeof text, "no record of rank%s %s is here: nothing is known of %s",
             n == 1 ? "" : "s", ranks, n == 1 ? "it" : "them");
    line(arg, text);
}

/* Any of its ranks that has made it knows what it is. */
static int is_message(const hly_flights_t *flights, const hly_question_t *q)
{
    for (uint32_t i = 0; i < flights->n; i++)
        for (uint32_t k = 0; k < flights->list[i]->ncalls; k++)
            if (flights->list[i]->calls[k].comm == q->comm)
                return (flights->list[i]->calls[k].flags & HALAY_RECORD_PAIR) != 0;
    return 0;
}

void hly_flights_question_text(const hly_flights_t *flights, const hly_question_t *q, char *text,
                               size_t bytes)
{
    const halay_record_comm_t *m = q->members;
    if (m && m->nranks == 2 && is_message(flights, q))
        snprintf(text, bytes, "message %u from rank %d to rank %d", q->sequence, m->first,
                 m->first + m->stride);
    else
        snprintf(text, bytes, "call %u of communicator %016llx (%s%d ranks)", q->sequence,
                 (unsigned long long)q->comm,
                 m && m->nranks == flights->list[0]->head.nranks ? "all " : "", m ? m->nranks : 0);
}

void hly_flights_tell(const hly_flights_t *flights, uint32_t most,
                      void (*line)(void *arg, const char *text), void *arg)
{
    char text[640], story[512], stack[1280];
    hly_question_t questions[8];
    hly_blame_t blames[8];
    const uint64_t now = hly_flights_now(flights);
    for (uint32_t i = 0; i < flights->n && i < most; i++) {
        const halay_record_head_t *h = &flights->list[i]->head;
        hly_flight_text(flights->list[i], now, story, sizeof story);
        char pid[24] = "";
        if (h->pid)
            snprintf(pid, sizeof pid, "pid %d ", h->pid);
        snprintf(text, sizeof text, "rank %d (%son %.63s): %s", h->rank, pid, h->host, story);
        line(arg, text);
        for (uint32_t s = 0; s < flights->list[i]->nstacks; s++) {
            hly_flight_stack_text(flights->list[i], s, now, stack, sizeof stack);
            if (stack[0])
                line(arg, stack);
        }
    }
    if (flights->n > most) {
        snprintf(text, sizeof text, "and %u ranks more", flights->n - most);
        line(arg, text);
    }
    lacking_tell(flights, line, arg);
    survivors_tell(flights, now, line, arg);
    messages_tell(flights, now, line, arg);
    const uint32_t n = hly_flights_questions(flights, questions, 8);
    for (uint32_t q = 0; q < n; q++) {
        const uint32_t found = hly_flights_blame(flights, &questions[q], blames, 8);
        hly_flights_question_text(flights, &questions[q], story, sizeof story);
        snprintf(text, sizeof text, "%s%s", story,
                 found ? ":" : ": no rank is seen that would keep it from its end");
        line(arg, text);
        for (uint32_t b = 0; b < found; b++) {
            snprintf(text, sizeof text, "  %s", blames[b].text);
            line(arg, text);
        }
    }
}
