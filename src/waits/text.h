/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - builds the sentence that all notices of long waits share: "X has waited for 1.0 s for Y:
 * A; B; and 2 more. If that stays so it ends with an error in 29 s at the latest". The caller adds
 * the parts in order.
 */
#ifndef HLY_WAITS_TEXT_H
#define HLY_WAITS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HLY_NAMED_MOST 4 /* names in a list; the others are only counted */
#define HLY_FAR_NS     UINT64_C(31557600000000000) /* a year: nobody waits so long */
#define HLY_ENDS       "it ends with an error"

/* A text in its caller's buffer. A part that does not fit is cut, and later parts are dropped. The
 * text ends with a whole UTF-8 character. */
struct hly_line {
    char *text;
    size_t bytes, used; /* size of the buffer, with the final 0; bytes written */
    int named, more;    /* entries of the current list: named, and only counted */
};

/* bytes: 1 or more. */
struct hly_line hly_line(char *text, size_t bytes);
__attribute__((format(printf, 2, 3))) void hly_line_put(struct hly_line *line, const char *format,
                                                        ...);
/* The length of the longest prefix of at most `most` bytes that ends with a whole UTF-8
 * character. */
size_t hly_line_whole(const char *text, size_t most);

/* "WHO has waited for 1.0 s"; who: format of WHO */
__attribute__((format(printf, 3, 4))) void
hly_line_waited(struct hly_line *line, uint64_t waited_ns, const char *who, ...);
/* ". If that stays so it ends with an error in 29 s at the latest", if end_ns is after now_ns.
 * outcome: what happens then. */
void hly_line_until(struct hly_line *line, const char *outcome, uint64_t end_ns, uint64_t now_ns);

enum hly_line_of { HLY_LINE_RECV, HLY_LINE_PROBE, HLY_LINE_SEND };
/* "recv(source 3, tag 99)"; with the name of the program's function "MPI_Recv(source 3, tag 99)" or
 * "MPI_Wait: recv(source 3, tag 99)". peer, tag: -1: any. name: or "". */
void hly_line_message(struct hly_line *line, const char *name, enum hly_line_of of, int peer,
                      int tag);
/* Counts the next entry of a list. True: the caller writes its name now; `between` stands before it
 * already, unless it is the first. */
bool hly_line_next(struct hly_line *line, const char *between);
/* The same for a range of ranks, and writes it: "3", or "3-5". False: the ranks were only
 * counted. */
bool hly_line_ranks(struct hly_line *line, int first, int last);
/* "rank 3 (pid 7: stopped; not in halay_init)"; pid 0: no process of that rank is seen. */
void hly_line_process(struct hly_line *line, const char *what, int number, int64_t pid,
                      const char *doing, bool entered);
/* Ends the list: writes ", and 2 more" if not all entries are named. */
void hly_line_more(struct hly_line *line, const char *between);

#endif
