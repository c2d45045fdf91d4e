/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.h - the tensors that are out, by ticket and by name, and memory for them. */
#ifndef HLT_TENSORS_H
#define HLT_TENSORS_H

#include "../core/core.h"

enum {
    HLT_CHUNK_TENSORS = 256, /* tensors are allocated in chunks: they never move */
    HLT_CHUNKS = 256         /* 65,536 tensors out at most */
};

/* Mutex. */
struct hlt_tensors {
    struct hlt_map names; /* of tensors that are out and not done */
    struct hlt_tensor *chunks[HLT_CHUNKS];
    size_t nchunks;
    struct hlt_tensor *unused;
    struct hlt_list submitted;
};

/* tensors.c */
/* Mutex held. NULL: 65,536 are out, or no memory. */
struct hlt_tensor *hlt_tensor_take(halay_trainer_t *trainer);
void hlt_tensor_give(halay_trainer_t *trainer, struct hlt_tensor *tensor);
/* Mutex held. NULL if the ticket is not out. */
struct hlt_tensor *hlt_tensor_find(halay_trainer_t *trainer, halay_ticket_t ticket);
halay_ticket_t hlt_tensor_ticket(const struct hlt_tensor *tensor);
/* Stepper, without the mutex. Takes a tensor that is in no list. text: copied; may be NULL. */
void hlt_tensor_done(halay_trainer_t *trainer, struct hlt_tensor *tensor, int code,
                     const char *text);
/* The same for what the core has ended, and for all of a list. */
void hlt_tensors_ended(halay_trainer_t *trainer);
void hlt_tensors_fail(halay_trainer_t *trainer, struct hlt_list *list, int code, const char *text);
void hlt_tensors_free(halay_trainer_t *trainer);

/* memory.c; stepper, except for init and free. memory: HALAY_MEMORY_* */
/* NULL: there is none, or no device of that kind. */
void *hlt_memory_alloc(const halay_trainer_t *trainer, uint32_t memory, size_t bytes);
void hlt_memory_free(const halay_trainer_t *trainer, uint32_t memory, void *address);
/* out = factor * in. In a device's memory this starts the move: it precedes the next call, or
 * follows one if there is a mark, as hlt_memory_carry()'s. */
int hlt_memory_move(const halay_trainer_t *trainer, uint32_t memory, void *out, const void *in,
                    size_t count, halay_type_t type, double factor, halay_mark_t *mark);
/* Between a device's memory and the host's. way: HALAY_TO_HOST or HALAY_FROM_HOST */
int hlt_memory_carry(const halay_trainer_t *trainer, uint32_t memory, void *to, const void *from,
                     size_t bytes, uint32_t way, halay_mark_t *mark);
int hlt_memory_zero(const halay_trainer_t *trainer, uint32_t memory, void *address, size_t bytes);
/* The stand-ins of a round get their zeros. Without memory this rank leaves. */
void hlt_stand_ins_fill(halay_trainer_t *trainer);

#endif
