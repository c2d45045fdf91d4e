/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - the memory of requests, and their handles.
 *
 * A context keeps the memory of requests, and uses it again after the program has read a result.
 * The program's handle names a generation of it: the address, aligned to HLY_REQUEST_ALIGN, plus
 * HLY_HANDLE_STEP for each release so far. So Halay recognises a handle of a request that has
 * ended, until the same memory has been handed out HLY_HANDLES times more. `magic` and `context`
 * never change, so a handle can be checked before the context is locked.
 */
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "wire/register.h"

#define HLY_REQUEST_ALIGN 1024
#define HLY_HANDLE_STEP   8 /* a handle is aligned as any pointer is */
#define HLY_HANDLES       (HLY_REQUEST_ALIGN / HLY_HANDLE_STEP)

static_assert(sizeof(halay_request_t) <= HLY_REQUEST_ALIGN, "all handles point into it");

halay_request_t *hly_request_memory(halay_context_t *ctx)
{
    if (hly_link_empty(&ctx->requests_unused)) {
        halay_request_t *r = aligned_alloc(HLY_REQUEST_ALIGN, HLY_REQUEST_ALIGN);
        if (!r)
            return NULL;
        memset(r, 0, sizeof(*r));
        r->magic = HLY_REQUEST_MAGIC;
        r->context = ctx;
        return r;
    }
    halay_request_t *r = HLY_OF(ctx->requests_unused.next, halay_request_t, link);
    hly_link_remove(&r->link);
    memset(&r->state, 0, sizeof(*r) - offsetof(halay_request_t, state));
    return r;
}

void hly_request_destroy(halay_request_t *r)
{
    free(r->run.step);
    free(r->run.state);
    free(r->layout.spans);
    hly_scratch_free(r);
    free(r->refusal);
    free(r->failure);
    free(r->layout.works);
    free(r->staging);
    hly_layout_forget(r);
    hly_link_append(&r->context->requests_unused,
                    &r->link); /* the longest idle one is used first */
}

void hly_request_free_memory(halay_context_t *ctx)
{
    while (!hly_link_empty(&ctx->requests_unused)) {
        halay_request_t *r = HLY_OF(ctx->requests_unused.next, halay_request_t, link);
        hly_link_remove(&r->link);
        *(volatile uint32_t *)&r->magic = 0; /* memory allocated here later is no request */
        free(r);
    }
}

halay_request_t *hly_request_handle(halay_request_t *r)
{
    r->given = true;
    return (halay_request_t *)((char *)r + r->generation % HLY_HANDLES * HLY_HANDLE_STEP);
}

void hly_request_retire(halay_request_t *r)
{
    if (r->given)
        r->generation++; /* a blocking call's handle was never seen by the program */
    r->given = false;
}

/* May be called with any pointer to mapped memory: the aligned address is on the same page. */
__attribute__((no_sanitize("address"))) static bool is_request(const halay_request_t *r)
{
    return r && r->magic == HLY_REQUEST_MAGIC;
}

static size_t offset_of(halay_request_t *handle)
{
    return (uintptr_t)handle % HLY_REQUEST_ALIGN;
}

int hly_request_of(halay_request_t *handle, halay_request_t **request)
{
    halay_request_t *r = (halay_request_t *)((char *)handle - offset_of(handle));
    if ((uintptr_t)handle % HLY_HANDLE_STEP || !is_request(r))
        return HALAY_EINVAL;
    *request = r;
    return hly_forked(r->context) ? HALAY_EFORKED : HALAY_OK;
}

bool hly_request_is_current(const halay_request_t *r, halay_request_t *handle)
{
    return r->given && r->generation % HLY_HANDLES == offset_of(handle) / HLY_HANDLE_STEP;
}
