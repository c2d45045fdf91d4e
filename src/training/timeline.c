/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - takes records while a timeline is on, and its life. A record that finds the ring
 * full is lost, and counted: who puts it in never waits.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "timeline.h"

#define TICK_NS UINT64_C(50000000) /* the writer looks so often */
#define NICE    19                 /* and gives way to the program */

/* ------------------------------------------------------------------ records; lock held */

/* The place of the next record; NULL: there is none. It is filled, then put in. */
static struct hly_timed *next(struct hly_timeline *timeline)
{
    uint64_t head = atomic_load_explicit(&timeline->head, memory_order_relaxed);
    /* Pairs with the writer's release: it has read what stood there. */
    uint64_t tail = atomic_load_explicit(&timeline->tail, memory_order_acquire);
    if (head - tail == HLY_TIMELINE_RECORDS) {
        timeline->lost++;
        return NULL;
    }
    return &timeline->ring[head % HLY_TIMELINE_RECORDS];
}

static void put(struct hly_timeline *timeline)
{
    uint64_t head = atomic_load_explicit(&timeline->head, memory_order_relaxed);
    timeline->recorded++;
    /* Pairs with the writer's acquire: the record is whole. */
    atomic_store_explicit(&timeline->head, head + 1, memory_order_release);
}

static char *labelled(const halay_trainer_t *trainer, const struct hly_tensor *tensor)
{
    char name[sizeof(trainer->label) + HALAY_TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%s", trainer->label, tensor->name);
    return strdup(name);
}

/* The row of a name. *text: a copy of a name that is new. */
static uint32_t row_of(const halay_trainer_t *trainer, const struct hly_tensor *tensor, char **text)
{
    struct hly_timeline *timeline = trainer->timeline;
    uint64_t hash = tensor->node.hash ^ trainer->label_hash;
    struct hly_known *known = &timeline->known[hash % HLY_TIMELINE_KNOWN];
    *text = NULL;
    if (known->hash == hash)
        return (uint32_t)known->row;
    struct hly_row *row = (struct hly_row *)hly_tensor_map_find(&timeline->rows, hash);
    if (row) {
        *known = (struct hly_known){hash, row->number};
        return row->number;
    }
    if (timeline->nrows == HLY_TIMELINE_ROWS || !(row = calloc(1, sizeof(*row))))
        return HLY_TIMELINE_ROWS;
    row->node.hash = hash;
    row->number = timeline->nrows++;
    hly_tensor_map_add(&timeline->rows, &row->node);
    *text = labelled(trainer, tensor);
    return row->number;
}

/* ------------------------------------------------------------------ records; mutex held */

void hly_timeline_tensor(halay_trainer_t *trainer, const struct hly_tensor *tensor, int code,
                         uint64_t end_ns)
{
    char *name;
    struct hly_timeline *timeline = trainer->timeline;
    pthread_mutex_lock(&timeline->lock);
    struct hly_timed *timed = next(timeline);
    if (timed) {
        uint32_t row = row_of(trainer, tensor, &name);
        *timed = (struct hly_timed){
            .kind = HLY_RECORD_TENSOR,
            .what = (uint8_t)tensor->kind,
            .buffer = (uint16_t)tensor->buffer,
            .row = row,
            .ns = {tensor->submit_ns, tensor->ready_ns,
                   tensor->start_ns ? tensor->start_ns : end_ns, end_ns},
            .bytes = tensor->count * halay_type_bytes(tensor->type),
            .name = name,
            .code = code,
        };
        put(timeline);
    }
    pthread_mutex_unlock(&timeline->lock);
}

/* what->name is the record's from here on. */
static void record_held(halay_trainer_t *trainer, const struct hly_timed *what)
{
    struct hly_timeline *timeline = trainer->timeline;
    struct hly_timed *timed = NULL;
    if (timeline) {
        pthread_mutex_lock(&timeline->lock);
        if ((timed = next(timeline)) != NULL) {
            *timed = *what;
            put(timeline);
        }
        pthread_mutex_unlock(&timeline->lock);
    }
    if (!timed)
        free(what->name);
}

static void record(halay_trainer_t *trainer, const struct hly_timed *what)
{
    pthread_mutex_lock(&trainer->mutex);
    record_held(trainer, what);
    pthread_mutex_unlock(&trainer->mutex);
}

/* ------------------------------------------------------------------ records; stepper */

int hly_timeline_recording(const struct hly_timeline *timeline)
{
    return !timeline ? 0 : timeline->mark_cycles ? HLY_RECORDING_CYCLES : 1;
}

void hly_timeline_fused(halay_trainer_t *trainer, const struct hly_flight *flight, int kind,
                        uint64_t reduced_ns, uint32_t tensors, uint64_t bytes)
{
    if (trainer->recording && flight->packed_ns)
        record(trainer, &(struct hly_timed){.kind = HLY_RECORD_FUSED,
                                            .what = (uint8_t)kind,
                                            .buffer = (uint16_t)flight->slot,
                                            .ns = {flight->begin_ns, flight->packed_ns, reduced_ns,
                                                   hly_trainer_now_ns()},
                                            .bytes = bytes,
                                            .count = tensors});
}

void hly_timeline_vote(halay_trainer_t *trainer, const struct hly_flight *flight)
{
    if (trainer->recording && flight->begin_ns)
        record(trainer, &(struct hly_timed){.kind = HLY_RECORD_VOTE,
                                            .ns = {flight->begin_ns, hly_trainer_now_ns()},
                                            .count = flight->group->count});
}

void hly_timeline_round(halay_trainer_t *trainer)
{
    if (trainer->recording && trainer->round_ns)
        record(trainer,
               &(struct hly_timed){.kind = HLY_RECORD_ROUND,
                                   .ns = {trainer->round_ns, hly_trainer_now_ns()},
                                   .count = (uint32_t)trainer->blocks[trainer->rank].count});
}

void hly_timeline_cycle(halay_trainer_t *trainer)
{
    if (trainer->recording == HLY_RECORDING_CYCLES)
        record(trainer,
               &(struct hly_timed){.kind = HLY_RECORD_CYCLE, .ns = {hly_trainer_now_ns()}});
}

void hly_timeline_void(halay_trainer_t *trainer)
{
    if (trainer->recording)
        record(trainer, &(struct hly_timed){.kind = HLY_RECORD_VOID, .ns = {hly_trainer_now_ns()}});
}

/* ------------------------------------------------------------------ life */

static void *write_all(void *arg)
{
    struct hly_timeline *timeline = arg;
    pthread_setname_np(pthread_self(), "halay-timeline");
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* on Linux: of this thread */
    pthread_mutex_lock(&timeline->lock);
    while (!timeline->stop) {
        struct timespec until = hly_trainer_until(TICK_NS);
        pthread_cond_timedwait(&timeline->ended, &timeline->lock, &until);
        pthread_mutex_unlock(&timeline->lock);
        hly_timeline_drain(timeline);
        pthread_mutex_lock(&timeline->lock);
    }
    pthread_mutex_unlock(&timeline->lock);
    return NULL;
}

static int timeline_create(const char *path, struct hly_timeline **out)
{
    struct hly_timeline *timeline = calloc(1, sizeof(*timeline));
    if (!timeline)
        return HALAY_ENOMEM;
    int rc = HALAY_ENOMEM;
    if (!(timeline->ring = aligned_alloc(sizeof(*timeline->ring),
                                         HLY_TIMELINE_RECORDS * sizeof(*timeline->ring))))
        goto free_timeline;
    if (hly_tensor_map_init(&timeline->rows) || hly_cond_create(&timeline->ended))
        goto free_ring;
    pthread_mutex_init(&timeline->lock, NULL);
    timeline->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (timeline->fd >= 0) {
        *out = timeline;
        return 0;
    }
    rc = HALAY_EINVAL;
    pthread_mutex_destroy(&timeline->lock);
    pthread_cond_destroy(&timeline->ended);

free_ring:
    hly_tensor_map_finish(&timeline->rows, hly_node_free);
    free(timeline->ring);
free_timeline:
    free(timeline);
    return rc;
}

static void timeline_free(struct hly_timeline *timeline)
{
    close(timeline->fd);
    pthread_mutex_destroy(&timeline->lock);
    pthread_cond_destroy(&timeline->ended);
    hly_tensor_map_finish(&timeline->rows, hly_node_free);
    free(timeline->ring);
    free(timeline);
}

/* Who leaves last ends it. */
static void timeline_leave(struct hly_timeline *timeline, halay_timeline_result_t *result)
{
    pthread_mutex_lock(&timeline->lock);
    int last = !--timeline->refs;
    timeline->stop = last;
    if (last)
        pthread_cond_signal(&timeline->ended);
    if (result) {
        result->recorded = timeline->recorded;
        result->lost = timeline->lost;
        result->error = 0;
    }
    pthread_mutex_unlock(&timeline->lock);
    if (!last)
        return;
    pthread_join(timeline->thread, NULL);
    hly_timeline_drain(timeline);
    timeline->stopped_ns = hly_trainer_now_ns();
    hly_timeline_end(timeline);
    if (result)
        result->error = timeline->error;
    timeline_free(timeline);
}

int halay_trainer_timeline_start(halay_trainer_t *trainer, const char *path, int mark_cycles)
{
    struct hly_timeline *timeline;
    halay_topology_t topology = {.size = sizeof(topology)};
    if (!trainer || !path || !path[0])
        return HALAY_EINVAL;
    int rc = hly_trainer_enter(trainer);
    if (rc)
        return rc;
    if (trainer->timeline)
        return hly_trainer_leave(trainer, HALAY_ESTATE);
    if ((rc = timeline_create(path, &timeline)) != 0)
        return hly_trainer_leave(trainer, rc);
    halay_context_topology(trainer->context, &topology);
    timeline->rank = topology.rank;
    timeline->offset_ns = trainer->clock.offset_ns;
    timeline->mark_cycles = mark_cycles;
    timeline->refs = 1;
    hly_timeline_begin(timeline, trainer->greetings[trainer->rank].host, trainer->clock.error_ns);
    if ((rc = hly_thread_start(&timeline->thread, write_all, timeline)) != 0)
        timeline_free(timeline);
    else
        trainer->timeline = timeline;
    return hly_trainer_leave(trainer, rc);
}

int halay_trainer_timeline_share(halay_trainer_t *trainer, halay_trainer_t *of, const char *label)
{
    if (!trainer || !of || trainer == of || !label || strlen(label) >= sizeof(trainer->label))
        return HALAY_EINVAL;
    int rc = hly_trainer_enter(of);
    if (rc)
        return rc;
    struct hly_timeline *timeline = of->timeline;
    if (timeline) {
        pthread_mutex_lock(&timeline->lock);
        timeline->refs++;
        pthread_mutex_unlock(&timeline->lock);
    }
    hly_trainer_leave(of, 0);
    if (!timeline)
        return HALAY_ESTATE;
    rc = hly_trainer_enter(trainer);
    if (!rc && trainer->timeline)
        rc = hly_trainer_leave(trainer, HALAY_ESTATE);
    if (rc) {
        timeline_leave(timeline, NULL);
        return rc;
    }
    strcpy(trainer->label, label);
    trainer->label_hash = label[0] ? hly_tensor_hash(label) : 0;
    trainer->timeline = timeline;
    return hly_trainer_leave(trainer, 0);
}

int halay_trainer_timeline_span(halay_trainer_t *trainer, const char *name, uint64_t begin_ns,
                                uint64_t end_ns)
{
    if (!trainer || !name || end_ns < begin_ns)
        return HALAY_EINVAL;
    int rc = hly_trainer_enter(trainer);
    if (rc)
        return rc;
    char *copy = trainer->timeline ? strdup(name) : NULL;
    if (copy)
        record_held(trainer, &(struct hly_timed){
                                 .kind = HLY_RECORD_SPAN, .ns = {begin_ns, end_ns}, .name = copy});
    return hly_trainer_leave(trainer, 0);
}

int halay_trainer_timeline_stop(halay_trainer_t *trainer, halay_timeline_result_t *result)
{
    if (!trainer || (result && result->size < sizeof(*result)))
        return HALAY_EINVAL;
    int rc = hly_trainer_enter(trainer);
    if (rc)
        return rc;
    struct hly_timeline *timeline = trainer->timeline;
    trainer->timeline = NULL; /* from here on it puts nothing in */
    trainer->label[0] = 0;
    trainer->label_hash = 0;
    hly_trainer_leave(trainer, 0);
    if (!timeline)
        return HALAY_ESTATE;
    timeline_leave(timeline, result);
    return 0;
}
