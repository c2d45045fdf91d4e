/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h - how a process learns who it is in its job. Inside pmix/ only. */
#ifndef HALAY_PMIX_IDENTITY_H
#define HALAY_PMIX_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include <halay/boot.h>

#include "../boot/common/meet.h"

enum {
    HLY_PMIX_RANKS_MAX = 1 << 20, /* ranks of a job */
    HLY_PMIX_LOCAL_MAX = 4096     /* ranks of a node */
};

/* The table of nodes: in memory that the ranks of a node share if they can, never written again. */
struct hly_pmix_table {
    const void *at;
    size_t bytes;
    uint8_t secret[16], job[16];
    uint64_t kept;                 /* as in the records */
    struct hly_boot_places places; /* points into it */
};

/* What the records say, in memory of this process. */
struct hly_pmix_records {
    uint8_t secret[16], job[16];
    uint64_t kept; /* of all ranks, as of halay_boot_info_t; 0: of none, or not of all */
    struct hly_boot_places places; /* points to what follows */
    struct hly_boot_run *runs;
    struct hly_boot_node *nodes;
    uint16_t *ports;
    struct hly_boot_process *processes; /* of the ranks of this node, if this is its first */
};
void hly_pmix_records_finish(struct hly_pmix_records *records);

/* The records as a sealed file in memory, *fd. HALAY_ENOMEM, HALAY_EBOOT, logged. */
int hly_pmix_table_make(const struct hly_boot_log *log, const struct hly_pmix_records *records,
                        int *fd);
/* The same for this process alone, which cannot share memory. */
int hly_pmix_table_keep(const struct hly_boot_log *log, const struct hly_pmix_records *records,
                        struct hly_pmix_table *table);
/* Maps and checks the table of a job of nranks ranks; fd can be closed then. HALAY_EBOOT, logged:
 * it is no such table. */
int hly_pmix_table_map(const struct hly_boot_log *log, int fd, int nranks,
                       struct hly_pmix_table *table);
void hly_pmix_table_unmap(struct hly_pmix_table *table);

/* The address of the launcher's PMIx server in this process's environment, or NULL. */
const char *hly_pmix_server(void);

/* The one PMIx life of the process: init, one exchange, finalize. *stays: instead of finalize
 * hly_pmix_leave is due when the process ends. Fills *id. */
int hly_pmix_join(const struct hly_boot_log *log, uint64_t deadline_ns,
                  const halay_boot_info_t *info, struct hly_boot_identity *id, bool *stays);
void hly_pmix_leave(void);

#endif
