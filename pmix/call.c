/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - PMIx's thread tells this one by an eventfd. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
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
    uint64_t count, now;
    int n;
    do {
        now = hly_boot_now_ns();
        uint64_t ms = now < end_ns ? (end_ns - now) / 1000000 + 1 : 0;
        n = poll(&p, 1, ms < INT_MAX ? (int)ms : INT_MAX);
    } while (n <= 0 && now < end_ns);
    if (n <= 0)
        return PMIX_ERR_TIMEOUT;
    (void)!read(call->event_fd, &count, sizeof count);
    return atomic_load(&call->status);
}

/* The last of the thread's two owners frees it. */
struct beginning {
    struct hly_pmix_call call;
    pmix_proc_t me;
    atomic_int owners;
};

static void let_go(struct beginning *b)
{
    if (atomic_fetch_sub(&b->owners, 1) > 1)
        return;
    hly_pmix_call_finish(&b->call);
    free(b);
}

static void *begin(void *arg)
{
    struct beginning *b = arg;
    hly_pmix_call_over(PMIx_Init(&b->me, NULL, 0), &b->call);
    let_go(b);
    return NULL;
}

pmix_status_t hly_pmix_begin(pmix_proc_t *me, uint64_t end_ns)
{
    struct beginning *b = calloc(1, sizeof *b);
    if (!b)
        return PMIX_ERR_NOMEM;
    if (hly_pmix_call_init(&b->call)) {
        free(b);
        return PMIX_ERR_NOMEM;
    }
    atomic_store(&b->owners, 2);
    if (hly_thread_detached(begin, b)) { /* its threads take no signals either */
        atomic_store(&b->owners, 1);
        let_go(b);
        return PMIX_ERR_NOMEM;
    }
    const pmix_status_t status = hly_pmix_call_wait(&b->call, end_ns);
    if (status == PMIX_SUCCESS)
        *me = b->me;
    let_go(b);
    return status;
}
