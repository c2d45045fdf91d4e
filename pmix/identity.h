/* SPDX-License-Identifier: Apache-2.0 */
/* identity.h - what a process knows of its job once it has joined. Inside pmix/ only. */
#ifndef HALAY_PMIX_IDENTITY_H
#define HALAY_PMIX_IDENTITY_H

#include <stdint.h>

#include <halay/boot.h>

#include "../boot/common/claim.h"

enum {
    HLY_PMIX_RANKS_MAX = 1 << 20, /* ranks of a job */
    HLY_PMIX_LOCAL_MAX = 4096,    /* ranks of a node */
    HLY_PMIX_HOST_BYTES = 64
};

/* The ranks from `first` up to the next run's first are on `node`. */
struct hly_pmix_run {
    int32_t first, node;
};

struct hly_pmix_identity {
    char nspace[256];
    int rank, nranks, local_rank, local_nranks, node, nnodes;
    uint8_t secret[16], job[16];
    int nruns;
    struct hly_pmix_run *runs; /* sorted, nruns of them: nnodes where ranks fill node by node */
    char (*hosts)[HLY_PMIX_HOST_BYTES]; /* nnodes of them */
};

/* The address of the launcher's PMIx server in this process's environment, or NULL. */
const char *hly_pmix_server(void);

/* The one PMIx life of the process: init, one exchange, finalize. Fills *id, whose tables it
 * allocates. */
int hly_pmix_join(const struct hly_boot_log *log, uint64_t deadline_ns,
                  struct hly_pmix_identity *id);

#endif
