/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the flight record of this rank (halay/record.h): its memory, and what is not a call.
 */
#ifndef HLY_RECORD_H
#define HLY_RECORD_H

#include <halay/record.h>

#include "base/base.h"

struct hly_record {
    halay_record_t *map;
    int fd;               /* of the memfd, which halay-info finds by it; -1: there is none */
    bool given;           /* by the launcher */
    bool dumped;          /* to a file */
    uint64_t calls_stamp; /* of the last call */
    uint64_t ncomms, nverdicts, nwaits, nstacks, nagreements; /* written so far */
};

/* A rank is in halay_init(): takes what its launcher has made for it, or makes one. HALAY_ENOMEM */
int hly_record_open(halay_context_t *context);
/* It knows who it is, and runs. */
void hly_record_found(halay_context_t *context);
/* halay_init() fails: why. */
void hly_record_failed(halay_context_t *context, int code, const char *text);
void hly_record_close(halay_context_t *context);
void hly_record_comm(halay_context_t *context, const halay_record_comm_t *comm);
/* number: of the agreement in the record, from 1 on; to be written again when more is known. */
void hly_record_consensus(halay_context_t *context, const halay_record_agreement_t *consensus,
                          uint64_t number);
/* number: of the wait of the program, from 1 on; to be written again when it ends. */
void hly_record_place(halay_context_t *context, const halay_record_place_t *place, uint64_t number);
/* The file in the folder of HALAY_RECORD is written with the first that breaks a communicator. */
void hly_record_verdict(halay_context_t *context, halay_record_verdict_t *verdict);

/* Where this thread is; gives its slot. Takes microseconds, and at first loads the unwinder. */
halay_record_stack_t *hly_record_stack(struct hly_record *record);

/* A thread begins to wait in its sleep (1), or ends it (-1). */
static inline void hly_record_sleeps(struct hly_record *record, int by)
{
    uint32_t *n = &record->map->head.sleeping;
    __atomic_store_n(n, *n + (uint32_t)by, __ATOMIC_RELAXED);
}

#endif
