/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stack.c - where a thread waits, for the flight record: the frames of the program that called. It
 * is taken by the thread itself, before it sleeps, so nobody has to stop it, and no signal handler
 * has to. Names are looked up at once: who reads the record has another address space, or comes
 * when this one is gone.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>

#include "../../common/thread.h"
#include "base/context.h"
#include "base/record.h"

#define FRAMES 32

static bool is_ours(const Dl_info *where, const void *base)
{
    return where->dli_fbase == base &&
           (!where->dli_sname || strncmp(where->dli_sname, "halay_", 6) != 0);
}

/* Frames that lie in this library say nothing to the program's author, except the public call.
 * Where the library is part of the program they cannot be told apart. */
static int first_of(void *const frames[], int n)
{
    Dl_info own, where;
    if (!dladdr(frames[0], &own))
        return 0;
    for (int i = 1; i < n; i++)
        if (!dladdr(frames[i], &where) || !is_ours(&where, own.dli_fbase))
            return i;
    return 1 < n;
}

/* A frame holds where it goes on; the call is before that. 0: of no interest. */
static int frame_text(const void *frame, char *text, size_t bytes)
{
    const char *at = (const char *)frame - 1, *name;
    Dl_info where;
    if (!dladdr(at, &where) || !where.dli_fname)
        return snprintf(text, bytes, "%p\n", (const void *)at);
    name = strrchr(where.dli_fname, '/');
    name = name ? name + 1 : where.dli_fname;
    if (!strncmp(name, "libc.so", 7)) /* what calls main() and threads */
        return 0;
    if (where.dli_sname)
        return snprintf(text, bytes, "%.60s(%.100s+0x%zx)\n", name, where.dli_sname,
                        (size_t)(at - (const char *)where.dli_saddr));
    return snprintf(text, bytes, "%.60s+0x%zx\n", name,
                    (size_t)(at - (const char *)where.dli_fbase));
}

/* Its own last time; else one that is over; else the oldest. */
static halay_record_stack_t *slot_for(halay_record_head_t *head, int32_t thread)
{
    halay_record_stack_t *found = &head->stacks[0];
    for (int i = 0; i < HALAY_RECORD_STACKS; i++) {
        halay_record_stack_t *s = &head->stacks[i];
        if (s->thread == thread)
            return s;
        if (s->over > found->over || (s->over == found->over && s->stamp < found->stamp))
            found = s;
    }
    return found;
}

halay_record_stack_t *hly_record_stack(struct hly_record *record)
{
    halay_record_stack_t stack = {.taken_ns = hly_now_ns(), .thread = hly_thread_id()};
    halay_record_stack_t *slot = slot_for(&record->map->head, stack.thread);
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    size_t used = 0;
    for (int i = first_of(frames, n); i < n && used < sizeof(stack.text); i++) {
        const int bytes = frame_text(frames[i], stack.text + used, sizeof(stack.text) - used);
        if (bytes < 0 || used + (size_t)bytes >= sizeof(stack.text))
            break; /* that one has no room */
        used += (size_t)bytes;
    }
    memset(stack.text + used, 0, sizeof(stack.text) - used);
    halay_record_write(slot, &stack, sizeof(stack), ++record->nstacks);
    return slot;
}
