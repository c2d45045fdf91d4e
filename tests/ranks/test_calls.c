/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce, gather, scatter, alltoall, scan, their v forms, send and receive: p = 1 to 9, every
 * planner, sizes, types, roots, in place, blocking and many in flight, against a serial reference.
 *
 *   test_calls SETUP [RANKS]
 */
#include <string.h>

#include "calls.h"
#include "device/device_builtin.h"

#define FLIGHTS 60

static const struct setup {
    const char *name;
    bool shm, late_device, nodes, there; /* there: in that device's own memory */
    halay_inproc_faults_t faults;
} setups[] = {
    {.name = "shm", .shm = true},
    {.name = "inproc"},
    {.name = "put",
     .late_device = true,
     .faults = {.seed = 3,
                .delay_polls_max = 3,
                .reorder = 1,
                .late_put_polls = 5,
                .hide_capabilities = HALAY_CAN_LAND,
                .eager_bytes = 128}},
    {.name = "tagged",
     .faults = {.seed = 4,
                .delay_polls_max = 3,
                .reorder = 1,
                .late_put_polls = 5,
                .hide_capabilities = HALAY_CAN_PUT,
                .eager_bytes = 128}},
    {.name = "staged",
     .late_device = true,
     .nodes = true,
     .faults = {.seed = 5,
                .delay_polls_max = 4,
                .reorder = 1,
                .again_percent = 30,
                .queue_slots = 3,
                .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                .eager_bytes = 64,
                .piece_bytes = 512}},
    {.name = "there", .shm = true, .late_device = true, .there = true},
    {.name = "there-put",
     .late_device = true,
     .there = true,
     .nodes = true,
     .faults = {.seed = 6,
                .delay_polls_max = 3,
                .reorder = 1,
                .late_put_polls = 5,
                .hide_capabilities = HALAY_CAN_LAND,
                .eager_bytes = 128}},
};

struct plan { /* what is forced */
    const char *name;
    halay_collective_t collective;
};

static void run_one(struct rank *r, struct call c, uint64_t salt)
{
    for (int blocking = 0; blocking < 2; blocking++) {
        struct call now = c;
        now.blocking = blocking;
        call_start(&now, r, r->world, salt + (uint64_t)blocking);
        call_finish(&now);
    }
}

static void sizes(struct rank *r, enum call_kind kind)
{
    const size_t counts[] = {0, 1, 3, 33, 130, 2049};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (int root = 0; root < r->nranks; root += 1 + r->nranks / 3) {
                struct call c = {.kind = kind,
                                 .count = counts[i],
                                 .type = i % 2 ? HALAY_INT32 : HALAY_FLOAT64,
                                 .root = root,
                                 .in_place = in_place};
                run_one(r, c, counts[i] * 3 + (size_t)root);
                if (!call_is_rooted(kind))
                    break;
            }
}

static void large(struct rank *r, enum call_kind kind)
{
    struct call c = {.kind = kind,
                     .count = 30011,
                     .type = HALAY_INT16,
                     .root = r->nranks - 1,
                     .in_place = false};
    run_one(r, c, 5);
    c.in_place = true;
    run_one(r, c, 6);
}

static void types(struct rank *r, enum call_kind kind)
{
    for (int type = 0; type < HALAY_TYPE_COUNT; type++)
        for (int op = 0; op < HALAY_OP_COUNT; op++) {
            bool complex = type == HALAY_COMPLEX64 || type == HALAY_COMPLEX128;
            bool scans = kind == CALL_SCAN || kind == CALL_EXSCAN;
            if (call_reduces(kind) ? !halay_op_takes((halay_op_t)op, (halay_type_t)type) : op)
                continue;
            if ((op == HALAY_AVERAGE && scans) || (op == HALAY_PROD && complex))
                continue; /* no such call; zeros have signs that depend on the order */
            struct call c = {.kind = kind,
                             .count = 7,
                             .type = (halay_type_t)type,
                             .op = (halay_op_t)op,
                             .in_place = type & 1};
            call_start(&c, r, r->world, (uint64_t)(type * 100 + op));
            call_finish(&c);
        }
}

/* Far more than the window holds, of all kinds, ended in another order than started. */
static void in_flight(struct rank *r, const struct plan *plan)
{
    static const size_t counts[] = {5, 300, 0, 40};
    struct call c[FLIGHTS];
    for (int i = 0; i < FLIGHTS; i++) {
        enum call_kind kind = (enum call_kind)(i % CALL_KINDS);
        if (plan->name)
            while (call_collective(kind) != plan->collective)
                kind = (enum call_kind)((kind + 1) % CALL_KINDS);
        c[i] = (struct call){.kind = kind,
                             .count = counts[i / CALL_KINDS % 4],
                             .type = HALAY_INT32,
                             .root = i % r->nranks,
                             .in_place = i / 2 % 2};
        call_start(&c[i], r, r->world, (uint64_t)i);
    }
    for (int i = 0; i < FLIGHTS; i++)
        call_finish(&c[(i * 7 + r->rank * 13) % FLIGHTS]);
}

static void all(struct rank *r)
{
    const struct plan *plan = r->arg;
    for (int k = 0; k < CALL_KINDS; k++) {
        enum call_kind kind = (enum call_kind)k;
        if (plan->name && (call_collective(kind) != plan->collective || kind == CALL_SEND))
            continue;
        sizes(r, kind);
        large(r, kind);
        if (r->nranks <= 5)
            types(r, kind);
    }
    in_flight(r, plan);
}

static void run(const struct setup *setup, int nranks, struct plan plan)
{
    static const int nodes[] = {0, 1, 0, 0, 1, 2, 2, 1, 0};
    struct hly_device_late_arg late = {
        .seed = 9, .delay_polls_max = 4, .capacity = 3, .own_memory = setup->there};
    char forced[96];
    snprintf(forced, sizeof(forced), "%s=%s", halay_collective_name(plan.collective), plan.name);
    struct ranks_options options = {.nranks = nranks,
                                    .shm = setup->shm,
                                    .faults = &setup->faults,
                                    .algorithm = plan.name ? forced : NULL,
                                    .node_of_rank = setup->nodes ? nodes : NULL,
                                    .device = setup->late_device ? &hly_device_late : NULL,
                                    .device_arg = setup->late_device ? &late : NULL};
    ranks_run(&options, all, &plan);
}

int main(int argc, char **argv)
{
    const struct setup *setup = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof(setups) / sizeof(setups[0]); i++)
        if (!strcmp(argv[1], setups[i].name))
            setup = &setups[i];
    CHECK(setup, "usage: test_calls SETUP [RANKS]");
    for (int p = 1; p <= 9; p++) {
        if (argc > 2 && atoi(argv[2]) != p)
            continue;
        run(setup, p, (struct plan){NULL, HALAY_BARRIER});
        for (uint32_t i = 0; i < halay_planner_count(); i++) {
            const halay_planner_info_t *info = halay_planner_get(i);
            const halay_planner_call_t call = {.nranks = (uint32_t)p, .count = 1, .commutative = 1};
            if (info->collective >= HALAY_REDUCE && halay_planner_serves(i, &call, NULL))
                run(setup, p, (struct plan){info->name, (halay_collective_t)info->collective});
        }
    }
    return 0;
}
