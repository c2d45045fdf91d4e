/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - finds the best of a few settings by successive halving (Jamieson and Talwalkar, 2016).
 * It measures all for some steps, the better half of them for twice as many, and so on. It then
 * measures the last one and the default alternately, and takes the last one if it is better by
 * LEAST_GAIN.
 *
 * Setting 0 is the default. Times are of the slowest rank: after a round, and at the end, the ranks
 * reduce hlt_search_words() by the largest, so all decide alike.
 */
#ifndef HLT_SEARCH_H
#define HLT_SEARCH_H

#include <stddef.h>
#include <stdint.h>

enum {
    HLT_SETTINGS = 8,
    HLT_TURNS = 9,         /* blocks of the default, and as many of its last rival */
    HLT_BLOCK_STEPS = 128, /* most steps of a block that are timed */
    HLT_SEARCH_WORDS = 2 * HLT_TURNS
};

struct hlt_search {
    int nsettings, steps;
    uint32_t alive;  /* a bit a setting; the default's is always set */
    int round;       /* the search doubles the steps in each */
    int at;          /* the setting being measured; in turns: the number of the block */
    int rival;       /* in turns: the default's last rival; else 0 */
    int over, found; /* over: the search has ended, and `found` is its result */
    double gain;     /* over: 1 - time / time of the default; 0 if the default is taken */
    /* time of a step: by setting; in turns by block, the default's first */
    double ns[HLT_SEARCH_WORDS];
};

void hlt_search_begin(struct hlt_search *search, int nsettings, int steps);
/* The setting to measure next, or the one found; and for how many steps. */
int hlt_search_setting(const struct hlt_search *search);
int hlt_search_steps(const struct hlt_search *search);
/* A block is over, in which a step took ns. 1: the ranks have to reduce the words now. */
int hlt_search_block(struct hlt_search *search, double ns);
size_t hlt_search_words(const struct hlt_search *search);
/* The reduction of the words has ended. */
void hlt_search_agreed(struct hlt_search *search);

/* The median, of an odd or even number; changes the order. */
double hlt_median(double *values, size_t count);

#endif
