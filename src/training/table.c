/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - the tensors that are out: by ticket (an index and a generation, so that a stale ticket
 * is never taken for a new tensor) and by name. Memory grows to what was out at once, and is
 * reused.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trainer.h"

uint64_t hlt_trainer_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct timespec hlt_trainer_until(uint64_t ns)
{
    ns += hlt_trainer_now_ns();
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* FNV-1a, then the finalizer of MurmurHash3 (both in the public domain). */
uint64_t hlt_tensor_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
    hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
    return hash ^ (hash >> 33);
}

uint64_t hlt_hash_words(uint64_t hash, const uint64_t *words, size_t nwords)
{
    for (size_t i = 0; i < nwords; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 31;
    }
    return hash;
}

size_t hlt_tensor_share(const halay_trainer_t *trainer, const struct hlt_announcement *says,
                        int rank)
{
    uint64_t nranks = (uint64_t)trainer->nranks;
    uint64_t rows = says->rows / nranks + ((uint64_t)rank < says->rows % nranks);
    return rows ? (size_t)(rows * (says->count / says->rows)) : 0;
}

/* ------------------------------------------------------------------ map */

int hlt_tensor_map_init(struct hlt_map *map)
{
    map->mask = 255;
    map->count = 0;
    map->buckets = calloc(map->mask + 1, sizeof(*map->buckets));
    return map->buckets ? 0 : HALAY_ENOMEM;
}

void hlt_node_free(struct hlt_node *node)
{
    free(node);
}

void hlt_tensor_map_finish(struct hlt_map *map, void (*drop)(struct hlt_node *node))
{
    for (size_t i = 0; drop && map->buckets && i <= map->mask; i++) {
        for (struct hlt_node *node = map->buckets[i], *next; node; node = next) {
            next = node->next;
            drop(node);
        }
    }
    free(map->buckets);
    map->buckets = NULL;
}

struct hlt_node *hlt_tensor_map_find(const struct hlt_map *map, uint64_t hash)
{
    struct hlt_node *node = map->buckets[hash & map->mask];
    while (node && node->hash != hash)
        node = node->next;
    return node;
}

/* Without memory the chains become longer, and that is all. */
static void map_grow(struct hlt_map *map)
{
    size_t mask = map->mask * 2 + 1;
    struct hlt_node **buckets = calloc(mask + 1, sizeof(*buckets));
    if (!buckets)
        return;
    for (size_t i = 0; i <= map->mask; i++) {
        for (struct hlt_node *node = map->buckets[i], *next; node; node = next) {
            next = node->next;
            node->next = buckets[node->hash & mask];
            buckets[node->hash & mask] = node;
        }
    }
    free(map->buckets);
    map->buckets = buckets;
    map->mask = mask;
}

void hlt_tensor_map_add(struct hlt_map *map, struct hlt_node *node)
{
    assert(!hlt_tensor_map_find(map, node->hash));
    if (map->count > map->mask)
        map_grow(map);
    node->next = map->buckets[node->hash & map->mask];
    map->buckets[node->hash & map->mask] = node;
    map->count++;
}

void hlt_tensor_map_remove(struct hlt_map *map, struct hlt_node *node)
{
    struct hlt_node **at = &map->buckets[node->hash & map->mask];
    while (*at != node) {
        assert(*at);
        at = &(*at)->next;
    }
    *at = node->next;
    map->count--;
}

/* ------------------------------------------------------------------ list */

void hlt_tensor_list_push(struct hlt_list *list, struct hlt_tensor *tensor)
{
    tensor->next = NULL;
    tensor->prev = list->tail;
    if (list->tail)
        list->tail->next = tensor;
    else
        list->head = tensor;
    list->tail = tensor;
}

void hlt_tensor_list_push_first(struct hlt_list *list, struct hlt_tensor *tensor)
{
    tensor->prev = NULL;
    tensor->next = list->head;
    if (list->head)
        list->head->prev = tensor;
    else
        list->tail = tensor;
    list->head = tensor;
}

void hlt_tensor_list_remove(struct hlt_list *list, struct hlt_tensor *tensor)
{
    if (tensor->prev)
        tensor->prev->next = tensor->next;
    else
        list->head = tensor->next;
    if (tensor->next)
        tensor->next->prev = tensor->prev;
    else
        list->tail = tensor->prev;
    tensor->prev = tensor->next = NULL;
}

struct hlt_tensor *hlt_tensor_list_pop(struct hlt_list *list)
{
    struct hlt_tensor *tensor = list->head;
    if (tensor)
        hlt_tensor_list_remove(list, tensor);
    return tensor;
}

void hlt_tensor_list_insert(struct hlt_list *list, struct hlt_tensor *tensor)
{
    struct hlt_tensor *after = list->tail;
    while (after && after->submit_ns > tensor->submit_ns)
        after = after->prev;
    if (after == list->tail) {
        hlt_tensor_list_push(list, tensor);
        return;
    }
    tensor->prev = after;
    tensor->next = after ? after->next : list->head;
    tensor->next->prev = tensor;
    if (after)
        after->next = tensor;
    else
        list->head = tensor;
}

void hlt_tensor_list_end(halay_trainer_t *trainer, struct hlt_list *list, int code,
                         const char *text)
{
    char whole[HLT_TEXT_BYTES + HALAY_TENSOR_NAME_MAX];
    struct hlt_tensor *tensor;
    while ((tensor = hlt_tensor_list_pop(list)) != NULL) {
        tensor->item = NULL;
        snprintf(whole, sizeof(whole), "tensor '%s': %s", tensor->name, text);
        hlt_tensor_done(trainer, tensor, code, whole);
    }
}

/* ------------------------------------------------------------------ tensors */

static int chunk_add(halay_trainer_t *trainer)
{
    if (trainer->nchunks == HLT_CHUNKS)
        return HALAY_ENOMEM;
    struct hlt_tensor *chunk = calloc(HLT_CHUNK_TENSORS, sizeof(*chunk));
    if (!chunk)
        return HALAY_ENOMEM;
    for (size_t i = 0; i < HLT_CHUNK_TENSORS; i++) {
        chunk[i].index = (uint32_t)(trainer->nchunks * HLT_CHUNK_TENSORS + i);
        chunk[i].generation = 1;
        chunk[i].next = trainer->unused;
        trainer->unused = &chunk[i];
    }
    trainer->chunks[trainer->nchunks++] = chunk;
    return 0;
}

struct hlt_tensor *hlt_tensor_take(halay_trainer_t *trainer)
{
    if (!trainer->unused && chunk_add(trainer))
        return NULL;
    struct hlt_tensor *tensor = trainer->unused;
    trainer->unused = tensor->next;
    tensor->next = NULL;
    return tensor;
}

void hlt_tensor_give(halay_trainer_t *trainer, struct hlt_tensor *tensor)
{
    assert(!tensor->item);
    free(tensor->text);
    hlt_memory_free(trainer, tensor->memory, tensor->result);
    free(tensor->rows);
    if (tensor->grouped && !--tensor->grouped->refs)
        free(tensor->grouped);
    tensor->grouped = NULL;
    tensor->text = NULL;
    tensor->result = NULL;
    tensor->rows = NULL;
    assert(!tensor->call);
    tensor->done = tensor->wanted = tensor->stand_in = 0;
    tensor->name[0] = 0;
    tensor->generation++;
    tensor->next = trainer->unused;
    trainer->unused = tensor;
}

halay_ticket_t hlt_tensor_ticket(const struct hlt_tensor *tensor)
{
    return tensor->generation << 16 | tensor->index;
}

struct hlt_tensor *hlt_tensor_find(halay_trainer_t *trainer, halay_ticket_t ticket)
{
    size_t index = ticket & 0xffff;
    if (index / HLT_CHUNK_TENSORS >= trainer->nchunks)
        return NULL;
    struct hlt_tensor *tensor =
        &trainer->chunks[index / HLT_CHUNK_TENSORS][index % HLT_CHUNK_TENSORS];
    /* Only a tensor that is out has a name. */
    return tensor->name[0] && tensor->generation == ticket >> 16 ? tensor : NULL;
}

void hlt_tensor_done(halay_trainer_t *trainer, struct hlt_tensor *tensor, int code,
                     const char *text)
{
    assert(!tensor->item && !tensor->next && !tensor->prev);
    if (tensor->stand_in) {
        pthread_mutex_lock(&trainer->mutex);
        hlt_tensor_give(trainer, tensor);
        pthread_mutex_unlock(&trainer->mutex);
        return;
    }
    char *copy = code && text ? strdup(text) : NULL;
    uint64_t end_ns = trainer->end_ns;
    if (!end_ns && trainer->recording && !trainer->listed)
        end_ns = hlt_trainer_now_ns();

    pthread_mutex_lock(&trainer->mutex);
    assert(!tensor->done);
    if (trainer->timeline && end_ns)
        hlt_timeline_tensor(trainer, tensor, code, end_ns);
    if (tensor->grouped && !code)
        tensor->grouped->agreed = 1;
    hlt_tensor_map_remove(&trainer->names, &tensor->node);
    tensor->code = code;
    tensor->text = copy;
    tensor->done = 1;
    if (tensor->call)
        hlt_tensor_list_push(&trainer->done, tensor);
    trainer->news = 1;
    pthread_mutex_unlock(&trainer->mutex);
}

void hlt_tensors_free(halay_trainer_t *trainer)
{
    for (size_t c = 0; c < trainer->nchunks; c++) {
        for (size_t i = 0; i < HLT_CHUNK_TENSORS; i++) {
            free(trainer->chunks[c][i].text);
            hlt_memory_free(trainer, trainer->chunks[c][i].memory, trainer->chunks[c][i].result);
            free(trainer->chunks[c][i].rows);
            struct hlt_grouped *grouped = trainer->chunks[c][i].grouped;
            if (grouped && !--grouped->refs)
                free(grouped);
        }
        free(trainer->chunks[c]);
    }
}
