/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - which ranks a call waits for, and when the next notice is due (waits.h). */
#include "waits.h"

#include <stddef.h>

/* ---------------------------------------------------------------- notices */

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

/* ---------------------------------------------------------------- ranks */

void hly_waits_begin(struct hly_waits *w, uint64_t since_ns, uint64_t first_ns)
{
    w->notices = (struct hly_notices){since_ns, first_ns, 0};
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        struct hly_awaited *a = &w->awaited[i];
        a->says = 0;
        a->doing = HLY_DOING_UNKNOWN;
        a->reported_ns = a->heard_ns = a->stopped_ns = 0;
        a->helper = (struct hly_helper){0};
    }
}

struct hly_awaited *hly_waits_find(struct hly_waits *w, int rank)
{
    for (int i = 0; i < HLY_AWAITED_MOST; i++)
        if (w->awaited[i].rank == (uint32_t)rank + 1)
            return &w->awaited[i];
    return NULL;
}

struct hly_awaited *hly_waits_add(struct hly_waits *w, int rank)
{
    struct hly_awaited *a = hly_waits_find(w, rank);
    for (int i = 0; !a && i < HLY_AWAITED_MOST; i++)
        if (!w->awaited[i].rank) {
            a = &w->awaited[i];
            *a = (struct hly_awaited){.rank = (uint32_t)rank + 1};
        }
    return a;
}

void hly_waits_none(struct hly_waits *w, uint64_t now)
{
    for (int i = 0; i < HLY_AWAITED_MOST; i++) {
        struct hly_awaited *a = &w->awaited[i];
        a->awaited = false;
        if (!a->asked_ns && now > a->reported_ns + HLY_FRESH_NS && now > a->heard_ns + HLY_FRESH_NS)
            a->rank = 0;
    }
}

bool hly_awaited_is_silent(const struct hly_awaited *a, uint64_t now)
{
    return a->asked_ns && now >= a->asked_ns + HLY_SILENT_NS;
}

bool hly_awaited_is_missing(const struct hly_awaited *a, uint64_t now)
{
    if (!a->rank)
        return false;
    if (a->reported_ns && now < a->reported_ns + HLY_FRESH_NS)
        return true;
    return hly_awaited_is_silent(a, now) ||
           (a->awaited && a->heard_ns && a->says && a->says != HLY_SEEN_HERE);
}

bool hly_awaited_is_behind(const struct hly_awaited *a, uint64_t now)
{
    return a->says == HLY_SEEN_BEHIND_BY ||
           (a->says == HLY_SEEN_BEHIND && !hly_awaited_is_silent(a, now));
}

bool hly_awaited_is_fresh(const struct hly_awaited *a, uint64_t now)
{
    return a->rank && a->heard_ns && now < a->heard_ns + HLY_FRESH_NS;
}

bool hly_waits_any_missing(const struct hly_waits *w, uint64_t now)
{
    for (int i = 0; i < HLY_AWAITED_MOST; i++)
        if (hly_awaited_is_missing(&w->awaited[i], now))
            return true;
    return false;
}

bool hly_awaited_ask(struct hly_awaited *a, uint64_t again_ns, uint64_t now)
{
    if (a->asked_ns || now < a->heard_ns + again_ns)
        return false;
    a->asked_ns = now;
    return true;
}

bool hly_awaited_ask_helper(const struct hly_awaited *a, uint64_t now, bool *lost)
{
    *lost = a->helper.asked_ns || !a->helper.rank;
    return !a->helper.asked_ns || now >= a->helper.asked_ns + HLY_AGAIN_NS;
}

void hly_awaited_answers(struct hly_awaited *a, bool here, uint32_t calls, uint64_t now)
{
    a->asked_ns = 0;
    a->heard_ns = now;
    a->says = here ? HLY_SEEN_HERE : HLY_SEEN_BEHIND;
    a->calls = calls;
    hly_awaited_see(a, HLY_DOING_UNKNOWN, now);
}

void hly_awaited_helped(struct hly_awaited *a, uint8_t doing, int64_t pid, uint64_t now)
{
    a->helper.asked_ns = 0;
    a->pid = pid;
    hly_awaited_see(a, doing, now);
}

void hly_awaited_reported(struct hly_awaited *a, uint32_t seen, uint32_t calls, uint64_t now)
{
    if (seen == HLY_SEEN_BEHIND && a->says == HLY_SEEN_HERE)
        return; /* an old report: the rank has made the call since */
    a->reported_ns = now;
    if (seen == HLY_SEEN_BEHIND)
        a->says = HLY_SEEN_BEHIND_BY;
    else if (a->says == HLY_SEEN_BEHIND_BY)
        a->says = 0;
    a->calls = calls;
    /* A report of UNKNOWN, from a rank that cannot look at the process, does not replace one that
     * could. */
    if (seen <= HLY_DOING_STOPPED && (seen != HLY_DOING_UNKNOWN || !a->doing))
        hly_awaited_see(a, (uint8_t)seen, now);
}

void hly_awaited_see(struct hly_awaited *a, uint8_t doing, uint64_t now)
{
    const uint64_t since = now - a->seen_ns;
    if (doing != HLY_DOING_STOPPED)
        a->stopped_ns = 0;
    else if (a->doing == HLY_DOING_STOPPED) /* a longer time does not count: this rank may have been
                                               stopped, too */
        a->stopped_ns += since < HLY_AGAIN_NS ? since : HLY_AGAIN_NS;
    a->doing = doing;
    a->seen_ns = now;
}
