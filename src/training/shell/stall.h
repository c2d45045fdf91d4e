/* SPDX-License-Identifier: Apache-2.0 */
/* stall.h - notices of which ranks have not submitted what. */
#ifndef HLT_STALL_H
#define HLT_STALL_H

#include "../core/core.h"

enum {
    HLT_PLACE_BYTES = 80, /* file and line of a submission; the end of a longer path */
    HLT_PLACES = 65536,   /* remembered, of names that come again */
    HLT_PLACES_ONCE = 256 /* remembered, of names that are used once */
};

/* Where the program submits a name. */
struct hlt_place {
    struct hlt_node node; /* the first member */
    char text[HLT_PLACE_BYTES];
};

/* Notices of tensors that wait. */
struct hlt_stall {
    uint64_t notice_ns; /* after so long the first; 0: none */
    int mute;           /* notices are not printed */

    /* mutex */
    struct hlt_map places;
    struct hlt_place *once[HLT_PLACES_ONCE];
    size_t nlasting, nonce;

    /* stepper */
    uint64_t check_ns; /* when to look at what waits */
    int lines;         /* printed in all */
};

/* stall.c; stepper, without the mutex */
void hlt_stall_init(halay_trainer_t *trainer);
void hlt_stall_free(halay_trainer_t *trainer);
/* The tensor that this rank has to ask about; NULL: none. */
struct hlt_tensor *hlt_stall_due(halay_trainer_t *trainer);
void hlt_stall_write(halay_trainer_t *trainer, struct hlt_block *block);
/* Prints notices for the questions of a round, once its announcements are read. */
void hlt_stall_read(halay_trainer_t *trainer);
/* When to look again; 0: no need. */
uint64_t hlt_stall_check_ns(const halay_trainer_t *trainer);
/* text: HLT_PLACE_BYTES; empty if it is not known. */
void hlt_stall_place(halay_trainer_t *trainer, uint64_t name, char *text);

#endif
