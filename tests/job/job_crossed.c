/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_crossed SEED - one rank of a program drawn by seed, in which some deviate
 * (tests/ranks/crossed.h). Writes a line a call that failed: the call, then what was told; and
 * whether the program is wrong.
 */
#include <stdlib.h>

#include "../check.h"

#include "../ranks/crossed_play.h"

int main(int argc, char **argv)
{
    static struct crossed program;
    static struct said said[CROSSED_CALLS];
    halay_context_t *context;
    halay_comm_t *world;
    int rank, nranks;
    CHECK(argc == 2, "usage: job_crossed SEED");
    CHECK(!halay_init(NULL, &context) && !halay_comm_world(context, &world), "init");
    CHECK(!halay_comm_rank(world, &rank) && !halay_comm_size(world, &nranks), "world");
    CHECK(nranks <= CROSSED_RANKS, "%d ranks", nranks);
    crossed_draw(&program, strtoull(argv[1], NULL, 10), nranks);
    crossed_play(&program, rank, world, 3000000000, said);
    for (int i = 0; i < program.n[rank]; i++) {
        const struct said *s = &said[i];
        const bool innocent =
            s->code != HALAY_EMISMATCH && !crossed_is_just(&program, rank, i, s->blamed, s->text);
        if (s->code)
            printf("told %d.%u%s: %s\n", s->group, s->sequence, innocent ? " INNOCENT" : "",
                   s->text);
    }
    if (rank == 0)
        printf("model %s\n", crossed_is_wrong(&program) ? "wrong" : "right");
    halay_finalize(context);
    return 0;
}
