/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c - the memory of requests, and their handles.
 *
 * A request is used again after its result was read, but its memory stays with the context, and the
 * program's handle names a generation of it: the address, aligned to HLY_REQUEST_ALIGN, plus
 * HLY_HANDLE_STEP for each release so far. So a handle that was waited for already is recognised,
 * until the same memory has been handed out HLY_HANDLES times more. `magic`, `context` and where
 * the memory is never change, so that a handle can be looked at before the context is locked.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define HLY_REQUEST_ALIGN 1024
#define HLY_HANDLE_STEP   8 /* a handle is aligned as any pointer is */
#define HLY_HANDLES       (HLY_REQUEST_ALIGN / HLY_HANDLE_STEP)

static_assert(sizeof(halay_request_t) <= HLY_REQUEST_ALIGN, "all handles point into it");

halay_request_t *hly_request_memory(halay_context_t *ctx)
{
    if (hly_link_empty(&ctx->requests_idle)) {
        halay_request_t *r = aligned_alloc(HLY_REQUEST_ALIGN, HLY_REQUEST_ALIGN);
        if (!r)
            return NULL;
        memset(r, 0, sizeof(*r));
        r->magic = HLY_REQUEST_MAGIC;
        r->context = ctx;
        return r;
    }
    halay_request_t *r = HLY_OF(ctx->requests_idle.next, halay_request_t, link);
    hly_link_remove(&r->link);
    memset(&r->state, 0, sizeof(*r) - offsetof(halay_request_t, state));
    return r;
}

void hly_request_destroy(halay_request_t *r)
{
    free(r->ready);
    free(r->run);
    free(r->spans);
    hly_scratch_free(r);
    free(r->early);
    free(r->works);
    hly_layout_forget(r);
    hly_link_append(&r->context->requests_idle, &r->link); /* the longest idle one is used first */
}

void hly_request_free_memory(halay_context_t *ctx)
{
    while (!hly_link_empty(&ctx->requests_idle)) {
        halay_request_t *r = HLY_OF(ctx->requests_idle.next, halay_request_t, link);
        hly_link_remove(&r->link);
        *(volatile uint32_t *)&r->magic = 0; /* whatever comes to lie here is no request */
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

/* Any pointer may be looked at: the aligned address is on its page. */
__attribute__((no_sanitize("address"))) static bool is_request(const halay_request_t *r)
{
    return r && r->magic == HLY_REQUEST_MAGIC;
}

int hly_request_lock(halay_request_t *handle, halay_request_t **request)
{
    uintptr_t address = (uintptr_t)handle, offset = address % HLY_REQUEST_ALIGN;
    halay_request_t *r = (halay_request_t *)((char *)handle - offset);
    if (address % HLY_HANDLE_STEP || !is_request(r))
        return HALAY_EINVAL;
    if (hly_forked(r->context))
        return HALAY_EFORKED;
    hly_lock(r->context);
    if (r->given && r->generation % HLY_HANDLES == offset / HLY_HANDLE_STEP) {
        *request = r;
        return HALAY_OK;
    }
    hly_log(r->context, HLY_ERROR, "a request was waited for that had ended already");
    hly_unlock(r->context);
    return HALAY_ESTATE;
}
