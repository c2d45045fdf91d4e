/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - PMIx's thread tells this one by an eventfd. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../common/thread.h"
#include "call.h"
#include "node.h"

int hly_pmix_call_init(struct hly_pmix_call *call)
{
    *call = (struct hly_pmix_call){.event_fd = eventfd(0, EFD_CLOEXEC)};
    return call->event_fd < 0 ? -errno : 0;
}

void hly_pmix_call_finish(struct hly_pmix_call *call)
{
    close(call->event_fd);
    if (call->value)
        PMIX_VALUE_RELEASE(call->value);
}

void hly_pmix_call_over(pmix_status_t status, void *arg)
{
    struct hly_pmix_call *call = arg;
    uint64_t one = 1;
    atomic_store(&call->status, status);
    (void)!write(call->event_fd, &one, sizeof one);
}

void hly_pmix_call_got(pmix_status_t status, pmix_value_t *value, void *arg)
{
    struct hly_pmix_call *call = arg;
    if (status == PMIX_SUCCESS) {
        PMIX_VALUE_CREATE(call->value, 1);
        status = call->value ? PMIx_Value_xfer(call->value, value) : PMIX_ERR_NOMEM;
    }
    hly_pmix_call_over(status, call);
}

pmix_status_t hly_pmix_call_wait(struct hly_pmix_call *call, uint64_t end_ns)
{
    struct pollfd p = {.fd = call->event_fd, .events = POLLIN};
    uint64_t count;
    int n, ms;
    do {
        ms = hly_boot_ms(end_ns);
        n = poll(&p, 1, ms);
    } while (n <= 0 && ms);
    if (n <= 0)
        return PMIX_ERR_TIMEOUT;
    (void)!read(call->event_fd, &count, sizeof count);
    return atomic_load(&call->status);
}

struct beginning {
    struct hly_pmix_call call;
    pmix_proc_t me;
};

static void *begin(void *arg)
{
    struct beginning *b = arg;
    hly_pmix_call_over(PMIx_Init(&b->me, NULL, 0), &b->call);
    return NULL;
}

pmix_status_t hly_pmix_begin(pmix_proc_t *me, uint64_t end_ns)
{
    struct beginning *b = calloc(1, sizeof *b);
    pmix_status_t status = PMIX_ERR_NOMEM;
    if (!b || hly_pmix_call_init(&b->call))
        goto free_it;
    if (!hly_thread_detached(begin, b)) /* its threads take no signals either */
        status = hly_pmix_call_wait(&b->call, end_ns);
    if (status == PMIX_ERR_TIMEOUT)
        return status; /* the thread has it for good */
    *me = b->me;
    hly_pmix_call_finish(&b->call);
free_it:
    free(b);
    return status;
}
