/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - when the next notice is due (waits.h). */
#include "waits.h"

uint64_t hly_notices_due_ns(const struct hly_notices *n)
{
    const bool ever =
        n->first_ns && n->given < 64 && n->first_ns <= (UINT64_MAX - n->since_ns) >> n->given;
    return ever ? n->since_ns + (n->first_ns << n->given) : UINT64_MAX;
}

bool hly_notices_give(struct hly_notices *n, uint64_t now_ns)
{
    const uint32_t before = n->given;
    while (hly_notices_due_ns(n) <= now_ns)
        n->given++;
    return n->given > before;
}
