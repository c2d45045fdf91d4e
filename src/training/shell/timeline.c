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
#define NICE    19 /* and gives way to the program, where it cannot do so entirely */

/* ------------------------------------------------------------------ cells; lock held */

/* Room for so many cells, of so many records; 0: there is none, and they are lost. */
static int room(struct hlt_timeline *timeline, uint64_t cells, uint64_t records)
{
    uint64_t head = atomic_load_explicit(&timeline->head, memory_order_relaxed);
    if (timeline->room < head + cells) /* pairs with the writer's release: it has read those */
        timeline->room =
            HLT_TIMELINE_CELLS + atomic_load_explicit(&timeline->tail, memory_order_acquire);
    if (timeline->room >= head + cells)
        return 1;
    timeline->lost += records;
    return 0;
}

static void put(struct hlt_timeline *timeline, uint64_t cells, uint64_t records)
{
    uint64_t head = atomic_load_explicit(&timeline->head, memory_order_relaxed);
    timeline->recorded += records;
    /* Pairs with the writer's acquire: the records are whole. */
    atomic_store_explicit(&timeline->head, head + cells, memory_order_release);
}

static void put_timed(struct hlt_timeline *timeline, const struct hlt_timed *timed,
                      uint64_t records)
{
    hlt_timeline_cell(timeline, atomic_load_explicit(&timeline->head, memory_order_relaxed))
        ->timed = *timed;
    put(timeline, 1, records);
}

/* The row of a name. *text: the name if it is new. */
static uint32_t row_of(const halay_trainer_t *trainer, const struct hlt_tensor *tensor,
                       const char **text)
{
    struct hlt_timeline *timeline = trainer->recording.timeline;
    uint64_t hash = tensor->node.hash ^ trainer->recording.label_hash;
    struct hlt_known *known = &timeline->known[hash % HLT_TIMELINE_KNOWN];
    *text = NULL;
    if (known->hash == hash)
        return (uint32_t)known->row;
    struct hlt_row *row = (struct hlt_row *)hlt_tensor_map_find(&timeline->rows, hash);
    if (row) {
        *known = (struct hlt_known){hash, row->number};
        return row->number;
    }
    size_t bytes = strlen(trainer->recording.label) + strlen(tensor->name) + 1;
    if (timeline->nrows == HLT_TIMELINE_ROWS || !(row = calloc(1, sizeof(*row) + bytes)))
        return HLT_TIMELINE_ROWS;
    snprintf(row->name, bytes, "%s%s", trainer->recording.label, tensor->name);
    row->node.hash = hash;
    row->number = timeline->nrows++;
    hlt_tensor_map_add(&timeline->rows, &row->node);
    *text = row->name;
    return row->number;
}

/* ------------------------------------------------------------------ records; mutex held */

void hlt_timeline_tensor(halay_trainer_t *trainer, const struct hlt_tensor *tensor, int code,
                         uint64_t end_ns)
{
    struct hlt_timeline *timeline = trainer->recording.timeline;
    pthread_mutex_lock(&timeline->lock);
    if (room(timeline, 1, 1)) {
        struct hlt_timed timed = {
            .kind = HLT_RECORD_TENSOR,
            .what = (uint8_t)tensor->kind,
            .buffer = (uint16_t)tensor->buffer,
            .ns = {tensor->submit_ns, tensor->ready_ns,
                   tensor->start_ns ? tensor->start_ns : end_ns, end_ns},
            .bytes = tensor->count * halay_type_bytes(tensor->type),
            .code = (int16_t)code,
        };
        timed.row = row_of(trainer, tensor, &timed.name);
        put_timed(timeline, &timed, 1);
    }
    pthread_mutex_unlock(&timeline->lock);
}

/* text: so many bytes as it counts, for the cells behind the first; or NULL. */
static void record_held(halay_trainer_t *trainer, const struct hlt_timed *what, const char *text)
{
    struct hlt_timeline *timeline = trainer->recording.timeline;
    size_t bytes = text ? what->count : 0, cells = hlt_cells(bytes, HLT_CELL_BYTES);
    if (!timeline)
        return;
    pthread_mutex_lock(&timeline->lock);
    if (room(timeline, 1 + cells, 1)) {
        uint64_t at = atomic_load_explicit(&timeline->head, memory_order_relaxed);
        hlt_timeline_cell(timeline, at)->timed = *what;
        for (; bytes; text += HLT_CELL_BYTES) {
            size_t part = bytes < HLT_CELL_BYTES ? bytes : HLT_CELL_BYTES;
            memcpy(hlt_timeline_cell(timeline, ++at)->text, text, part);
            bytes -= part;
        }
        put(timeline, 1 + cells, 1);
    }
    pthread_mutex_unlock(&timeline->lock);
}

static void record(halay_trainer_t *trainer, const struct hlt_timed *what)
{
    pthread_mutex_lock(&trainer->mutex);
    record_held(trainer, what, NULL);
    pthread_mutex_unlock(&trainer->mutex);
}

/* ------------------------------------------------------------------ groups; lock held */

/* Asks for the rows of its items, once in a timeline. There is room for the names of new ones. */
static void rows_read(halay_trainer_t *trainer, const struct hlt_call *call)
{
    struct hlt_item *item = trainer->core.replay.programme->script.items + call->group->first;
    for (const struct hlt_tensor *t = call->tensors.head; t; t = t->next, item++) {
        struct hlt_timed timed = {.kind = HLT_RECORD_NAME};
        item->row = timed.row = row_of(trainer, t, &timed.name);
        if (timed.name)
            put_timed(trainer->recording.timeline, &timed, 0);
    }
    call->group->timelines = trainer->recording.timelines;
}

/* The call, and its tensors: four in a cell. */
static void group_put(halay_trainer_t *trainer, const struct hlt_call *call,
                      const struct hlt_timed *timed)
{
    struct hlt_timeline *timeline = trainer->recording.timeline;
    uint64_t cells = 1 + hlt_cells(timed->count, HLT_CELL_MEMBERS);
    int known = call->group->timelines == trainer->recording.timelines;
    if (!room(timeline, cells + (known ? 0 : timed->count), 1 + timed->count))
        return;
    if (!known && timed->count)
        rows_read(trainer, call);
    const struct hlt_item *item = trainer->core.replay.programme->script.items + call->group->first;
    const struct hlt_tensor *tensor = call->tensors.head;
    uint64_t at = atomic_load_explicit(&timeline->head, memory_order_relaxed);
    size_t bytes = tensor ? halay_type_bytes(tensor->type) : 0;
    hlt_timeline_cell(timeline, at)->timed = *timed;
    while (tensor) {
        struct hlt_member *member = hlt_timeline_cell(timeline, ++at)->members;
        for (int m = 0; tensor && m < HLT_CELL_MEMBERS; m++, tensor = tensor->next, item++)
            member[m] = (struct hlt_member){tensor->submit_ns, item->row,
                                            (uint32_t)(tensor->count * bytes)};
    }
    put(timeline, cells, 1 + timed->count);
}

/* ------------------------------------------------------------------ records; stepper */

int hlt_timeline_recording(const struct hlt_timeline *timeline)
{
    return !timeline ? 0 : timeline->mark_cycles ? HLT_RECORDING_CYCLES : 1;
}

int hlt_timeline_fused(halay_trainer_t *trainer, const struct hlt_call *call, uint64_t end_ns)
{
    const struct hlt_tensor *first = call->tensors.head;
    struct hlt_timed timed = {
        .kind = HLT_RECORD_FUSED,
        .what = HLT_KIND_ALLREDUCE,
        .buffer = (uint16_t)call->buffer,
        .ns = {call->begin_ns, call->packed_ns, call->reduced_ns, end_ns},
        .bytes = first ? call->count * halay_type_bytes(first->type) : 0,
        .listed = call->group != NULL,
    };
    if (!end_ns || !call->packed_ns)
        return 0;
    timed.count = timed.listed && first ? call->group->count : 0;
    for (; !timed.listed && first; first = first->next)
        timed.count++;
    pthread_mutex_lock(&trainer->mutex);
    if (!timed.listed) {
        record_held(trainer, &timed, NULL);
    } else if (trainer->recording.timeline) {
        pthread_mutex_lock(&trainer->recording.timeline->lock);
        group_put(trainer, call, &timed);
        pthread_mutex_unlock(&trainer->recording.timeline->lock);
    }
    pthread_mutex_unlock(&trainer->mutex);
    return timed.listed;
}

void hlt_timeline_vote(halay_trainer_t *trainer, const struct hlt_call *call)
{
    if (trainer->recording.on && call->begin_ns)
        record(trainer, &(struct hlt_timed){.kind = HLT_RECORD_VOTE,
                                            .ns = {call->begin_ns, hlt_trainer_now_ns()},
                                            .count = call->group->count});
}

void hlt_timeline_round(halay_trainer_t *trainer)
{
    if (trainer->recording.on && trainer->recording.round_ns)
        record(trainer,
               &(struct hlt_timed){
                   .kind = HLT_RECORD_ROUND,
                   .ns = {trainer->recording.round_ns, hlt_trainer_now_ns()},
                   .count = (uint32_t)trainer->core.rounds.blocks[trainer->core.rank].count});
}

void hlt_timeline_cycle(halay_trainer_t *trainer)
{
    if (trainer->recording.on == HLT_RECORDING_CYCLES)
        record(trainer,
               &(struct hlt_timed){.kind = HLT_RECORD_CYCLE, .ns = {hlt_trainer_now_ns()}});
}

void hlt_timeline_void(halay_trainer_t *trainer)
{
    if (trainer->recording.on)
        record(trainer, &(struct hlt_timed){.kind = HLT_RECORD_VOID, .ns = {hlt_trainer_now_ns()}});
}

/* ------------------------------------------------------------------ life */

/* Only where a processor would be idle, if the system lets it: the program waits for nothing of it.
 */
static void *write_all(void *arg)
{
    struct hlt_timeline *timeline = arg;
    pthread_setname_np(pthread_self(), "halay-timeline");
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* on Linux: of this thread */
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &(struct sched_param){0});
    while (!atomic_load_explicit(&timeline->stop, memory_order_relaxed)) {
        struct timespec until = hlt_trainer_until(TICK_NS);
        pthread_mutex_lock(&timeline->ending);
        if (!atomic_load_explicit(&timeline->stop, memory_order_relaxed))
            pthread_cond_timedwait(&timeline->ended, &timeline->ending, &until);
        pthread_mutex_unlock(&timeline->ending);
        hlt_timeline_drain(timeline, 1);
    }
    return NULL;
}

static void locks_free(struct hlt_timeline *timeline)
{
    pthread_mutex_destroy(&timeline->lock);
    pthread_mutex_destroy(&timeline->ending);
    pthread_cond_destroy(&timeline->ended);
}

static int timeline_create(const char *path, struct hlt_timeline **out)
{
    struct hlt_timeline *timeline = calloc(1, sizeof(*timeline));
    if (!timeline)
        return HALAY_ENOMEM;
    int rc = HALAY_ENOMEM;
    if (!(timeline->ring =
              aligned_alloc(sizeof(*timeline->ring), HLT_TIMELINE_CELLS * sizeof(*timeline->ring))))
        goto free_timeline;
    memset(timeline->ring, 0, HLT_TIMELINE_CELLS * sizeof(*timeline->ring)); /* now, not in steps */
    timeline->room = HLT_TIMELINE_CELLS;
    if (hlt_tensor_map_init(&timeline->rows) || hlt_cond_create(&timeline->ended))
        goto free_ring;
    pthread_mutex_init(&timeline->lock, NULL);
    pthread_mutex_init(&timeline->ending, NULL);
    timeline->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (timeline->fd >= 0) {
        *out = timeline;
        return 0;
    }
    rc = HALAY_EINVAL;
    locks_free(timeline);

free_ring:
    hlt_tensor_map_finish(&timeline->rows, hlt_node_free);
    free(timeline->ring);
free_timeline:
    free(timeline);
    return rc;
}

static void timeline_free(struct hlt_timeline *timeline)
{
    close(timeline->fd);
    locks_free(timeline);
    hlt_tensor_map_finish(&timeline->rows, hlt_node_free);
    free(timeline->ring);
    free(timeline);
}

/* The last one that leaves ends it. */
static void timeline_leave(struct hlt_timeline *timeline, halay_timeline_result_t *result)
{
    pthread_mutex_lock(&timeline->lock);
    int last = !--timeline->refs;
    if (result) {
        result->recorded = timeline->recorded;
        result->lost = timeline->lost;
        result->error = 0;
    }
    pthread_mutex_unlock(&timeline->lock);
    if (!last)
        return;
    pthread_mutex_lock(&timeline->ending);
    atomic_store_explicit(&timeline->stop, 1, memory_order_relaxed);
    pthread_cond_signal(&timeline->ended);
    pthread_mutex_unlock(&timeline->ending);
    pthread_join(timeline->thread, NULL);
    hlt_timeline_drain(timeline, 0); /* the rest is written by this thread */
    timeline->stopped_ns = hlt_trainer_now_ns();
    hlt_timeline_end(timeline);
    if (result)
        result->error = timeline->error;
    timeline_free(timeline);
}

/* Mutex held. */
static void timeline_take(halay_trainer_t *trainer, struct hlt_timeline *timeline)
{
    trainer->recording.timeline = timeline;
    trainer->recording.timelines++;
}

int halay_trainer_timeline_start(halay_trainer_t *trainer, const char *path, int mark_cycles)
{
    struct hlt_timeline *timeline;
    halay_topology_t topology = {.size = sizeof(topology)};
    if (!trainer || !path || !path[0])
        return HALAY_EINVAL;
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    if (trainer->recording.timeline)
        return hlt_trainer_leave(trainer, HALAY_ESTATE);
    if ((rc = timeline_create(path, &timeline)) != 0)
        return hlt_trainer_leave(trainer, rc);
    halay_context_topology(trainer->context, &topology);
    timeline->rank = topology.rank;
    timeline->offset_ns = trainer->recording.clock.offset_ns;
    timeline->mark_cycles = mark_cycles;
    timeline->refs = 1;
    hlt_timeline_begin(timeline, trainer->core.greetings[trainer->core.rank].host,
                       trainer->recording.clock.error_ns);
    if ((rc = hlt_thread_start(&timeline->thread, write_all, timeline)) != 0)
        timeline_free(timeline);
    else
        timeline_take(trainer, timeline);
    return hlt_trainer_leave(trainer, rc);
}

int halay_trainer_timeline_share(halay_trainer_t *trainer, halay_trainer_t *of, const char *label)
{
    if (!trainer || !of || trainer == of || !label ||
        strlen(label) >= sizeof(trainer->recording.label))
        return HALAY_EINVAL;
    int rc = hlt_trainer_enter(of);
    if (rc)
        return rc;
    struct hlt_timeline *timeline = of->recording.timeline;
    if (timeline) {
        pthread_mutex_lock(&timeline->lock);
        timeline->refs++;
        pthread_mutex_unlock(&timeline->lock);
    }
    hlt_trainer_leave(of, 0);
    if (!timeline)
        return HALAY_ESTATE;
    rc = hlt_trainer_enter(trainer);
    if (!rc && trainer->recording.timeline)
        rc = hlt_trainer_leave(trainer, HALAY_ESTATE);
    if (rc) {
        timeline_leave(timeline, NULL);
        return rc;
    }
    strcpy(trainer->recording.label, label);
    trainer->recording.label_hash = label[0] ? hlt_tensor_hash(label) : 0;
    timeline_take(trainer, timeline);
    return hlt_trainer_leave(trainer, 0);
}

int halay_trainer_timeline_span(halay_trainer_t *trainer, const char *name, uint64_t begin_ns,
                                uint64_t end_ns)
{
    if (!trainer || !name || end_ns < begin_ns)
        return HALAY_EINVAL;
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    size_t bytes = strlen(name);
    struct hlt_timed timed = {
        .kind = HLT_RECORD_SPAN, .ns = {begin_ns, end_ns}, .count = (uint32_t)bytes};
    if (bytes <= UINT32_MAX)
        record_held(trainer, &timed, name);
    return hlt_trainer_leave(trainer, 0);
}

int halay_trainer_timeline_stop(halay_trainer_t *trainer, halay_timeline_result_t *result)
{
    halay_timeline_result_t all = {0};
    if (!trainer || (result && (!result->size || result->size % sizeof(size_t))))
        return HALAY_EINVAL;
    int rc = hlt_trainer_enter(trainer);
    if (rc)
        return rc;
    struct hlt_timeline *timeline = trainer->recording.timeline;
    trainer->recording.timeline = NULL; /* from here on it puts nothing in */
    trainer->recording.label[0] = 0;
    trainer->recording.label_hash = 0;
    hlt_trainer_leave(trainer, 0);
    if (!timeline)
        return HALAY_ESTATE;
    timeline_leave(timeline, &all);
    if (result) { /* of a program built with another header: what fits */
        all.size = result->size < sizeof(all) ? result->size : sizeof(all);
        memcpy(result, &all, all.size);
    }
    return 0;
}
