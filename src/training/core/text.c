/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - texts of errors and notices: both sides of a mismatch, or which ranks are missing. */
#include <string.h>

#include "../../waits/text.h"
#include "negotiate.h"

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* " of [2, 3] float32", or " of 6 float32" without a shape. */
static void put_size(struct hly_line *line, const struct hlt_announcement *says)
{
    const char *type = halay_type_name(hlt_announcement_type(says));
    if (!says->shape[0]) {
        hly_line_put(line, " of %llu %s", (unsigned long long)says->count, type);
        return;
    }
    hly_line_put(line, " of [");
    for (uint32_t d = 1; d < says->shape[0]; d++) {
        hly_line_put(line, d > 1 ? ", " : "");
        if (says->shape[d] == HLT_DIM_LARGE)
            hly_line_put(line, "2^32 or more");
        else
            hly_line_put(line, "%u", (unsigned)says->shape[d]);
    }
    hly_line_put(line, "] %s", type);
}

static void put_reduction(struct hly_line *line, const char *name,
                          const struct hlt_announcement *says)
{
    hly_line_put(line, "%s", name);
    put_size(line, says);
    hly_line_put(line, ", %s", halay_op_name(hlt_announcement_op(says)));
    if (double_of(says->prescale) != 1 || double_of(says->postscale) != 1)
        hly_line_put(line, ", scaled by %.17g and %.17g", double_of(says->prescale),
                     double_of(says->postscale));
    if (says->members)
        hly_line_put(line, ", in a group of %llu", (unsigned long long)says->members);
}

static void put_side(struct hly_line *line, int rank, const struct hlt_announcement *says)
{
    const uint32_t kind = hlt_announcement_kind(says);
    hly_line_put(line, "rank %d: ", rank);
    if (kind == HLT_KIND_ALLREDUCE || kind == HLT_KIND_REDUCE_SCATTER) {
        put_reduction(line, kind == HLT_KIND_ALLREDUCE ? "allreduce" : "reduce_scatter", says);
    } else if (kind == HLT_KIND_BROADCAST) {
        hly_line_put(line, "broadcast");
        put_size(line, says);
        hly_line_put(line, " from rank %d", (int)(says->what >> 32));
    } else if (kind == HLT_KIND_ALLGATHER || kind == HLT_KIND_ALLTOALL) {
        hly_line_put(line, "%s of rows", kind == HLT_KIND_ALLGATHER ? "allgather" : "alltoall");
        put_size(line, says);
    } else {
        hly_line_put(line, "barrier");
    }
}

static void put_memory_of(struct hly_line *line, uint32_t memory)
{
    if (memory == HALAY_MEMORY_CUDA)
        hly_line_put(line, ", in a GPU's memory (CUDA)");
    else if (memory == HALAY_MEMORY_HOST)
        hly_line_put(line, ", in the host's memory");
    else
        hly_line_put(line, ", in memory of kind %u", memory);
}

/* Adds the kind of memory, if that is what differs. */
static void put_memory(struct hly_line *line, const struct hlt_announcement *says,
                       const struct hlt_announcement *other)
{
    uint32_t memory = hlt_announcement_memory(says);
    if (!hlt_memory_alike(says, other) && memory != hlt_announcement_memory(other))
        put_memory_of(line, memory);
}

void hlt_text_mismatch(char *text, const struct hlt_record *record, const char *name)
{
    struct hly_line line = hly_line(text, HLT_TEXT_BYTES);
    int swap = record->other_rank < record->first_rank;
    const struct hlt_announcement *low = swap ? &record->other : &record->first;
    const struct hlt_announcement *high = swap ? &record->first : &record->other;
    hly_line_put(&line, "tensor '%s' differs between ranks: ", name);
    put_side(&line, swap ? record->other_rank : record->first_rank, low);
    put_memory(&line, low, high);
    hly_line_put(&line, "; ");
    put_side(&line, swap ? record->first_rank : record->other_rank, high);
    put_memory(&line, high, low);
    hly_line_put(&line, ". Submit it%s alike on all ranks",
                 record->first.members || record->other.members ? ", and all of its group," : "");
}

void hlt_text_unsupported(char *text, const struct hlt_core *core, const struct hlt_record *record,
                          int rank)
{
    struct hly_line line = hly_line(text, HLT_TEXT_BYTES);
    hly_line_put(&line, "rank %d (%s) has joined, and cannot be part of what others have: ", rank,
                 core->greetings[rank].host);
    put_side(&line, record->first_rank, &record->first);
    hly_line_put(
        &line,
        ". While a rank has joined only allreduces with sum or average, and barriers, go on");
}

void hlt_text_lacks(char *text, const struct hlt_core *core, const struct hlt_record *record,
                    int rank)
{
    struct hly_line line = hly_line(text, HLT_TEXT_BYTES);
    hly_line_put(&line, "rank %d (%s) has joined, and has no memory for its zeros: ", rank,
                 core->greetings[rank].host);
    put_side(&line, record->first_rank, &record->first);
    put_memory_of(&line, hlt_agreed_memory(&record->first));
    hly_line_put(&line, ". Submit a tensor in memory of that kind on each rank before one joins");
}

/* Has the rank not announced the tensor? record NULL: has it not joined? */
static int is_missing(const struct hlt_core *core, const struct hlt_record *record, int rank)
{
    return record ? hlt_join_missing(core, record, rank) : !hlt_rank_in(core->joins.ranks, rank);
}

/* " 1 (node7), 8-15 (node8), and 3 more" */
static void put_missing(struct hly_line *line, const struct hlt_core *core,
                        const struct hlt_record *record)
{
    const struct hlt_greeting *g = core->greetings;
    hly_line_put(line, " ");
    for (int r = 0, last; r < core->nranks; r = last + 1) {
        last = r;
        if (!is_missing(core, record, r))
            continue;
        while (last + 1 < core->nranks && is_missing(core, record, last + 1) &&
               !strcmp(g[r].host, g[last + 1].host))
            last++;
        if (hly_line_ranks(line, r, last))
            hly_line_put(line, " (%s)", g[r].host);
    }
    hly_line_more(line, ", ");
}

void hlt_text_join(char *text, const struct hlt_core *core)
{
    struct hly_line line = hly_line(text, HLT_TEXT_BYTES);
    hly_line_put(&line, "join: nothing was agreed on for %.1f s; not joined: rank",
                 (double)core->deadline_ns * 1e-9);
    put_missing(&line, core, NULL);
    hly_line_put(&line, ". Do all ranks join? Is one much slower? (HALAY_DEADLINE)");
}

static void put_self(struct hly_line *line, const struct hlt_core *core,
                     const struct hlt_notice *notice)
{
    const struct hlt_tensor *waits = core->waiting.head;
    if (notice->here[0])
        hly_line_put(line, ". This rank has submitted it before, first at %s", notice->here);
    if (!waits)
        return;
    hly_line_put(line, ". This rank waits for '%s'", waits->name);
    if (notice->waits[0])
        hly_line_put(line, " (%s)", notice->waits);
}

void hlt_text_notice(char *text, const struct hlt_core *core, const struct hlt_record *record,
                     const struct hlt_notice *notice)
{
    struct hly_line line = hly_line(text, HLT_TEXT_BYTES);
    hly_line_put(&line, "'%s'", notice->name);
    if (notice->others)
        hly_line_put(&line, " and %d more", notice->others);
    hly_line_put(&line, " not submitted by rank");
    put_missing(&line, core, record);
    hly_line_put(&line, "; ");
    hly_line_waited(&line, notice->waited_ns, "rank %d", notice->rank);
    if (notice->place[0])
        hly_line_put(&line, " (%s)", notice->place);
    if (!hlt_rank_in(record->announced, core->rank))
        put_self(&line, core, notice);
}

void hlt_text_timeout(char *text, const struct hlt_core *core, const struct hlt_record *record,
                      int rank, const char *name)
{
    struct hly_line line = hly_line(text, HLT_TEXT_BYTES);
    hly_line_put(&line, "tensor '%s': ", name);
    hly_line_waited(&line, core->deadline_ns, "rank %d", rank);
    hly_line_put(&line, "; not submitted by rank");
    put_missing(&line, core, record);
    hly_line_put(&line,
                 ". Do all ranks submit the same names? Is one much slower? (HALAY_DEADLINE)");
}
