/* SPDX-License-Identifier: Apache-2.0 */
/* note.h - what halayrun's parts share: messages, time, and its limits. */
#ifndef HALAYRUN_NOTE_H
#define HALAYRUN_NOTE_H

#include <stddef.h>
#include <stdint.h>

enum {
    HLY_RANKS_MAX = 1024,           /* started by halayrun itself */
    HLY_RANKS_HANDED_MAX = 1 << 20, /* started by another launcher */
    HLY_STARTERS_MAX = 1024,        /* hosts on which agents are started */
    HLY_EXIT_USAGE = 2,             /* the command line is wrong */
    HLY_EXIT_TIMEOUT = 124,
    HLY_EXIT_SELF = 125,    /* halayrun itself failed */
    HLY_EXIT_REFUSED = 126, /* the program was found and cannot be run */
    HLY_EXIT_MISSING = 127, /* the program was not found */
    HLY_EXIT_SIGNAL = 128   /* and the signal's number */
};

/* "halayrun: ..." and a newline on standard error, in one write. */
void hly_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Lines that belong to the last one. */
void hly_note_more(const char *text, size_t bytes);
/* From now on into this descriptor, too. -1: nothing can be written to it. */
int hly_note_copy(int fd);

/* Monotonic. */
int64_t hly_now_ms(void);

/* "SIGKILL"; "signal" for one without a well-known name. */
const char *hly_signal_name(int number);

#endif
