/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - a context owns everything; there is no other state, so ranks can be threads of one
 * process. A forked child finds `*alive` wiped by the kernel, and is refused.
 */
#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dlfcn.h>

#include "core.h"
#include "device/device_builtin.h"
#include "readers.h"

struct failure { /* where halay_init's reason goes */
    char text[512];
};

/* ---------------------------------------------------------------- finding the others */

static void alone(halay_context_t *ctx)
{
    halay_boot_info_t *i = &ctx->info;
    *i = (halay_boot_info_t){
        .size = sizeof(*i), .nranks = 1, .local_nranks = 1, .nnodes = 1, .epoch = 1};
    gethostname(i->host, sizeof(i->host) - 1);
    strcpy(i->launcher, "alone");
}

static int open_boot(halay_context_t *ctx, void *arg, struct failure *why)
{
    ctx->info.size = sizeof(ctx->info);
    ctx->info.processors = ctx->ncpus;
    int rc = ctx->boot_ops->open(arg, hly_log_text, ctx, ctx->settings.start_deadline_ns,
                                 &ctx->info, &ctx->boot);
    if (rc)
        snprintf(why->text, sizeof(why->text), "the job could not be joined through %s: %s",
                 ctx->boot_ops->name, halay_strerror(rc));
    return rc;
}

static int find_job(halay_context_t *ctx, const halay_config_t *config, struct failure *why)
{
    const char *plugin, *launcher, *remedy;
    const void *table;
    char reason[256];
    int announced, promised = 1;
    gethostname(ctx->info.host, sizeof(ctx->info.host) - 1);
    if (config->boot) {
        ctx->boot_ops = config->boot;
        return open_boot(ctx, config->boot_arg, why);
    }
    announced = hly_launcher_announced(&plugin, &launcher, &remedy);
    if (announced == 1) {
        alone(ctx);
        return HALAY_OK;
    }
    int rc = hly_plugin_load(ctx, "boot", plugin, "halay_boot_v3_", &table, reason, sizeof(reason));
    if (!rc) {
        ctx->boot_ops = table;
        if (ctx->boot_ops->probe(&promised))
            return open_boot(ctx, NULL, why);
        snprintf(reason, sizeof(reason), "there is no %s in the environment",
                 strcmp(plugin, "pmix") ? "job" : "PMIx server");
    }
    ctx->boot_ops = NULL;
    snprintf(why->text, sizeof(why->text),
             "%s announced %d ranks, but they cannot be found: %.200s. Running each alone would be "
             "silently wrong, so this stops; %s",
             launcher, announced, reason, remedy);
    return HALAY_EBOOT;
}

/* ---------------------------------------------------------------- device */

static int open_device(halay_context_t *ctx, const halay_config_t *config, struct failure *why)
{
    const char *isa = *ctx->settings.isa ? ctx->settings.isa : NULL;
    ctx->device_ops = config->device ? config->device : &hly_device_host;
    int rc = ctx->device_ops->open(config->device_arg, isa, &ctx->device);
    if (rc)
        snprintf(why->text, sizeof(why->text),
                 "HALAY_ISA is '%s': not offered by this processor or not one of scalar, avx2, "
                 "avx512 (%s)",
                 isa ? isa : "", halay_strerror(rc));
    return rc;
}

static int make_world(halay_context_t *ctx)
{
    int n = ctx->info.nranks;
    int *ranks = calloc((size_t)n, sizeof(*ranks));
    if (!ranks)
        return HALAY_ENOMEM;
    for (int r = 0; r < n; r++)
        ranks[r] = r;
    struct hly_group *group;
    uint64_t id = hly_hash(ctx->info.epoch, ctx->info.job, sizeof(ctx->info.job));
    int rc = hly_group_make(ranks, n, &group);
    if (!rc)
        rc = hly_comm_create(ctx, id ? id : 1, group, ctx->info.rank, ctx->settings.deadline_ns,
                             &ctx->world);
    free(ranks);
    return rc;
}

/* ---------------------------------------------------------------- life */

static void init_lists(halay_context_t *ctx)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->cond, &attr);
    pthread_condattr_destroy(&attr);
    hly_link_init(&ctx->busy_peers);
    hly_link_init(&ctx->comms);
    hly_link_init(&ctx->freed_comms);
    hly_link_init(&ctx->requests);
    hly_link_init(&ctx->requests_idle);
    hly_link_init(&ctx->posted);
    hly_link_init(&ctx->orphans);
    hly_link_init(&ctx->outs_free);
    hly_link_init(&ctx->outs_flying);
}

/*
 * Processors for the ranks of this node. A launcher that gives each rank one of its own is not
 * bound itself, so what it may use counts too; halayrun says it, to be heard behind a shell.
 */
static int count_cpus(int most)
{
    cpu_set_t mine, all;
    pid_t launcher = getppid();
    if (sched_getaffinity(0, sizeof(mine), &mine))
        return most ? most : 1;
    if (launcher > 0 && !sched_getaffinity(launcher, sizeof(all), &all))
        CPU_OR(&mine, &mine, &all);
    return CPU_COUNT(&mine) > most ? CPU_COUNT(&mine) : most;
}

/* As halayrun says, for ranks that it has bound; else 0. */
static int shared_cpus(void)
{
    const char *shared = getenv("HALAY_PROCESSORS");
    long n = shared ? strtol(shared, NULL, 10) : 0;
    return n > 0 && n <= INT_MAX ? (int)n : 0;
}

/* Bytes of the last-level cache. The C library's answer may be that of all processors together. */
static size_t last_cache(void)
{
    char text[32] = "";
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    if (file && !fgets(text, sizeof(text), file))
        text[0] = 0;
    if (file)
        fclose(file);
    unsigned long kib = strtoul(text, NULL, 10); /* "32768K" */
    return kib ? kib << 10 : HLY_CACHE_BYTES;
}

static int allocate(halay_context_t **out)
{
    halay_context_t *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return HALAY_ENOMEM;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED)
        goto free_context;
    if (madvise(alive, page, MADV_WIPEONFORK))
        goto unmap;
    ctx->peer_table = calloc(16, sizeof(*ctx->peer_table));
    if (!ctx->peer_table)
        goto unmap;
    ctx->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ctx->wake_fd < 0)
        goto free_table;
    ctx->peer_mask = 15;
    ctx->alive = alive;
    *ctx->alive = 1;
    ctx->magic = HLY_CONTEXT_MAGIC;
    ctx->dealt = shared_cpus();
    ctx->ncpus = count_cpus(ctx->dealt);
    ctx->cache_bytes = last_cache();
    init_lists(ctx);
    *out = ctx;
    return HALAY_OK;
free_table:
    free(ctx->peer_table);
unmap:
    munmap(alive, page);
free_context:
    free(ctx);
    return HALAY_ENOMEM;
}

static void free_outs(struct hly_link *list)
{
    while (!hly_link_empty(list)) {
        struct hly_out *out = HLY_OF(list->next, struct hly_out, link);
        hly_link_remove(&out->link);
        free(out);
    }
}

static void free_peers(halay_context_t *ctx)
{
    for (uint32_t i = 0; i <= ctx->peer_mask; i++)
        while (ctx->peer_table[i]) {
            struct hly_peer *p = ctx->peer_table[i];
            ctx->peer_table[i] = p->hash_next;
            free_outs(&p->queue);
            p->way->ops->disconnect(p->way->transport, p->ep);
            free(p);
        }
    free(ctx->peer_table);
}

static void free_lists(halay_context_t *ctx)
{
    while (!hly_link_empty(&ctx->posted))
        hly_request_drop(HLY_OF(ctx->posted.next, halay_request_t, posted));
    hly_match_forget(ctx, &ctx->orphans);
    while (!hly_link_empty(&ctx->comms))
        hly_comm_destroy(HLY_OF(ctx->comms.next, halay_comm_t, link));
    while (!hly_link_empty(&ctx->freed_comms))
        hly_comm_destroy(HLY_OF(ctx->freed_comms.next, halay_comm_t, link));
    hly_ops_free(ctx);
    hly_request_free_memory(ctx);
    while (ctx->certificates) {
        struct hly_certificate *next = ctx->certificates->next;
        free(ctx->certificates);
        ctx->certificates = next;
    }
}

/* Takes down whatever stands of it, in reverse order. */
static void destroy(halay_context_t *ctx)
{
    free_lists(ctx);
    free_peers(ctx);
    free(ctx->landings);
    if (ctx->device)
        ctx->device_ops->close(ctx->device);
    hly_ranges_withdraw(ctx);
    hly_ways_close(ctx);
    hly_ranges_free(ctx);
    free_outs(&ctx->outs_flying); /* the transport held their payload till now */
    free_outs(&ctx->outs_free);
    if (ctx->boot)
        ctx->boot_ops->close(ctx->boot);
    while (ctx->nplugins)
        dlclose(ctx->plugins[--ctx->nplugins]);
    halay_selection_free(ctx->settings.selection);
    close(ctx->wake_fd);
    pthread_cond_destroy(&ctx->cond);
    pthread_mutex_destroy(&ctx->mutex);
    munmap((void *)(uintptr_t)ctx->alive, (size_t)sysconf(_SC_PAGESIZE));
    ctx->magic = 0;
    free(ctx);
}

int halay_init(const halay_config_t *config, halay_context_t **context)
{
    static const halay_config_t defaults = HALAY_CONFIG_INIT;
    struct failure why = {""};
    halay_context_t *ctx = NULL;
    if (!context || (config && config->size != sizeof(*config)))
        return HALAY_EINVAL;
    if (!config)
        config = &defaults;
    int rc = allocate(&ctx);
    if (!rc)
        rc = hly_settings_read(&ctx->settings, config, why.text, sizeof(why.text));
    if (!rc)
        rc = find_job(ctx, config, &why);
    if (!rc)
        rc = hly_ways_open(ctx, config, why.text, sizeof(why.text));
    if (!rc)
        rc = open_device(ctx, config, &why);
    if (!rc)
        rc = make_world(ctx);
    if (!rc) {
        hly_settings_show(ctx);
        *context = ctx;
        return HALAY_OK;
    }
    if (!why.text[0])
        snprintf(why.text, sizeof(why.text), "%s", halay_strerror(rc));
    if (config->error)
        snprintf(config->error, config->error_bytes, "%s", why.text);
    if (ctx) {
        hly_log(ctx, HLY_ERROR, "halay_init failed: %s", why.text);
        destroy(ctx);
    }
    return rc;
}

/* Fails what is in flight on all ranks; false if there was nothing. */
static bool abandon_requests(halay_context_t *ctx)
{
    bool any = false;
    uint64_t until = hly_now_ns() + 1000000000ull;
    for (struct hly_link *l = ctx->comms.next; l != &ctx->comms; l = l->next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        for (uint32_t s = comm->oldest; s != comm->next_sequence; s++) {
            struct hly_verdict_wire v;
            hly_verdict_init(&v, comm, HLY_CAUSE_STATE, HALAY_ESTATE, comm->rank);
            snprintf(v.detail, sizeof(v.detail),
                     "the rank finalized Halay with this call in flight");
            hly_fault_raise(comm, s, &v);
            any = true;
        }
    }
    while (!hly_link_empty(&ctx->requests) && hly_now_ns() < until)
        if (hly_progress(ctx) == 0)
            hly_sleep(ctx, 1000000);
    return any;
}

static void flush(halay_context_t *ctx)
{
    uint64_t until = hly_now_ns() + 1000000000ull;
    while (!hly_link_empty(&ctx->busy_peers) && hly_now_ns() < until)
        hly_progress(ctx);
}

int halay_finalize(halay_context_t *context)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC)
        return context ? HALAY_EINVAL : HALAY_OK;
    if (hly_forked(context))
        return HALAY_EFORKED;
    hly_lock(context);
    bool any = abandon_requests(context);
    int late = hly_series_end(context);
    flush(context);
    if (any)
        hly_log(context, HLY_ERROR,
                "halay_finalize: requests were in flight; they have been ended "
                "with an error on all ranks. Wait for them first");
    for (int w = 0; w < context->nways; w++) {
        const halay_traffic_t *t = &context->ways[w].traffic;
        hly_log(context, HLY_INFO, "sent %llu bytes in %llu messages over %s, %llu connections",
                (unsigned long long)t->sent_bytes, (unsigned long long)t->sent_messages,
                t->transport, (unsigned long long)t->connections);
    }
    hly_unlock(context);
    destroy(context);
    return any ? HALAY_ESTATE : late;
}

/* ---------------------------------------------------------------- questions */

int halay_context_topology(const halay_context_t *context, halay_topology_t *t)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !t || t->size < sizeof(*t))
        return HALAY_EINVAL;
    const halay_boot_info_t *i = &context->info;
    *t = (halay_topology_t){.size = sizeof(*t),
                            .rank = i->rank,
                            .nranks = i->nranks,
                            .local_rank = i->local_rank,
                            .local_nranks = i->local_nranks,
                            .node = i->node,
                            .nnodes = i->nnodes};
    snprintf(t->host, sizeof(t->host), "%s", i->host);
    snprintf(t->launcher, sizeof(t->launcher), "%s", i->launcher);
    hly_ways_text(context, t->transport, sizeof(t->transport));
    return HALAY_OK;
}

int halay_context_counters(halay_context_t *context, halay_counters_t *counters)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !counters ||
        counters->size < sizeof(*counters))
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    hly_lock(context);
    *counters = context->counters;
    counters->size = sizeof(*counters);
    hly_unlock(context);
    return HALAY_OK;
}

int halay_comm_world(halay_context_t *context, halay_comm_t **comm)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !comm)
        return HALAY_EINVAL;
    *comm = context->world;
    return HALAY_OK;
}

int halay_context_progress(halay_context_t *context, uint64_t timeout_ns)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC)
        return HALAY_EINVAL;
    if (hly_forked(context))
        return HALAY_EFORKED;
    hly_lock(context);
    if (hly_progress(context) == 0 && timeout_ns && !context->woken) {
        hly_sleep(context, timeout_ns);
        hly_progress(context);
    } else if (timeout_ns) {
        context->woken = false; /* a wake between the caller's look and this call counts too */
    }
    hly_unlock(context);
    return HALAY_OK;
}

void halay_context_wake(halay_context_t *context)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || hly_forked(context))
        return;
    hly_lock(context);
    context->woken = true;
    hly_wake(context);
    hly_unlock(context);
}
