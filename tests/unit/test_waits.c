/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_waits.c - who is awaited and when the next notice is due, with a clock that the test sets;
 * and the sentence, in buffers of all sizes.
 */
#include <string.h>

#include "../check.h"
#include "waits/text.h"
#include "waits/waits.h"

#define S  1000000000ull
#define MS 1000000ull

/* ---------------------------------------------------------------- notices */

static void notices_double(void)
{
    struct hly_notices n = {100 * S, S, 0};
    uint64_t given[64];
    int k = 0;
    for (uint64_t now = 100 * S; now < 8000 * S; now += S / 4)
        if (hly_notices_give(&n, now))
            given[k++] = now - 100 * S;
    for (int i = 0; i < k; i++)
        CHECK(given[i] == S << i, "notice %d after %.2f s", i, (double)given[i] * 1e-9);
    CHECK(k == 13, "%d notices in 7900 s", k); /* 1, 2, ... 4096 s */
}

static void notices_are_missed(void)
{
    struct hly_notices n = {5, 10, 0};
    MUST(!hly_notices_give(&n, 14));
    MUST(hly_notices_give(&n, 5 + 70)); /* 10, 20 and 40 at once */
    CHECK(n.given == 3, "%u", n.given);
    CHECK(hly_notices_due_ns(&n) == 5 + 80, "the next one after twice the time");
    MUST(!hly_notices_give(&n, 5 + 79));
    MUST(hly_notices_give(&n, 5 + 80));
}

static void notices_end(void)
{
    struct hly_notices none = {5, 0, 0}, far = {5, 1000000 * S, 0};
    CHECK(hly_notices_due_ns(&none) == UINT64_MAX && !hly_notices_give(&none, UINT64_MAX - 1), "0");
    for (uint64_t before = 0, due; (due = hly_notices_due_ns(&far)) < UINT64_MAX; before = due) {
        CHECK(due > before, "%u: it runs over", far.given);
        CHECK(hly_notices_give(&far, due), "%u: not given", far.given);
    }
    CHECK(far.given > 10 && !hly_notices_give(&far, UINT64_MAX - 1), "%u given", far.given);
}

/* ---------------------------------------------------------------- ranks */

static void asked_and_answers(void)
{
    struct hly_waits w = {0};
    uint64_t now = 100 * S;
    hly_waits_begin(&w, now, S);
    struct hly_awaited *a = hly_waits_add(&w, 3);
    a->awaited = true;
    MUST(a == hly_waits_find(&w, 3) && a == hly_waits_add(&w, 3) && !hly_waits_find(&w, 4));
    MUST(hly_awaited_ask(a, HLY_AGAIN_NS, now) &&
         !hly_awaited_ask(a, HLY_AGAIN_NS, now + 10 * S)); /* one open question */
    MUST(!hly_awaited_is_silent(a, now + 399 * MS) && hly_awaited_is_silent(a, now + 400 * MS));
    MUST(hly_waits_any_missing(&w, now + S) && !hly_awaited_is_behind(a, now + S));
    hly_awaited_answers(a, false, 7, now += S);
    MUST(hly_awaited_is_behind(a, now) && hly_awaited_is_missing(a, now) && a->calls == 7);
    MUST(!hly_awaited_ask(a, HLY_AGAIN_NS, now + 999 * MS) &&
         hly_awaited_ask(a, HLY_AGAIN_NS, now + S));
    MUST(!hly_awaited_is_behind(a, now + 2 * S)); /* it may have made the call since */
    hly_awaited_answers(a, true, 8, now += 2 * S);
    MUST(!hly_awaited_is_behind(a, now) && !hly_waits_any_missing(&w, now));
    MUST(hly_awaited_is_fresh(a, now + 2 * S) && !hly_awaited_is_fresh(a, now + 3 * S));
    hly_awaited_reported(a, HLY_SEEN_BEHIND, 8, now); /* that was before */
    MUST(!hly_waits_any_missing(&w, now));
    hly_waits_begin(&w, now, S); /* another call */
    MUST(!a->says && !hly_awaited_is_fresh(a, now) && hly_waits_find(&w, 3) == a);
}

static void others_report(void)
{
    struct hly_waits w = {0};
    uint64_t now = 100 * S;
    hly_waits_begin(&w, now, S);
    struct hly_awaited *a = hly_waits_add(&w, 0);
    hly_awaited_reported(a, HLY_SEEN_BEHIND, 5, now);
    MUST(hly_awaited_is_behind(a, now) && hly_awaited_is_missing(a, now + 2999 * MS));
    MUST(!hly_awaited_is_missing(a, now + 3 * S)); /* it was not repeated */
    hly_awaited_reported(a, HLY_DOING_STOPPED, 0, now);
    MUST(!hly_awaited_is_behind(a, now) && a->doing == HLY_DOING_STOPPED);
    hly_awaited_reported(a, HLY_DOING_UNKNOWN, 0, now); /* by one who cannot look */
    MUST(a->doing == HLY_DOING_STOPPED);
    hly_awaited_answers(a, true, 1, now);
    MUST(a->doing == HLY_DOING_UNKNOWN);
}

/* A stop counts from look to look, at most a second each; and anything else ends it. */
static void is_stopped(void)
{
    struct hly_waits w = {0};
    uint64_t now = 100 * S;
    struct hly_awaited *a = hly_waits_add(&w, 1);
    hly_awaited_see(a, HLY_DOING_STOPPED, now);
    CHECK(a->stopped_ns == 0, "one look");
    hly_awaited_see(a, HLY_DOING_STOPPED, now += S / 4);
    CHECK(a->stopped_ns == S / 4, "two looks");
    hly_awaited_see(a, HLY_DOING_STOPPED, now += 50 * S); /* this rank was stopped itself */
    CHECK(a->stopped_ns == S / 4 + S, "a long time without a look");
    hly_awaited_helped(a, HLY_DOING_SLEEPS, 77, now);
    MUST(a->stopped_ns == 0 && a->pid == 77);
}

static void helpers_are_tried(void)
{
    struct hly_waits w = {0};
    uint64_t now = 100 * S;
    bool lost;
    struct hly_awaited *a = hly_waits_add(&w, 1);
    MUST(hly_awaited_ask_helper(a, now, &lost) && lost); /* there is none yet */
    a->helper = (struct hly_helper){.rank = 3, .asked_ns = now};
    MUST(!hly_awaited_ask_helper(a, now + 999 * MS, &lost));
    MUST(hly_awaited_ask_helper(a, now + S, &lost) && lost); /* it is silent, too */
    hly_awaited_helped(a, HLY_DOING_RUNS, 5, now);
    MUST(hly_awaited_ask_helper(a, now, &lost) && !lost);
}

static void entries_end(void)
{
    struct hly_waits w = {0};
    uint64_t now = 100 * S;
    for (int rank = 0; rank < HLY_AWAITED_MOST; rank++)
        hly_waits_add(&w, rank)->awaited = true;
    MUST(!hly_waits_add(&w, HLY_AWAITED_MOST)); /* a bound */
    hly_awaited_ask(hly_waits_find(&w, 0), HLY_AGAIN_NS, now);
    hly_awaited_answers(hly_waits_find(&w, 1), true, 1, now);
    hly_waits_none(&w, now + S);
    MUST(hly_waits_find(&w, 0) && hly_waits_find(&w, 1) && !hly_waits_find(&w, 2));
    hly_waits_none(&w, now + 4 * S);
    MUST(hly_waits_find(&w, 0) && !hly_waits_find(&w, 1)); /* whose question is open stays */
}

/* ---------------------------------------------------------------- text */

static const char *list(int n)
{
    static char text[200];
    struct hly_line line = hly_line(text, sizeof text);
    for (int i = 0; i < n; i++)
        if (hly_line_next(&line, "; "))
            hly_line_put(&line, "rank %d", i);
    hly_line_more(&line, "; ");
    return text;
}

static void is_said(const char *text, const char *want)
{
    CHECK(!strcmp(text, want), "'%s', not '%s'", text, want);
}

static void lists(void)
{
    char text[200];
    is_said(list(0), "");
    is_said(list(1), "rank 0");
    is_said(list(4), "rank 0; rank 1; rank 2; rank 3");
    is_said(list(5), "rank 0; rank 1; rank 2; rank 3; and 1 more");
    is_said(list(40000), "rank 0; rank 1; rank 2; rank 3; and 39996 more");
    struct hly_line line = hly_line(text, sizeof text);
    for (int r = 0; r < 60; r += 10)
        hly_line_ranks(&line, r, r + r / 10);
    hly_line_more(&line, ", ");
    is_said(text, "0, 10-11, 20-22, 30-33, and 11 more");
    hly_line_put(&line, " ");
    hly_line_ranks(&line, 1, 1);
    hly_line_more(&line, ", ");
    is_said(text, "0, 10-11, 20-22, 30-33, and 11 more 1"); /* another list begins anew */
}

static struct hly_line sentence(char *text, size_t bytes)
{
    struct hly_line line = hly_line(text, bytes);
    hly_line_waited(&line, 1040 * MS, "halay_init");
    hly_line_put(&line, " for %d of the %d ranks of node %s: ", 2, 4, "knöten€𝄞");
    for (int r = 0; r < 2; r++)
        if (hly_line_next(&line, ", "))
            hly_line_process(&line, "rank", r, r * 7, "stopped", !r);
    hly_line_more(&line, ", ");
    hly_line_until(&line, HLY_ENDS, 30 * S, 1 * S);
    hly_line_until(&line, HLY_ENDS, 1 * S, 1 * S);
    return line;
}

static bool is_utf8(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int more = *at < 0x80 ? 0 : *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc0 ? 1 : -1;
        if (more < 0)
            return false;
        for (at++; more; more--)
            if ((*at++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}

static void small_buffers(void)
{
    static const char whole[] =
        "halay_init has waited for 1.0 s for 2 of the 4 ranks of node knöten€𝄞: rank 0 (no process "
        "of it is seen; in halay_init), rank 1 (pid 7: stopped; not in halay_init). If that stays "
        "so it ends with an error in 29 s at the latest";
    char text[sizeof whole + 1];
    for (size_t bytes = 1; bytes <= sizeof whole; bytes++) {
        memset(text, '#', sizeof text);
        const struct hly_line line = sentence(text, bytes);
        const size_t n = strlen(text);
        CHECK(text[bytes] == '#', "%zu: it was written behind the buffer", bytes);
        CHECK(n < bytes && n == line.used, "%zu: %zu bytes, and it says %zu", bytes, n, line.used);
        CHECK(!memcmp(text, whole, n) && is_utf8(text), "%zu: '%s'", bytes, text);
        CHECK(bytes - n <= 4, "%zu: only %zu were used", bytes, n);
    }
    is_said(text, whole);
}

static void whole_characters(void)
{
    static const char text[] = "aö€𝄞";
    static const size_t want[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (size_t most = 0; most < sizeof want / sizeof want[0]; most++)
        CHECK(hly_line_whole(text, most) == want[most], "%zu: %zu", most,
              hly_line_whole(text, most));
    CHECK(hly_line_whole("\xbf\xbf\xbf", 2) == 2, "no text of UTF-8 is cut anywhere");
}

int main(void)
{
    notices_double();
    notices_are_missed();
    notices_end();
    asked_and_answers();
    others_report();
    is_stopped();
    helpers_are_tried();
    entries_end();
    lists();
    small_buffers();
    whole_characters();
    return 0;
}
