/* SPDX-License-Identifier: Apache-2.0 */
/* note.c - messages and time. */
#define _GNU_SOURCE
#include "note.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Where notes go besides, since no note belongs to a job; -1: nowhere. */
static int copy_fd = -1;

int hly_note_copy(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    if (fd <= STDERR_FILENO || flags < 0 || (flags & O_ACCMODE) == O_RDONLY ||
        fcntl(fd, F_SETFD, FD_CLOEXEC)) /* it is none of the ranks' */
        return -1;
    copy_fd = fd;
    return 0;
}

static void put(int fd, const char *text, size_t bytes)
{
    if (write(fd, text, bytes) < 0)
        return; /* there is nobody left to tell */
}

void hly_note_more(const char *text, size_t bytes)
{
    put(STDERR_FILENO, text, bytes);
    if (copy_fd >= 0)
        put(copy_fd, text, bytes);
}

void hly_note(const char *format, ...)
{
    char text[1200] = "halayrun: ";
    const size_t head = strlen(text), room = sizeof text - head - 1;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + head, room, format, args);
    va_end(args);
    size_t bytes = head + (n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1);
    text[bytes++] = '\n';
    hly_note_more(text, bytes);
}

int64_t hly_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *hly_signal_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } rows[] = {{SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},
                {SIGFPE, "SIGFPE"},   {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},
                {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"},
                {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},
                {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}, {SIGUSR1, "SIGUSR1"},
                {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].number == number)
            return rows[i].name;
    return "signal";
}
