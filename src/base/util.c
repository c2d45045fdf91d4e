/* SPDX-License-Identifier: Apache-2.0 */
/* util.c - clock, hash, log; what every file of the core may use. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/context.h"

uint64_t hly_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t hly_about_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Every such struct has whole words. */
static bool is_size(size_t size)
{
    return size && size % sizeof(size) == 0;
}

bool hly_struct_give(void *to, const void *whole, size_t bytes)
{
    size_t size;
    memcpy(&size, to, sizeof(size));
    if (!is_size(size))
        return false;
    size = size < bytes ? size : bytes;
    memcpy(to, whole, size);
    memcpy(to, &size, sizeof(size));
    return true;
}

bool hly_struct_take(void *whole, size_t bytes, const void *from)
{
    size_t size;
    memcpy(&size, from, sizeof(size));
    if (!is_size(size))
        return false;
    for (size_t i = bytes; i < size; i++)
        if (((const unsigned char *)from)[i])
            return false;
    memcpy(whole, from, size < bytes ? size : bytes);
    memcpy(whole, &bytes, sizeof(bytes));
    return true;
}

/*
 * Words of 8 bytes, then what is left by FNV-1a, then the finalizer of MurmurHash3 (A. Appleby).
 * The shift after each word brings down what its multiplication has moved up.
 */
uint64_t hly_hash(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ 0xcbf29ce484222325ull;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 0x100000001b3ull;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
}

/* One write(2) a line, so that lines of different ranks do not mix. */
void hly_log_text(void *context, int level, const char *text)
{
    static const char *const names[] = {"error", "warning", "info", "trace"};
    halay_context_t *ctx = context;
    if (level > ctx->settings.level)
        return;
    char line[1024];
    int n = ctx->info.nranks
                ? snprintf(line, sizeof(line) - 1, "halay %s [rank %d on %s]: %s", names[level & 3],
                           ctx->info.rank, ctx->info.host, text)
                : snprintf(line, sizeof(line) - 1, "halay %s: %s", names[level & 3], text);
    if (n < 0)
        return;
    if ((size_t)n > sizeof(line) - 2)
        n = sizeof(line) - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nobody to tell */
}

void hly_log(halay_context_t *context, int level, const char *format, ...)
{
    if (level > context->settings.level)
        return;
    char text[896];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    hly_log_text(context, level, text);
}

void hly_wake_leader(halay_context_t *context)
{
    const uint64_t one = 1;
    const struct hly_waiters *w = &context->waiters;
    /* EBADF: who sleeps finds out, and says so. */
    if (w->leader && write(w->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN && errno != EBADF)
        hly_log(context, HLY_ERROR, "a sleeping thread could not be woken");
}

void hly_wake(halay_context_t *context)
{
    struct hly_waiters *w = &context->waiters;
    w->called = w->woken = true;
    if (w->followers)
        hly_mutex_call(&context->mutex);
    hly_wake_leader(context);
}

const char *halay_version(void)
{
#define HLY_TEXT_(x) #x
#define HLY_TEXT(x)  HLY_TEXT_(x)
    return HLY_TEXT(HALAY_VERSION_MAJOR) "." HLY_TEXT(HALAY_VERSION_MINOR) "." HLY_TEXT(
        HALAY_VERSION_PATCH);
}

const char *halay_strerror(int code)
{
    static const struct {
        int code;
        const char *text;
    } known[] = {
        {HALAY_OK, "HALAY_OK: success"},
        {HALAY_INPROGRESS, "HALAY_INPROGRESS: not done yet"},
        {HALAY_EINVAL, "HALAY_EINVAL: an argument is not valid"},
        {HALAY_ENOMEM, "HALAY_ENOMEM: memory, descriptors or address space ran out"},
        {HALAY_EUNSUPPORTED, "HALAY_EUNSUPPORTED: not offered here"},
        {HALAY_ESTATE, "HALAY_ESTATE: freed, finalized, initialized twice, or in use"},
        {HALAY_EMISMATCH, "HALAY_EMISMATCH: the ranks' calls or settings differ"},
        {HALAY_ETIMEOUT, "HALAY_ETIMEOUT: the deadline passed"},
        {HALAY_EPEER, "HALAY_EPEER: a rank died or cannot be reached"},
        {HALAY_ETRANSPORT, "HALAY_ETRANSPORT: a transport failed"},
        {HALAY_EBOOT, "HALAY_EBOOT: the ranks of the job could not be found"},
        {HALAY_EFORKED, "HALAY_EFORKED: called in a forked child; start it with fork and exec, or "
                        "call Halay in the parent only"},
        {HALAY_EPLAN, "HALAY_EPLAN: a plan without a valid certificate was refused"},
        {HALAY_EAGAIN, "HALAY_EAGAIN: full for now"},
        {HALAY_EINTERNAL, "HALAY_EINTERNAL: a bug in Halay; please report it"},
        {HALAY_EDEVICE,
         "HALAY_EDEVICE: a device failed or did not finish; its memory may still change"},
        {HALAY_EREVOKED, "HALAY_EREVOKED: a rank has revoked the communicator"},
        {HALAY_EOVER, "HALAY_EOVER: the job ends, and cannot be joined any more"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].code == code)
            return known[i].text;
    return "unknown result code";
}

int hly_context_enter(halay_context_t *context)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC)
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    hly_lock(context);
    return HALAY_OK;
}
