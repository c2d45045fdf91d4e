/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.c - the ranks of an alltoall tell each other how many rows go where;
 * docs/decisions/training.md#0024. They do so once, and again when a rank's rows have changed. The
 * rank says so in the vote that stands before the alltoall in any case.
 *
 * What is kept under a name was told in one call that all ranks have made. A name is out once at a
 * time, so all that keep it keep the same. A rank that keeps nothing says "changed".
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

static struct hlt_exchange *find(const halay_trainer_t *trainer, const struct hlt_tensor *tensor)
{
    return (struct hlt_exchange *)hlt_tensor_map_find(&trainer->exchanges.map, tensor->known);
}

int hlt_exchange_needed(const halay_trainer_t *trainer, const struct hlt_tensor *tensor)
{
    const struct hlt_exchange *exchange = find(trainer, tensor);
    size_t nranks = (size_t)trainer->core.nranks;
    return !exchange ||
           memcmp(exchange->rows + nranks, tensor->rows + nranks, nranks * sizeof(size_t));
}

void hlt_exchange_recall(const halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    const struct hlt_exchange *exchange = find(trainer, tensor);
    assert(exchange && !hlt_exchange_needed(trainer, tensor));
    memcpy(tensor->rows, exchange->rows, (size_t)trainer->core.nranks * sizeof(size_t));
    tensor->exchanged = 1;
}

/* The oldest is forgotten where there are too many. Without memory nothing is kept. */
static struct hlt_exchange *add(halay_trainer_t *trainer, uint64_t name)
{
    struct hlt_exchange **at = &trainer->exchanges.order[trainer->exchanges.count % HLT_EXCHANGES];
    struct hlt_exchange *exchange =
        malloc(sizeof(*exchange) + 2 * (size_t)trainer->core.nranks * sizeof(exchange->rows[0]));
    if (!exchange)
        return NULL;
    if (*at) {
        hlt_tensor_map_remove(&trainer->exchanges.map, &(*at)->node);
        free(*at);
    }
    exchange->node.hash = name;
    hlt_tensor_map_add(&trainer->exchanges.map, &exchange->node);
    trainer->exchanges.count++;
    return *at = exchange;
}

/* Only a programme's tensors are kept: other names may never come again. */
void hlt_exchange_keep(halay_trainer_t *trainer, const struct hlt_tensor *tensor)
{
    struct hlt_exchange *exchange = tensor->voted ? find(trainer, tensor) : NULL;
    if (tensor->voted && !exchange)
        exchange = add(trainer, tensor->known);
    if (exchange)
        memcpy(exchange->rows, tensor->rows,
               2 * (size_t)trainer->core.nranks * sizeof(exchange->rows[0]));
}

void hlt_exchanges_free(halay_trainer_t *trainer)
{
    hlt_tensor_map_finish(&trainer->exchanges.map, hlt_node_free);
}
