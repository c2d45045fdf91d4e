/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c - gates in streams of the program. The stream waits for a word in pinned memory, which the
 * processor writes: so a gate is opened whatever has become of the GPU. A library's work on the GPU
 * may have written the same value before. CUDA does not see what the
 * word depends on: docs/decisions/streams.md#0066.
 */
#include <assert.h>
#include <stdio.h>
#include <time.h>

#include "device/cuda/gpu.h"

#define PASSED_TRIES 1000 /* of 100 us, for streams to pass gates that are open */

/* With the GPU's context. */
static int shut(struct hly_gpu *gpu, uint32_t which, void *stream)
{
    const struct hly_cuda_driver *d = &gpu->driver;
    struct hly_gpu_gate *g = &gpu->gates[which];
    int rc = g->passed ? HLY_CU_OK : d->cuEventCreate(&g->passed, HLY_CU_DISABLE_TIMING);
    if (rc) {
        g->passed = NULL;
        return hly_gpu_failed(gpu, "cuEventCreate", rc);
    }
    rc = d->cuStreamWaitValue64_v2(stream, gpu->gate_words_at + which * sizeof(uint64_t), ++g->turn,
                                   0);
    g->shut = true;
    const bool put = !rc;
    if (put)
        rc = d->cuEventRecord(g->passed, stream);
    if (!rc)
        return HALAY_OK;
    gpu->gates_stay |= put; /* it is not known when the stream passes it */
    hly_gpu_gate_open(gpu, which);
    return hly_gpu_failed(gpu, "cuStreamWaitValue64 or cuEventRecord", rc);
}

int hly_gpu_gate(struct hly_gpu *gpu, const halay_stream_t *stream, uint32_t *gate)
{
    uint32_t which = 0;
    if (gpu->lost || gpu->broken || !gpu->context)
        return HALAY_EDEVICE;
    if (gpu->no_words) {
        snprintf(
            gpu->why, sizeof(gpu->why),
            "streams of GPU %d cannot wait for a word (CAN_USE_64_BIT_STREAM_MEM_OPS, a driver "
            "of CUDA 11.7): leave HALAY_STREAM_RETURNS out",
            gpu->ordinal);
        return HALAY_EUNSUPPORTED;
    }
    while (which < HLY_GPU_GATES && gpu->gates[which].shut)
        which++;
    if (which == HLY_GPU_GATES)
        return HALAY_EAGAIN;
    int rc = hly_gpu_enter(gpu);
    if (rc)
        return rc;
    rc = hly_gpu_stream_check(gpu, stream->handle);
    if (!rc && !gpu->gate_words)
        rc = hly_gpu_words_make(gpu, HLY_GPU_GATES * sizeof(uint64_t), &gpu->gate_words,
                                &gpu->gate_words_at);
    if (!rc && gate) {
        rc = shut(gpu, which, stream->handle);
        *gate = which;
    }
    hly_gpu_leave(gpu);
    return rc;
}

/* Pairs with the wait of the stream. */
void hly_gpu_gate_open(struct hly_gpu *gpu, uint32_t gate)
{
    struct hly_gpu_gate *g = &gpu->gates[gate];
    assert(gate < HLY_GPU_GATES && g->shut);
    __atomic_store_n(&gpu->gate_words[gate], g->turn, __ATOMIC_RELEASE);
    g->shut = false;
}

void hly_gpu_gate_word(const struct hly_gpu *gpu, uint32_t gate, uint64_t *at, uint64_t *value)
{
    assert(gate < HLY_GPU_GATES && gpu->gates[gate].shut);
    *at = gpu->gate_words_at + gate * sizeof(uint64_t);
    *value = gpu->gates[gate].turn;
}

void hly_gpu_gates_free(struct hly_gpu *gpu)
{
    const struct timespec pause = {.tv_nsec = 100000};
    int tries = 0;
    for (int i = 0; i < HLY_GPU_GATES; i++) {
        struct hly_gpu_gate *g = &gpu->gates[i];
        int rc = g->passed ? HLY_CU_NOT_READY : HLY_CU_OK;
        assert(!g->shut);
        while (rc == HLY_CU_NOT_READY && tries++ < PASSED_TRIES) {
            rc = gpu->driver.cuEventQuery(g->passed);
            if (rc == HLY_CU_NOT_READY)
                nanosleep(&pause, NULL);
        }
        gpu->gates_stay |= rc == HLY_CU_NOT_READY;
        if (g->passed)
            gpu->driver.cuEventDestroy_v2(g->passed);
        g->passed = NULL;
    }
    if (gpu->gate_words && !gpu->gates_stay)
        gpu->driver.cuMemFreeHost(gpu->gate_words);
    gpu->gate_words = NULL;
}
