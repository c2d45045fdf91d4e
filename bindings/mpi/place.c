/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - where the program has made the call that ends the job: the first frame that is not in
 * this library. A tool reads the line of it, as no reader of debug data stands here. */
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdio.h>

#include "error.h"

#define FRAMES 32

/* The address that addr2line takes: without the place where the file was loaded, if that differs.
 */
static size_t address_in(const Dl_info *file, const char *at)
{
    const ElfW(Ehdr) *header = file->dli_fbase;
    return (uintptr_t)at - (header->e_type == ET_EXEC ? 0 : (uintptr_t)header);
}

void hly_mpi_place_tell(void)
{
    void *frames[FRAMES];
    Dl_info own, file;
    const int n = backtrace(frames, FRAMES);
    if (!dladdr(&hly_mpi_this_face, &own))
        return;
    for (int i = 0; i < n; i++) {
        const char *at = (const char *)frames[i] - 1; /* a frame holds where it goes on */
        if (!dladdr(at, &file) || !file.dli_fname || file.dli_fbase == own.dli_fbase)
            continue;
        fprintf(stderr, "rank %d: the line of the call: addr2line -e %s 0x%zx\n", hly_mpi_job.rank,
                file.dli_fname, address_in(&file, at));
        return;
    }
}
