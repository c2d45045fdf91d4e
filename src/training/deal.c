/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deal.c - which rows of an alltoall go where; docs/decisions/0024. Ranks tell each other once, and
 * again when a rank's rows have changed: it says so in the vote that stands before the alltoall in
 * any case. What is kept under a name was told in one call that all ranks have made, and a name is
 * out once at a time, so all that keep it keep the same; a rank that keeps nothing says "changed".
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

static struct hly_deal *find(const halay_trainer_t *trainer, const struct hly_tensor *tensor)
{
    return (struct hly_deal *)hly_tensor_map_find(&trainer->deals, tensor->known);
}

int hly_deal_new(const halay_trainer_t *trainer, const struct hly_tensor *tensor)
{
    const struct hly_deal *deal = find(trainer, tensor);
    size_t nranks = (size_t)trainer->nranks;
    return !deal || memcmp(deal->rows + nranks, tensor->rows + nranks, nranks * sizeof(size_t));
}

void hly_deal_recall(const halay_trainer_t *trainer, struct hly_tensor *tensor)
{
    const struct hly_deal *deal = find(trainer, tensor);
    assert(deal && !hly_deal_new(trainer, tensor));
    memcpy(tensor->rows, deal->rows, (size_t)trainer->nranks * sizeof(size_t));
    tensor->dealt = 1;
}

/* Of too many the oldest is forgotten. Without memory nothing is kept. */
static struct hly_deal *add(halay_trainer_t *trainer, uint64_t name)
{
    struct hly_deal **at = &trainer->dealt[trainer->ndealt % HLY_DEALS];
    struct hly_deal *deal =
        malloc(sizeof(*deal) + 2 * (size_t)trainer->nranks * sizeof(deal->rows[0]));
    if (!deal)
        return NULL;
    if (*at) {
        hly_tensor_map_remove(&trainer->deals, &(*at)->node);
        free(*at);
    }
    deal->node.hash = name;
    hly_tensor_map_add(&trainer->deals, &deal->node);
    trainer->ndealt++;
    return *at = deal;
}

/* Only what a programme has: other names may never come again. */
void hly_deal_keep(halay_trainer_t *trainer, const struct hly_tensor *tensor)
{
    struct hly_deal *deal = tensor->voted ? find(trainer, tensor) : NULL;
    if (tensor->voted && !deal)
        deal = add(trainer, tensor->known);
    if (deal)
        memcpy(deal->rows, tensor->rows, 2 * (size_t)trainer->nranks * sizeof(deal->rows[0]));
}

void hly_deals_free(halay_trainer_t *trainer)
{
    hly_tensor_map_finish(&trainer->deals, hly_node_free);
}
