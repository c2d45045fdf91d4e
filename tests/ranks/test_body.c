/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One body over transports x faults x algorithms x ranks x types x operations x sizes: every
 * collective, in and out of place, against a serial reference, bit for bit, guards around each
 * buffer.
 *
 *   test_body SETUP [RANKS | all]   setups are listed below; without, 1 to 4 and 7 ranks. A direct
 *                                   one takes some of the algorithms and calls, "all" takes all
 *
 * With several nodes, the ranks are those of the shapes below.
 */
#include <halay/plan.h>
#include <string.h>

#include "../double/cuda/double.h"
#include "device/device_builtin.h"
#include "ranks.h"
#include "reference.h"

#define GUARD     64
#define TWO_LEVEL 11 /* the first such entry of the algorithms */

static const halay_inproc_faults_t none, narrow = {.seed = 6,
                                                   .delay_polls_max = 8,
                                                   .reorder = 1,
                                                   .queue_slots = 2,
                                                   .connect_polls = 50,
                                                   .again_percent = 20};
static const halay_inproc_faults_t awake = {
    .seed = 7, .hide_capabilities = HALAY_CAN_SLEEP, .eager_bytes = 4096};
static const halay_inproc_faults_t several = {.seed = 9,
                                              .delay_polls_max = 3,
                                              .reorder = 1,
                                              .queue_slots = 2,
                                              .again_percent = 20,
                                              .hide_capabilities = HALAY_CAN_LAND,
                                              .eager_bytes = 8192,
                                              .message_bytes = 2048,
                                              .piece_bytes = 512};
static const halay_inproc_faults_t all_late = {.seed = 8,
                                               .delay_polls_max = 6,
                                               .reorder = 1,
                                               .late_put_polls = 5,
                                               .again_percent = 20,
                                               .eager_bytes = 128,
                                               .connect_polls = 20};

static const halay_inproc_faults_t lent = {.seed = 10,
                                           .delay_polls_max = 3,
                                           .reorder = 1,
                                           .again_percent = 20,
                                           .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                                           .cache = 1,
                                           .eager_bytes = 1024,
                                           .lend_bytes = 100};

static const struct setup {
    const char *name;
    bool shm, late_device, nodes;
    const halay_inproc_faults_t *faults;
    bool lends, there; /* there: buffers in that device's own memory */
    bool gpu;          /* which is CUDA's, over the double of its driver */
    bool direct;       /* transports read and write it; each rank is a node */
} setups[] = {
    {"shm", true, false, false, &none},
    {"shm-lent", true, false, false, &none, true},
    {"lent", false, false, false, &lent, true},
    {"lent-late", false, true, false, &lent, true},
    {"shm-late", true, true, false, &none},
    {"inproc", false, false, false, &none},
    {"put", false, true, false, &ranks_put},
    {"tagged", false, false, false, &ranks_tagged},
    {"staged", false, true, false, &ranks_staged},
    {"narrow", false, false, false, &narrow},
    {"awake", false, false, false, &awake},
    {"several", false, true, false, &several},
    {"nodes", false, false, true, &none},
    {"nodes-late", false, true, true, &all_late},
    {"there", true, true, false, &none, false, true},
    {"there-put", false, true, false, &ranks_put, false, true},
    {"there-nodes", false, true, true, &all_late, false, true},
    {"cuda", true, false, false, &none, false, true, true}, /* of test_ranks_cuda */
    {"cuda-nodes", false, false, true, &all_late, false, true, true},
    {"cuda-direct", false, false, false, &all_late, false, true, true, true},
};

struct buffers {
    char *in, *out, *want;
    size_t bytes;
    char *here[2]; /* of those in a device's memory: the host's in and out, before and after */
};

/* Memory that peers map, of all ranks but each third. */
static _Thread_local char *pool;
#define POOL ((size_t)2 << 20) /* for each buffer */

static char *take_one(size_t bytes, bool second)
{
    return pool && bytes <= POOL ? pool + second * POOL : malloc(bytes);
}

static void give_one(char *memory)
{
    if (!pool || (memory != pool && memory != pool + POOL))
        free(memory);
}

static struct buffers take(size_t bytes)
{
    struct buffers b = {take_one(bytes + 2 * GUARD, false),
                        take_one(bytes + 2 * GUARD, true),
                        malloc(bytes + 1),
                        bytes,
                        {NULL}};
    CHECK(b.in && b.out && b.want, "no memory");
    memset(b.in, 0xa5, bytes + 2 * GUARD);
    memset(b.out, 0x5a, bytes + 2 * GUARD);
    b.in += GUARD;
    b.out += GUARD;
    return b;
}

/* Call it when the input is complete: where calls have buffers in a device's memory, these are. */
static void go_there(struct rank *r, struct buffers *b)
{
    char **at[2] = {&b->in, &b->out};
    for (int i = 0; i < 2 && ranks_there(r->context); i++) {
        b->here[i] = *at[i];
        *at[i] = (char *)ranks_there_take(r->context, b->bytes + 2 * GUARD) + GUARD;
        ranks_there_put(*at[i] - GUARD, b->here[i] - GUARD, b->bytes + 2 * GUARD);
    }
}

static void come_back(struct rank *r, struct buffers *b)
{
    char **at[2] = {&b->in, &b->out};
    for (int i = 0; i < 2 && b->here[i]; i++) {
        ranks_there_get(b->here[i] - GUARD, *at[i] - GUARD, b->bytes + 2 * GUARD);
        ranks_there_drop(r->context, *at[i] - GUARD);
        *at[i] = b->here[i];
    }
}

static void drop_signs_of_zero(char *data, size_t bytes, halay_type_t type);

static void check_and_drop(struct rank *r, struct buffers b, size_t want_at, size_t want_bytes,
                           const char *what, size_t count, halay_type_t type, halay_op_t op)
{
    come_back(r, &b);
    for (int i = 0; i < GUARD; i++)
        CHECK(b.out[-1 - i] == 0x5a && b.out[(ptrdiff_t)b.bytes + i] == 0x5a,
              "%s of %zu %s wrote outside of its buffer", what, count, halay_type_name(type));
    if (op == HALAY_PROD && (type == HALAY_COMPLEX64 || type == HALAY_COMPLEX128)) {
        drop_signs_of_zero(b.out + want_at, want_bytes, type);
        drop_signs_of_zero(b.want, want_bytes, type);
    }
    for (size_t i = 0; i < want_bytes; i++)
        CHECK(b.out[want_at + i] == b.want[want_at + i],
              "rank %d of %d: %s of %zu %s, %s: byte %zu is %02x, not %02x", r->rank, r->nranks,
              what, count, halay_type_name(type), halay_op_name(op), want_at + i,
              b.out[want_at + i] & 0xff, b.want[want_at + i] & 0xff);
    give_one(b.in - GUARD);
    give_one(b.out - GUARD);
    free(b.want);
}

/* The sign of a zero in a complex product depends on the order; the integers behind it do not. */
static void drop_signs_of_zero(char *data, size_t bytes, halay_type_t type)
{
    size_t part = halay_type_bytes(type) / 2;
    for (size_t i = 0; i < bytes; i += part) {
        double d = 1;
        float f = 1;
        memcpy(part == sizeof(d) ? (void *)&d : (void *)&f, data + i, part);
        if (d == 0 || f == 0)
            memset(data + i, 0, part);
    }
}

static void good(int rc, const char *what, size_t count)
{
    CHECK(rc == HALAY_OK, "%s of %zu: %s", what, count, halay_strerror(rc));
}

static void allreduce(struct rank *r, size_t count, halay_type_t type, halay_op_t op, bool in_place)
{
    size_t e = halay_type_bytes(type);
    uint64_t salt = count * 7 + in_place;
    struct buffers b = take(count * e);
    for (size_t i = 0; i < count; i++) {
        reference_input(type, op, r->rank, i, salt, (in_place ? b.out : b.in) + i * e);
        reference_result(type, op, r->nranks, i, salt, b.want + i * e);
    }
    go_there(r, &b);
    good(halay_allreduce(in_place ? HALAY_IN_PLACE : b.in, b.out, count, type, op, r->world),
         "allreduce", count);
    check_and_drop(r, b, 0, count * e, "allreduce", count, type, op);
}

static void reduce_scatter(struct rank *r, size_t count, halay_type_t type, halay_op_t op,
                           bool in_place)
{
    size_t e = halay_type_bytes(type), all = count * (size_t)r->nranks;
    uint64_t salt = count * 11 + in_place;
    struct buffers b = take(all * e);
    for (size_t i = 0; i < all; i++)
        reference_input(type, op, r->rank, i, salt, (in_place ? b.out : b.in) + i * e);
    for (size_t i = 0; i < count; i++)
        reference_result(type, op, r->nranks, (size_t)r->rank * count + i, salt, b.want + i * e);
    go_there(r, &b);
    good(halay_reduce_scatter(in_place ? HALAY_IN_PLACE : b.in, b.out, count, type, op, r->world),
         "reduce_scatter", count);
    check_and_drop(r, b, 0, count * e, "reduce_scatter", count, type, op);
}

static void broadcast(struct rank *r, size_t count, halay_type_t type, int root)
{
    size_t e = halay_type_bytes(type);
    struct buffers b = take(count * e);
    for (size_t i = 0; i < count; i++) {
        reference_input(type, HALAY_SUM, r->rank, i, count, b.out + i * e);
        reference_input(type, HALAY_SUM, root, i, count, b.want + i * e);
    }
    go_there(r, &b);
    good(halay_broadcast(b.out, count, type, root, r->world), "broadcast", count);
    check_and_drop(r, b, 0, count * e, "broadcast", count, type, HALAY_SUM);
}

static void allgather(struct rank *r, size_t count, halay_type_t type, bool in_place)
{
    size_t e = halay_type_bytes(type), own = count * (size_t)r->rank;
    struct buffers b = take(count * e * (size_t)r->nranks);
    for (size_t i = 0; i < count; i++)
        reference_input(type, HALAY_SUM, r->rank, i, count,
                        (in_place ? b.out + own * e : b.in) + i * e);
    for (int k = 0; k < r->nranks; k++)
        for (size_t i = 0; i < count; i++)
            reference_input(type, HALAY_SUM, k, i, count, b.want + ((size_t)k * count + i) * e);
    go_there(r, &b);
    good(halay_allgather(in_place ? HALAY_IN_PLACE : b.in, b.out, count, type, r->world),
         "allgather", count);
    check_and_drop(r, b, 0, b.bytes, "allgather", count, type, HALAY_SUM);
}

/* Blocks of different sizes, some empty, in reverse order with gaps of one element. */
static void allgatherv(struct rank *r, size_t count, halay_type_t type, bool in_place)
{
    size_t e = halay_type_bytes(type), counts[RANKS_MAX], displs[RANKS_MAX], at = 0;
    for (int k = r->nranks - 1; k >= 0; k--) {
        counts[k] = k % 3 == 1 ? 0 : count + (size_t)k;
        displs[k] = at;
        at += counts[k] + 1;
    }
    struct buffers b = take(at * e);
    memset(b.want, 0x5a, at * e); /* gaps stay as they were */
    char *own = in_place ? b.out + displs[r->rank] * e : b.in;
    for (size_t i = 0; i < counts[r->rank]; i++)
        reference_input(type, HALAY_SUM, r->rank, i, count, own + i * e);
    for (int k = 0; k < r->nranks; k++)
        for (size_t i = 0; i < counts[k]; i++)
            reference_input(type, HALAY_SUM, k, i, count, b.want + (displs[k] + i) * e);
    go_there(r, &b);
    good(halay_allgatherv(in_place ? HALAY_IN_PLACE : b.in, b.out, counts, displs, type, r->world),
         "allgatherv", count);
    check_and_drop(r, b, 0, at * e, "allgatherv", count, type, HALAY_SUM);
}

/* All that one size and type can be used for. */
static void collectives(struct rank *r, size_t count, halay_type_t type, halay_op_t op)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        allreduce(r, count, type, op, in_place);
        reduce_scatter(r, count, type, op, in_place);
        allgather(r, count, type, in_place);
        allgatherv(r, count, type, in_place);
    }
    for (int root = 0; root < r->nranks; root += 1 + r->nranks / 3)
        broadcast(r, count, type, root);
    good(halay_barrier(r->world), "barrier", 0);
}

/* Not 0: a run makes a third of the calls, and the one with the next number the next third. */
static unsigned thinned;

static bool left_out(int call)
{
    return thinned && (unsigned)call % 3 != thinned % 3;
}

static void all(struct rank *r)
{
    const struct setup *setup = r->arg;
    void *memory = NULL;
    if (setup->lends && r->rank % 3 < 2)
        CHECK(!halay_mem_alloc(r->context, 2 * POOL, &memory), "no memory");
    pool = memory;
    const size_t p = (size_t)r->nranks;
    const size_t sizes[] = {0, 1, 2, p - 1, p, p + 1, 31, 32, 33, 127, 1000, 2049, 20011};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        if (!left_out((int)s))
            collectives(r, sizes[s], s % 2 ? HALAY_INT32 : HALAY_FLOAT64, HALAY_SUM);
    for (int type = 0; type < HALAY_TYPE_COUNT; type++)
        for (int op = 0; op < HALAY_OP_COUNT; op++)
            if (halay_op_takes((halay_op_t)op, (halay_type_t)type) && !left_out(type + op)) {
                allreduce(r, 37, (halay_type_t)type, (halay_op_t)op, op & 1);
                reduce_scatter(r, 5, (halay_type_t)type, (halay_op_t)op, type & 1);
            }
}

/* The node of each rank. */
static const struct shape {
    int nranks, node_of_rank[8];
} shapes[] = {
    {4, {0, 0, 1, 1}},       {7, {0, 0, 0, 1, 1, 2, 2}}, {6, {0, 1, 0, 1, 0, 1}},
    {6, {0, 1, 2, 0, 1, 2}}, {4, {0, 1, 1, 1}},          {8, {0, 0, 0, 0, 0, 1, 1, 0}},
    {5, {0, 1, 2, 1, 3}},
};

static void run(const struct setup *setup, int nranks, const int *node_of_rank,
                const char *algorithm)
{
    struct hly_device_late_arg late = {
        .seed = 9, .delay_polls_max = 4, .capacity = 3, .own_memory = setup->there};
    struct hly_device_cuda_arg first = {.ordinal = 1};
    static const int alone[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct ranks_options options = {.nranks = nranks,
                                    .shm = setup->shm,
                                    .faults = setup->faults,
                                    .algorithm = algorithm,
                                    .node_of_rank = setup->direct ? alone : node_of_rank,
                                    .device = setup->late_device ? &hly_device_late
                                              : setup->gpu       ? &hly_device_cuda
                                                                 : NULL,
                                    .device_arg = setup->late_device ? (void *)&late : &first};
    ranks_run(&options, all, (void *)(uintptr_t)setup);
}

/* Of the double of CUDA's driver, where this program is linked with it. */
struct cuda_double_counts cuda_double_counts(void) __attribute__((weak));
struct cuda_double_settings *cuda_double_settings(void) __attribute__((weak));

static void direct_begin(void)
{
    CHECK(!setenv("HALAY_GPUDIRECT", "1", 1), "setenv");
    cuda_double_settings()->ordered = 0;
}

static void direct_end(void)
{
    const struct cuda_double_counts c = cuda_double_counts();
    printf("exports %llu, flushes %llu, copies that wait %llu, wrong uses %llu\n",
           (unsigned long long)c.exports, (unsigned long long)c.flushes,
           (unsigned long long)c.pageable, (unsigned long long)c.misused);
    CHECK(c.exports && c.flushes > c.exports, "nothing went directly");
    CHECK(!c.misused, "CUDA was used wrongly");
}

int main(int argc, char **argv)
{
    static const char *const algorithms[] = {
        NULL,
        "allreduce=ring,allgather=ring,reduce_scatter=ring",
        "allreduce=circulant,allgather=circulant,reduce_scatter=circulant",
        "allreduce=recursive_doubling,broadcast=dissemination_by_four,allgather=one_shot",
        "allreduce=one_shot,broadcast=chain,allgather=bruck,reduce_scatter=pairwise,"
        "barrier=dissemination_by_four",
        "allreduce=recursive_multiplying,broadcast=scatter_allgather",
        "allreduce=halving_doubling,broadcast=knomial",
        "allreduce=double_tree,broadcast=posted",
        "allreduce=two_stars,barrier=two_stars",
        "allreduce=star,broadcast=star,allgather=star,barrier=star",
        "allreduce=sliced_ring,broadcast=sliced_posted",
        "allreduce=two_level,broadcast=two_level,allgather=two_level,reduce_scatter=two_level,"
        "barrier=two_level",
        "allreduce=two_level_short"};
    static const int counts[] = {1, 2, 3, 4, 7, 5, 6, 8, 9};
    const bool every = argc > 2 && !strcmp(argv[2], "all");
    const struct setup *setup = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof(setups) / sizeof(setups[0]); i++)
        if (!strcmp(argv[1], setups[i].name))
            setup = &setups[i];
    CHECK(setup, "usage: test_body SETUP [RANKS | all]");
    if (setup->direct)
        direct_begin();
    const size_t nalgorithms = sizeof(algorithms) / sizeof(algorithms[0]);
    const size_t nshapes = sizeof(shapes) / sizeof(shapes[0]);
    for (size_t n = 0; setup->nodes && n < nshapes; n++)
        for (size_t a = 0; a < nalgorithms; a++)
            if (a == 0 || a >= TWO_LEVEL)
                if (argc < 3 || every || atoi(argv[2]) >= shapes[n].nranks)
                    run(setup, shapes[n].nranks, shapes[n].node_of_rank, algorithms[a]);
    for (size_t n = 0; !setup->nodes && n < sizeof(counts) / sizeof(counts[0]); n++)
        for (size_t a = 0; a < nalgorithms; a++)
            if (every || ((argc < 3 ? n < 5 : atoi(argv[2]) == counts[n]) &&
                          (!setup->direct || a == 1 || a % 3 == 0))) {
                thinned += setup->direct && !every;
                run(setup, counts[n], NULL, algorithms[a]);
            }
    if (setup->direct)
        direct_end();
    return 0;
}
