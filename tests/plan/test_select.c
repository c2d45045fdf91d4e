/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_select.c - who serves a call: two-level planners where several ranks share one of several
 * nodes, flat ones else; a forced one everywhere, but for vectors.
 */
#include "core.h"
#include "test_plan.h"

static halay_context_t context;
static halay_comm_t comm;

static const char *chosen(halay_collective_t collective, size_t count, int nranks, uint32_t nnodes,
                          bool vector)
{
    struct hly_call call = {.brief = {.collective = (uint8_t)collective,
                                      .count = count,
                                      .type = HALAY_FLOAT32,
                                      .flags = vector ? HLY_BRIEF_VECTOR : 0}};
    uint32_t planner = UINT32_MAX;

    comm.context = &context;
    comm.nranks = nranks;
    comm.nnodes = nnodes;
    CHECK(hly_select(&comm, &call, &planner) == 0, "no planner");
    const halay_planner_info_t *info = halay_planner_get(planner);
    CHECK(info && info->collective == collective, "planner %u", planner);
    return info ? info->name : "none";
}

static const struct {
    halay_collective_t collective;
    int nranks;
    uint32_t nnodes;
    size_t count; /* of float32 */
    bool vector;
    const char *name;
} cases[] = {
    {HALAY_ALLREDUCE, 8, 2, 1, false, "two_level_short"},
    {HALAY_ALLREDUCE, 8, 2, 8192, false, "two_level_short"},
    {HALAY_ALLREDUCE, 8, 2, 8193, false, "two_level"},
    {HALAY_ALLREDUCE, 8, 2, 1u << 28, false, "two_level"},
    {HALAY_ALLREDUCE, 8, 7, 1u << 20, false, "two_level"},
    {HALAY_ALLREDUCE, 8, 1, 1, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 8, 8, 1, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 8, 8, 16384, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 8, 8, 16385, false, "circulant"},
    {HALAY_ALLREDUCE, 2, 2, 262144, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 2, 2, 262145, false, "sliced_ring"},
    {HALAY_ALLREDUCE, 8, 1, 262145, false, "ring"},
    {HALAY_ALLREDUCE, 8, 1, 100000, false, "circulant"},
    {HALAY_ALLREDUCE, 8, 8, 1u << 20, false, "sliced_ring"},
    {HALAY_ALLREDUCE, 1, 1, 1u << 20, false, "ring"},
    {HALAY_BROADCAST, 8, 3, 1, false, "two_level"},
    {HALAY_BROADCAST, 8, 8, 1, false, "binomial"},
    {HALAY_ALLGATHER, 8, 3, 1, true, "two_level"},
    {HALAY_ALLGATHER, 257, 3, 1, true, "ring"},
    {HALAY_ALLGATHER, 257, 3, 1, false, "circulant"},
    {HALAY_REDUCE_SCATTER, 256, 3, 1, false, "two_level"},
    {HALAY_REDUCE_SCATTER, 257, 3, 1, false, "circulant"},
    {HALAY_BARRIER, 8, 3, 0, false, "two_level"},
    {HALAY_BARRIER, 8, 1, 0, false, "dissemination"},
};

int main(void)
{
    for (int i = 0; i < HALAY_COLLECTIVE_COUNT; i++) {
        context.settings.planner[i] = UINT32_MAX;
    }
    CHECK(hly_select_init(&context) == 0, "a row names no planner");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *name = chosen(cases[i].collective, cases[i].count, cases[i].nranks,
                                  cases[i].nnodes, cases[i].vector);
        CHECK(strcmp(name, cases[i].name) == 0, "case %zu: %s, not %s", i, name, cases[i].name);
    }
    context.settings.planner[HALAY_ALLREDUCE] = find_planner(HALAY_ALLREDUCE, "two_level");
    context.settings.planner[HALAY_ALLGATHER] = find_planner(HALAY_ALLGATHER, "circulant");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 1, 8, 1, false), "two_level") == 0, "forced on one node");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 2, false), "circulant") == 0, "forced flat");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 2, true), "two_level") == 0, "a vector is not");
    return failures != 0;
}
