/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instructions.c - 8-byte allreduces of two ranks that one thread plays: it starts the call of
 * both, then waits for both. So nobody polls in vain, and the instructions of a call can be
 * counted. instructions CALLS BYTES [persistent]
 */
#define _GNU_SOURCE
#include <stdbool.h>

#include "two_ranks.h"

static halay_request_t *persistent[RANKS]; /* NULL: the ordinary call */

static void call(halay_comm_t *comm[], char *in[], char *out[], size_t count)
{
    halay_request_t *request[RANKS];
    for (int r = 0; r < RANKS; r++) {
        request[r] = persistent[r];
        if (request[r])
            check(halay_request_start(request[r]), "halay_request_start");
        else
            check(halay_iallreduce(in[r], out[r], count, HALAY_FLOAT32, HALAY_SUM, comm[r],
                                   &request[r]),
                  "halay_iallreduce");
    }
    two_ranks_wait(request);
}

int main(int argc, char **argv)
{
    halay_context_t *context[RANKS];
    halay_comm_t *comm[RANKS];
    char *in[RANKS], *out[RANKS];
    const bool persists = argc == 4 && !strcmp(argv[3], "persistent");
    const int calls = argc == 3 || persists ? atoi(argv[1]) : 0;
    const size_t count = calls ? strtoull(argv[2], NULL, 10) / sizeof(float) : 0;
    if (calls <= 0 || !count) {
        fprintf(stderr, "usage: instructions CALLS BYTES [persistent]\n");
        return 2;
    }
    two_ranks_init(context, comm);
    for (int r = 0; r < RANKS; r++) {
        in[r] = calloc(count, sizeof(float));
        out[r] = calloc(count, sizeof(float));
        if (!in[r] || !out[r])
            check(HALAY_ENOMEM, "the buffers");
        ((float *)in[r])[count - 1] = (float)(r + 1);
    }
    for (int r = 0; persists && r < RANKS; r++)
        check(halay_allreduce_init(in[r], out[r], count, HALAY_FLOAT32, HALAY_SUM, comm[r],
                                   &persistent[r]),
              "halay_allreduce_init");
    for (int i = 0; i < calls; i++)
        call(comm, in, out, count);
    int wrong = 0;
    for (int r = 0; r < RANKS; r++) {
        wrong |= ((float *)out[r])[count - 1] != 3.0f;
        free(in[r]);
        free(out[r]);
        halay_finalize(context[r]);
    }
    if (wrong)
        fprintf(stderr, "instructions: wrong data\n");
    return wrong;
}
