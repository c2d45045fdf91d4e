/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks print, as halayrun copies it. */
#include "tools/halayrun/output.c" /* NOLINT(bugprone-suspicious-include) */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    struct pollfd fds[6];
    struct hly_output *o = hly_output_create(2, 0, HLY_MARK_RANK);
    FUZZ_WANT(o);
    o->sinks[0].fd = o->sinks[1].fd = FUZZ_FD;
    for (int i = 0; i < o->nstreams; i++)
        o->streams[i].fd = FUZZ_FD;
    fuzz_net_feed(&f);
    while (f.left && hly_output_open(o)) {
        FUZZ_WANT(hly_output_poll(o, fds) <= 6);
        hly_output_copy(o);
    }
    hly_output_last(o);
    hly_output_copy(o);
    hly_output_destroy(o);
    return 0;
}
