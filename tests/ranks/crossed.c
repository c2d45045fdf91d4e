/* SPDX-License-Identifier: Apache-2.0 */
#include "crossed.h"

#include <stdio.h>
#include <string.h>

static uint64_t random_next(uint64_t *state) /* splitmix64 (S. Vigna) */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* ---------------------------------------------------------------- groups */

bool crossed_has(const struct crossed *p, int comm, int me, int other)
{
    const int half = (p->nranks + 1) / 2;
    return comm < 2 || (comm == 2 ? me % 2 == other % 2 : (me < half) == (other < half));
}

int crossed_member(const struct crossed *p, int comm, int me, int rank)
{
    for (int i = 0, at = 0; i < p->nranks; i++) {
        const int r = comm == 3 ? p->nranks - 1 - i : i;
        if (crossed_has(p, comm, me, r) && at++ == rank)
            return r;
    }
    return -1;
}

static int size_of(const struct crossed *p, int comm, int me)
{
    int n = 0;
    for (int r = 0; r < p->nranks; r++)
        n += crossed_has(p, comm, me, r);
    return n;
}

int crossed_group(const struct crossed *p, int comm, int me)
{
    int low = 0;
    while (!crossed_has(p, comm, me, low))
        low++;
    return comm * CROSSED_RANKS + low;
}

int crossed_root(const struct crossed *p, int me, const struct crossed_call *c)
{
    return c->root % size_of(p, c->comm, me);
}

static bool is_equal(const struct crossed *p, int me, const struct crossed_call *a,
                     const struct crossed_call *b)
{
    const bool rooted = a->kind == CROSSED_BROADCAST || a->kind == CROSSED_REDUCE;
    const bool reduces = a->kind == CROSSED_ALLREDUCE || a->kind == CROSSED_REDUCE;
    if (a->kind != b->kind || a->kind == CROSSED_BARRIER)
        return a->kind == b->kind;
    return a->count == b->count && a->other_type == b->other_type &&
           (!reduces || a->other_op == b->other_op) &&
           (!rooted || crossed_root(p, me, a) == crossed_root(p, me, b));
}

/* ---------------------------------------------------------------- drawing */

enum how { NOTHING, SKIP, EXTRA, SWAP, ROOT, NUMBER, TYPE, OP, COMM, EARLY, HOWS };

static const char *const hows[HOWS] = {"nothing", "skip", "extra", "swap", "root",
                                       "count",   "type", "op",    "comm", "early end"};

static void insert(struct crossed_call *list, int *n, int at)
{
    if (*n == CROSSED_CALLS)
        return;
    memmove(&list[at + 1], &list[at], (size_t)(*n - at) * sizeof(*list));
    ++*n;
}

static void cut(struct crossed_call *list, int *n, int at)
{
    --*n;
    memmove(&list[at], &list[at + 1], (size_t)(*n - at) * sizeof(*list));
}

static void deviate(struct crossed_call *list, int *n, enum how how, int at)
{
    struct crossed_call *c = &list[at], was = *c;
    int other = at;
    switch (how) {
    case SKIP:
        cut(list, n, at);
        return;
    case EXTRA:
        insert(list, n, at);
        return;
    case SWAP:
        while (other + 1 < *n && list[other].comm == c->comm)
            other++;
        *c = list[other];
        list[other] = was;
        return;
    case EARLY:
        *n = at;
        return;
    case COMM:
        c->comm = (c->comm + 1) % CROSSED_COMMS;
        return;
    default:
        c->root += how == ROOT;
        c->count += how == NUMBER;
        c->other_type = c->other_type != (how == TYPE);
        c->other_op = c->other_op != (how == OP);
    }
}

static uint64_t below(uint64_t *s, int n)
{
    return random_next(s) % (uint64_t)n;
}

static void model(struct crossed *p);

void crossed_draw(struct crossed *p, uint64_t seed, int nranks)
{
    uint64_t s = seed * 1000003 + 17;
    struct crossed_call base[CROSSED_CALLS - 2];
    const int n = 4 + (int)below(&s, CROSSED_CALLS - 5);
    memset(p, 0, sizeof(*p));
    p->seed = seed;
    p->nranks = 3 + (int)below(&s, CROSSED_RANKS - 2);
    p->nranks = nranks ? nranks : p->nranks;
    p->posted = below(&s, 4) == 0;
    p->leaves = below(&s, 2);
    for (int i = 0; i < n; i++)
        base[i] = (struct crossed_call){.comm = (int)below(&s, CROSSED_COMMS),
                                        .kind = (int)below(&s, CROSSED_KINDS),
                                        .count = 1 + (int)below(&s, CROSSED_COUNT - 1),
                                        .root = (int)below(&s, CROSSED_RANKS)};
    for (int r = 0; r < p->nranks; r++) {
        memcpy(p->list[r], base, (size_t)n * sizeof(base[0]));
        p->n[r] = n;
    }
    const int deviants = (int)below(&s, 8) == 0 ? 0 : 1 + (below(&s, 3) == 0);
    for (int d = 0, used = 0; d < deviants; d++) {
        const int r = (int)below(&s, p->nranks);
        const enum how how = SKIP + (enum how)below(&s, HOWS - 1);
        const int at = (int)below(&s, p->n[r] ? p->n[r] : 1);
        if (p->n[r])
            deviate(p->list[r], &p->n[r], how, at);
        used += snprintf(p->what + used, sizeof(p->what) - (size_t)used, "%s%d: %s at %d",
                         d ? ", " : "", r, hows[how], at);
    }
    model(p);
}

void crossed_order(const struct crossed *p, int me, int order[CROSSED_CALLS])
{
    uint64_t s = p->seed * 31 + (uint64_t)me;
    for (int i = 0; i < p->n[me]; i++)
        order[i] = i;
    for (int i = p->n[me] - 1; i > 0; i--) {
        const int j = (int)below(&s, i + 1), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
}

/* ---------------------------------------------------------------- the model */

/* Blocking calls: all whose ranks are all in it complete, until there are no more. */
static bool step_group(struct crossed *p, int comm, int me, int at[CROSSED_RANKS])
{
    bool all = true, equal = true;
    const struct crossed_call *mine = &p->list[me][at[me]];
    for (int r = 0; r < p->nranks; r++) {
        if (!crossed_has(p, comm, me, r))
            continue;
        const bool here = at[r] < p->n[r] && p->list[r][at[r]].comm == comm;
        all = all && here;
        equal =
            equal &&
            (!here || (is_equal(p, me, mine, &p->list[r][at[r]]) && p->end[r] == CROSSED_WAITS));
    }
    if (!all && equal)
        return false;
    for (int r = 0; r < p->nranks; r++)
        if (crossed_has(p, comm, me, r) && at[r] < p->n[r] && p->list[r][at[r]].comm == comm) {
            if (equal)
                at[r]++;
            else
                p->end[r] = CROSSED_DIFFER;
        }
    p->wrong = p->wrong || !equal;
    return equal;
}

static void model_blocking(struct crossed *p)
{
    int at[CROSSED_RANKS] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->nranks; r++)
            if (p->end[r] == CROSSED_WAITS && at[r] < p->n[r])
                moved |= step_group(p, p->list[r][at[r]].comm, r, at);
    }
    for (int r = 0; r < p->nranks; r++) {
        p->end_at[r] = at[r];
        if (at[r] == p->n[r])
            p->end[r] = CROSSED_DONE;
        else
            p->wrong = true;
    }
}

/* The n-th call of this rank on the communicator; NULL: it has none. */
static const struct crossed_call *nth(const struct crossed *p, int comm, int r, int n)
{
    for (int i = 0; i < p->n[r]; i++)
        if (p->list[r][i].comm == comm && n-- == 0)
            return &p->list[r][i];
    return NULL;
}

static void model_posted(struct crossed *p)
{
    for (int comm = 0; comm < CROSSED_COMMS; comm++)
        for (int me = 0; me < p->nranks; me++)
            for (int k = 0; k < CROSSED_CALLS; k++)
                for (int r = 0; r < p->nranks; r++) {
                    const struct crossed_call *a = nth(p, comm, me, k), *b = nth(p, comm, r, k);
                    if (crossed_has(p, comm, me, r) && a)
                        p->wrong = p->wrong || !b || !is_equal(p, me, a, b);
                }
    for (int r = 0; r < p->nranks; r++)
        p->end[r] = CROSSED_DONE;
}

static void model(struct crossed *p)
{
    if (p->posted)
        model_posted(p);
    else
        model_blocking(p);
}

bool crossed_is_wrong(const struct crossed *p)
{
    return p->wrong;
}

/* ---------------------------------------------------------------- who may be blamed */

static bool waits(const struct crossed *p, int r)
{
    return p->end[r] == CROSSED_WAITS;
}

bool crossed_waits_for(const struct crossed *p, int a, int b)
{
    if (p->end[a] == CROSSED_DONE || a == b)
        return false;
    const int comm = p->list[a][p->end_at[a]].comm;
    const bool here = p->end[b] != CROSSED_DONE && p->list[b][p->end_at[b]].comm == comm;
    return crossed_has(p, comm, a, b) && !here;
}

/* Does this rank wait, directly or not, for one that does not? */
static bool leads_to_end(const struct crossed *p, int from)
{
    bool seen[CROSSED_RANKS] = {false};
    seen[from] = true;
    for (int i = 0; i < p->nranks; i++)
        for (int a = 0; a < p->nranks; a++)
            for (int b = 0; seen[a] && b < p->nranks; b++)
                seen[b] = seen[b] || crossed_waits_for(p, a, b);
    for (int r = 0; r < p->nranks; r++)
        if (seen[r] && !waits(p, r))
            return true;
    return false;
}

static bool may_blame(const struct crossed *p, int me, int i, int blamed)
{
    if (p->posted || i != p->end_at[me] || !waits(p, me))
        return true;
    bool end_here = false;
    for (int r = 0; r < p->nranks; r++)
        end_here = end_here || (crossed_waits_for(p, me, r) && !waits(p, r));
    if (end_here)
        return !waits(p, blamed);
    return leads_to_end(p, blamed);
}

/* Does this rank wait for one that is in the last call of `me`? */
static bool closes(const struct crossed *p, int me, int blamed)
{
    for (int r = 0; r < p->nranks; r++)
        if ((r == me || (waits(p, r) && !crossed_waits_for(p, me, r) &&
                         crossed_has(p, p->list[me][p->end_at[me]].comm, me, r))) &&
            crossed_waits_for(p, blamed, r))
            return true;
    return false;
}

bool crossed_is_just(const struct crossed *p, int me, int i, int blamed, const char *text)
{
    if (blamed < 0 || strstr(text, "it has left after a call of it") || may_blame(p, me, i, blamed))
        return true;
    return strstr(text, "it waits in ") && waits(p, blamed) && !closes(p, me, blamed);
}

const char *crossed_end_name(enum crossed_end end)
{
    return end == CROSSED_WAITS ? "waits" : end == CROSSED_DIFFER ? "differs" : "done";
}

const char *crossed_text(const struct crossed_call *c)
{
    static char text[8][24];
    static int next;
    static const char names[] = "ABRGx";
    char *t = text[next++ % 8];
    snprintf(t, 24, "%c%d%s%s", names[c->kind], c->kind == CROSSED_BARRIER ? 0 : c->count,
             c->other_type ? "t" : "", c->other_op ? "o" : "");
    return t;
}
