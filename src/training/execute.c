/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.c - runs what is ready, in the order in which it became ready, which is the same on all
 * ranks; so the k-th operation on the data communicator is the same on all. An operation that
 * cannot be started here would shift that order: then no later one is started.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

void hly_trainer_verdict(const halay_comm_t *comm, int code, char *text, size_t bytes)
{
    halay_verdict_t verdict = {.size = sizeof(verdict)};
    int known = !halay_comm_verdict(comm, &verdict) && verdict.code == code && verdict.text[0];
    snprintf(text, bytes, "%s", known ? verdict.text : halay_strerror(code));
}

static int allreduce_start(halay_trainer_t *trainer, struct hly_tensor *tensor)
{
    const void *in = tensor->in == tensor->out ? HALAY_IN_PLACE : tensor->in;
    if (tensor->prescale != 1) {
        halay_scale(tensor->out, tensor->in, tensor->count, tensor->type, tensor->prescale);
        in = HALAY_IN_PLACE;
    }
    return halay_iallreduce(in, tensor->out, tensor->count, tensor->type, tensor->op, trainer->data,
                            &tensor->request);
}

/* All ranks know the same rows, so all come to the same counts, or to the same overflow. */
static int allgather_counts(halay_trainer_t *trainer, struct hly_tensor *tensor, size_t *bytes)
{
    size_t total = 0;
    for (int r = 0; r < trainer->nranks; r++) {
        if (__builtin_mul_overflow(tensor->record->rows[r], tensor->says.count,
                                   &trainer->counts[r]) ||
            __builtin_add_overflow(total, trainer->counts[r], &total))
            return HALAY_EINVAL;
    }
    tensor->result_count = total;
    if (__builtin_mul_overflow(total, halay_type_bytes(tensor->type), bytes) ||
        *bytes > PTRDIFF_MAX - 64)
        return HALAY_EINVAL;
    return 0;
}

/* Without memory the call is made all the same, without a buffer: it then fails on all ranks. */
static int allgather_start(halay_trainer_t *trainer, struct hly_tensor *tensor, size_t bytes)
{
    tensor->rows = malloc((size_t)trainer->nranks * sizeof(*tensor->rows));
    tensor->result = tensor->rows ? aligned_alloc(64, (bytes + 64) / 64 * 64) : NULL;
    for (int r = 0; tensor->rows && r < trainer->nranks; r++)
        tensor->rows[r] = (size_t)tensor->record->rows[r];
    return halay_iallgatherv(tensor->in, tensor->result, trainer->counts, NULL, tensor->type,
                             trainer->data, &tensor->request);
}

static void failed(halay_trainer_t *trainer, struct hly_tensor *tensor, int code)
{
    char text[HLY_TEXT_BYTES], verdict[HLY_TEXT_BYTES - HALAY_TENSOR_NAME_MAX - 16];
    hly_trainer_verdict(trainer->data, code, verdict, sizeof(verdict));
    snprintf(text, sizeof(text), "tensor '%s': %s", tensor->name, verdict);
    hly_tensor_done(trainer, tensor, code, text);
}

/* Returns 1 if it is in flight. */
static int tensor_start(halay_trainer_t *trainer, struct hly_tensor *tensor)
{
    int rc;
    size_t bytes = 0;
    tensor->start_ns = hly_trainer_now_ns();
    if (tensor->kind == HLY_KIND_ALLREDUCE) {
        rc = allreduce_start(trainer, tensor);
    } else if (tensor->kind == HLY_KIND_BROADCAST) {
        rc = halay_ibroadcast(tensor->out, tensor->count, tensor->type, tensor->root, trainer->data,
                              &tensor->request);
    } else if (allgather_counts(trainer, tensor, &bytes)) {
        hly_tensor_done(trainer, tensor, HALAY_EINVAL,
                        "the gathered rows exceed the address space");
        return 0;
    } else {
        rc = allgather_start(trainer, tensor, bytes);
    }
    if (!rc)
        return 1;
    tensor->request = NULL;
    failed(trainer, tensor, rc);
    trainer->data_broken = rc;
    return 0;
}

static void ready_start(halay_trainer_t *trainer)
{
    struct hly_tensor *tensor;
    while (trainer->nflights < HLY_FLIGHTS &&
           (tensor = hly_tensor_list_pop(&trainer->ready)) != NULL) {
        if (trainer->data_broken)
            hly_tensor_done(trainer, tensor, trainer->data_broken,
                            "an earlier operation could not be started on this rank");
        else if (tensor_start(trainer, tensor))
            trainer->flights[trainer->nflights++] = tensor;
    }
    if (trainer->data_broken)
        hly_trainer_break(trainer, trainer->data_broken,
                          "an earlier operation could not be started on this rank");
}

/* Returns 1 if it is over. */
static int flight_test(halay_trainer_t *trainer, struct hly_tensor *tensor)
{
    int rc = halay_request_test(tensor->request);
    if (rc == HALAY_INPROGRESS)
        return 0;
    tensor->request = NULL;
    if (rc) {
        failed(trainer, tensor, rc);
        return 1;
    }
    if (tensor->postscale != 1)
        halay_scale(tensor->out, tensor->out, tensor->count, tensor->type, tensor->postscale);
    hly_tensor_done(trainer, tensor, 0, NULL);
    return 1;
}

void hly_flights_step(halay_trainer_t *trainer)
{
    int over;
    do {
        ready_start(trainer);
        int kept = 0, tested = trainer->nflights;
        for (int i = 0; i < tested; i++) {
            if (!flight_test(trainer, trainer->flights[i]))
                trainer->flights[kept++] = trainer->flights[i];
        }
        trainer->nflights = kept;
        over = tested - kept;
    } while (over && trainer->ready.head);
}
