/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - the one record that a node puts into PMIx. Inside pmix/ only. */
#ifndef HALAY_PMIX_RECORDS_H
#define HALAY_PMIX_RECORDS_H

#include "call.h"
#include "identity.h"
#include "node.h"

/* Puts the record of the node of which this rank is the first (or the only one). */
int hly_pmix_record_put(const struct hly_boot_log *log, const struct hly_node *node);

/* Puts why the ranks of this node cannot join the job, node->failure, in the record's place. */
int hly_pmix_refusal_put(const struct hly_boot_log *log, const struct hly_node *node);

struct hly_pmix_reading {
    const struct hly_boot_log *log;
    struct hly_node *node; /* this rank's */
    const char *nspace;
    uint64_t end_ns;
    struct hly_pmix_call *call;
    int asked; /* set if the fence had not brought all */
};

/* After the fence: all nodes' records, of the job of this name. HALAY_ENOMEM (not logged),
 * HALAY_EBOOT. *records is to be finished whatever it returns. */
int hly_pmix_records_read(struct hly_pmix_reading *r, int nranks, struct hly_pmix_records *records);

/* Then, before this rank leaves PMIx: until the others have them too. */
void hly_pmix_records_stay(struct hly_pmix_reading *r, const struct hly_pmix_records *records);

#endif
