/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/context.h"
#include "device/device_builtin.h"

extern const halay_transport_ops_t halay_transport_v7_shm;

struct start {
    pthread_t thread;
    struct rank rank;
    struct halay_inproc_rank where;
    const struct ranks_options *options;
    void (*fn)(struct rank *);
};

int64_t ranks_sum(int nranks, int round, int i)
{
    int64_t s = 0;
    for (int r = 0; r < nranks; r++)
        s += ranks_value(r, round, i);
    return s;
}

const halay_inproc_faults_t ranks_put = {.seed = 3,
                                         .delay_polls_max = 3,
                                         .reorder = 1,
                                         .late_put_polls = 5,
                                         .hide_capabilities = HALAY_CAN_LAND,
                                         .eager_bytes = 128};
const halay_inproc_faults_t ranks_tagged = {.seed = 4,
                                            .delay_polls_max = 3,
                                            .reorder = 1,
                                            .late_put_polls = 5,
                                            .again_percent = 10,
                                            .hide_capabilities = HALAY_CAN_PUT,
                                            .eager_bytes = 128};
const halay_inproc_faults_t ranks_staged = {.seed = 5,
                                            .delay_polls_max = 4,
                                            .reorder = 1,
                                            .again_percent = 30,
                                            .hide_capabilities = HALAY_CAN_PUT | HALAY_CAN_LAND,
                                            .eager_bytes = 64,
                                            .piece_bytes = 256};

uint64_t ranks_random(uint64_t *state) /* splitmix64 (S. Vigna) */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t ranks_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

double ranks_busy(void)
{
    double load;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) != 1 || processors < 1 || load < 2.0 * (double)processors)
        return 1;
    return load / (2.0 * (double)processors);
}

static void *rank_main(void *arg)
{
    struct start *s = arg;
    const struct ranks_options *o = s->options;
    halay_config_t config = HALAY_CONFIG_INIT;
    char error[512] = "";
    config.boot = &halay_boot_v4_inproc;
    config.boot_arg = &s->where;
    config.transport = o->transport ? o->transport
                       : o->shm     ? &halay_transport_v7_shm
                                    : &halay_transport_v7_inproc;
    config.device = o->device;
    config.device_arg = o->device_arg;
    config.group = o->group;
    config.group_arg = o->group_args ? o->group_args[s->rank.rank] : NULL;
    config.algorithm = o->algorithms ? o->algorithms[s->rank.rank] : o->algorithm;
    config.isa = o->isa ? o->isa[s->rank.rank] : NULL;
    config.deadline_ns = o->deadline_ns ? o->deadline_ns : 20000000000ull;
    config.error = error;
    config.error_bytes = sizeof(error);
    int rc = halay_init(&config, &s->rank.context);
    CHECK(rc == 0, "halay_init on rank %d: %s: %s", s->rank.rank, halay_strerror(rc), error);
    CHECK(halay_comm_world(s->rank.context, &s->rank.world) == 0, "no world");
    s->fn(&s->rank);
    if (!o->keep) {
        rc = halay_finalize(s->rank.context);
        CHECK(rc == 0, "halay_finalize on rank %d: %s", s->rank.rank, halay_strerror(rc));
    }
    return NULL;
}

void ranks_run(const struct ranks_options *options, void (*fn)(struct rank *), void *arg)
{
    static struct start starts[RANKS_MAX];
    halay_inproc_hub_t *hub;
    CHECK(options->nranks > 0 && options->nranks <= RANKS_MAX, "%d ranks", options->nranks);
    CHECK(halay_inproc_hub_create(options->nranks, options->faults, &hub) == 0, "no hub");
    if (options->node_of_rank)
        CHECK(halay_inproc_hub_nodes(hub, options->node_of_rank) == 0, "no nodes");
    for (int r = 0; r < options->nranks; r++) {
        struct start *s = &starts[r];
        *s = (struct start){.options = options, .fn = fn, .where = {hub, r}};
        s->rank = (struct rank){.rank = r,
                                .nranks = options->nranks,
                                .hub = hub,
                                .arg = arg,
                                .seed = 1000u + (uint64_t)r};
        CHECK(pthread_create(&s->thread, NULL, rank_main, s) == 0, "no thread");
    }
    for (int r = 0; r < options->nranks; r++)
        pthread_join(starts[r].thread, NULL);
    halay_inproc_hub_destroy(hub);
}

bool ranks_there(const halay_context_t *context)
{
    return context->ndevices == 2 && !context->devices[1].touchable;
}

/* CUDA's driver, if the device has loaded it: then memory that is there is a GPU's. It is looked
 * for once, when there is such memory. */
static void *driver;

static void driver_find(void)
{
    driver = dlopen(HLY_CUDA_DRIVER, RTLD_NOW | RTLD_NOLOAD);
}

static void *driver_call(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, driver_find);
    return driver ? dlsym(driver, name) : NULL;
}

/* As a program copies, by the driver; false: there is none. The double has another way. */
static bool gpu_copy(void *to, const void *from, size_t bytes, void *there)
{
    void *context, *(*inside)(uint64_t, size_t);
    int (*retain)(void **, int), (*release)(int), (*push)(void *), (*pop)(void **);
    int (*copy)(uint64_t, uint64_t, size_t);
    const struct {
        const char *name;
        void *call;
    } calls[] = {{"cuDevicePrimaryCtxRetain", &retain},
                 {"cuDevicePrimaryCtxRelease_v2", &release},
                 {"cuCtxPushCurrent_v2", &push},
                 {"cuCtxPopCurrent_v2", &pop},
                 {"cuMemcpy", &copy}};
    const uint64_t at = (uint64_t)(uintptr_t)there;
    void *call = driver_call("cuda_double_inside");
    memcpy(&inside, &call, sizeof(call));
    if (call) {
        void *memory = inside(at, bytes);
        if (!memory) /* of the late device */
            return false;
        memcpy(to == there ? memory : to, from == there ? memory : from, bytes);
        return true;
    }
    if (!driver_call("cuInit"))
        return false;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        call = driver_call(calls[i].name);
        CHECK(call, "the driver has no %s", calls[i].name);
        memcpy(calls[i].call, &call, sizeof(call));
    }
    CHECK(!retain(&context, 0) && !push(context), "the GPU's context");
    CHECK(!copy((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes), "cuMemcpy");
    CHECK(!pop(&context) && !release(0), "the GPU's context");
    return true;
}

static const struct hly_device *there_of(const halay_context_t *context)
{
    CHECK(ranks_there(context), "it has no memory of its own");
    return &context->devices[1];
}

void *ranks_there_take(halay_context_t *context, size_t bytes)
{
    const struct hly_device *device = there_of(context);
    void *there;
    CHECK(!device->ops->alloc(device->handle, HALAY_PLACE_OWN, bytes, 64, &there), "no memory");
    return there;
}

void ranks_there_drop(halay_context_t *context, void *there)
{
    there_of(context)->ops->free(there_of(context)->handle, HALAY_PLACE_OWN, there);
}

static void protect(char *there, size_t bytes, int how)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)there % page;
    CHECK(!mprotect(there - before, before + bytes, how), "mprotect");
}

/* Copies from there or to there: which lies there, `there` says. */
static void copy_there(void *to, const void *from, size_t bytes, void *there)
{
    if (!bytes || gpu_copy(to, from, bytes, there))
        return;
    protect(there, bytes, PROT_READ | PROT_WRITE);
    memcpy(to, from, bytes);
    protect(there, bytes, PROT_NONE);
}

void ranks_there_put(void *there, const void *from, size_t bytes)
{
    copy_there(there, from, bytes, there);
}

void ranks_there_get(void *to, void *there, size_t bytes)
{
    copy_there(to, there, bytes, there);
}
