/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_agree_scale - the agreement of the survivors of 4,096 ranks, with messages of the length
 * that control messages have: a node and some ranks have failed, and the coordinator fails on the
 * way.
 */
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "agree/runs.h"

enum { RANKS = 4096, RUNS = 48, WORDS = RANKS / 64, MOST = 1 << 20 };

struct letter {
    int from, to;
    struct hly_agreement_message m;
    uint16_t nfailed, nwithout;
    uint64_t words[RUNS];
};

static struct letter *letters;
static uint32_t first, end;
static struct hly_agreement *ranks[RANKS];
static bool dead[RANKS];
static bool fit = true;

static void post(void *from, int to, const struct hly_agreement_message *m)
{
    CHECK(end < MOST, "messages without end");
    struct letter *l = &letters[end++];
    *l = (struct letter){.from = *(int *)from, .to = to, .m = *m};
    struct hly_packed packed = {.words = l->words, .most = RUNS};
    fit &= hly_sets_pack(RANKS, m->failed, m->without, &packed);
    l->nfailed = packed.nfailed;
    l->nwithout = packed.nwithout;
}

static void deliver(uint32_t until)
{
    uint64_t failed[WORDS], without[WORDS];
    for (; first < end && first < until; first++) {
        struct letter *l = &letters[first];
        if (dead[l->to] || dead[l->from])
            continue;
        struct hly_packed packed = {l->nfailed, l->nwithout, l->words, RUNS};
        CHECK(hly_sets_unpack(RANKS, &packed, failed, without), "unpacks");
        l->m.failed = failed;
        l->m.without = without;
        CHECK(hly_agreement_is_sound(RANKS, &l->m), "sound");
        hly_agreement_heard(ranks[l->to], l->from, &l->m,
                            &(struct hly_agreement_sink){post, &l->to});
    }
}

/* All that live know it. */
static void die(int from, int to, bool known)
{
    for (int r = from; r < to; r++) {
        dead[r] = true;
        for (int k = 0; known && k < RANKS; k++)
            if (!dead[k])
                hly_agreement_note(ranks[k], r, false);
    }
}

static void go_on(void)
{
    for (int r = 0; r < RANKS; r++)
        if (!dead[r])
            hly_agreement_go_on(ranks[r], &(struct hly_agreement_sink){post, &r});
}

static void agree(void)
{
    letters = malloc(MOST * sizeof(*letters));
    CHECK(letters, "memory");
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = malloc(hly_agreement_bytes(RANKS));
        CHECK(ranks[r], "memory");
        hly_agreement_init(ranks[r], RANKS, r);
    }
    die(1024, 1152, true); /* a node */
    for (int r = 2000; r < 2040; r += 2)
        die(r, r + 1, true);
    for (int r = 0; r < RANKS; r++)
        if (!dead[r])
            hly_agreement_enter(ranks[r], 1, r == 3000 ? 5 : 7);
    go_on();
    deliver(6000); /* some have taken what rank 0 has proposed */
    die(0, 1, true);
    go_on();
    deliver(MOST);
    for (int r = 1; r < RANKS; r++) {
        if (dead[r])
            continue;
        CHECK(ranks[r]->decided && ranks[r]->value_flag == 5 && !ranks[r]->value_code, "rank %d",
              r);
        const uint64_t *without = hly_agreement_set(ranks[r], HLY_SET_WITHOUT);
        CHECK(!memcmp(without, hly_agreement_set(ranks[1], HLY_SET_WITHOUT), WORDS * 8), "rank %d",
              r);
        for (int k = 1; k < RANKS; k++)
            CHECK(hly_set_has(without, k) == dead[k], "rank %d: %d", r, k);
    }
    CHECK(fit, "all sets fit");
    for (int r = 0; r < RANKS; r++)
        free(ranks[r]);
    free(letters);
}

static void refuse(void)
{
    uint64_t failed[WORDS] = {0}, without[WORDS] = {0}, words[RUNS], a[WORDS], b[WORDS];
    struct hly_packed p = {.words = words, .most = RUNS};
    for (int r = 0; r < 4 * RUNS; r += 4)
        without[r / 64] |= UINT64_C(1) << (r % 64);
    failed[WORDS - 1] = ~UINT64_C(0);
    CHECK(hly_sets_pack(RANKS, failed, without, &p) && p.nwithout == RUNS && !p.nfailed, "48 fit");
    CHECK(hly_sets_unpack(RANKS, &p, a, b) && !memcmp(b, without, sizeof(b)) && !a[WORDS - 1],
          "what does not fit of the failed is left out");
    without[WORDS - 2] = 1;
    CHECK(!hly_sets_pack(RANKS, failed, without, &p) && !p.nwithout && !words[0], "49 do not");
    p.nwithout = 1;
    static const uint64_t wrong[] = {0, UINT64_C(4096) << 32 | 1, UINT64_C(4095) << 32 | 2,
                                     UINT64_C(1) << 32 | 0xffffffff};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        words[0] = wrong[i];
        CHECK(!hly_sets_unpack(RANKS, &p, a, b), "wrong run %zu", i);
    }
    words[0] = UINT64_C(4095) << 32 | 1;
    CHECK(hly_sets_unpack(RANKS, &p, a, b) && b[WORDS - 1] == UINT64_C(1) << 63, "the last rank");
    p.nfailed = RUNS;
    CHECK(!hly_sets_unpack(RANKS, &p, a, b), "more runs than there is room for");
}

int main(void)
{
    agree();
    refuse();
    return 0;
}
