/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - hash maps and lists. A map grows with its contents; without memory its chains become
 * longer.
 */
#include "table.h"

#include <assert.h>
#include <stdlib.h>

#include "tensor.h"

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
