/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of a machine's processors: equal, all of them given out, in cores and sockets. */
#include "../../tools/halayrun/bind.h"
#include "../check.h"

enum { MOST = 256 };

static struct hly_binding binding;
static int owner[MOST]; /* of each processor */

/* Numbered as x86 does: first one thread of every core, socket by socket, then the others. */
static int seats_of(struct hly_seat *seats, int packages, int cores, int threads)
{
    int n = packages * cores * threads;
    for (int cpu = 0; cpu < n; cpu++)
        seats[n - 1 - cpu] = (struct hly_seat){.package = cpu / cores % packages,
                                               .node = cpu / cores % packages,
                                               .core = cpu % cores,
                                               .cpu = cpu};
    return n;
}

static void check(int packages, int cores, int threads, int nranks)
{
    struct hly_seat seats[MOST], of[MOST];
    int n = seats_of(seats, packages, cores, threads), units = packages * cores;
    if (nranks > n)
        return;
    for (int i = 0; i < n; i++) {
        of[seats[i].cpu] = seats[i];
        owner[i] = -1;
    }
    hly_bind_divide(&binding, seats, n, nranks);
    int whole = units >= nranks, each = whole ? units : n, scale = whole ? threads : 1;
    for (int rank = 0; rank < nranks; rank++) {
        int from = hly_bind_first(&binding, rank), to = hly_bind_first(&binding, rank + 1);
        CHECK((to - from) / scale == each / nranks || (to - from) / scale == each / nranks + 1,
              "%dx%dx%d, rank %d of %d: %d", packages, cores, threads, rank, nranks, to - from);
        for (int i = from; i < to; i++) {
            CHECK(owner[binding.cpus[i]] == -1, "processor %d twice", binding.cpus[i]);
            owner[binding.cpus[i]] = rank;
            CHECK(nranks % packages ||
                      of[binding.cpus[i]].package == of[binding.cpus[from]].package,
                  "%dx%dx%d, rank %d of %d is on two sockets", packages, cores, threads, rank,
                  nranks);
        }
    }
    for (int a = 0; a < n; a++) {
        CHECK(owner[a] >= 0, "%dx%dx%d for %d: nobody has %d", packages, cores, threads, nranks, a);
        for (int b = 0; whole && b < n; b++)
            CHECK(of[a].package != of[b].package || of[a].core != of[b].core ||
                      owner[a] == owner[b],
                  "%dx%dx%d for %d: a core is shared", packages, cores, threads, nranks);
    }
}

int main(void)
{
    for (int packages = 1; packages <= 4; packages *= 2)
        for (int cores = 1; cores <= 7; cores++)
            for (int threads = 1; threads <= 2; threads++)
                for (int nranks = 2; nranks <= 64; nranks++)
                    check(packages, cores, threads, nranks);
    return 0;
}
