/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_select.c - who serves a call: two-level planners where several ranks share one of several
 * nodes, flat ones else; one asked for by name wherever it can; rows of a file before the table's;
 * the least predicted where the model is to choose. Never one whose restrictions forbid the call.
 */
#include <unistd.h>

#include "select/select.h"
#include "test_plan.h"

static halay_context_t context;
static halay_comm_t comm;
static bool series; /* the call before it was the same */
static bool uneven;

static const char *chosen(halay_collective_t collective, size_t count, int nranks, uint32_t nnodes,
                          bool vector)
{
    struct hly_call call = {.desc = {.collective = (uint8_t)collective,
                                     .count = count,
                                     .type = HALAY_FLOAT32,
                                     .flags = vector   ? HLY_CALL_VECTOR
                                              : series ? HLY_CALL_RELAXED
                                                       : 0}};
    uint32_t planner = UINT32_MAX;

    comm.context = &context;
    context.ndevices = 1;
    comm.nranks = nranks;
    comm.nnodes = nnodes;
    comm.uneven = uneven;
    char reason[192] = "";
    CHECK(hly_select(&comm, &call, &planner, reason, sizeof(reason)) == 0, "%s", reason);
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
    {HALAY_ALLREDUCE, 8, 1, 1024, false, "recursive_multiplying"},
    {HALAY_ALLREDUCE, 8, 1, 1025, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 8, 8, 1, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 8, 8, 16384, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 8, 8, 16385, false, "circulant"},
    {HALAY_ALLREDUCE, 2, 2, 131072, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 2, 2, 131073, false, "sliced_ring"},
    {HALAY_ALLREDUCE, 8, 1, 262145, false, "ring"},
    {HALAY_ALLREDUCE, 8, 1, 100000, false, "circulant"},
    {HALAY_ALLREDUCE, 8, 8, 1u << 20, false, "sliced_ring"},
    {HALAY_ALLREDUCE, 1, 1, 1u << 20, false, "ring"},
    {HALAY_ALLREDUCE, 2, 1, 7936, false, "recursive_doubling"},
    {HALAY_ALLREDUCE, 2, 1, 7937, false, "ring"},
    {HALAY_ALLREDUCE, 2, 1, 6 << 18, false, "ring"},
    {HALAY_ALLREDUCE, 2, 1, (6 << 18) + 1, false, "recursive_doubling"},
    {HALAY_BROADCAST, 2, 1, 1u << 24, false, "dissemination_by_four"},
    {HALAY_BROADCAST, 8, 1, 2048, false, "dissemination_by_four"},
    {HALAY_BROADCAST, 8, 1, 2049, false, "scatter_allgather"},
    {HALAY_BROADCAST, 4, 1, 32769, false, "chain"},
    {HALAY_BROADCAST, 2, 2, 1, false, "binomial"},
    {HALAY_ALLGATHER, 2, 1, 1u << 24, false, "one_shot"},
    {HALAY_ALLGATHER, 2, 1, 0, true, "one_shot"},
    {HALAY_ALLGATHER, 2, 2, 1, false, "circulant"},
    {HALAY_BROADCAST, 8, 3, 1, false, "two_level"},
    {HALAY_BROADCAST, 8, 8, 1, false, "binomial"},
    {HALAY_ALLGATHER, 8, 3, 1, true, "two_level"},
    {HALAY_ALLGATHER, 257, 3, 1, true, "ring"},
    {HALAY_ALLGATHER, 257, 3, 1, false, "circulant"},
    {HALAY_REDUCE_SCATTER, 256, 3, 1, false, "two_level"},
    {HALAY_REDUCE_SCATTER, 257, 3, 1, false, "circulant"},
    {HALAY_BARRIER, 8, 3, 0, false, "two_level"},
    {HALAY_ALLTOALL, 8, 3, 2048, false, "two_level"}, /* 65,536 bytes together */
    {HALAY_ALLTOALL, 8, 3, 2049, false, "pairwise"},
    {HALAY_ALLTOALL, 8, 3, 1, true, "pairwise_checked"},
    {HALAY_ALLTOALL, 64, 3, 1, false, "bruck"},
    {HALAY_BARRIER, 8, 8, 0, false, "dissemination"},
    {HALAY_BARRIER, 4, 1, 0, false, "dissemination"},
    {HALAY_BARRIER, 8, 1, 0, false, "dissemination_by_four"},
    {HALAY_REDUCE_SCATTER, 8, 1, 256, false, "pairwise"},
    {HALAY_REDUCE_SCATTER, 8, 1, 257, false, "circulant"},
    {HALAY_REDUCE_SCATTER, 8, 8, 256, false, "circulant"},
};

static void use(const char *algorithm, const char *rows, const char *model)
{
    char error[512] = "";

    halay_selection_free(context.settings.selection);
    context.settings.selection = NULL;
    hly_select_forget(&comm);
    if (halay_selection_make(algorithm, rows, model, error, sizeof(error),
                             &context.settings.selection)) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static const char *const file_path = "test_select.rows";

static void write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");

    if (!file || fputs(text, file) < 0 || fclose(file)) {
        perror(file_path);
        exit(1);
    }
}

/* Its root need not wait, for a short one on one node. */
static void test_series(void)
{
    series = true;
    CHECK(strcmp(chosen(HALAY_BROADCAST, 4096, 2, 1, false), "flat") == 0, "of two");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 4097, 2, 1, false), "flat") != 0, "longer");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 2, 2, false), "flat") != 0, "two nodes");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 8, 1, false), "flat") != 0, "a processor each");
    comm.oversubscribed = 1;
    CHECK(strcmp(chosen(HALAY_BROADCAST, 4096, 16, 1, false), "flat") == 0, "oversubscribed");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 17, 1, false), "flat") != 0, "17");
    comm.oversubscribed = 0;
    series = false;
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 2, 1, false), "flat") != 0, "no series");
}

/* No device has group steps: asked for by name or by the model, such an algorithm is not chosen. */
static void test_group(void)
{
    halay_shape_t *shape;
    halay_explanation_t *e;

    if (halay_shape_make(NULL, 8, &shape))
        exit(1);
    for (int by_model = 0; by_model < 2; by_model++) {
        unsigned refused = 0;
        halay_question_t q = {.collective = HALAY_ALLREDUCE,
                              .commutative = 1,
                              .element_bytes = 4,
                              .count = 1u << 24,
                              .shape = shape};
        use(by_model ? NULL : "allreduce=two_level_group", by_model ? "model" : NULL, NULL);
        CHECK(strcmp(chosen(HALAY_ALLREDUCE, 1u << 24, 8, 1, false), "two_level_group") != 0,
              "chosen");
        CHECK(!halay_explain(context.settings.selection, &q, &e), "explain");
        CHECK(by_model || strstr(e->by, "two_level_group cannot: no device offers group steps"),
              "%s", e->by);
        for (uint32_t i = 0; i < e->ncandidates; i++)
            refused += e->candidate[i].refused &&
                       !strcmp(e->candidate[i].refused, "no device offers group steps");
        CHECK(refused == 3, "%u are refused for it", refused);
        halay_explanation_free(e);
    }
    halay_shape_free(shape);
    use(NULL, NULL, NULL);
}

static int offers(void *arg, uint32_t kind, halay_type_t type, halay_op_t op)
{
    (void)arg;
    (void)op;
    return kind != HALAY_GROUP_REDUCE_SCATTER || type != HALAY_FLOAT32 || !context.nplugins
               ? HALAY_OK
               : HALAY_EUNSUPPORTED;
}

/* A device has them; then one does for other types only. */
static void test_group_offered(void)
{
    static const halay_group_ops_t ops = {.size = sizeof(ops), .query = offers};
    static const struct {
        halay_collective_t collective;
        size_t count;
        const char *name;
    } wanted[] = {{HALAY_ALLREDUCE, 1, "two_level_group"},
                  {HALAY_REDUCE_SCATTER, 1 << 20, "two_level_group"},
                  {HALAY_ALLGATHER, 100, "two_level_group"},
                  {HALAY_BROADCAST, 1 << 20, "two_level_group"},
                  {HALAY_BROADCAST, (1 << 20) + 1, "sliced_group"}};
    context.devices[0].library.ops = &ops;
    context.devices[0].touchable = true;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        for (uint32_t nnodes = 1; nnodes < 4; nnodes++)
            CHECK(!strcmp(chosen(wanted[i].collective, wanted[i].count, 8, nnodes, false),
                          wanted[i].name),
                  "%zu on %u nodes", i, nnodes);
    CHECK(strstr(chosen(HALAY_ALLREDUCE, 1 << 20, 8, 8, false), "group") == NULL, "a node each");
    CHECK(strstr(chosen(HALAY_ALLGATHER, 1, 8, 1, true), "group") == NULL, "a v form");
    CHECK(strstr(chosen(HALAY_BARRIER, 0, 8, 1, false), "group") == NULL, "a barrier");
    context.nplugins = 1; /* offers() looks at it */
    CHECK(strstr(chosen(HALAY_ALLREDUCE, 1 << 20, 8, 2, false), "group") == NULL, "not offered");
    CHECK(!strcmp(chosen(HALAY_ALLGATHER, 1, 8, 2, false), "two_level_group"), "moves only");
    context.nplugins = 0;
    context.devices[0].library.ops = NULL;
}

/* In memory that messages cannot carry. */
static void test_apart(void)
{
    static const halay_group_ops_t ops = {.size = sizeof(ops), .query = offers};
    static const struct {
        halay_collective_t collective;
        size_t count;
        const char *name, *on_one_node;
    } wanted[] = {{HALAY_ALLREDUCE, 1, "two_level_stage", "two_level_group"},
                  {HALAY_ALLREDUCE, (2 << 20) + 1, "sliced_stage", "two_level_group"},
                  {HALAY_REDUCE_SCATTER, 1 << 20, "two_level_stage", "two_level_group"},
                  {HALAY_ALLGATHER, 100, "two_level_stage", "two_level_group"},
                  {HALAY_BROADCAST, 1 << 20, "two_level_stage", "two_level_group"},
                  {HALAY_BROADCAST, (1 << 20) + 1, "sliced_stage", "sliced_group"}};
    context.devices[0].library.ops = &ops;
    context.devices[0].touchable = false;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        for (uint32_t nnodes = 1; nnodes < 4; nnodes++) {
            const char *name = chosen(wanted[i].collective, wanted[i].count, 8, nnodes, false);
            CHECK(!strcmp(name, nnodes > 1 ? wanted[i].name : wanted[i].on_one_node),
                  "%zu on %u nodes: %s", i, nnodes, name);
        }
    CHECK(!strstr(chosen(HALAY_ALLREDUCE, 1 << 20, 8, 8, false), "stage"), "a node each");
    CHECK(!strstr(chosen(HALAY_ALLTOALL, 256, 8, 2, false), "stage"), "staged as a whole");
    CHECK(!strstr(chosen(HALAY_ALLTOALL, 1 << 20, 8, 2, true), "stage"), "a v form");
    CHECK(!strcmp(chosen(HALAY_ALLTOALL, 1 << 20, 8, 1, false), "two_level_group"), "one node");
    for (uint32_t direct = 0; direct < 2; direct++) {
        context.settings.gpudirect = direct;
        CHECK(!strcmp(chosen(HALAY_ALLTOALL, 4096, 8, 2, false), "two_level_stage"), "longer");
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const char *name = chosen(wanted[i].collective, wanted[i].count, 8, 2, false);
        CHECK(!strcmp(name, wanted[i].on_one_node), "direct, %zu: %s", i, name);
    }
    uneven = true;
    CHECK(strstr(chosen(HALAY_REDUCE_SCATTER, 100, 8, 2, false), "stage"), "of unlike nodes");
    CHECK(!strstr(chosen(HALAY_ALLREDUCE, 100, 8, 2, false), "stage"), "of unlike nodes");
    uneven = false;
    use("allreduce=two_level_stage", NULL, NULL);
    CHECK(strstr(chosen(HALAY_ALLREDUCE, 100, 8, 2, false), "stage"), "by name");
    use(NULL, NULL, NULL);
    context.settings.gpudirect = false;
    context.devices[0].touchable = true;
    CHECK(!strstr(chosen(HALAY_ALLGATHER, 100, 8, 2, false), "stage"), "touchable");
    context.devices[0].library.ops = NULL;
}

/* All of it known to all: where ranks outnumber processors fewer messages count for more. */
static void test_crowded(void)
{
    comm.oversubscribed = 1;
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 32768, 8, 1, false), "two_stars") == 0, "allreduce");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 131072, 8, 1, false), "two_stars") == 0, "longer");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 4096, 3, 1, false), "star") == 0, "of three");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 131073, 8, 1, false), "circulant") == 0, "long");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 131073, 17, 1, false), "ring") == 0, "of 17");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 65536, 8, 1, false), "posted") == 0, "long broadcast");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1048576, 8, 1, false), "posted") == 0, "longer");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 131072, 8, 1, false), "circulant") == 0, "long allgather");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 131072, 8, 1, true), "ring") == 0, "long allgatherv");
    CHECK(strcmp(chosen(HALAY_REDUCE_SCATTER, 131072, 8, 1, false), "ring") == 0, "long blocks");
    CHECK(strcmp(chosen(HALAY_REDUCE_SCATTER, 131072, 8, 1, true), "ring") == 0, "a v form");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 4097, 3, 1, false), "two_stars") == 0, "longer, of three");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 1, 2, 1, false), "recursive_multiplying") == 0, "of two");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 2048, 8, 1, false), "star") == 0, "broadcast");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 16385, 8, 1, false), "posted") == 0, "not so short");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 8192, 9, 1, false), "star") == 0, "of nine");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 32769, 9, 1, false), "posted") == 0, "long");
    CHECK(strcmp(chosen(HALAY_REDUCE, 131072, 4, 1, false), "two_stars") == 0, "reduce");
    CHECK(strcmp(chosen(HALAY_REDUCE, 131073, 4, 1, false), "circulant") == 0, "long reduce");
    CHECK(strcmp(chosen(HALAY_REDUCE, 1, 2, 1, false), "binomial") == 0, "reduce of two");
    CHECK(strcmp(chosen(HALAY_REDUCE_SCATTER, 257, 8, 1, false), "pairwise") == 0, "blocks");
    CHECK(strcmp(chosen(HALAY_REDUCE_SCATTER, 131072, 4, 1, false), "pairwise") == 0, "of four");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 131073, 4, 1, false), "two_level") == 0, "of four");
    CHECK(strcmp(chosen(HALAY_ALLTOALL, 8193, 16, 1, false), "two_level") == 0, "alltoall");
    CHECK(strcmp(chosen(HALAY_ALLTOALL, 8193, 16, 1, true), "pairwise_checked") == 0, "a v form");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 4, 1, false), "binomial") == 0, "four");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 17, 1, false), "dissemination_by_four") == 0, "17");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 1, false), "star") == 0, "allgather");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 1, true), "one_shot") == 0, "allgatherv");
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 8, 1, false), "two_stars") == 0, "barrier");
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 3, 1, false), "star") == 0, "barrier of three");
    comm.oversubscribed = 2;
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 8, 1, false), "star") == 0, "barrier, one processor");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 1, 8, 1, false), "star") == 0, "one processor");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 131072, 8, 1, false), "circulant") == 0,
          "as oversubscribed");
    comm.oversubscribed = 1;
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 2, 1, false), "dissemination") == 0, "barrier of two");
    comm.oversubscribed = 0;
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 4, 1, false), "dissemination") == 0,
          "not oversubscribed");
    write_file("barrier - - oversubscribed two_level\n");
    use(NULL, file_path, NULL);
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 4, 1, false), "dissemination") == 0, "a file's row");
    comm.oversubscribed = 1;
    CHECK(strcmp(chosen(HALAY_BARRIER, 0, 4, 1, false), "two_level") == 0, "a file's row");
    comm.oversubscribed = 0;
    use(NULL, NULL, NULL);
}

static void test_names(void)
{
    use("allreduce=two_level,allgather=circulant", NULL, NULL);
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 1, 8, 1, false), "two_level") == 0, "forced on one node");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 2, false), "circulant") == 0, "forced flat");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 2, true), "two_level") == 0, "a vector is not");
}

static void test_rows(void)
{
    use(NULL, NULL, NULL);
    uint64_t before = halay_selection_hash(context.settings.selection);
    write_file("# what we want\nallreduce 8 1K any ring # here\n\nallreduce - 2K apart circulant\n"
               "allgather - - any circulant\n");
    use(NULL, file_path, NULL);
    uint64_t after = halay_selection_hash(context.settings.selection);
    CHECK(before != after, "the hash does not cover rows");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 256, 8, 1, false), "ring") == 0, "row 1");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 257, 8, 8, false), "circulant") == 0, "row 2");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 257, 8, 1, false), "recursive_multiplying") == 0, "table");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 1, 9, 9, false), "circulant") == 0, "9 ranks");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 1, false), "circulant") == 0, "row 3");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 1, true), "one_shot") == 0, "row 3 forbids vectors");
    write_file("allgather - - one ring\nallgather - - any bruck\n");
    use(NULL, file_path, NULL);
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 1, false), "ring") == 0, "on one node");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 8, false), "bruck") == 0, "not on one node");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 1, 8, 3, false), "bruck") == 0, "nor on three");
    write_file("allreduce 8 1024 any ring\nallreduce - 2048 apart circulant\n"
               "allgather - - any circulant\n");
    use(NULL, file_path, NULL);
    CHECK(after == halay_selection_hash(context.settings.selection), "comments are hashed");
    write_file("allreduce 8 1025 any ring\nallreduce - 2048 apart circulant\n"
               "allgather - - any circulant\n");
    use(NULL, file_path, NULL);
    CHECK(after != halay_selection_hash(context.settings.selection), "bytes are not hashed");
}

/* Of ranks and bytes also the least, and how many nodes there are to be. */
static void test_ranges(void)
{
    write_file("allreduce 4-8 1K-4K any double_tree\nallgather 8/2 - any ring\n"
               "broadcast 6-6/3 100-100 any flat\nbroadcast 5-5 - any knomial\n");
    use(NULL, file_path, NULL);
    for (uint32_t n = 2; n < 12; n++)
        for (uint64_t count = 250; count <= 1030; count++)
            CHECK(!strcmp(chosen(HALAY_ALLREDUCE, count, n, 1, false), "double_tree") ==
                      (n >= 4 && n <= 8 && count >= 256 && count <= 1024),
                  "%llu x 4, %u ranks", (unsigned long long)count, n);
    for (uint32_t nodes = 1; nodes <= 8; nodes++)
        CHECK(!strcmp(chosen(HALAY_ALLGATHER, 1, 8, nodes, false), "ring") == (nodes == 2),
              "%u nodes", nodes);
    CHECK(!strcmp(chosen(HALAY_ALLGATHER, 1, 7, 2, false), "ring"), "most ranks, and nodes");
    CHECK(!strcmp(chosen(HALAY_BROADCAST, 1, 5, 1, false), "knomial"), "exactly 5");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 4, 1, false), "knomial") != 0, "not 4");
    CHECK(strcmp(chosen(HALAY_BROADCAST, 1, 6, 1, false), "knomial") != 0, "not 6");
}

/* Rows of halay-bench calibrate are for calls like those that it has measured. */
static void test_kept(void)
{
    static const char rows[] = "allreduce 8-8/1 - one double_tree\nallgather 8-8/1 - one ring\n"
                               "allreduce 8-8/2 - together double_tree\n";
    char text[600];
    halay_selection_t *given, *kept;
    halay_explanation_t *e;
    halay_shape_t *shape;
    write_file(rows);
    CHECK(!halay_selection_make(NULL, file_path, NULL, NULL, 0, &given), "rows");
    snprintf(text, sizeof text, "# kept by halay-bench calibrate of Halay 9: it\n%s", rows);
    write_file(text);
    CHECK(!halay_selection_make(NULL, file_path, NULL, NULL, 0, &kept), "the same, kept");
    CHECK(halay_selection_hash(given) != halay_selection_hash(kept), "they differ");
    halay_selection_free(given);
    CHECK(!halay_shape_make(NULL, 8, &shape), "shape");
    halay_question_t q = {.collective = HALAY_ALLREDUCE,
                          .commutative = 1,
                          .element_bytes = 4,
                          .count = 64,
                          .shape = shape};
    CHECK(!halay_explain(kept, &q, &e) && strstr(e->by, "line 2 of what halay-bench calibrate"),
          "%s", e->by);
    CHECK(strstr(e->by, "8 ranks on 1 node, any size"), "%s", e->by);
    halay_explanation_free(e);
    halay_shape_free(shape);
    halay_selection_free(kept);
    use(NULL, file_path, NULL);
    CHECK(!strcmp(chosen(HALAY_ALLREDUCE, 64, 8, 1, false), "double_tree"), "one node");
    CHECK(!strcmp(chosen(HALAY_ALLREDUCE, 64, 8, 2, false), "double_tree"), "two nodes");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 64, 8, 4, false), "double_tree") != 0, "four nodes");
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 64, 9, 1, false), "double_tree") != 0, "nine ranks");
    CHECK(!strcmp(chosen(HALAY_ALLGATHER, 64, 8, 1, false), "ring"), "allgather");
    CHECK(strcmp(chosen(HALAY_ALLGATHER, 64, 8, 1, true), "ring") != 0, "a v form");
    comm.oversubscribed = 1;
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 64, 8, 1, false), "double_tree") != 0, "crowded");
    comm.oversubscribed = 0;
    use(NULL, NULL, NULL);
    CHECK(strcmp(chosen(HALAY_ALLREDUCE, 64, 8, 1, false), "double_tree") != 0, "the table's");
}

static void test_wrong_rows(void)
{
    static const struct {
        const char *text, *line, *says;
    } wrong[] = {
        {"\nallreduce - - any", "line 2", "4 words"},
        {"allreduce - - any ring ring ring", "line 1", "words"},
        {"allreduce - - any quick", "line 1", "circulant"},
        {"#\n#\nteleport - - any ring", "line 3", "exscan"},
        {"allreduce x - any ring", "line 1", "numbers"},
        {"allreduce - 1T any ring", "line 1", "numbers"},
        {"allreduce -1 - any ring", "line 1", "numbers"},
        {"allreduce 99999999999 - any ring", "line 1", "numbers"},
        {"allreduce - 99999999999G any ring", "line 1", "numbers"},
        {"allreduce - - some ring", "line 1", "apart"},
        {"allreduce 8-4 - any ring", "line 1", "LEAST-MOST"},
        {"allreduce 4- - any ring", "line 1", "LEAST-MOST"},
        {"allreduce 4-4-4 - any ring", "line 1", "LEAST-MOST"},
        {"allreduce 4/0 - any ring", "line 1", "NODES"},
        {"allreduce 4/ - any ring", "line 1", "NODES"},
        {"allreduce 4/- - any ring", "line 1", "NODES"},
        {"allreduce 4/2/2 - any ring", "line 1", "NODES"},
        {"allreduce - 4K-1K any ring", "line 1", "LEAST-MOST"},
        {"allreduce - 1/2 any ring", "line 1", "numbers"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char error[512] = "";
        halay_selection_t *s = NULL;
        write_file(wrong[i].text);
        int rc = halay_selection_make(NULL, file_path, NULL, error, sizeof(error), &s);
        CHECK(rc == HALAY_EINVAL && !s, "%s: %d", wrong[i].text, rc);
        CHECK(strstr(error, wrong[i].line) && strstr(error, wrong[i].says) &&
                  strstr(error, file_path),
              "%s: %s", wrong[i].text, error);
    }
}

/* Whatever is asked for, what serves a call can serve it. */
static void test_restrictions(void)
{
    static const char *const ways[][2] = {
        {NULL, NULL}, {"allreduce=ring,allgather=circulant", NULL}, {NULL, "model"}};
    for (size_t w = 0; w < 3; w++) {
        use(ways[w][0], ways[w][1], NULL);
        for (uint32_t i = 0; i < 11u * 4 * 3 * 2 * 16; i++) {
            static const uint32_t ranks[] = {1, 6, 8, 300};
            static const uint64_t counts[] = {0, 100, 1u << 22};
            struct hly_ask ask = {.collective = i % 11,
                                  .nranks = ranks[i / 11 % 4],
                                  .count = counts[i / 44 % 3],
                                  .element_bytes = 4};
            ask.nnodes = i / 132 % 2 ? (ask.nranks + 1) / 2 : 1;
            ask.in_place = i / 264 & 1;
            ask.vector = i / 264 & 2;
            ask.commutative = i / 264 & 4;
            ask.scattered = i / 264 & 8;
            const struct hly_row *row;
            const char *why = NULL;
            uint32_t planner, none = 1;
            for (uint32_t p = 0; p < halay_planner_count(); p++)
                none &= halay_planner_get(p)->collective != ask.collective ||
                        !hly_ask_serves(&ask, p, true, NULL);
            int rc = hly_select_row(context.settings.selection, &ask, &planner, &row);
            CHECK(none == (rc == HALAY_EPLAN), "case %u: %d", i, rc);
            CHECK(rc || hly_ask_serves(&ask, planner, true, &why), "case %u: %s", i, why);
            CHECK(rc || halay_planner_get(planner)->collective == ask.collective, "case %u", i);
        }
    }
}

static void test_model(void)
{
    halay_shape_t *shape;
    char error[256] = "", text[4096];

    use(NULL, "model", NULL);
    if (halay_shape_make(NULL, 8, &shape))
        exit(1);
    for (uint64_t count = 1; count <= 1u << 24; count *= 16) {
        halay_question_t q = {.collective = HALAY_ALLREDUCE,
                              .commutative = 1,
                              .element_bytes = 4,
                              .count = count,
                              .shape = shape};
        halay_explanation_t *e;
        CHECK(!halay_explain(context.settings.selection, &q, &e), "explain");
        CHECK(e->chosen < e->ncandidates, "none is chosen");
        for (uint32_t i = 0; i < e->ncandidates; i++)
            CHECK(e->candidate[i].refused || e->candidate[i].cost.predicted_ns >=
                                                 e->candidate[e->chosen].cost.predicted_ns,
                  "%llu: %s is faster than %s", (unsigned long long)count,
                  halay_planner_get(e->candidate[i].planner)->name,
                  halay_planner_get(e->candidate[e->chosen].planner)->name);
        CHECK(!strcmp(chosen(HALAY_ALLREDUCE, count, 8, 1, false),
                      halay_planner_get(e->candidate[e->chosen].planner)->name),
              "explain and the engine differ");
        size_t need = halay_explanation_print(e, 1, NULL, 0);
        CHECK(need == strlen(text) + 1 || halay_explanation_print(e, 1, text, sizeof(text)) == need,
              "bytes needed");
        halay_explanation_free(e);
    }
    halay_shape_free(shape);
    write_file("call_ns 1\n");
    halay_selection_t *s;
    CHECK(halay_selection_make(NULL, NULL, file_path, error, sizeof(error), &s) == HALAY_EINVAL &&
              strstr(error, "step_ns is missing") && strstr(error, "model:"),
          "%s", error);
}

/* The model knows what the ways to and from a device cost: a stage carries 1/4 of the bytes. */
static void test_model_apart(void)
{
    static const uint32_t nodes[] = {0, 0, 0, 0, 1, 1, 1, 1};
    static const halay_collective_t collectives[] = {
        HALAY_ALLREDUCE, HALAY_BROADCAST, HALAY_ALLGATHER, HALAY_REDUCE_SCATTER, HALAY_ALLTOALL};
    halay_shape_t *shape;

    use(NULL, "model", NULL);
    if (halay_shape_make(nodes, 8, &shape))
        exit(1);
    for (size_t i = 0; i < sizeof(collectives) / sizeof(collectives[0]); i++)
        for (uint32_t group = 0; group < 2; group++) {
            halay_question_t q = {.collective = collectives[i],
                                  .commutative = 1,
                                  .element_bytes = 4,
                                  .count = 1u << 22,
                                  .group = group,
                                  .apart = 1,
                                  .shape = shape};
            halay_explanation_t *e;
            CHECK(!halay_explain(context.settings.selection, &q, &e), "explain");
            const char *name = halay_planner_get(e->candidate[e->chosen].planner)->name;
            CHECK(!strstr(name, "stage") == !group, "%s: %s", halay_collective_name(collectives[i]),
                  name);
            halay_explanation_free(e);
        }
    halay_shape_free(shape);
    use(NULL, NULL, NULL);
}

static const char *for_broadcast(uint32_t nnodes, bool scattered)
{
    struct hly_ask ask = {.collective = HALAY_BROADCAST,
                          .nranks = 8,
                          .nnodes = nnodes,
                          .commutative = true,
                          .scattered = scattered,
                          .count = 1u << 20,
                          .element_bytes = 4};
    const struct hly_row *row;
    uint32_t planner;
    CHECK(!hly_select_row(context.settings.selection, &ask, &planner, &row), "none serves");
    return halay_planner_get(planner)->name;
}

/* A chain crosses the network once a node only where each node's ranks follow one another. */
static void test_together(void)
{
    use(NULL, NULL, NULL);
    CHECK(strcmp(for_broadcast(1, false), "scatter_allgather") == 0, "one node");
    CHECK(strcmp(for_broadcast(2, false), "chain") == 0, "together");
    CHECK(strcmp(for_broadcast(2, true), "two_level") == 0, "scattered");
    CHECK(strcmp(for_broadcast(8, false), "scatter_allgather") == 0, "apart");
    write_file("broadcast - - together knomial\n");
    use(NULL, file_path, NULL);
    CHECK(strcmp(for_broadcast(1, false), "scatter_allgather") == 0, "one node, with a file");
    CHECK(strcmp(for_broadcast(2, false), "knomial") == 0, "together, with a file");
    CHECK(strcmp(for_broadcast(2, true), "two_level") == 0, "scattered, with a file");
}

/*
 * Rows against the model, on nodes with several ranks: what they choose may not take twice the time
 * of the best. So a shape without rows of its own is found, not a row that is a little off.
 */
static void test_rows_by_model(void)
{
    static const uint32_t shapes[][2] = {{4, 2}, {8, 2}, {16, 4}, {32, 4}};
    use(NULL, NULL, NULL);
    for (uint32_t i = 0; i < HALAY_COLLECTIVE_COUNT * 4 * 4; i++) {
        uint32_t nranks = shapes[i % 4][0], nnodes = shapes[i % 4][1], node_of_rank[32];
        uint64_t count = (uint64_t)16 << 6 * (i / 4 % 4);
        halay_shape_t *shape;
        halay_explanation_t *e;
        double best = -1;
        for (uint32_t r = 0; r < nranks; r++)
            node_of_rank[r] = r / (nranks / nnodes);
        CHECK(!halay_shape_make(node_of_rank, nranks, &shape), "shape");
        halay_question_t q = {.collective = i / 16,
                              .commutative = 1,
                              .element_bytes = 4,
                              .count = i / 16 == HALAY_BARRIER ? 0 : count,
                              .shape = shape};
        CHECK(!halay_explain(context.settings.selection, &q, &e), "explain");
        for (uint32_t c = 0; c < e->ncandidates; c++)
            if (!e->candidate[c].refused && !e->candidate[c].result &&
                (best < 0 || e->candidate[c].cost.predicted_ns < best))
                best = e->candidate[c].cost.predicted_ns;
        CHECK(best > 0 && e->candidate[e->chosen].cost.predicted_ns <= 2 * best,
              "%s of %llu x 4, %u ranks on %u nodes: %s takes %.2f times the best",
              halay_collective_name((halay_collective_t)q.collective), (unsigned long long)q.count,
              nranks, nnodes, halay_planner_get(e->candidate[e->chosen].planner)->name,
              e->candidate[e->chosen].cost.predicted_ns / best);
        halay_explanation_free(e);
        halay_shape_free(shape);
    }
}

int main(void)
{
    use(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *name = chosen(cases[i].collective, cases[i].count, cases[i].nranks,
                                  cases[i].nnodes, cases[i].vector);
        CHECK(strcmp(name, cases[i].name) == 0, "case %zu: %s, not %s", i, name, cases[i].name);
    }
    test_crowded();
    test_series();
    test_group();
    test_group_offered();
    test_apart();
    test_names();
    test_rows();
    test_ranges();
    test_kept();
    test_wrong_rows();
    test_restrictions();
    test_model();
    test_model_apart();
    test_together();
    test_rows_by_model();
    unlink(file_path);
    halay_selection_free(context.settings.selection);
    hly_select_forget(&comm);
    return failures != 0;
}
