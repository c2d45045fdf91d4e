/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.c - the late test device. Invariants: flights[0 .. nflights) is the work that was launched
 * and whose cookie poll has not returned; no byte of its dst has been touched yet. Pages of blocks
 * are PROT_NONE outside of perform().
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "device/device_builtin.h"

#define SEED_DEFAULT        0x48616c6179u
#define DELAY_POLLS_DEFAULT 8u
#define CAPACITY_DEFAULT    64u
#define NEVER               UINT32_MAX
#define MARKS               64

struct flight {
    halay_work_t work;
    uint32_t polls_left; /* 0: ready; NEVER: it stays so */
    uint64_t ready_ns;   /* with a timer, when it is ready */
    int status;
    halay_part_t *parts; /* of a list; NULL: it is the work */
    uint32_t nparts;
};

struct block { /* of memory of its own */
    struct block *next;
    char *address;
    size_t bytes, mapped;
};

struct mark { /* of a stream of the program */
    uint64_t cookie;
    const struct hly_late_stream *stream;
    uint32_t number; /* of what stands last before it */
};

struct gate {                       /* in a stream of the program */
    struct hly_late_stream *stream; /* NULL: the entry is free */
    uint32_t number;
};

struct late {
    halay_device_t *host;
    uint64_t random;
    uint32_t delay_polls_max, capacity, nflights, nlaunched;
    uint32_t never, fails, breaks;
    bool stubborn, own_memory;
    int timer; /* or -1 */
    uint32_t delay_us_max;
    struct block *blocks;
    uint32_t nmarks;
    struct mark marks[MARKS];
    uint32_t ngates; /* so far */
    struct gate gates[MARKS];
    struct flight flights[];
};

/* ------------------------------------------------------------------ opening */

/* A number below `limit`. SplitMix64: Steele, Lea, Flood, OOPSLA 2014. */
static uint32_t random_below(struct late *late, uint32_t limit)
{
    uint64_t z = (late->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    assert(limit > 0);
    return (uint32_t)(((z >> 32) * limit) >> 32);
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void late_init(struct late *late, const struct hly_device_late_arg *a, uint32_t capacity)
{
    *late = (struct late){.host = late->host,
                          .random = a->seed ? a->seed : SEED_DEFAULT,
                          .delay_polls_max =
                              a->delay_polls_max ? a->delay_polls_max : DELAY_POLLS_DEFAULT,
                          .capacity = capacity,
                          .never = a->never,
                          .fails = a->fails,
                          .breaks = a->breaks,
                          .stubborn = a->stubborn,
                          .own_memory = a->own_memory,
                          .timer = -1,
                          .delay_us_max = a->delay_us_max};
}

static int late_open(void *arg, const char *isa, halay_device_t **device)
{
    static const struct hly_device_late_arg none;
    const struct hly_device_late_arg *a = arg ? arg : &none;
    const uint32_t capacity = a->capacity ? a->capacity : CAPACITY_DEFAULT;
    struct late *late;
    int rc;

    if (!device || capacity > HLY_DEVICE_LATE_CAPACITY_MAX)
        return HALAY_EINVAL;
    late = malloc(sizeof *late + capacity * sizeof late->flights[0]);
    if (!late)
        return HALAY_ENOMEM;
    rc = hly_device_host.open(NULL, isa, &late->host);
    if (rc != HALAY_OK)
        goto free_late;
    late_init(late, a, capacity);
    if (a->delay_us_max) {
        late->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        rc = HALAY_ENOMEM;
        if (late->timer < 0)
            goto close_host;
    }
    *device = (halay_device_t *)late;
    return HALAY_OK;

close_host:
    hly_device_host.close(late->host);
free_late:
    free(late);
    return rc;
}

/* ------------------------------------------------------------------ memory */

static bool overlaps(const struct block *b, const char *at, size_t bytes)
{
    return (uintptr_t)at < (uintptr_t)b->address + b->bytes &&
           (uintptr_t)b->address < (uintptr_t)at + bytes;
}

/* The first one that has some of these bytes. */
static struct block *block_of(const struct late *late, const void *at, size_t bytes)
{
    struct block *b = late->blocks;
    while (b && !overlaps(b, at, bytes))
        b = b->next;
    return b;
}

static bool holds(const struct block *b, const char *at, size_t bytes)
{
    return at >= b->address && bytes <= b->bytes - (size_t)(at - b->address);
}

static int late_query(halay_device_t *device, const void *address, size_t bytes,
                      halay_memory_t *memory)
{
    const struct late *late = (const struct late *)device;
    if (!late->own_memory)
        return hly_device_host.query(late->host, address, bytes, memory);
    if (!memory || memory->size < sizeof(*memory))
        return HALAY_EINVAL;
    bytes += !bytes;
    const struct block *b = address ? block_of(late, address, bytes) : NULL;
    if (address && !b)
        return HALAY_EUNSUPPORTED;
    if (b && !holds(b, address, bytes))
        return HALAY_EINVAL;
    memory->kind = HALAY_MEMORY_TEST;
    memory->touchable = 0;
    return HALAY_OK;
}

static int late_alloc(halay_device_t *device, uint32_t place, size_t bytes, size_t alignment,
                      void **address)
{
    struct late *late = (struct late *)device;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!late->own_memory || place != HALAY_PLACE_OWN)
        return hly_device_host.alloc(late->host, place, bytes, alignment, address);
    if (!address || !bytes || !alignment || alignment & (alignment - 1) || alignment > page ||
        bytes > SIZE_MAX - page)
        return HALAY_EINVAL;
    struct block *b = malloc(sizeof(*b));
    if (!b)
        return HALAY_ENOMEM;
    const size_t mapped = (bytes + page - 1) / page * page;
    void *pages = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        free(b);
        return HALAY_ENOMEM;
    }
    *b = (struct block){late->blocks, pages, bytes, mapped};
    late->blocks = b;
    *address = pages;
    return HALAY_OK;
}

static void late_free(halay_device_t *device, uint32_t place, void *address)
{
    struct late *late = (struct late *)device;
    struct block **at = &late->blocks;
    if (!late->own_memory || place != HALAY_PLACE_OWN) {
        hly_device_host.free(late->host, place, address);
        return;
    }
    if (!address)
        return;
    while (*at && (*at)->address != (char *)address)
        at = &(*at)->next;
    struct block *b = *at;
    assert(b);
    *at = b->next;
    munmap(b->address, b->mapped);
    free(b);
}

/* Its own, or for a copy the host's, as the work says. */
static bool operand_fits(const struct late *late, const void *at, size_t bytes, bool own)
{
    const struct block *b = block_of(late, at, bytes);
    return own ? b && holds(b, at, bytes) : !b;
}

static bool operands_fit(const struct late *late, const halay_work_t *work)
{
    const size_t bytes = work->count * halay_type_bytes(work->type);
    bool fit = true;
    if (!late->own_memory || !bytes)
        return true;
    fit = operand_fits(late, work->dst, bytes, work->direction != HALAY_TO_HOST);
    for (uint32_t s = 0; s < work->nsrc; s++)
        fit = fit && operand_fits(late, work->src[s], bytes, work->direction != HALAY_FROM_HOST);
    return fit;
}

static void protect(const struct late *late, const void *at, int how)
{
    const struct block *b = block_of(late, at, 1);
    int rc = b ? mprotect(b->address, b->mapped, how) : 0;
    assert(rc == 0);
    (void)rc;
}

/* Does work that was checked. */
static void perform(const struct late *late, const halay_work_t *work)
{
    const bool guards = late->own_memory && work->count;
    for (uint32_t s = 0; guards && s <= work->nsrc; s++)
        protect(late, s ? work->src[s - 1] : work->dst, PROT_READ | PROT_WRITE);
    int rc = hly_device_host.launch(late->host, work);
    assert(rc == HALAY_OK);
    (void)rc;
    for (uint32_t s = 0; guards && s <= work->nsrc; s++)
        protect(late, s ? work->src[s - 1] : work->dst, PROT_NONE);
}

/* ------------------------------------------------------------------ work */

/* The next flight. There is room. */
static struct flight *depart(struct late *late, const halay_work_t *work)
{
    struct flight *flight = &late->flights[late->nflights++];
    *flight = (struct flight){.work = *work};
    flight->polls_left = 1 + random_below(late, late->delay_polls_max);
    if (late->delay_us_max)
        flight->ready_ns = now_ns() + 1000ull * (1 + random_below(late, late->delay_us_max));
    late->nlaunched++;
    if (late->nlaunched == late->never || late->nlaunched == late->breaks)
        flight->polls_left = NEVER;
    flight->status = late->nlaunched == late->fails ? HALAY_EDEVICE : HALAY_OK;
    return flight;
}

static int late_launch(halay_device_t *device, const halay_work_t *work)
{
    struct late *late = (struct late *)device;
    int rc;

    assert(late && late->nflights <= late->capacity);
    rc = hly_device_work_check(work);
    if (rc != HALAY_OK)
        return rc;
    if (!operands_fit(late, work))
        return HALAY_EINVAL;
    if (work->at_once) /* as luck will have it */
        return random_below(late, 2) ? hly_device_host.launch(late->host, work)
                                     : HALAY_EUNSUPPORTED;
    if (late->nflights == late->capacity)
        return HALAY_EAGAIN;
    depart(late, work);
    return HALAY_INPROGRESS;
}

static int late_launch_list(halay_device_t *device, const halay_part_t parts[], uint32_t nparts,
                            halay_type_t type, uint64_t cookie)
{
    struct late *late = (struct late *)device;
    int rc = hly_device_list_check(parts, nparts, type);
    for (uint32_t i = 0; !rc && i < nparts; i++) {
        const halay_work_t work = hly_device_part(&parts[i], type);
        rc = operands_fit(late, &work) ? HALAY_OK : HALAY_EINVAL;
    }
    if (!rc && late->nflights == late->capacity)
        rc = HALAY_EAGAIN;
    if (rc)
        return rc;
    assert(nparts > 0); /* it was checked */
    halay_part_t *kept = malloc(nparts * sizeof(*kept));
    if (!kept)
        return HALAY_ENOMEM;
    memcpy(kept, parts, nparts * sizeof(*kept));
    struct flight *flight = depart(late, &(halay_work_t){.cookie = cookie, .type = type});
    flight->parts = kept;
    flight->nparts = nparts;
    return HALAY_INPROGRESS;
}

/* Nothing is at once here. */
static int late_bind(halay_device_t *device, halay_work_t *work)
{
    (void)device;
    (void)work;
    return HALAY_EUNSUPPORTED;
}

/* Does the work now, and puts the last one into its place. */
static halay_done_t flight_finish(struct late *late, uint32_t which)
{
    const struct flight flight = late->flights[which];
    if (!flight.status && !flight.parts)
        perform(late, &flight.work);
    for (uint32_t i = flight.nparts; !flight.status && i-- > 0;) {
        const halay_work_t work = hly_device_part(&flight.parts[i], flight.work.type);
        perform(late, &work);
    }
    free(flight.parts);
    late->flights[which] = late->flights[--late->nflights];
    return (halay_done_t){flight.work.cookie, flight.status};
}

/* Is it, at this poll? */
static bool is_ready(const struct late *late, struct flight *flight, uint64_t now)
{
    if (flight->polls_left == NEVER)
        return false;
    if (late->delay_us_max)
        return now >= flight->ready_ns;
    flight->polls_left -= flight->polls_left > 0;
    return !flight->polls_left;
}

/* Marks of the program's streams that these have come to. */
static int marks_poll(struct late *late, halay_done_t done[], int max)
{
    int n = 0;
    for (uint32_t m = 0; m < late->nmarks && n < max;) {
        const struct mark *mark = &late->marks[m];
        if (__atomic_load_n(&mark->stream->done, __ATOMIC_ACQUIRE) < mark->number) {
            m++;
            continue;
        }
        done[n++] = (halay_done_t){mark->cookie, HALAY_OK};
        late->marks[m] = late->marks[--late->nmarks];
    }
    return n;
}

static int late_poll(halay_device_t *device, halay_done_t done[], int max)
{
    struct late *late = (struct late *)device;
    const uint64_t now = late->delay_us_max ? now_ns() : 0;
    uint32_t nready = 0;
    int n = 0;

    assert(late && late->nflights <= late->capacity);
    if (max < 0 || (max > 0 && !done))
        return HALAY_EINVAL;
    if (late->breaks && late->nlaunched >= late->breaks)
        return HALAY_EDEVICE;
    n = marks_poll(late, done, max);
    /* The ready ones to the front. */
    for (uint32_t f = 0; f < late->nflights; f++) {
        if (!is_ready(late, &late->flights[f], now))
            continue;
        const struct flight flight = late->flights[f];
        late->flights[f] = late->flights[nready];
        late->flights[nready++] = flight;
    }
    while (n < max && nready > 0) {
        uint32_t which = random_below(late, nready--);
        struct flight flight = late->flights[which];
        late->flights[which] = late->flights[nready];
        late->flights[nready] = flight;
        done[n++] = flight_finish(late, nready);
    }
    return n;
}

static int late_arm(halay_device_t *device, int *fd)
{
    struct late *late = (struct late *)device;
    uint64_t first = UINT64_MAX;
    if (late->timer < 0)
        return HALAY_EUNSUPPORTED;
    if (late->breaks && late->nlaunched >= late->breaks)
        return HALAY_EAGAIN;
    for (uint32_t f = 0; f < late->nflights; f++)
        if (late->flights[f].polls_left != NEVER && late->flights[f].ready_ns < first)
            first = late->flights[f].ready_ns;
    if (first <= now_ns())
        return HALAY_EAGAIN;
    if (first == UINT64_MAX)
        first = 0; /* none: the timer is off */
    const struct itimerspec when = {
        .it_value = {(time_t)(first / 1000000000u), (long)(first % 1000000000u)}};
    if (timerfd_settime(late->timer, TFD_TIMER_ABSTIME, &when, NULL))
        return HALAY_EAGAIN;
    *fd = late->timer;
    return HALAY_OK;
}

static int late_stop(halay_device_t *device, uint64_t cookie, uint64_t timeout_ns)
{
    struct late *late = (struct late *)device;
    uint32_t which = 0;
    (void)timeout_ns;
    for (uint32_t m = 0; m < late->nmarks; m++)
        if (late->marks[m].cookie == cookie) {
            late->marks[m] = late->marks[--late->nmarks];
            return HALAY_OK;
        }
    while (which < late->nflights && late->flights[which].work.cookie != cookie)
        which++;
    assert(which < late->nflights);
    free(late->flights[which].parts);
    late->flights[which] = late->flights[--late->nflights];
    return late->stubborn ? HALAY_EDEVICE : HALAY_OK;
}

static int late_follow(halay_device_t *device, const halay_stream_t *stream, uint64_t cookie)
{
    struct late *late = (struct late *)device;
    const struct hly_late_stream *s = stream->handle;
    if (!late->own_memory)
        return HALAY_EUNSUPPORTED;
    if (!s || s->magic != HLY_LATE_STREAM)
        return HALAY_EINVAL;
    const uint32_t put = __atomic_load_n(&s->put, __ATOMIC_ACQUIRE);
    if (!cookie || __atomic_load_n(&s->done, __ATOMIC_ACQUIRE) >= put)
        return HALAY_OK;
    if (late->nmarks == MARKS)
        return HALAY_EAGAIN;
    late->marks[late->nmarks++] = (struct mark){cookie, s, put};
    return HALAY_INPROGRESS;
}

static int late_gate(halay_device_t *device, const halay_stream_t *stream, uint32_t *gate)
{
    struct late *late = (struct late *)device;
    struct hly_late_stream *s = stream->handle;
    uint32_t g = 0;
    if (!late->own_memory || !s->gate)
        return HALAY_EUNSUPPORTED;
    while (g < MARKS && late->gates[g].stream)
        g++;
    if (g == MARKS)
        return HALAY_EAGAIN;
    if (!gate)
        return HALAY_OK;
    late->gates[g] = (struct gate){s, ++late->ngates};
    s->gate(s, late->ngates, false);
    *gate = g;
    return HALAY_OK;
}

static void late_gate_open(halay_device_t *device, uint32_t gate)
{
    struct gate *g = &((struct late *)device)->gates[gate];
    assert(g->stream);
    g->stream->gate(g->stream, g->number, true);
    g->stream = NULL;
}

static int late_gate_word(halay_device_t *device, uint32_t gate, uint64_t *at, uint64_t *value)
{
    (void)device, (void)gate, (void)at, (void)value;
    return HALAY_EUNSUPPORTED;
}

static const char *late_why(halay_device_t *device)
{
    (void)device;
    return "";
}

static void late_close(halay_device_t *device)
{
    struct late *late = (struct late *)device;
    if (!late)
        return;
    assert(late->nflights == 0 && late->nmarks == 0);
    while (late->blocks) { /* work that could not be stopped may write there */
        struct block *b = late->blocks;
        assert(late->stubborn);
        late->blocks = b->next;
        free(b);
    }
    if (late->timer >= 0)
        close(late->timer);
    hly_device_host.close(late->host);
    free(late);
}

static int late_export(halay_device_t *device, const void *address, size_t bytes, uint32_t opens,
                       halay_export_t *exported)
{
    (void)device, (void)address, (void)bytes, (void)opens, (void)exported;
    return HALAY_EUNSUPPORTED;
}

static int late_flush(halay_device_t *device)
{
    (void)device;
    return HALAY_EUNSUPPORTED;
}

const halay_device_ops_t hly_device_late = {
    .size = sizeof(halay_device_ops_t),
    .name = "late",
    .open = late_open,
    .query = late_query,
    .alloc = late_alloc,
    .free = late_free,
    .launch = late_launch,
    .bind = late_bind,
    .poll = late_poll,
    .arm = late_arm,
    .stop = late_stop,
    .follow = late_follow,
    .why = late_why,
    .close = late_close,
    .export_mem = late_export,
    .flush = late_flush,
    .gate = late_gate,
    .gate_open = late_gate_open,
    .gate_word = late_gate_word,
    .launch_list = late_launch_list,
};
