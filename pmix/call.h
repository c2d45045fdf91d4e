/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - a call into PMIx with a time limit. Inside pmix/ only. */
#ifndef HALAY_PMIX_CALL_H
#define HALAY_PMIX_CALL_H

#include <pmix.h>
#include <stdatomic.h>
#include <stdint.h>

/* One at a time; none after one that was not waited out. Outlives PMIx_Finalize, after which PMIx
 * calls back no more. */
struct hly_pmix_call {
    int event_fd; /* readable: it is over */
    _Atomic int status;
    pmix_value_t *value; /* of a get that is over: a copy */
};

int hly_pmix_call_init(struct hly_pmix_call *call); /* 0 or -errno */
void hly_pmix_call_finish(struct hly_pmix_call *call);

/* What PMIx calls at the end: of a fence, of a get. */
void hly_pmix_call_over(pmix_status_t status, void *call);
void hly_pmix_call_got(pmix_status_t status, pmix_value_t *value, void *call);

/* Its status, or PMIX_ERR_TIMEOUT if it is not over by then. */
pmix_status_t hly_pmix_call_wait(struct hly_pmix_call *call, uint64_t end_ns);

/* PMIx_Init, which has no limit of its own, in a thread. PMIX_ERR_TIMEOUT: it is not over by then;
 * the thread stays in it, and PMIx cannot be used in this process any more. */
pmix_status_t hly_pmix_begin(pmix_proc_t *me, uint64_t end_ns);

#endif
