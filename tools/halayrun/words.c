/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.c - ranks print their errors as they come, and those that are lost through another's error
 * print theirs after it. A rank whose error is its own writes it here too, in one write that ends
 * with a zero; words in HALAY_JOB names the file. What comes first is the cause. The file has no
 * name but that of halayrun's descriptor, and ends with halayrun.
 */
#define _GNU_SOURCE
#include "words.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../common/job.h"
#include "note.h"
#include "spawn.h"

enum { WORDS_BYTES = 16384 }; /* shown of them */

int hly_words_open(char ***env)
{
    char path[64];
    int fd = memfd_create("halay-last-words", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    if (hly_job_put(env, "words", path))
        return fd;
    close(fd);
    return -1;
}

void hly_words_forget(int fd)
{
    if (fd >= 0 && ftruncate(fd, 0))
        return; /* then more is shown than need be */
}

void hly_words_close(int fd, int show)
{
    char text[WORDS_BYTES + 1];
    if (fd < 0)
        return;
    ssize_t n = show ? pread(fd, text, WORDS_BYTES, 0) : 0;
    close(fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    hly_note("the first error was that of");
    hly_note_more(text, strlen(text));
}
