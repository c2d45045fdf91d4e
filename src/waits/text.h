/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - the one sentence of all notices: "X has waited for 1.0 s for Y: A; B; and 2 more. If
 * that stays so it ends with an error in 29 s at the latest". Its caller puts its parts in order.
 */
#ifndef HLY_WAITS_TEXT_H
#define HLY_WAITS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HLY_NAMED_MOST 4 /* in a list; the others are counted */
#define HLY_ENDS       "it ends with an error"

/* A text in its caller's buffer. What has no room is left out, and so is all that follows. The text
 * ends with a whole character of UTF-8. */
struct hly_line {
    char *text;
    size_t bytes, used; /* its room, with the 0 at its end; and how many are in it */
    int named, more;    /* in the list that is being written */
};

/* bytes: 1 or more. */
struct hly_line hly_line(char *text, size_t bytes);
__attribute__((format(printf, 2, 3))) void hly_line_put(struct hly_line *line, const char *format,
                                                        ...);
/* How many bytes of a text to take, if so many are the most: whole characters. */
size_t hly_line_whole(const char *text, size_t most);

/* "WHO has waited for 1.0 s" */
__attribute__((format(printf, 3, 4))) void
hly_line_waited(struct hly_line *line, uint64_t waited_ns, const char *who, ...);
/* "halay_init has waited for 1.0 s for 2 of the 4 ranks of node HOST: " */
void hly_line_of_node(struct hly_line *line, uint64_t waited_ns, int n, int of, const char *host);
/* ". If that stays so it ends with an error in 29 s at the latest", if that is still to come.
 * outcome: what happens then. */
void hly_line_until(struct hly_line *line, const char *outcome, uint64_t end_ns, uint64_t now_ns);

/* Is the next one in the list to be named? Then `between` is put before it, except for the first.
 */
bool hly_line_next(struct hly_line *line, const char *between);
/* The same of ranks: "3", or "3-5". True: they are named. */
bool hly_line_ranks(struct hly_line *line, int first, int last);
/* "rank 3 (pid 7: stopped; not in halay_init)"; pid 0: none is seen. */
void hly_line_process(struct hly_line *line, const char *what, int number, int64_t pid,
                      const char *doing, bool entered);
/* ", and 2 more", if not all are named; and the list is over. */
void hly_line_more(struct hly_line *line, const char *between);

#endif
