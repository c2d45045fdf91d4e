/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which receive gets which message: every sequence of LENGTH receives and messages, of two sources
 * and two tags, against MPI's rules as a list says them; then longer ones, drawn, with removals.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/tags.h"

#define LENGTH 5
#define MOST   400

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* What has happened, in order. */
struct entry {
    struct hly_tag at;
    bool receive, gone;
    int source, tag;
};
static struct entry entries[MOST];
static int n;
static struct hly_tags tags;

static bool fits(const struct entry *receive, const struct entry *message)
{
    return (receive->source == HLY_ANY || receive->source == message->source) &&
           (receive->tag == HLY_ANY || receive->tag == message->tag);
}

/* The oldest entry of the other kind that is not gone, and fits; NULL: there is none. */
static struct entry *expected(const struct entry *e)
{
    for (int i = 0; i < n; i++) {
        struct entry *o = &entries[i];
        if (o->receive != e->receive && !o->gone && (e->receive ? fits(e, o) : fits(o, e)))
            return o;
    }
    return NULL;
}

static void happens(bool receive, int source, int tag)
{
    struct entry *e = &entries[n];
    *e = (struct entry){.receive = receive, .source = source, .tag = tag};
    struct entry *want = expected(e);
    struct hly_tag *found = receive ? hly_tags_message_for(&tags, source, tag)
                                    : hly_tags_receive_for(&tags, source, tag);
    CHECK(found == (want ? &want->at : NULL), "%s (%d, %d), the %d-th: another one is matched",
          receive ? "receive" : "message", source, tag, n);
    if (found) {
        hly_tags_remove(found);
        want->gone = e->gone = true;
    } else if (receive) {
        hly_tags_add_receive(&tags, &e->at, source, tag);
    } else {
        hly_tags_add_message(&tags, &e->at, source, tag);
    }
    n++;
}

/* Event 0 to 8: a receive of sources and tags -1 to 1; 9 to 12: a message. */
static void event(int number)
{
    if (number < 9)
        happens(true, number / 3 - 1, number % 3 - 1);
    else
        happens(false, (number - 9) / 2, (number - 9) % 2);
}

static void every_sequence(void)
{
    long all = 1;
    for (int i = 0; i < LENGTH; i++)
        all *= 13;
    for (long sequence = 0; sequence < all; sequence++) {
        long rest = sequence;
        n = 0;
        hly_tags_init(&tags);
        for (int i = 0; i < LENGTH; i++, rest /= 13)
            event((int)(rest % 13));
    }
}

static uint32_t drawn(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static void long_ones(void)
{
    uint64_t state = 1;
    for (int round = 0; round < 300; round++) {
        const uint32_t sources = 1 + drawn(&state, 70), ntags = 1 + drawn(&state, 5);
        n = 0;
        hly_tags_init(&tags);
        while (n < MOST) {
            const bool receive = drawn(&state, 2);
            const int source = receive && !drawn(&state, 5) ? HLY_ANY : (int)drawn(&state, sources);
            const int tag = receive && !drawn(&state, 5) ? HLY_ANY : (int)drawn(&state, ntags);
            happens(receive, source, tag);
            struct entry *e = &entries[drawn(&state, (uint32_t)n)];
            if (!drawn(&state, 8) && !e->gone) { /* a receive is cancelled, a message is taken */
                hly_tags_remove(&e->at);
                e->gone = true;
            }
        }
    }
}

int main(void)
{
    every_sequence();
    long_ones();
    printf("%d receives and messages in every order, and 300 long sequences: all is well\n",
           LENGTH);
    return 0;
}
