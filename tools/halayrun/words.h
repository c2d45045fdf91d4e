/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - last words: what the rank that began a failure has said of it, shown at the very end.
 */
#ifndef HALAYRUN_WORDS_H
#define HALAYRUN_WORDS_H

/* A file in memory that ranks append to. Tells them where in *env. Its descriptor, or -1. */
int hly_words_open(char ***env);

/* What was said is of no interest any more. Takes -1. */
void hly_words_forget(int fd);

/* Shows what was said first, if anything was, and closes it. Takes -1. */
void hly_words_close(int fd, int show);

#endif
