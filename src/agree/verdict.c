/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - which of two verdicts wins. */
#include "agree/verdict.h"

#include <string.h>

bool hly_verdict_better(const struct hly_verdict_wire *a, const struct hly_verdict_wire *b)
{
    const bool runs_on = a->cause == HLY_CAUSE_DEVICE, other = b->cause == HLY_CAUSE_DEVICE;
    if (runs_on != other)
        return runs_on; /* whatever else there is: memory may still change */
    if (!a->of != !b->of)
        return a->of; /* since then ranks are out of step: it wins */
    if (a->cause != b->cause)
        return a->cause < b->cause;
    if (a->rank != b->rank)
        return (uint32_t)a->rank < (uint32_t)b->rank; /* -1, nobody, is last */
    if (a->other != b->other)
        return (uint32_t)a->other < (uint32_t)b->other;
    const int order = memcmp(a, b, offsetof(struct hly_verdict_wire, detail));
    if (order)
        return order < 0;
    const size_t mine = strlen(a->detail), theirs = strlen(b->detail);
    return mine != theirs ? mine > theirs : strcmp(a->detail, b->detail) > 0; /* who says more */
}

void hly_verdict_drop_lists(struct hly_verdict_wire *verdict)
{
    memset(verdict->present, 0, sizeof(verdict->present));
    memset(verdict->gone, 0, sizeof(verdict->gone));
    verdict->stamp = 0;
}
