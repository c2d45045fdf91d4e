/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context.c - a context owns everything; there is no other state (but current.c), so ranks can be
 * threads of one process. A forked child finds `*alive` wiped by the kernel, and is refused.
 */
#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dlfcn.h>

#include "../../common/job.h"
#include "../../common/proc.h"
#include "api/api.h"
#include "device/device_builtin.h"
#include "exec/exec.h"
#include "exec/relaxed.h"
#include "fault/leave.h"
#include "run/group.h"
#include "run/group_library.h"
#include "run/returned.h"
#include "start/start.h"
#include "wire/match.h"
#include "wire/news.h"
#include "wire/register.h"

#define FLUSH_NS 1000000000ull

struct failure { /* where halay_init's reason goes */
    char text[768];
    bool said; /* in the log, by this rank or by another one */
};

/* ---------------------------------------------------------------- finding the others */

static void alone(halay_context_t *ctx)
{
    halay_boot_info_t *i = &ctx->info;
    *i = (halay_boot_info_t){
        .size = sizeof(*i), .nranks = 1, .local_nranks = 1, .nnodes = 1, .epoch = 1};
    hly_proc_host(i->host, sizeof(i->host));
    strcpy(i->launcher, "alone");
}

struct heard { /* from the bootstrap */
    halay_context_t *context;
    char error[sizeof(((struct failure *)NULL)->text) - 64];
};

static void hear(void *arg, int level, const char *text)
{
    struct heard *heard = arg;
    if ((level == HLY_ERROR || level == HALAY_LOG_TOLD) && !heard->error[0])
        snprintf(heard->error, sizeof(heard->error), "%s", text);
    hly_log_text(heard->context, level == HALAY_LOG_TOLD ? HLY_INFO : level, text);
}

/* own: the program's own bootstrap, which compares nothing. */
static int open_boot(halay_context_t *ctx, void *arg, bool own, struct failure *why)
{
    struct heard heard = {.context = ctx};
    ctx->info.size = sizeof(ctx->info);
    ctx->info.processors = ctx->ncpus;
    if (!own)
        hly_kept_read(ctx);
    int rc = ctx->boot_ops->open(arg, hear, &heard, ctx->settings.start_deadline_ns, &ctx->info,
                                 &ctx->boot);
    why->said = rc && heard.error[0];
    if (rc)
        snprintf(why->text, sizeof(why->text), "the job could not be joined through %s: %s",
                 ctx->boot_ops->name, why->said ? heard.error : halay_strerror(rc));
    return rc;
}

/* A job of fewer ranks than a launcher has started is none of its. by: who knows the job. */
static int compare(halay_context_t *ctx, const char *by, const char *remedy, struct failure *why)
{
    int most;
    const char *other = hly_launcher_denies_here(ctx->info.nranks, &most);
    if (!other)
        return HALAY_OK;
    snprintf(why->text, sizeof(why->text),
             "%s knows a job of %d rank%s, but %s says that there are %d. To go on with fewer "
             "would be silently wrong, so this stops; %s",
             by, ctx->info.nranks, ctx->info.nranks == 1 ? "" : "s", other, most, remedy);
    ctx->boot_ops->close(ctx->boot);
    ctx->boot = NULL;
    return HALAY_EBOOT;
}

static int not_found(const struct hly_launcher *found, const char *reason, struct failure *why)
{
    char ranks[32] = "its ranks";
    if (found->nranks > 1)
        snprintf(ranks, sizeof(ranks), "%d ranks", found->nranks);
    snprintf(why->text, sizeof(why->text),
             "%s announced %s, but they cannot be found: %.250s. Running each alone would be "
             "silently wrong, so this stops; %s",
             found->launcher, ranks, reason, found->remedy);
    return HALAY_EBOOT;
}

static int join_job(halay_context_t *ctx, const struct hly_launcher *found, struct failure *why)
{
    const void *table;
    char reason[256];
    int promised = 1;
    if (found->most) {
        snprintf(why->text, sizeof(why->text),
                 "%s announced %d ranks, but %s says that there are %d: start the program by one "
                 "launcher, unset the variable, or set HALAY_JOB=none to run alone",
                 found->launcher, found->nranks, found->other, found->most);
        return HALAY_EBOOT;
    }
    if (!found->plugin)
        return not_found(found, found->reason, why);
    if (hly_plugin_load(ctx, "boot", found->plugin, "halay_boot_v4_", &table, reason,
                        sizeof(reason)))
        return not_found(found, reason, why);
    ctx->boot_ops = table;
    if (!ctx->boot_ops->probe(&promised)) {
        ctx->boot_ops = NULL;
        snprintf(reason, sizeof(reason), "there is no %s in the environment",
                 strcmp(found->plugin, "pmix") ? "job" : "PMIx server");
        return not_found(found, reason, why);
    }
    const int rc = open_boot(ctx, NULL, false, why);
    if (rc || strcmp(found->plugin, "pmix"))
        return rc;
    snprintf(reason, sizeof(reason), "%s, or set HALAY_JOB=none to run alone", found->remedy);
    return compare(ctx, "PMIx", reason, why);
}

/* The program says which rank it is, by an address or by its allgather. */
static int join_given(halay_context_t *ctx, halay_boot_rank_t *given, struct failure *why)
{
    const void *table;
    const bool gathers = given->size > offsetof(halay_boot_rank_t, allgather) && given->allgather;
    if (hly_plugin_load(ctx, "boot", "tcp", "halay_boot_v4_", &table, why->text, sizeof(why->text)))
        return HALAY_EBOOT;
    ctx->boot_ops = table;
    const int rc = open_boot(ctx, given, false, why);
    if (rc || !gathers)
        return rc;
    return compare(ctx, "the program's allgather",
                   "hand over an allgather of all ranks, or set HALAY_JOB=none where these "
                   "are meant to be a job of their own",
                   why);
}

static int find_job(halay_context_t *ctx, const halay_config_t *config, struct failure *why)
{
    hly_proc_host(ctx->info.host, sizeof(ctx->info.host));
    if (config->boot) {
        ctx->boot_ops = config->boot;
        return open_boot(ctx, config->boot_arg, true, why);
    }
    if (config->boot_arg)
        return join_given(ctx, config->boot_arg, why);
    const struct hly_launcher found = hly_launcher_here();
    if (found.nranks != 1 || found.most)
        return join_job(ctx, &found, why);
    alone(ctx);
    return HALAY_OK;
}

/* ---------------------------------------------------------------- device */

/* The program's stands for the host's, or beside it, where its memory is of another kind. */
static int open_device(halay_context_t *ctx, const halay_config_t *config, struct failure *why)
{
    const char *isa = *ctx->settings.isa ? ctx->settings.isa : NULL;
    struct hly_device other = {0};
    int rc = HALAY_OK;
    if (config->device)
        rc = hly_device_open(config->device, config->device_arg, isa, &other);
    if (!rc && (!other.ops || other.memory != HALAY_MEMORY_HOST)) {
        rc = hly_device_open(&hly_device_host, NULL, isa, &ctx->devices[0]);
        ctx->ndevices = !rc;
    }
    if (!rc && other.ops)
        ctx->devices[ctx->ndevices++] = other;
    else if (other.ops && other.handle)
        other.ops->close(other.handle);
    if (rc)
        snprintf(why->text, sizeof(why->text),
                 isa ? "isa '%s' of halay_config_t is not offered by this processor or not one of "
                       "scalar, "
                       "avx2, avx512 (%s)"
                     : "the device%s could not be opened (%s)",
                 isa              ? isa
                 : config->device ? " of halay_config_t"
                                  : " of this processor",
                 halay_strerror(rc));
    return rc;
}

/* The library of group steps belongs to the device of the memory in which it works. */
static int find_group(halay_context_t *ctx, const halay_config_t *config, struct failure *why)
{
    halay_group_attr_t attr = {.size = sizeof(attr)};
    if (!config->group)
        return HALAY_OK;
    const int rc = config->group->about(config->group_arg, &attr);
    struct hly_device *device = rc ? NULL : hly_device_of(ctx, attr.memory);
    if (!rc && device->memory == attr.memory) {
        device->library =
            (struct hly_group_library){config->group, config->group_arg, "", attr.captures};
        snprintf(device->library.name, sizeof(device->library.name), "%.31s", attr.name);
        return HALAY_OK;
    }
    snprintf(why->text, sizeof(why->text),
             rc ? "config.group cannot be used here: %s"
                : "config.group works in memory of which there is no device: give config.device "
                  "too (%s)",
             halay_strerror(rc ? rc : HALAY_EINVAL));
    return rc ? rc : HALAY_EINVAL;
}

static int make_world(halay_context_t *ctx)
{
    int n = ctx->info.nranks;
    int *ranks = calloc((size_t)n, sizeof(*ranks));
    if (!ranks)
        return HALAY_ENOMEM;
    for (int r = 0; r < n; r++)
        ranks[r] = r;
    struct hly_ranks *all;
    uint64_t id = hly_hash(ctx->info.epoch, ctx->info.job, sizeof(ctx->info.job));
    int rc = hly_ranks_make(ranks, n, &all);
    if (!rc)
        rc = hly_comm_make(ctx, id ? id : 1, all, ctx->info.rank, ctx->settings.deadline_ns,
                           &ctx->world);
    free(ranks);
    if (!rc)
        hly_hand_on(ctx);
    return rc;
}

/* ---------------------------------------------------------------- life */

static void init_lists(halay_context_t *ctx)
{
    hly_link_init(&ctx->busy_peers);
    hly_link_init(&ctx->comms);
    hly_link_init(&ctx->dcomms);
    hly_link_init(&ctx->messages);
    hly_link_init(&ctx->freed_comms);
    hly_link_init(&ctx->unused_comms);
    hly_link_init(&ctx->requests);
    hly_link_init(&ctx->requests_unused);
    hly_link_init(&ctx->posted);
    hly_link_init(&ctx->orphans);
    hly_link_init(&ctx->sends_unused);
    hly_link_init(&ctx->sends_flying);
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

/* Processors of this node's ranks as halayrun says, if it has bound them; else 0. */
static int shared_cpus(void)
{
    char shared[16];
    long n = hly_job_has("processors", shared, sizeof(shared)) ? strtol(shared, NULL, 10) : 0;
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
    ctx->waiters.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ctx->waiters.wake_fd < 0)
        goto free_table;
    if (hly_news_init(ctx))
        goto close_wake;
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
close_wake:
    close(ctx->waiters.wake_fd);
free_table:
    free(ctx->peer_table);
unmap:
    munmap(alive, page);
free_context:
    free(ctx);
    return HALAY_ENOMEM;
}

static void free_sends(struct hly_link *list)
{
    while (!hly_link_empty(list)) {
        struct hly_send *send = HLY_OF(list->next, struct hly_send, link);
        hly_link_remove(&send->link);
        free(send);
    }
}

static void free_peers(halay_context_t *ctx)
{
    for (uint32_t i = 0; i <= ctx->peer_mask; i++)
        while (ctx->peer_table[i]) {
            struct hly_peer *p = ctx->peer_table[i];
            ctx->peer_table[i] = p->hash_next;
            free_sends(&p->queue);
            p->transport->ops->disconnect(p->transport->handle, p->ep);
            free(p);
        }
    free(ctx->peer_table);
}

static void free_lists(halay_context_t *ctx)
{
    while (!hly_link_empty(&ctx->posted)) {
        halay_request_t *r = HLY_OF(ctx->posted.next, halay_request_t, posted);
        hly_group_forget(r->group.stands_for);
        hly_request_drop(r);
    }
    hly_unexpected_forget(&ctx->orphans);
    while (!hly_link_empty(&ctx->comms))
        hly_comm_destroy(HLY_OF(ctx->comms.next, halay_comm_t, link));
    while (!hly_link_empty(&ctx->freed_comms))
        hly_comm_destroy(HLY_OF(ctx->freed_comms.next, halay_comm_t, link));
    hly_comms_free_memory(ctx);
    hly_ops_free(ctx);
    hly_request_free_memory(ctx);
    hly_certificates_free(ctx);
    hly_news_free(ctx);
}

/* Frees whatever has been made, in reverse order. */
static void destroy(halay_context_t *ctx)
{
    free_lists(ctx);
    free_peers(ctx);
    free(ctx->targets);
    while (ctx->ndevices) {
        struct hly_device *device = &ctx->devices[--ctx->ndevices];
        device->ops->close(device->handle);
    }
    hly_ranges_withdraw(ctx);
    hly_transports_close(ctx);
    hly_ranges_free(ctx);
    hly_nccl_drop(ctx);
    free_sends(&ctx->sends_flying); /* the transport held their payload until now */
    free_sends(&ctx->sends_unused);
    if (ctx->boot && ctx->leaves && ctx->boot_ops->size > offsetof(halay_boot_ops_t, leave) &&
        ctx->boot_ops->leave)
        ctx->boot_ops->leave(ctx->boot);
    if (ctx->boot)
        ctx->boot_ops->close(ctx->boot);
    while (ctx->nplugins)
        dlclose(ctx->plugins[--ctx->nplugins]);
    halay_selection_free(ctx->settings.selection);
    halay_selection_free(ctx->settings.kept.selection);
    hly_record_close(ctx);
    close(ctx->waiters.wake_fd);
    munmap((void *)(uintptr_t)ctx->alive, (size_t)sysconf(_SC_PAGESIZE));
    ctx->magic = 0;
    free(ctx);
}

/* Takes what the program has set; the rest keeps its defaults. */
static int take_config(halay_config_t *config, const halay_config_t *given, struct failure *why)
{
    if (!given || hly_struct_take(config, sizeof(*config), given))
        return HALAY_OK;
    if (given->size >= sizeof(*given)) {
        config->error = given->error;
        config->error_bytes = given->error_bytes;
    }
    snprintf(why->text, sizeof(why->text),
             !given->size || given->size % sizeof(size_t)
                 ? "config.size is not set; begin with HALAY_CONFIG_INIT"
                 : "the program sets members of halay_config_t that Halay %s does not have; use "
                   "the library that it was built for, or a newer one",
             halay_version());
    return HALAY_EINVAL;
}

int halay_init(const halay_config_t *given, halay_context_t **context)
{
    halay_config_t known = HALAY_CONFIG_INIT, *config = &known;
    struct failure why = {.said = false};
    halay_context_t *ctx = NULL;
    if (!context)
        return HALAY_EINVAL;
    const int no_memory = allocate(&ctx);
    int rc = take_config(config, given, &why); /* before any error: it says where texts go */
    if (!rc)
        rc = no_memory;
    if (!rc)
        rc = hly_record_open(ctx);
    if (!rc)
        rc = hly_settings_read(&ctx->settings, config, why.text, sizeof(why.text));
    if (!rc)
        rc = hly_tables_check(config, why.text, sizeof(why.text));
    if (!rc)
        rc = find_job(ctx, config, &why);
    if (!rc)
        hly_record_found(ctx);
    if (!rc)
        hly_kept_agree(ctx);
    if (!rc)
        rc = open_device(ctx, config, &why);
    if (!rc)
        rc = find_group(ctx, config, &why);
    if (!rc)
        rc = hly_transports_open(ctx, config, why.text, sizeof(why.text));
    if (!rc)
        rc = make_world(ctx);
    if (!rc) {
        hly_settings_show(ctx);
        hly_current_begin(ctx);
        *context = ctx;
        return HALAY_OK;
    }
    if (!why.text[0])
        snprintf(why.text, sizeof(why.text), "%s", halay_strerror(rc));
    if (config->error)
        snprintf(config->error, config->error_bytes, "%s", why.text);
    if (ctx) {
        hly_log(ctx, why.said ? HLY_INFO : HLY_ERROR, "halay_init failed: %s", why.text);
        hly_record_failed(ctx, rc, why.text);
        destroy(ctx);
    }
    return rc;
}

/* Fails the program's calls in flight, on all ranks. false: there were none. Agreements on NCCL are
 * no calls of the program: they may end meanwhile. */
static bool abandon_requests(halay_context_t *ctx)
{
    bool any = false;
    uint64_t until = hly_now_ns() + 1000000000ull;
    for (struct hly_link *l = ctx->comms.next; l != &ctx->comms; l = l->next) {
        halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
        for (uint32_t s = comm->oldest; !comm->asks_for && s != comm->next_sequence; s++) {
            struct hly_verdict_wire v;
            const struct hly_slot *slot = hly_comm_slot(comm, s);
            hly_verdict_init(&v, comm, HLY_CAUSE_STATE, HALAY_ESTATE, comm->rank);
            if (slot && slot->request)
                v.call = slot->request->call.desc;
            snprintf(v.detail, sizeof(v.detail),
                     "the rank called halay_finalize with this call in flight");
            hly_fault_raise(comm, s, &v);
            any = true;
        }
    }
    while (!hly_link_empty(&ctx->requests) && hly_now_ns() < until)
        hly_wait_once(ctx);
    return any;
}

static int next_waited_for(const halay_comm_t *comm)
{
    int rank = 0;
    while (rank < comm->nranks && !hly_relaxed_waits_for(comm, rank))
        rank++;
    return rank;
}

/* Waits until all ranks have ended this communicator's relaxed broadcasts. */
static void await_relaxed(halay_comm_t *comm)
{
    halay_context_t *ctx = comm->context;
    const uint64_t until = hly_now_ns() + comm->deadline_ns;
    while (hly_relaxed_is_open(comm) && next_waited_for(comm) < comm->nranks && !ctx->lost &&
           hly_now_ns() < until)
        hly_wait_once(ctx);
    if (hly_relaxed_is_open(comm) && next_waited_for(comm) < comm->nranks)
        hly_log(ctx, HLY_WARN,
                "halay_finalize: rank %d has not ended call %u on a communicator, a broadcast, by "
                "the deadline; this rank leaves all the same",
                next_waited_for(comm), comm->next_sequence - 1);
}

/* Leaves all relaxed broadcasts (exec/relaxed.h). An error: a relaxed call that ended well here has
 * failed elsewhere. */
static int relaxed_end(halay_context_t *context)
{
    struct hly_link *const lists[2] = {&context->comms, &context->freed_comms};
    int rc = HALAY_OK;
    for (int i = 0; i < 2; i++)
        for (struct hly_link *l = lists[i]->next; l != lists[i]; l = l->next) {
            halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
            for (int r = 0; hly_relaxed_is_open(comm) && r < comm->nranks; r++)
                if (hly_relaxed_waits_for(comm, r))
                    hly_relaxed_ask(comm, r);
        }
    for (int i = 0; i < 2; i++)
        for (struct hly_link *l = lists[i]->next; l != lists[i]; l = l->next) {
            halay_comm_t *comm = HLY_OF(l, halay_comm_t, link);
            await_relaxed(comm);
            if (comm->relaxed.late && !comm->asks_for && !rc)
                rc = comm->broken.by.code;
        }
    return rc;
}

/* Has this peer to hear more than that calls have failed, which others tell it, too? */
static bool is_owed(const struct hly_peer *peer)
{
    for (const struct hly_link *o = peer->queue.next; o != &peer->queue; o = o->next) {
        const enum hly_kind kind = HLY_OF(o, struct hly_send, link)->header.kind;
        if (kind != HLY_ALARM && kind < HLY_QUERY)
            return true;
    }
    return false;
}

static bool owes(const halay_context_t *ctx)
{
    const struct hly_link *busy = &ctx->busy_peers;
    for (const struct hly_link *l = busy->next; l != busy; l = l->next) {
        const struct hly_peer *peer = HLY_OF(l, struct hly_peer, waiting);
        if (peer->greeted || is_owed(peer))
            return true;
    }
    return false;
}

/* What others need of this rank. A host to which no connection is made may be down: to tell its
 * ranks of a failure is not tried for as long. */
static void flush(halay_context_t *ctx)
{
    const uint64_t now = hly_now_ns(), soon = now + FLUSH_NS / 4, until = now + FLUSH_NS;
    while (!hly_link_empty(&ctx->busy_peers) && hly_now_ns() < (owes(ctx) ? until : soon))
        hly_progress(ctx);
}

static int finalize(halay_context_t *context)
{
    int rc = context ? hly_context_enter(context) : HALAY_OK;
    if (rc || !context)
        return rc;
    context->listening =
        context->ntransports > 0; /* calls that ended well here may have failed elsewhere */
    hly_returned_land(context, NULL);
    bool any = abandon_requests(context);
    const int owed = hly_returned_end(context);
    hly_progress(context); /* who has called it meanwhile is told, too */
    hly_fault_leave(context);
    hly_progress(context);
    int late = relaxed_end(context);
    flush(context);
    if (any)
        hly_log(context, HLY_ERROR,
                "halay_finalize: requests were in flight; they have been ended "
                "with an error on all ranks. Wait for them first");
    for (int w = 0; w < context->ntransports; w++) {
        const halay_traffic_t *t = &context->transports[w].traffic;
        hly_log(context, HLY_INFO, "sent %llu bytes in %llu messages over %s, %llu connections",
                (unsigned long long)t->sent_bytes, (unsigned long long)t->sent_messages,
                t->transport, (unsigned long long)t->connections);
    }
    hly_unlock(context);
    destroy(context);
    return any ? HALAY_ESTATE : owed ? owed : late;
}

int halay_finalize(halay_context_t *context)
{
    const enum hly_current_left left = hly_current_end(context);
    const int rc = left == HLY_CURRENT_STAYS ? HALAY_OK : finalize(context);
    hly_current_ended(left);
    return rc;
}

int halay_leave(halay_context_t *context)
{
    if (context && context->magic == HLY_CONTEXT_MAGIC)
        context->leaves = true;
    return halay_finalize(context);
}

/* ---------------------------------------------------------------- questions */

int halay_context_topology(const halay_context_t *context, halay_topology_t *topology)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !topology)
        return HALAY_EINVAL;
    const halay_boot_info_t *i = &context->info;
    halay_topology_t t = {.rank = i->rank,
                          .nranks = i->nranks,
                          .local_rank = i->local_rank,
                          .local_nranks = i->local_nranks,
                          .node = i->node,
                          .nnodes = i->nnodes,
                          .oversubscribed = (int)context->world->oversubscribed};
    snprintf(t.host, sizeof(t.host), "%s", i->host);
    snprintf(t.launcher, sizeof(t.launcher), "%s", i->launcher);
    hly_transports_text(context, t.transport, sizeof(t.transport));
    return hly_struct_give(topology, &t, sizeof(t)) ? HALAY_OK : HALAY_EINVAL;
}

int halay_context_counters(halay_context_t *context, halay_counters_t *counters)
{
    int rc = counters ? hly_context_enter(context) : HALAY_EINVAL;
    if (rc)
        return rc;
    halay_counters_t c = context->counters;
    for (int w = 0; w < context->ntransports; w++) {
        c.sent_messages += context->transports[w].traffic.sent_messages;
        c.sent_bytes += context->transports[w].traffic.sent_bytes;
    }
    hly_unlock(context);
    const bool given = hly_struct_give(counters, &c, sizeof(*counters));
    return given ? HALAY_OK : HALAY_EINVAL;
}

int halay_newcomers(halay_context_t *context, int *count)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !count)
        return HALAY_EINVAL;
    if (!context->boot || !context->boot_ops->newcomers)
        return HALAY_EUNSUPPORTED;
    hly_lock(context);
    const int rc = context->boot_ops->newcomers(context->boot, count);
    hly_unlock(context);
    return rc;
}

int halay_comm_world(halay_context_t *context, halay_comm_t **comm)
{
    if (!context || context->magic != HLY_CONTEXT_MAGIC || !comm)
        return HALAY_EINVAL;
    *comm = context->world->handle;
    return HALAY_OK;
}

int halay_context_progress(halay_context_t *context, uint64_t timeout_ns)
{
    int rc = hly_context_enter(context);
    if (rc)
        return rc;
    if (hly_progress(context) == 0 && timeout_ns && !context->waiters.woken) {
        hly_sleep(context, timeout_ns);
        hly_progress(context);
    } else if (timeout_ns) {
        context->waiters.woken = false; /* a wake-up before this call counts, too */
    }
    hly_unlock(context);
    return HALAY_OK;
}

void halay_context_wake(halay_context_t *context)
{
    if (hly_context_enter(context))
        return;
    hly_wake(context);
    hly_unlock(context);
}
