/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - which device memory belongs to. The first device is that of the host, which takes what
 * no other one claims: so where it is the only one, nobody is asked.
 *
 * CUDA's device is opened when the program has loaded CUDA's driver, so that nobody else pays for
 * it. The driver may come at any time, with any library; so each call that is not in the call cache
 * asks the dynamic linker how many it has loaded.
 */
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/context.h"
#include "device/device_builtin.h"

int hly_device_open(const halay_device_ops_t *ops, void *arg, const char *isa,
                    struct hly_device *device)
{
    halay_memory_t memory = {.size = sizeof(memory)};
    int fd;
    *device = (struct hly_device){.ops = ops};
    int rc = ops->open(arg, isa, &device->handle);
    if (rc)
        return rc;
    rc = ops->query(device->handle, NULL, 0, &memory);
    if (!rc && memory.kind >= HALAY_MEMORY_KINDS)
        rc = HALAY_EINVAL;
    if (rc) {
        ops->close(device->handle);
        return rc;
    }
    device->memory = (uint8_t)memory.kind;
    device->touchable = memory.touchable;
    device->sleeps = ops->arm(device->handle, &fd) != HALAY_EUNSUPPORTED;
    return HALAY_OK;
}

struct loads {
    uint64_t seen, n; /* libraries that the dynamic linker had loaded when we looked; and so far */
    bool driver;      /* CUDA's driver is there, and was not looked for before */
};

/*
 * dl_iterate_phdr(): the first library tells how many there are. Names are compared here because
 * dlopen(RTLD_NOLOAD) searches the file system for a library that is not loaded.
 */
static int look_at_load(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    struct loads *loads = arg;
    (void)bytes;
    loads->n = info->dlpi_adds;
    if (loads->n == loads->seen)
        return 1;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    loads->driver = !strncmp(name, HLY_CUDA_LOADED, strlen(HLY_CUDA_LOADED));
    return loads->driver;
}

void hly_devices_look(halay_context_t *ctx)
{
    const char *isa = *ctx->settings.isa ? ctx->settings.isa : NULL;
    struct loads loads = {.seen = ctx->loads_seen};
    if (ctx->ndevices == HLY_DEVICES)
        return;
    dl_iterate_phdr(look_at_load, &loads);
    ctx->loads_seen = loads.n;
    if (loads.driver && !hly_device_open(&hly_device_cuda, NULL, isa, &ctx->devices[ctx->ndevices]))
        ctx->ndevices++;
}

/*
 * May the processor read the byte? The kernel reads a set of signals there, and then refuses to do
 * what is asked with it. Any other answer is no proof against the byte.
 */
static bool is_readable(uintptr_t at)
{
    const int was = errno;
    const long rc = syscall(SYS_rt_sigprocmask, -1, at / 8 * 8, NULL, (size_t)8);
    const bool readable = !rc || errno != EFAULT;
    errno = was;
    return readable;
}

static bool is_there(const void *address, size_t bytes)
{
    const uintptr_t at = (uintptr_t)address;
    return is_readable(at) && (bytes <= 1 || is_readable(at + bytes - 1));
}

/* Memory that was a GPU's and is freed is the host's to all devices: but nobody can read it. */
static int host_kind(const halay_context_t *ctx, const void *address, size_t bytes,
                     halay_memory_t *memory, char *text, size_t text_bytes)
{
    memory->kind = ctx->devices[0].memory;
    memory->id = 0;
    if (!text || is_there(address, bytes))
        return HALAY_OK;
    snprintf(text, text_bytes,
             "its buffer at %p is memory of no device, and %s there for the processor: was it "
             "freed, is the count right, is this a forked child?",
             address, is_there(address, 1) ? "not all of it is" : "it is not");
    return HALAY_EINVAL;
}

/* Where a device is unusable, and cannot tell whose it is, memory that is there is the host's. */
static int kind_of(const halay_context_t *ctx, const void *address, size_t bytes,
                   halay_memory_t *memory, char *text, size_t text_bytes)
{
    for (int i = 1; i < ctx->ndevices; i++) {
        const struct hly_device *device = &ctx->devices[i];
        const int rc = device->ops->query(device->handle, address, bytes, memory);
        if (rc == HALAY_EUNSUPPORTED || (rc == HALAY_EDEVICE && is_there(address, bytes)))
            continue;
        const char *why = rc ? device->ops->why(device->handle) : "";
        if (rc && text)
            snprintf(text, text_bytes, "its buffers%s%.180s",
                     *why ? ": " : " lie in memory of two kinds: both must be of the same", why);
        return rc;
    }
    return host_kind(ctx, address, bytes, memory, text, text_bytes);
}

int hly_memory_look(const halay_context_t *ctx, const void *const at[2], const size_t bytes[2],
                    struct hly_memory_seen *seen, char *text, size_t text_bytes)
{
    const bool none = !bytes[0] && !bytes[1];
    bool found = false;
    *seen = (struct hly_memory_seen){.kind = ctx->devices[0].memory};
    for (int i = 0; i < 2 && ctx->ndevices > 1; i++) {
        halay_memory_t one = {.size = sizeof(one)};
        if (!at[i] || at[i] == HALAY_IN_PLACE || (!bytes[i] && !none))
            continue;
        const int rc = kind_of(ctx, at[i], bytes[i], &one, text, text_bytes);
        if (rc)
            return rc;
        if (found && one.kind != seen->kind) {
            if (text)
                snprintf(text, text_bytes,
                         "its buffers lie in memory of two kinds: both must be of the same (pinned "
                         "memory is the host's)");
            return HALAY_EINVAL;
        }
        seen->kind = one.kind;
        seen->id[i] = one.id;
        found = true;
    }
    return HALAY_OK;
}

struct hly_device *hly_device_of(halay_context_t *ctx, uint32_t kind)
{
    int i = ctx->ndevices - 1;
    while (i > 0 && ctx->devices[i].memory != kind)
        i--;
    return &ctx->devices[i];
}
