/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - a map by 64-bit hashes, hashes, and lists of tensors. A tensor is in one list at a
 * time.
 */
#ifndef HLT_TABLE_H
#define HLT_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct hlt_tensor;

/* A chained hash map from 64-bit hashes to the structs that contain the nodes. It never shrinks. */
struct hlt_node {
    uint64_t hash;
    struct hlt_node *next;
};

struct hlt_map {
    struct hlt_node **buckets;
    size_t mask, count;
};

struct hlt_list {
    struct hlt_tensor *head, *tail;
};

uint64_t hlt_tensor_hash(const char *name);
/* Continues a hash with more words. */
uint64_t hlt_hash_words(uint64_t hash, const uint64_t *words, size_t nwords);
int hlt_tensor_map_init(struct hlt_map *map);
/* Frees the map, and calls drop() for each node; NULL: others own the nodes. Takes a map that was
 * not initialised. */
void hlt_tensor_map_finish(struct hlt_map *map, void (*drop)(struct hlt_node *node));
/* A drop() for structs from malloc() whose first member is the node. */
void hlt_node_free(struct hlt_node *node);
struct hlt_node *hlt_tensor_map_find(const struct hlt_map *map, uint64_t hash);
void hlt_tensor_map_add(struct hlt_map *map, struct hlt_node *node);
void hlt_tensor_map_remove(struct hlt_map *map, struct hlt_node *node);
void hlt_tensor_list_push(struct hlt_list *list, struct hlt_tensor *tensor);
void hlt_tensor_list_push_first(struct hlt_list *list, struct hlt_tensor *tensor);
void hlt_tensor_list_remove(struct hlt_list *list, struct hlt_tensor *tensor);
struct hlt_tensor *hlt_tensor_list_pop(struct hlt_list *list);
/* Inserts by the time of submission. */
void hlt_tensor_list_insert(struct hlt_list *list, struct hlt_tensor *tensor);

#endif
